"""Why one message cannot be read."""

from __future__ import annotations


class Unfit(Exception):  # a part of a reason, which ends in a row
    """A value is not of its type. ``where`` is the path to it, the innermost name first."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.where: list[str] = []

    def __str__(self) -> str:
        return f"{'.'.join(reversed(self.where))}: {self.what}" if self.where else self.what
