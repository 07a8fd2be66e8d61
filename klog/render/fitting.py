"""A table made as wide as its screen: first short heads and times, then columns give way by rank, then text wraps.

The columns that gave way are named beside the table, with how to see them (``-o wide``).
``field(metadata={"rank": N})``: of the columns with a rank, the highest goes first; a column without one stays.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import Final, NamedTuple

from klog.render.columns import Column

GAP: Final = 2
TEXT_MIN: Final = 20
"""Of a column whose text wraps."""
SHORT_HEADS: Final = {
    "PARTITION": "P",
    "PARTITIONS": "PARTS",
    "REPLICATION-FACTOR": "RF",
    "UNDER-REPLICATED": "URP",
    "LEADER-EPOCH": "EPOCH",
    "LOG-START-OFFSET": "START",
    "LOG-END-OFFSET": "END",
    "CURRENT-OFFSET": "OFFSET",
    "LAG-MS": "AGE-MS",
    "COORDINATOR": "COORD",
    "CONTROLLER": "CTRL",
}
_TIME: Final = re.compile(r"\d{4}-(\d\d-\d\dT\d\d:\d\d:\d\d)\.\d{3}Z")


class Fitted(NamedTuple):
    """The columns that are shown, their heads, the cells of each row by lines, and the heads of those that went."""

    columns: list[Column]
    heads: list[str]
    rows: list[list[list[str]]]
    left_out: list[str]


def fit(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> Fitted:
    """The table at most so wide, as far as that goes."""
    shown, heads = list(columns), [column.head for column in columns]
    table = [list(row) for row in rows]
    left_out: list[str] = []

    def size_of(at: int) -> int:
        return max([cells(heads[at]), *(cells(line) for row in table for line in row[at].split("\n"))])

    def is_wide() -> bool:
        return sum(sizes) + GAP * (len(shown) - 1) > width

    sizes = [size_of(at) for at in range(len(shown))]

    if is_wide():
        heads = [SHORT_HEADS.get(one, one) for one in heads]
        table = [[_TIME.sub(lambda found: found[1].replace("T", " "), cell) for cell in row] for row in table]
        sizes = [size_of(at) for at in range(len(shown))]
    while is_wide() and any(column.rank for column in shown):
        at = max(range(len(shown)), key=lambda at: shown[at].rank)
        left_out.append(shown[at].head)
        del shown[at], heads[at], sizes[at]
        for row in table:
            del row[at]
    for breaks_words in (False, True):  # a long word is broken only where the table fits in no other way
        texts = {at for at, column in enumerate(shown) if not column.numeric}
        while is_wide() and texts:
            at = max(texts, key=lambda at: sizes[at])
            texts.remove(at)
            room = max(TEXT_MIN, width - sum(sizes) - GAP * (len(shown) - 1) + sizes[at])
            for row in table:
                row[at] = "\n".join(wrapped(row[at], room, breaks_words=breaks_words))
            sizes[at] = size_of(at)
    return Fitted(shown, heads, [[cell.split("\n") for cell in row] for row in table], left_out)


def wrapped(text: str, width: int, start: str = "", *, breaks_words: bool = False) -> list[str]:
    """Lines of at most so many characters, the first one behind ``start``, the others below the text behind it.

    A command between backquotes stays whole, on a line of its own even where it is longer: it is pasted.
    """
    kept = re.sub(r"`[^`]*`", lambda found: found[0].replace(" ", "\0"), text)
    lines = textwrap.wrap(
        kept,
        width,
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=breaks_words,
        break_on_hyphens=False,
    ) or [start]
    return [line.replace("\0", " ") for line in lines]


# --- the cells of a terminal: two for a character of East Asia or an emoji, none for a combining one ---


def cells(text: str) -> int:
    """How many it takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, width: int) -> str:
    """No more than so many."""
    if text.isascii() or cells(text) <= width:
        return text[: max(0, width)] if text.isascii() else text
    from rich.cells import set_cell_size

    return set_cell_size(text, max(0, width))


def pad(text: str, width: int) -> str:
    """At least so many."""
    return text + " " * max(0, width - cells(text))
