"""The command tree as the shell sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A noun, a verb or a value that may stand next, and what it is."""

    text: str
    help: str


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag of a command: its ``words`` (``-p``, ``--partitions``), and what may follow it."""

    words: tuple[str, ...]
    help: str
    takes_value: bool
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CommandShape:
    """What may be written behind a command's own words. ``names_topics``: its arguments begin with topics."""

    flags: tuple[Flag, ...]
    names_topics: bool
    names_files: bool
    names_groups: bool = False


class CommandTree(Protocol):
    """What the shell is given. Used by the shell's thread alone, but for ``topic_names`` and ``group_names``."""

    def execute(self, words: list[str]) -> int:
        """Run one command line; its exit code."""
        ...

    def words_after(self, path: tuple[str, ...]) -> list[Suggestion]:
        """The nouns and commands at the top (an empty path), or a noun's verbs; none behind a whole command."""
        ...

    def shape(self, path: tuple[str, ...]) -> CommandShape | None:
        """The flags and arguments of the command at ``path``, None if the path is not a whole command."""
        ...

    def cluster(self) -> str:
        """The cluster that commands talk to, for the toolbar: never fails, never waits for an answer."""
        ...

    def topic_names(self) -> list[str]:
        """The topics there are now; blocks, may raise anything. Called from a thread of its own."""
        ...

    def group_names(self) -> list[str]:
        """The groups there are now; as `topic_names`."""
        ...
