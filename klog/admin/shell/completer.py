"""What is offered while typing: commands, flags and their values, and the names that a cluster has."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from klog.admin.shell.live_names import LiveNames
from klog.admin.shell.own_commands import OWN
from klog.admin.shell.sql_words import SqlWord, forms_in, names_in, next_words, unfinished_word
from klog.admin.shell.syntax import Statement, statements
from klog.admin.shell.tree import Argument, CommandShape, CommandTree, Flag, Kind, Suggestion, command_path
from klog.admin.shell.using import Using, filled_in, is_left_out, positional
from klog.render.visible import visible

_EXPORT_ROOT = re.compile(r"\bexport\s+\S.*?--to[ =](\S+)|\bexport\s+(?:status|verify|list|compact|gc)\s+(\S+)")


class KlogCompleter(Completer):
    """Completes from the command tree and the live names. ``history`` is where roots of exports are found.

    It waits a moment for names that were never asked for before.
    """

    def __init__(
        self,
        tree: CommandTree,
        names: LiveNames,
        *,
        history: Callable[[], Sequence[str]] = list,
        using: Callable[[], Using | None] = lambda: None,
    ) -> None:
        self._tree = tree
        self._history = history
        self._using = using
        self._names = names
        self._files = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Completions of the word before the cursor."""
        text = document.text_before_cursor
        statement = _last(text)
        if statement is None or statement.pipe is not None or statement.system is not None:
            return
        words, unfinished, start = _split(statement, text)
        if statement.redirects:
            yield from self._files.get_completions(Document(statement.file or ""), complete_event)
            return
        if statement.open in ("'", '"') and self._takes_query(words):
            behind = -len(unfinished_word(unfinished))
            for word in self._of_query(unfinished, document.text):
                yield Completion(word.text, start_position=behind, display_meta=visible(word.is_a))
            return
        for candidate in self.candidates(words, unfinished):
            yield Completion(
                _quoted(candidate.text),
                start_position=start - len(text),
                display=visible(candidate.text),
                display_meta=visible(candidate.help),
            )
        if self._takes_file(words, unfinished):
            yield from self._files.get_completions(Document(unfinished), complete_event)

    def candidates(self, words: list[str], unfinished: str) -> list[Suggestion]:
        """What may stand behind ``words`` and begins with ``unfinished``."""
        found = [word for word in self._next(words, unfinished) if word.text.startswith(unfinished)]
        return list({word.text: word for word in found}.values())

    def _next(self, words: list[str], unfinished: str) -> Iterator[Suggestion]:
        words = self._plain(words)
        own = OWN.get(words[0]) if words else None
        if own is not None:
            yield from self._of_own(words)
            return
        path = command_path(self._tree, words)
        shape = self._tree.shape(path)
        if shape is None:
            if len(path) == len(words):
                yield from self._tree.words_after(path)
                if not path:
                    yield from (Suggestion(name, own.help) for name, own in OWN.items())
            return
        rest = words[len(path) :]
        awaited = flag_awaiting_value(shape, rest)
        if awaited is not None:
            yield from self._values(path, awaited, filled_in(path, rest[:-1], shape, self._using()), unfinished)
        elif unfinished.startswith("--") and "=" in unfinished:
            flag = shape.flag(unfinished)
            if flag is not None and flag.takes_value:
                name, _, value = unfinished.partition("=")
                for one in self._values(path, flag, filled_in(path, rest, shape, self._using()), value):
                    yield Suggestion(f"{name}={one.text}", one.help)
        elif unfinished.startswith("-"):
            for flag in shape.flags:
                yield from (Suggestion(text, flag.help) for text in flag.words)
        else:
            number = len(positional(rest, shape))
            using = self._using()
            rests = [rest] if not is_left_out(path, shape, using) or using is None else [rest, [using.name, *rest]]
            for more, behind in enumerate(rests):
                argument = shape.argument(number + more)
                if argument is not None:
                    yield from self._values(path, argument, behind, unfinished)

    def _plain(self, words: list[str]) -> list[str]:
        """The words without ``klog`` and ``help``."""
        return words[1:] if words and words[0] in ("klog", "help", "\\h") else words

    def _of_own(self, words: list[str]) -> Iterator[Suggestion]:
        name, own = words[0], OWN[words[0]]
        if len(words) == 1 and own.names is not None:
            for kind in ("topics", "groups") if name == "use" else (own.names,):
                yield from (Suggestion(one, kind) for one in self._names.soon(kind))

    def _values(
        self, path: tuple[str, ...], taker: Flag | Argument, rest: list[str], unfinished: str
    ) -> Iterator[Suggestion]:
        """Values that a flag or an argument takes."""
        if taker.kind is Kind.EXPORT:
            yield from (Suggestion(root, "export") for root in self._export_roots())
        else:
            yield from self._tree.offered(path, rest, taker.name, unfinished, self._names.soon)

    def _export_roots(self) -> list[str]:
        roots: dict[str, None] = {}
        for line in self._history():
            roots.update((found[1] or found[2], None) for found in _EXPORT_ROOT.finditer(line))
        return list(roots)

    def _of_query(self, query: str, line: str) -> Iterator[SqlWord]:
        """What may stand next in a query."""
        topics, forms = self._names.soon("views"), forms_in(line)
        columns = {name: self._names.soon("columns", forms.get(name, name)) for name in names_in(query, topics)}
        return next_words(query, topics, columns)

    def _takes_query(self, words: list[str]) -> bool:
        taker = self._taker(self._plain(words))
        return taker is not None and taker.kind is Kind.SQL

    def _takes_file(self, words: list[str], unfinished: str) -> bool:
        words = self._plain(words)
        if words and words[0] in OWN:
            return False
        taker = self._taker(words)
        if isinstance(taker, Argument) and unfinished.startswith("-"):
            return False
        return taker is not None and taker.kind in (Kind.FILE, Kind.EXPORT)

    def _taker(self, words: list[str]) -> Flag | Argument | None:
        """What takes the next word of a command: a flag before it, or an argument. ``words`` are plain."""
        path = command_path(self._tree, words)
        shape = self._tree.shape(path)
        if shape is None:
            return None
        rest = words[len(path) :]
        return flag_awaiting_value(shape, rest) or shape.argument(len(positional(rest, shape)))


def flag_awaiting_value(shape: CommandShape, words: list[str]) -> Flag | None:
    """The flag whose value is written next."""
    flag = shape.flag(words[-1]) if words and words[-1].startswith("-") else None
    return flag if flag is not None and flag.takes_value and words[-1] in flag.words else None


def split_unfinished(text: str) -> tuple[list[str], str]:
    """The whole words of the last statement, and the one that is being written, maybe empty."""
    statement = _last(text)
    if statement is None:
        return [], ""
    return _split(statement, text)[:2]


def _last(text: str) -> Statement | None:
    found = statements(text)
    if not found or (text[found[-1].next - 1 : found[-1].next] in (";", "\n") and not found[-1].open):
        return Statement((), len(text))  # a new one begins
    return found[-1]


def _split(statement: Statement, text: str) -> tuple[list[str], str, int]:
    """The words that are written, the one that is being written, and where that begins."""
    words = statement.texts
    if words and statement.words[-1].end == len(text) and not statement.redirects:
        return words[:-1], words[-1], statement.words[-1].start
    return words, "", len(text)


def _quoted(text: str) -> str:
    """As it must be written where it has spaces or quotes."""
    return text if text.startswith("\\") or re.fullmatch(r"[\w@%+=:,./\\~*-]+", text) else shlex.quote(text)
