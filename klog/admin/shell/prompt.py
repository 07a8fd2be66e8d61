"""The loop of the shell: read a line, run it as the command line would, say how it went."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from prompt_toolkit import PromptSession
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input import Input
from prompt_toolkit.output import Output

from klog.admin.shell.completer import KlogCompleter
from klog.admin.shell.live_names import LiveNames
from klog.admin.shell.pipe import output_through, split_at_pipe
from klog.admin.shell.tree import CommandTree
from klog.render.visible import for_stream

EXIT_USAGE = 2
PROMPT = "klog> "
LEAVE = frozenset({"exit", "quit"})
NAMES_CHANGE_AFTER = frozenset({"topic", "topics", "group", "groups", "offset", "offsets", "produce", "up", "down"})
"""Commands after which topics or groups may be others than before."""


class QuietHistory(FileHistory):
    """A history that leaves out lines beginning with a space, for secrets.

    Where the file cannot be read or written the shell works on, and remembers as long as it lives.
    """

    def append_string(self, string: str) -> None:
        if not string.startswith(" "):
            super().append_string(string)

    def load_history_strings(self) -> Iterable[str]:
        try:
            return list(super().load_history_strings())
        except OSError:
            return []

    def store_string(self, string: str) -> None:
        try:
            Path(os.fsdecode(self.filename)).parent.mkdir(parents=True, exist_ok=True)
            super().store_string(string)
        except OSError:
            pass


class Shell:
    """Runs lines. One thread."""

    def __init__(self, tree: CommandTree) -> None:
        self._tree = tree
        self.status = 0
        """The exit code of the last command."""

    def run_line(self, line: str) -> bool:
        """Run one line; False where it says to leave. ``status`` is its exit code."""
        text = line.strip()
        if not text or text.startswith("#"):
            return True
        text, filter_command = split_at_pipe(text)
        try:
            words = shlex.split(text)
        except ValueError as error:
            return self._refuse(f"{error}: {text}")
        if not words:
            return self._refuse(f"no command before the pipe: {line.strip()}")
        if words[0] == "klog":  # a line copied from elsewhere
            words = words[1:] or ["--help"]
        if words[0] in LEAVE:
            return False
        if words[0] == "shell":
            return self._refuse("the shell is already running")
        if filter_command is None:
            self.status = self._tree.execute(words)
        else:
            with output_through(filter_command) as filtered:
                status = self._tree.execute(words)
            self.status = status or filtered()
        return True

    def _refuse(self, reason: str) -> bool:
        sys.stderr.write(for_stream(f"klog shell: {reason}\n", sys.stderr))
        self.status = EXIT_USAGE
        return True

    def run_lines(self, lines: Iterable[str], *, keep_going: bool = False) -> int:
        """Run lines as a script, to the first command that fails unless ``keep_going``; the exit code of that one."""
        first_failure = 0
        for line in lines:
            if not self.run_line(line):
                break
            if self.status:
                first_failure = first_failure or self.status
                if not keep_going:
                    break
            self.status = 0
        return first_failure

    def interact(
        self, history: Path, *, terminal_input: Input | None = None, terminal_output: Output | None = None
    ) -> int:
        """Prompt until the end of input or ``exit``; the exit code of the last command."""
        topics, groups = LiveNames(self._tree.topic_names), LiveNames(self._tree.group_names)
        topics.now()
        session: PromptSession[str] = PromptSession(
            PROMPT,
            history=QuietHistory(str(history)),
            completer=KlogCompleter(self._tree, topics, groups),
            complete_while_typing=False,
            bottom_toolbar=self.toolbar,
            input=terminal_input,
            output=terminal_output,
        )
        while True:
            try:
                line = session.prompt()
            except KeyboardInterrupt:
                continue  # Ctrl-C drops the line, as every shell does
            except EOFError:
                return self.status
            if not self.run_line(line):
                return self.status
            if NAMES_CHANGE_AFTER & set(line.split()[:2]):
                topics.forget_age()
                groups.forget_age()

    def toolbar(self) -> str:
        """The line at the bottom: which cluster, and how the last command ended if it failed."""
        ended = f"   exit {self.status}" if self.status else ""
        return f" {self._tree.cluster()}{ended}"


def script_lines(stream: TextIO) -> Iterable[str]:
    """The lines of a script, as they come: a later one may be written while an earlier one runs."""
    return iter(stream.readline, "")
