"""Runs what a person or a script writes: a line as the command line would, and the shell's own commands."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TextIO

from klog.admin.shell import pipe
from klog.admin.shell.facts import LastCommand, Place
from klog.admin.shell.own_commands import LEAVE, OWN
from klog.admin.shell.screen import Screen
from klog.admin.shell.syntax import Statement, open_end, read
from klog.admin.shell.tree import CommandTree, command_path
from klog.admin.shell.using import Using, filled_in
from klog.config.units import parse_duration_ms
from klog.errors import KlogError, UsageError
from klog.render.visible import for_stream

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

WATCH = "\\watch"
WATCH_EVERY = "2s"
WATCH_S_MIN = 0.1


class Shell:
    """Runs lines. One thread."""

    def __init__(self, tree: CommandTree, screen: Screen | None = None) -> None:
        self.tree = tree
        self.screen = screen if screen is not None else Screen()
        self.using: Using | None = None
        self.status = 0
        """The exit code of the last command."""
        self.last: LastCommand | None = None
        self.was_interrupted = False
        """Whether Ctrl-C has ended the last command."""
        self.place: Place | None = None
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
            self.place, self.trouble = self.tree.place(), ""
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
        message = error.message if isinstance(error, KlogError) else _in_words(error)
        hint = f"\n  hint: {error.hint}" if isinstance(error, KlogError) and error.hint else ""
        sys.stderr.write(for_stream(f"klog shell: {message}{hint}\n", sys.stderr))
        sys.stderr.flush()
        self.status = error.exit_code if isinstance(error, KlogError) else EXIT_FAILED
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
                self.status = self._system(statement)
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

    def _system(self, statement: Statement) -> int:
        assert statement.system is not None
        command = statement.system or os.environ.get("SHELL", "sh")
        return pipe.run(command, reads_stdin=not self.is_on_stdin)

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
        path = command_path(self.tree, words)
        shape = self.tree.shape(path)
        if shape is not None:
            words = [*path, *filled_in(path, words[len(path) :], shape, self.using)]
        status = self.tree.execute(words)
        self.look_where()
        return status


def _interval(words: list[str]) -> float:
    if len(words) > 1:
        raise UsageError(f"\\watch takes one duration, got {' '.join(words)}", hint="topic list \\watch 2s")
    word = words[0] if words else WATCH_EVERY
    every_s = float(word) if word.isdigit() else parse_duration_ms(word) / 1000
    if every_s < WATCH_S_MIN:
        raise UsageError(f"\\watch: the interval must be at least {WATCH_S_MIN:g} s, got {word}")
    return every_s


def _in_words(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)


def script_lines(stream: TextIO) -> Iterable[str]:
    """The lines of a script, as they come: a later one may be written while an earlier one runs."""
    return iter(stream.readline, "")
