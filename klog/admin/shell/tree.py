"""The command tree as the shell sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from klog.admin.shell.facts import Place

if TYPE_CHECKING:
    from klog.admin.health.snapshot import Snapshot


class Kind(StrEnum):
    """What a value is, as far as the shell itself has to know."""

    TOPIC = "topic"
    GROUP = "group"
    EXPORT = "export"
    FILE = "file"
    SQL = "query"
    OTHER = "value"


Names = Callable[[str, str], Sequence[str]]
"""The names that there are now, by what they are of (``topics``), and what of (``numbers`` of a topic)."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A noun, a verb or a value that may stand next, and what it is."""

    text: str
    help: str


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag of a command, ``name``: its ``words`` (``-p``, ``--partitions``), and what may follow it."""

    name: str
    words: tuple[str, ...]
    help: str
    takes_value: bool
    kind: Kind = Kind.OTHER
    value: str = ""
    """The value's name in usage lines."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a command. ``many``: it takes all words that are left."""

    name: str
    kind: Kind
    required: bool
    many: bool


@dataclass(frozen=True, slots=True)
class CommandShape:
    """What may be written behind a command's own words."""

    usage: str
    help: str
    flags: tuple[Flag, ...]
    arguments: tuple[Argument, ...]

    def flag(self, word: str) -> Flag | None:
        """The flag of a word: ``--output``, ``--output=json``, ``-ojson``."""
        name = word.partition("=")[0] if word.startswith("--") else word[:2]
        return next((flag for flag in self.flags if word in flag.words or name in flag.words), None)

    def argument(self, number: int) -> Argument | None:
        """The argument that takes word n, flags not counted, the first being 0; None where there are too many words."""
        if number < len(self.arguments):
            return self.arguments[number]
        last = self.arguments[-1] if self.arguments else None
        return last if last is not None and last.many else None


class CommandTree(Protocol):
    """What the shell is given. Used by the shell's thread alone, but for ``names`` and ``facts``."""

    def execute(self, words: list[str]) -> int:
        """Run one command line; its exit code."""
        ...

    def words_after(self, path: tuple[str, ...]) -> list[Suggestion]:
        """The nouns and commands at the top (an empty path), or a noun's verbs; none behind a whole command."""
        ...

    def knows(self, path: tuple[str, ...]) -> bool:
        """Whether a noun or a command has this path, by an alias too."""
        ...

    def shape(self, path: tuple[str, ...]) -> CommandShape | None:
        """The flags and arguments of the command at ``path``, None if the path is not a whole command."""
        ...

    def place(self) -> Place:
        """The cluster that commands talk to; KlogError where there is none. Never waits for an answer."""
        ...

    def switch(self, where: str) -> Place:
        """Talk to another cluster, by a profile's name or an address. KlogError, without a change, for an unknown
        profile."""
        ...

    def offered(
        self, path: tuple[str, ...], words: list[str], taker: str, unfinished: str, names: Names
    ) -> list[Suggestion]:
        """What may stand for a flag's or an argument's value, behind these words of the command, and begins so."""
        ...

    def facts(self, with_lag: bool) -> Snapshot:
        """What the cluster is like now; blocks, may raise anything. Called from a thread."""
        ...

    def names(self, kind: str, about: str) -> list[str]:
        """The names of a kind that there are now: ``topics``, ``numbers`` of the partitions of the topic ``about``,
        ``znodes`` below ``about``, ``columns`` of the topic in the form ``about``, as ``klog sql --from`` takes it.
        Blocks, may raise anything. Called from a thread."""
        ...

    def close(self) -> None:
        """End what is kept open."""
        ...


def command_path(tree: CommandTree, words: list[str]) -> tuple[str, ...]:
    """The leading words that name a noun or a command."""
    path: tuple[str, ...] = ()
    for word in words:
        if (path and tree.shape(path) is not None) or not tree.knows((*path, word)):
            break
        path = (*path, word)
    return path
