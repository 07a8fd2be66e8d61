"""Numbers with their nouns (``1 finding``, ``2,000 findings``), and numbers that grow while something is done."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """``1 topic``, ``3 topics``; ``plural`` where that is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


class Count:
    """How far long work is: set by the thread that does it, read by others. ``about``: what is done now."""

    def __init__(self) -> None:
        self.done = 0
        self.total: int | None = None
        self.about = ""
