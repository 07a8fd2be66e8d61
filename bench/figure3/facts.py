"""What the picture shows at a moment. Pure values: `figure` gathers them, `picture` and `page` show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bench.figure3.delays import Spread


class Flow(NamedTuple):
    """An arrow: messages a second, messages that are still to come, and how long the latest were under way."""

    source: str
    target: str
    by: str
    """The command that moves them."""
    messages: int
    rate: float | None
    """None of what is asked now and then."""
    lag: int | None = None
    delay_ms: int | None = None
    """Of half of the latest messages, since the front end's stamp."""


class Box(NamedTuple):
    """A part of the picture. ``trouble``: what is broken in it now."""

    name: str
    title: str
    lines: Sequence[str]
    trouble: Sequence[str] = ()


class FaultRow(NamedTuple):
    """What chaos has done: ``healed_s`` is None while it lasts. Both in seconds since the beginning."""

    at_s: float
    fault: str
    part: str
    healed_s: float | None


@dataclass(frozen=True)
class Facts:
    """All of a page."""

    now_ms: int
    running_s: float
    boxes: Sequence[Box]
    flows: Sequence[Flow]
    tiers: Sequence[tuple[str, int, Spread | None]]
    """Name, messages, delays since the beginning."""
    answer: Sequence[Sequence[str]] = ()
    """The rows of the latest online query, the columns' names first."""
    asked: str = ""
    faults: Sequence[FaultRow] = ()
    verdict: Sequence[Sequence[str]] = ()
    notes: Sequence[str] = field(default=())

    @property
    def broken(self) -> list[str]:
        return [f"{box.title}: {one}" for box in self.boxes for one in box.trouble]
