"""The words of a line, as klog's commands have them: which command they name, which flag or argument takes which word,
and what a name in use stands for."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import typer
from typer.core import TyperArgument, TyperOption

from klog.cli.command import KlogCommand, KlogGroup, arguments
from klog.cli.root import root

NEVER_FILLED_IN = frozenset({"create", "delete"})
"""Verbs whose names are always written."""


class Using(NamedTuple):
    """The topic or the group in use: the name that commands take which are not given one."""

    kind: Literal["topic", "group"]
    name: str


def named(words: list[str]) -> tuple[typer.Context, list[str]]:
    """The noun or command that the leading words name (the root where they name none), and the words behind it."""
    ctx: Any = typer.Context(root(), info_name="klog")
    while words and isinstance(ctx.command, KlogGroup) and (found := ctx.command.get_command(ctx, words[0])):
        ctx, words = typer.Context(found, info_name=found.name, parent=ctx), words[1:]
    return ctx, words


def flag_of(command: KlogCommand, word: str) -> TyperOption | None:
    """The flag of a word: ``--output``, ``--output=json``, ``-ojson``."""
    name = word.partition("=")[0] if word.startswith("--") else word[:2]
    return next((one for one in command.params if isinstance(one, TyperOption) and name in _words_of(one)), None)


def flag_awaiting_value(command: KlogCommand, words: list[str]) -> TyperOption | None:
    """The flag whose value is written next."""
    flag = flag_of(command, words[-1]) if words and words[-1].startswith("-") else None
    return flag if flag is not None and not flag.is_flag and words[-1] in _words_of(flag) else None


def _words_of(flag: TyperOption) -> list[str]:
    return [*flag.opts, *flag.secondary_opts]


def argument(command: KlogCommand, number: int) -> TyperArgument | None:
    """The argument that takes word n, flags not counted, the first being 0; None where there are too many words."""
    known = arguments(command)
    if number < len(known):
        return known[number]
    return known[-1] if known and known[-1].nargs != 1 else None


def taker(command: KlogCommand, words: list[str]) -> TyperOption | TyperArgument | None:
    """What takes the word behind these ones of a command: a flag before it, or an argument."""
    return flag_awaiting_value(command, words) or argument(command, len(positional(command, words)))


def positional(command: KlogCommand, words: list[str]) -> list[str]:
    """The words that are neither flags nor values of flags."""
    found = list[str]()
    for index, word in enumerate(words):
        if word == "--":
            return found + words[index + 1 :]
        is_flag = word.startswith("-") and len(word) > 1
        if not is_flag and flag_awaiting_value(command, words[:index]) is None:
            found.append(word)
    return found


def is_left_out(command: KlogCommand, using: Using | None) -> bool:
    """Whether a command's first argument may be left out."""
    first = next(iter(arguments(command)), None)
    is_of_kind = using is not None and first is not None and first.metavar == using.kind.upper()
    return is_of_kind and command.name not in NEVER_FILLED_IN


def filled_in(command: KlogCommand, words: list[str], using: Using | None) -> list[str]:
    """The words behind a command, with the name in use where it is left out.

    It is left out where too few words are given, and where the first one is ``NAME=VALUE``, which no name can be.
    """
    if using is None or not is_left_out(command, using) or not {"-h", "--help"}.isdisjoint(words):
        return words
    given, taken = positional(command, words), arguments(command)
    needed = max(1, sum(one.required for one in taken))
    if len(given) < needed or ("=" in given[0] and taken[0].nargs == 1):
        return [using.name, *words]
    return words
