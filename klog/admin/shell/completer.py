"""What is offered while typing: commands, flags and their values, and the names that a cluster has."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from klog.admin.shell.catalog import LiveCatalog
from klog.admin.shell.own_commands import OWN
from klog.admin.shell.sql_words import SqlWord, forms_in, names_in, next_words, unfinished_word
from klog.admin.shell.syntax import Statement, statements
from klog.admin.shell.tree import Argument, CommandShape, CommandTree, Flag, Kind, Suggestion, command_path
from klog.admin.shell.using import Using, is_left_out, positional
from klog.render.visible import visible

POSITIONS = ("start", "end", "@-10m", "@-1h", "@-1d", "-10")
RANGES = ("start:", "@-10m:", "@-1h:", "@-1d:", ":end", "-10:")
DURATIONS = ("1s", "5s", "10s", "1m", "10m", "1h")
STATIC = {Kind.POSITION: POSITIONS, Kind.RANGE: RANGES, Kind.DURATION: DURATIONS}
SUBJECTS = {
    "topic": Kind.TOPIC,
    "partition": Kind.TOPIC_PARTITION,
    "group": Kind.GROUP,
    "broker": Kind.BROKER,
    "message": Kind.TOPIC_PARTITION,
    "denied": Kind.OTHER,
    "throttled": Kind.OTHER,
}
"""What `status` takes first, and what follows each."""

_EXPORT_ROOT = re.compile(r"\bexport\s+\S.*?--to[ =](\S+)|\bexport\s+(?:status|verify|list|compact|gc)\s+(\S+)")


class KlogCompleter(Completer):
    """Completes from the command tree and the live names. ``history`` is where roots of exports are found.

    It waits a moment for names that were never asked for before.
    """

    def __init__(
        self,
        tree: CommandTree,
        names: LiveCatalog,
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
                    yield from self._top()
            return
        rest = words[len(path) :]
        awaited = flag_awaiting_value(shape, rest)
        if awaited is not None:
            yield from self._values(path, awaited, rest, shape, unfinished)
        elif unfinished.startswith("--") and "=" in unfinished:
            flag = shape.flag(unfinished)
            if flag is not None and flag.takes_value:
                name, _, value = unfinished.partition("=")
                yield from self._values(path, flag, rest, shape, value, f"{name}=")
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
                    yield from self._values(path, argument, behind, shape, unfinished)

    def _plain(self, words: list[str]) -> list[str]:
        """The words without ``klog`` and ``help``."""
        return words[1:] if words and words[0] in ("klog", "help", "\\h") else words

    def _top(self) -> Iterator[Suggestion]:
        for name, own in OWN.items():
            yield Suggestion(name, own.help)

    def _of_own(self, words: list[str]) -> Iterator[Suggestion]:
        name, own = words[0], OWN[words[0]]
        if name == "use":
            yield from self._live(Kind.TOPIC)
            yield from self._live(Kind.GROUP)
        elif own.kind is not None and len(words) == 1:
            yield from self._live(own.kind)

    def _values(
        self,
        path: tuple[str, ...],
        taker: Flag | Argument,
        rest: list[str],
        shape: CommandShape,
        unfinished: str,
        before: str = "",
    ) -> Iterator[Suggestion]:
        """Values that a flag or an argument takes; ``before`` is what stands before the value in the same word."""
        kind, choices = taker.kind, taker.choices
        listed = unfinished.rpartition(",")[0]
        if listed and kind in (Kind.TOPIC, Kind.BROKER, Kind.PARTITION):
            before += f"{listed},"
        found: Iterable[Suggestion]
        if choices:
            found = [Suggestion(choice, "") for choice in choices]
        elif kind is Kind.SETTING:
            found = self._settings_of(path, unfinished)
        elif kind is Kind.ZNODE:
            found = self._znodes(unfinished)
        elif kind is Kind.PARTITION:
            using = self._using()
            topics = positional(rest, shape) or ([using.name] if using is not None else [])
            found = self._live(kind, topics[0]) if topics else ()
        elif kind is Kind.TOPIC_OR_PARTITION:
            found = self._all_live(Kind.TOPIC, Kind.TOPIC_PARTITION)
        elif kind is Kind.SUBJECT:
            found = self._subjects(positional(rest, shape))
        elif kind is Kind.EXPORT:
            found = [Suggestion(root, "export") for root in self._export_roots()]
        elif kind in STATIC:
            found = [Suggestion(value, kind.value) for value in STATIC[kind]]
        else:
            found = self._live(kind)
        for one in found:
            yield Suggestion(before + one.text, one.help) if before else one

    def _live(self, kind: Kind, about: str = "") -> Iterator[Suggestion]:
        for name in self._names.soon(kind, about):
            text, _, what = name.partition("\t") if kind is Kind.ACT else (name, "", "")
            yield Suggestion(text, what or kind.value)

    def _all_live(self, *kinds: Kind) -> Iterator[Suggestion]:
        for kind in kinds:
            self._names.now(kind)  # all are asked for at once; the wait for the first is the wait for the next
        for kind in kinds:
            yield from self._live(kind)

    def _subjects(self, before: list[str]) -> Iterator[Suggestion]:
        """What `why` can explain; ``before`` are the words that it has been given."""
        if not before:
            yield from (Suggestion(word, Kind.SUBJECT.value) for word in SUBJECTS)
            yield from self._all_live(Kind.TOPIC, Kind.GROUP, Kind.BROKER, Kind.TOPIC_PARTITION)
        elif len(before) == 1:
            yield from self._live(SUBJECTS.get(before[0], Kind.OTHER))

    def _settings_of(self, path: tuple[str, ...], unfinished: str) -> Iterator[Suggestion]:
        name, sign, _ = unfinished.partition("=")
        for known, values in self._tree.settings(path).items():
            if sign and known == name:
                yield from (Suggestion(f"{name}={value}", "setting") for value in values)
            elif not sign:
                yield Suggestion(f"{known}=", f"setting: {', '.join(values)}" if values else "setting")

    def _znodes(self, unfinished: str) -> Iterator[Suggestion]:
        folder, slash, _ = unfinished.rpartition("/")
        about = posixpath.normpath(posixpath.join("/", folder + slash)).replace("//", "/")
        for name in self._names.soon(Kind.ZNODE, about):
            yield Suggestion(f"{folder}{slash}{name}", "znode")

    def _export_roots(self) -> list[str]:
        roots: dict[str, None] = {}
        for line in self._history():
            roots.update((found[1] or found[2], None) for found in _EXPORT_ROOT.finditer(line))
        return list(roots)

    def _of_query(self, query: str, line: str) -> Iterator[SqlWord]:
        """What may stand next in a query."""
        topics, forms = self._names.soon(Kind.VIEW), forms_in(line)
        columns = {name: self._names.soon(Kind.COLUMN, forms.get(name, name)) for name in names_in(query, topics)}
        return next_words(query, topics, columns)

    def _takes_query(self, words: list[str]) -> bool:
        taker = self._taker(self._plain(words))
        return taker is not None and taker.kind is Kind.SQL

    def _takes_file(self, words: list[str], unfinished: str) -> bool:
        words = self._plain(words)
        own = OWN.get(words[0]) if words else None
        if own is not None:
            return own.kind is Kind.FILE
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
