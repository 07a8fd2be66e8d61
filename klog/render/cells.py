"""The cells of a terminal that a text takes: two for a character of East Asia or an emoji, none for a combining one."""

from __future__ import annotations


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
