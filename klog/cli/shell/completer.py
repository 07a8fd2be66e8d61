"""What is offered while typing: commands, flags and their values, and the names that a cluster has."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import typer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from typer.core import TyperArgument, TyperOption

from klog.cli.command import KlogCommand, Noun, flag_words, usage_line
from klog.cli.command_table import ENTRIES
from klog.cli.shell.cluster import ShellCluster
from klog.cli.shell.live import Live
from klog.cli.shell.shell import OWN
from klog.cli.shell.sql_words import Suggestion, forms_in, names_in, next_words, unfinished_word
from klog.cli.shell.syntax import Statement, statements
from klog.cli.shell.words import (
    Using,
    argument,
    filled_in,
    flag_awaiting_value,
    flag_of,
    is_left_out,
    named,
    positional,
    taker,
)
from klog.render.visible import visible

EXPORT = "ROOT"
FILES = frozenset({"FILE", "PATH", "DIR", "FOLDER", "DIR,...", EXPORT})
QUERIES = frozenset({"QUERY", "SQL"})
"""What a value is, by its name in usage lines."""

_EXPORT_ROOT = re.compile(r"\bexport\s+\S.*?--to[ =](\S+)|\bexport\s+(?:status|verify|list|compact|gc)\s+(\S+)")


class KlogCompleter(Completer):
    """Completes from klog's commands and the live names. ``history`` is where roots of exports are found.

    It waits a moment for names that were never asked for before.
    """

    def __init__(
        self,
        cluster: ShellCluster,
        names: Live,
        *,
        history: Callable[[], Sequence[str]] = list,
        using: Callable[[], Using | None] = lambda: None,
    ) -> None:
        self._cluster = cluster
        self._history = history
        self._using = using
        self._names = names
        self._files = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Completions of the word before the cursor."""
        text = document.text_before_cursor
        statement = _last(text)
        if statement.pipe is not None or statement.system is not None:
            return
        words, unfinished, start = _split(statement, text)
        if statement.redirects:
            yield from self._files.get_completions(Document(statement.file or ""), complete_event)
            return
        words = _plain(words)
        ctx, rest = named(words)
        taken_by = taker(ctx.command, rest) if isinstance(ctx.command, KlogCommand) else None
        takes = None if taken_by is None else taken_by.metavar
        if statement.open in ("'", '"') and takes in QUERIES:
            behind = -len(unfinished_word(unfinished))
            for word in self._of_query(unfinished, document.text):
                yield Completion(word.text, start_position=behind, display_meta=visible(word.help))
            return
        candidates = self._own(words) if words and words[0] in OWN else self._next(ctx, rest, unfinished)
        found = {one.text: one.help for one in candidates if one.text.startswith(unfinished)}
        for one, help in found.items():
            yield Completion(
                _quoted(one), start_position=start - len(text), display=visible(one), display_meta=visible(help)
            )
        if takes in FILES and not (isinstance(taken_by, TyperArgument) and unfinished.startswith("-")):
            yield from self._files.get_completions(Document(unfinished), complete_event)

    def _own(self, words: list[str]) -> Iterator[Suggestion]:
        for kind in OWN[words[0]].names if len(words) == 1 else ():
            yield from (Suggestion(one, kind) for one in self._names.soon(kind))

    def _next(self, ctx: typer.Context, rest: list[str], unfinished: str) -> Iterator[Suggestion]:
        """What may stand behind the words of a command."""
        command = ctx.command
        if not isinstance(command, KlogCommand):
            if rest:
                return
            if isinstance(command, Noun):
                yield from (Suggestion(verb, one.get_short_help_str(60)) for verb, one in command.commands.items())
            else:
                yield from (Suggestion(entry.name, entry.help) for entry in ENTRIES if entry.name != "shell")
                yield from (Suggestion(name, own.help) for name, own in OWN.items())
            return
        awaited = flag_awaiting_value(command, rest)
        if awaited is not None:
            yield from self._values(ctx, awaited, filled_in(command, rest[:-1], self._using()), unfinished)
        elif unfinished.startswith("--") and "=" in unfinished:
            flag = flag_of(command, unfinished)
            if flag is not None and not flag.is_flag:
                name, _, value = unfinished.partition("=")
                for one in self._values(ctx, flag, filled_in(command, rest, self._using()), value):
                    yield Suggestion(f"{name}={one.text}", one.help)
        elif unfinished.startswith("-"):
            yield from (Suggestion(item.value, item.help or "") for item in command.shell_complete(ctx, unfinished))
        else:
            number, using = len(positional(command, rest)), self._using()
            rests = [rest] if using is None or not is_left_out(command, using) else [rest, [using.name, *rest]]
            for more, behind in enumerate(rests):
                taken_by = argument(command, number + more)
                if taken_by is not None:
                    yield from self._values(ctx, taken_by, behind, unfinished)

    def _values(
        self, ctx: typer.Context, parameter: TyperOption | TyperArgument, rest: list[str], unfinished: str
    ) -> Iterator[Suggestion]:
        """What other shells are offered for a flag's or an argument's value, by the names that there are now."""
        if parameter.metavar == EXPORT:
            yield from (Suggestion(root, "export") for root in self._export_roots())
            return
        ctx.find_root().obj = replace(self._cluster.shared, live=self._names.soon)
        asked = ctx.command.make_context(ctx.info_name, list(rest), parent=ctx.parent, resilient_parsing=True)
        metavar = str(parameter.metavar)
        what = metavar.lower() if metavar.isalpha() else str(parameter.name).replace("_", " ")
        for one in parameter.shell_complete(asked, unfinished):
            if one.type == "plain":
                yield Suggestion(one.value, one.help or what)

    def _export_roots(self) -> list[str]:
        roots: dict[str, None] = {}
        for line in self._history():
            roots.update((found[1] or found[2], None) for found in _EXPORT_ROOT.finditer(line))
        return list(roots)

    def _of_query(self, query: str, line: str) -> Iterator[Suggestion]:
        """What may stand next in a query."""
        topics, forms = self._names.soon("views"), forms_in(line)
        columns = {name: self._names.soon("columns", forms.get(name, name)) for name in names_in(query, topics)}
        return next_words(query, topics, columns)


def usage(text: str) -> str:
    """The usage of the command before the cursor, or what its flag takes; "" where there is none."""
    words, unfinished = split_unfinished(text)
    words = [*(_plain(words) if len(words) > 1 else words), unfinished]
    own = OWN.get(words[0])
    if own is not None:
        return f"{own.usage}: {own.help}"
    ctx, rest = named(words)
    command = ctx.command
    path = ctx.command_path.removeprefix("klog ")
    if isinstance(command, Noun):
        return f"{path} {'|'.join(command.commands)}"
    if not isinstance(command, KlogCommand):
        return ""
    flag = flag_awaiting_value(command, rest[:-1]) or (flag_of(command, unfinished) if unfinished[:1] == "-" else None)
    if flag is not None:
        return f"{flag_words(flag)}: {flag.help}"
    return f"{usage_line(ctx).removeprefix('klog ')}: {command.get_short_help_str(80)}"


def _plain(words: list[str]) -> list[str]:
    """The words without ``klog`` and ``help``."""
    return words[1:] if words and words[0] in ("klog", "help", "\\h") else words


def split_unfinished(text: str) -> tuple[list[str], str]:
    """The whole words of the last statement, and the one that is being written, maybe empty."""
    return _split(_last(text), text)[:2]


def _last(text: str) -> Statement:
    """The statement that is being written, maybe an empty one."""
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
