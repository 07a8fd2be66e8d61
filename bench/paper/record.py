"""What a run has found, as it is kept in ``results.json``: figures and page are drawn from that file alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from bench.paper.loads import VALUE_BYTES, Point

Figure = Literal["4", "5"]
Options = Literal["advised", "paper"]


@dataclass
class Line:
    """One line of figure 4 (producers) or 5 (consumers). ``points``: MB moved, and messages a second up to there."""

    figure: str
    system: str
    client: str
    batch: int | None
    options: str
    settings: str
    messages: int
    seconds: float
    points: list[list[float]]

    @property
    def rate(self) -> float:
        return self.messages / self.seconds if self.seconds else 0.0

    @property
    def name(self) -> str:
        client = "" if self.client in ("its own", "librdkafka") else f" by {self.client}"
        batch = "" if self.batch is None or (self.batch == 1 and self.system not in LOGS) else f", batch {self.batch}"
        return f"{self.system}{client}{batch}"


LOGS = ("klog", "kafka-4.1")


@dataclass
class Stored:
    """How many bytes a message takes on disk beyond its value: what the system's folder grew by, less the values."""

    system: str
    how: str
    messages: int
    overhead_bytes: float


@dataclass
class Reason:
    """One of the paper's reasons, alone: rows by the same columns."""

    key: str
    rows: list[dict[str, Any]] = field(default_factory=list)

    def value(self, column: str, **where: Any) -> float | None:
        """Of the row that has these values; None where there is none."""
        for row in self.rows:
            if all(row.get(name) == value for name, value in where.items()):
                found = row.get(column)
                return None if found is None else float(found)
        return None


@dataclass
class Record:
    """All of a run."""

    date: str = ""
    commit: str = ""
    machine: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    messages: int = 0
    limit_s: float = 0.0
    took_s: float = 0.0
    lines: list[Line] = field(default_factory=list)
    stored: list[Stored] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def rate(self, figure: str, system: str, client: str, batch: int | None, options: str) -> float | None:
        for line in self.lines:
            if (line.figure, line.system, line.client, line.batch, line.options) == (
                figure,
                system,
                client,
                batch,
                options,
            ):
                return line.rate
        return None

    def best(self, figure: str, system: str, batch: int | None = None) -> float | None:
        """The highest rate of a system, with whatever client and options."""
        rates = [
            one.rate
            for one in self.lines
            if one.figure == figure and one.system == system and batch in (None, one.batch)
        ]
        return max(rates, default=None)

    def reason(self, key: str) -> Reason:
        """Empty where it was not measured."""
        return next((one for one in self.reasons if one.key == key), Reason(key))

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Record:
        told = json.loads(path.read_text())
        return cls(
            **{
                **told,
                "lines": [Line(**one) for one in told["lines"]],
                "stored": [Stored(**one) for one in told["stored"]],
                "reasons": [Reason(**one) for one in told["reasons"]],
            }
        )


def points_of(course: Sequence[Point], apart_s: float = 1.0) -> list[list[float]]:
    """A course as the paper draws it: MB sent so far, and the rate since the point before, a second or more ago."""
    drawn: list[list[float]] = []
    before = course[0]
    for point in course[1:]:
        if point.seconds - before.seconds >= apart_s:
            rate = (point.messages - before.messages) / (point.seconds - before.seconds)
            drawn.append([point.messages * VALUE_BYTES / 1e6, rate])
            before = point
    last = course[-1]
    if not drawn and last.seconds:
        drawn.append([last.messages * VALUE_BYTES / 1e6, last.messages / last.seconds])
    return drawn
