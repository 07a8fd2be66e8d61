"""``use TOPIC``: the name that commands take which are not given one."""

from __future__ import annotations

from typing import NamedTuple

from klog.admin.shell.tree import CommandShape, Kind

NEVER_FILLED_IN = frozenset({"create", "delete", "rm"})
"""Verbs whose names are always written."""


class Using(NamedTuple):
    """The topic or the group in use."""

    kind: Kind
    name: str


def is_left_out(path: tuple[str, ...], shape: CommandShape, using: Using | None) -> bool:
    """Whether a command's first argument may be left out."""
    first = shape.arguments[0] if shape.arguments else None
    return using is not None and first is not None and first.kind is using.kind and path[-1] not in NEVER_FILLED_IN


def filled_in(path: tuple[str, ...], words: list[str], shape: CommandShape, using: Using | None) -> list[str]:
    """The words behind a command's path, with the name in use where it is left out.

    It is left out where too few words are given, and where the first one is ``NAME=VALUE``, which no name can be.
    """
    if using is None or not is_left_out(path, shape, using):
        return words
    if any(word in ("-h", "--help") for word in words):
        return words
    given = positional(words, shape)
    needed = max(1, sum(argument.required for argument in shape.arguments))
    if len(given) < needed or ("=" in given[0] and not shape.arguments[0].many):
        return [using.name, *words]
    return words


def positional(words: list[str], shape: CommandShape) -> list[str]:
    """The words that are neither flags nor values of flags."""
    found, awaits_value = list[str](), False
    for index, word in enumerate(words):
        if awaits_value:
            awaits_value = False
        elif word == "--":
            return found + words[index + 1 :]
        elif word.startswith("-") and len(word) > 1:
            flag = shape.flag(word)
            awaits_value = flag is not None and flag.takes_value and word in flag.words
        else:
            found.append(word)
    return found
