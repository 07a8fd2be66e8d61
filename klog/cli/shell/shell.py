"""Runs what a person or a script writes: a line as the command line would, and the shell's own commands."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple, TextIO

from klog.cli import error_report, interrupt
from klog.cli.command import KlogCommand
from klog.cli.error_report import EXIT_FAILED, EXIT_USAGE
from klog.cli.flags import GlobalFlags
from klog.cli.root import root
from klog.cli.screen import Screen
from klog.cli.shell import pipe
from klog.cli.shell.cluster import ShellCluster
from klog.cli.shell.syntax import Statement, open_end, read
from klog.cli.shell.words import Using, filled_in, named
from klog.cli.target import Target
from klog.config.units import parse_duration_ms
from klog.errors import KlogError, NoSuchThing, UsageError
from klog.render import Format
from klog.render.visible import for_stream

EXIT_INTERRUPTED = 130

WATCH = "\\watch"
WATCH_EVERY = "2s"
WATCH_S_MIN = 0.1
HISTORY_SHOWN = 50


class LastCommand(NamedTuple):
    """How the last command ended."""

    status: int
    ms: float


class Shell:
    """Runs lines. One thread."""

    def __init__(self, shared: GlobalFlags) -> None:
        self.screen = Screen()
        self.cluster = ShellCluster(replace(shared, screen=self.screen))
        self.using: Using | None = None
        self.status = 0
        """The exit code of the last command."""
        self.last: LastCommand | None = None
        self.was_interrupted = False
        """Whether Ctrl-C has ended the last command."""
        self.place: Target | None = None
        self.trouble = ""
        """Why there is no cluster."""
        self.history: Callable[[], Sequence[str]] = list
        self.switched: Callable[[], None] = lambda: None
        """Called when commands begin to talk to another cluster."""
        self.keep_going = False
        """Whether the next statement runs where one has failed."""
        self.is_on_stdin = False
        """Whether stdin is the script, which commands of ``sh`` must not read."""
        self.look_where()

    def look_where(self) -> None:
        """Find the cluster again: a command may have started or stopped it, or changed the profiles."""
        before = self.place
        try:
            self.place, self.trouble = self.cluster.place(), ""
        except (KlogError, OSError) as error:
            self.place, self.trouble = None, f"no cluster: {getattr(error, 'message', None) or error}"
        if self.place != before:
            self.switched()

    # --- lines

    def run_line(self, text: str) -> bool:
        """Run a text, to its first statement that fails; False where it says to leave. ``status`` is the exit code."""
        at = 0
        while at < len(text):
            statement = read(text, at)
            at = statement.next
            if statement.open:
                what = "\\ at the end" if statement.open == "\\" else f"quotation {statement.open} that is not closed"
                return self.refuse(UsageError(f"{what}: {text.strip()}"))
            if statement.is_empty:
                continue
            if not self._run(statement):
                return False
            if self.status and not self.keep_going:
                break
        return True

    def run_lines(self, lines: Iterable[str]) -> int:
        """Run lines as a script, to the first command that fails unless `keep_going`; the exit code of that one."""
        first_failure, begun = 0, ""
        for line in lines:
            begun += line if line.endswith("\n") else line + "\n"
            if open_end(begun[:-1]):
                continue
            self.status, text, begun = 0, begun[:-1], ""
            if not self.run_line(text):
                begun = ""
                break
            if self.status:
                first_failure = first_failure or self.status
                if not self.keep_going or self.status == EXIT_INTERRUPTED:
                    break
        if begun and not (first_failure and not self.keep_going):
            self.run_line(begun[:-1])  # which says what is open
            first_failure = first_failure or self.status
        self.status = 0
        return first_failure

    def refuse(self, error: KlogError | OSError) -> bool:
        """Show an error; the shell lives on."""
        shown = error_report.translated(error)
        error_report.show(shown, "shell", Format.TABLE, sys.stderr)
        self.status = shown.exit_code
        return True

    # --- statements

    def _run(self, statement: Statement) -> bool:
        begun_s = time.monotonic()
        self.was_interrupted = False
        try:
            words, every_s = self._words(statement)
            if words and words[0] in LEAVE:
                return False
            self.status = 0
            if statement.system is not None:
                command = statement.system or os.environ.get("SHELL", "sh")
                self.status = pipe.run(command, reads_stdin=not self.is_on_stdin)
            else:
                self.status = self._with_output(statement, lambda: self._repeated(words, every_s))
        except (KlogError, OSError) as error:
            self.refuse(error)
        except KeyboardInterrupt:
            self.status = EXIT_INTERRUPTED
        self.was_interrupted |= self.status == EXIT_INTERRUPTED
        self.last = LastCommand(self.status, (time.monotonic() - begun_s) * 1000)
        return True

    def _words(self, statement: Statement) -> tuple[list[str], float | None]:
        """The words to run; and how often, where ``\\watch`` ends them."""
        words, every_s = statement.texts, None
        for index, word in enumerate(statement.words):
            if word.own and word.text == WATCH:
                every_s = _interval(words[index + 1 :])
                words = words[:index]
                break
        if words and words[0] == "klog":  # a line copied from elsewhere
            words = words[1:] or ["--help"]
        if statement.system is None and not words:
            what = f"before \\watch: {WATCH}" if every_s is not None else "before the pipe or the >"
            raise UsageError(f"no command {what}")
        if statement.redirects and not statement.file:
            raise UsageError("no file behind the >")
        if statement.file and statement.pipe is not None:
            raise UsageError("> FILE and | COMMAND exclude each other", hint="| COMMAND > FILE")
        if words and words[0] == "shell":
            raise UsageError("the shell is already running")
        return words, every_s

    def _with_output(self, statement: Statement, act: Callable[[], int]) -> int:
        if statement.pipe is not None:
            if not statement.pipe:
                raise UsageError("no command behind the pipe")
            with pipe.output_through(statement.pipe) as filtered:
                status = act()
            return status or filtered()
        with ExitStack() as stack:
            if statement.file:
                stack.enter_context(pipe.output_to(Path(statement.file), append=statement.append))
            return act()

    def _repeated(self, words: list[str], every_s: float | None) -> int:
        if every_s is None:
            return self.run_words(words)
        status = 0
        with self.screen.without_pages():
            try:
                while status != EXIT_USAGE:
                    now = time.strftime("%H:%M:%S")
                    sys.stderr.write(for_stream(f"{now}, every {every_s:g} s: {' '.join(words)}\n", sys.stderr))
                    ended = self.run_words(words)
                    if ended == EXIT_INTERRUPTED:
                        raise KeyboardInterrupt
                    status = ended
                    time.sleep(every_s)
            except KeyboardInterrupt:
                self.was_interrupted = True  # the way to end it
        return status

    def run_words(self, words: list[str]) -> int:
        """Run one command, the shell's or klog's; its exit code."""
        own = OWN.get(words[0])
        if own is not None and not (words[0] == "help" and len(words) > 1):
            return own.run(self, words[1:])
        if words[0].startswith("\\"):
            raise UsageError(f"the shell has no command {words[0]}", hint="\\h lists them")
        ctx, rest = named(words)
        if isinstance(ctx.command, KlogCommand):
            words = [*words[: len(words) - len(rest)], *filled_in(ctx.command, rest, self.using)]
        status = self.execute(words)
        self.look_where()
        return status

    def execute(self, words: list[str]) -> int:
        """Run one line as ``klog`` would, with the shell's flags below the line's own; its exit code."""
        try:
            with interrupt.in_shell():
                return root().execute(words, obj=self.cluster.shared)
        except KeyboardInterrupt:
            return interrupt.exit_code()
        except Exception as error:
            sys.stderr.write(f"klog: internal error: {type(error).__name__}: {error}\n")
            return EXIT_FAILED


def _interval(words: list[str]) -> float:
    if len(words) > 1:
        raise UsageError(f"\\watch takes one duration, got {' '.join(words)}", hint="topic list \\watch 2s")
    word = words[0] if words else WATCH_EVERY
    every_s = float(word) if word.isdigit() else parse_duration_ms(word) / 1000
    if every_s < WATCH_S_MIN:
        raise UsageError(f"\\watch: the interval must be at least {WATCH_S_MIN:g} s, got {word}")
    return every_s


def script_lines(stream: TextIO) -> Iterable[str]:
    """The lines of a script, as they come: a later one may be written while an earlier one runs."""
    return iter(stream.readline, "")


# --- the shell's own commands -----------------------------------------------------------------------------------------


class OwnCommand(NamedTuple):
    """What is about the shell and the choice of a cluster: its usage line, and the kinds of name that it takes."""

    usage: str
    help: str
    run: Callable[[Shell, list[str]], int]
    names: tuple[str, ...] = ()


def _say(text: str) -> None:
    sys.stdout.write(for_stream(text, sys.stdout) + "\n")


def _one(words: list[str], usage: str) -> str | None:
    if len(words) > 1:
        raise UsageError(f"too many words: {' '.join(words[1:])}", hint=usage)
    return words[0] if words else None


def _switch(shell: Shell, words: list[str]) -> int:
    where = _one(words, "\\c PROFILE")
    if where is None:
        _say(str(shell.place) if shell.place is not None else shell.trouble)
        return 0
    shell.cluster.switch(where)
    shell.using = None
    shell.look_where()
    return 0


def _use(shell: Shell, words: list[str]) -> int:
    if not words:
        shell.using = None
        return 0
    kinds: list[Literal["topic", "group"]] = ["topic", "group"]
    if words[0] in kinds and len(words) > 1:
        kinds, words = [kind for kind in kinds if kind == words[0]], words[1:]
    name = _one(words, "use TOPIC, use GROUP, or use topic NAME")
    found = [kind for kind in kinds if name in shell.cluster.names(f"{kind}s", "")]
    if len(found) > 1:
        raise UsageError(f"{name!r} is a topic and a group", hint=f"use topic {name}, or use group {name}")
    if not found or name is None:
        raise NoSuchThing(f"there is no {' or '.join(kinds)} {name!r}", hint="`topic list`, `group list`")
    shell.using = Using(found[0], name)
    return 0


def _help(shell: Shell, words: list[str]) -> int:
    if words:
        own = OWN.get(words[0])
        if own is None:
            return shell.execute([*words, "--help"])
        _say(f"{own.usage}\n  {own.help}")
        return 0
    width = max(len(own.usage) for own in OWN.values())
    _say("The shell's own commands; `help` lists klog's, `\\h COMMAND` explains one:")
    for own in OWN.values():
        _say(f"  {own.usage:<{width}}  {own.help}")
    return 0


def _all_help(shell: Shell, words: list[str]) -> int:
    status = shell.execute(["--help"])
    _say("\nThe shell has commands of its own: \\h")
    return status


def _history(shell: Shell, words: list[str]) -> int:
    lines = list(shell.history())
    wanted = " ".join(words)
    shown = [line for line in lines if wanted in line] if wanted and not wanted.isdigit() else lines
    for line in shown[-(int(wanted) if wanted.isdigit() else HISTORY_SHOWN) :]:
        _say(line)
    return 0


def _echo(shell: Shell, words: list[str]) -> int:
    _say(" ".join(words))
    return 0


def _only_behind(shell: Shell, words: list[str]) -> int:
    raise UsageError("\\watch stands behind a command", hint="topic list \\watch 2s")


def _leave(shell: Shell, words: list[str]) -> int:
    return 0  # the loop has ended before


OWN: dict[str, OwnCommand] = {
    "\\c": OwnCommand("\\c [PROFILE|HOST:PORT]", "Talk to another cluster; show this one.", _switch, ("profiles",)),
    "use": OwnCommand(
        "use [TOPIC|GROUP]", "Name that later commands may leave out; none ends it.", _use, ("topics", "groups")
    ),
    "\\watch": OwnCommand("COMMAND \\watch [2s]", "Repeat the command until Ctrl-C.", _only_behind),
    "history": OwnCommand("history [N|TEXT]", "Show the last lines, or those with a text.", _history),
    "echo": OwnCommand("echo WORD...", "Print words.", _echo),
    "\\h": OwnCommand("\\h [COMMAND]", "Show the shell's own commands, or the help of a command.", _help),
    "help": OwnCommand("help [COMMAND]", "Show klog's commands, or the help of one.", _all_help),
    "exit": OwnCommand("exit", "Leave the shell, as do quit, \\q and Ctrl-D.", _leave),
}
LEAVE = frozenset({"exit", "quit", "\\q"})
