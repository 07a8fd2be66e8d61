"""A history: what clients did and saw while faults were on, and what lay on the disks in the end. JSON Lines.

A line is one event, an object whose ``op`` names it; the other members are the fields of the class of that name below.
Times (``at``) are seconds of the monotonic clock since the run began. A send is two lines, its beginning and its end,
with the same ``by`` and ``number``; one that never ended is unknown. A message is its value: no two sends share one.

    {"op": "begun", "at": 0.5, "by": "p1", "number": 7, "partition": 2, "value": "p1-7"}
    {"op": "ended", "at": 0.6, "by": "p1", "number": 7, "outcome": "ok", "offset": 4096, "error": ""}
    {"op": "assigned", "at": 0.4, "by": "c1", "partition": 2, "position": 0}
    {"op": "polled", "at": 0.7, "by": "c1", "partition": 2, "records": [[4096, "p1-7"]], "final": false}
    {"op": "shown", "at": 0.7, "by": "c1", "partition": 2, "offset": 4097}
    {"op": "fault", "at": 0.6, "name": "kill", "target": "1", "healed": false}
    {"op": "end", "at": 9.0, "partition": 2, "offset": 4097}
    {"op": "replica", "at": 9.5, "broker": 1, "partition": 2, "batches": [[4096, 4096, 74, 0, true, "1f0c"]]}
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal, NamedTuple, TextIO, TypeAlias

Outcome: TypeAlias = Literal["ok", "fail", "info"]
"""``ok``: acknowledged; ``fail``: certainly not written; ``info``: unknown, it may be there now, later or never."""


class Batch(NamedTuple):
    """A batch as it lies in a replica's files. ``position`` is the file's first address + the place in the file."""

    position: int
    base_offset: int
    size: int
    epoch: int
    valid: bool
    """Its CRC holds."""
    digest: str
    """Of all of its bytes."""


@dataclass(frozen=True, slots=True)
class Begun:
    at: float
    by: str
    number: int
    partition: int
    value: str


@dataclass(frozen=True, slots=True)
class Ended:
    at: float
    by: str
    number: int
    outcome: Outcome
    offset: int = -1
    error: str = ""


@dataclass(frozen=True, slots=True)
class Assigned:
    """The consumer reads the partition from this position on."""

    at: float
    by: str
    partition: int
    position: int


@dataclass(frozen=True, slots=True)
class Polled:
    """What one poll brought of one partition, in the order in which it came. ``final``: of the last catching up."""

    at: float
    by: str
    partition: int
    records: tuple[tuple[int, str], ...]
    final: bool = False


@dataclass(frozen=True, slots=True)
class Shown:
    """The high watermark that a consumer was told."""

    at: float
    by: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Fault:
    at: float
    name: str
    target: str
    healed: bool


@dataclass(frozen=True, slots=True)
class End:
    """The end of the partition as shown when all was quiet."""

    at: float
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Replica:
    """What a broker's files hold of the partition when all was quiet; `unreadable`: where they could not be read."""

    at: float
    broker: int
    partition: int
    batches: tuple[Batch, ...]
    unreadable: str = ""


Event: TypeAlias = Begun | Ended | Assigned | Polled | Shown | Fault | End | Replica


def write(events: Iterable[Event], file: TextIO) -> None:
    for event in events:
        file.write(json.dumps({"op": type(event).__name__.lower(), **asdict(event)}, separators=(",", ":")) + "\n")
