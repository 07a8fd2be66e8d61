"""Numbers with their nouns: ``1 finding``, ``2,000 findings``."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """``1 topic``, ``3 topics``; ``plural`` where that is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
