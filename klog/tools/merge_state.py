"""`klog log merge-state`: the state-change logs of several brokers in one order.

Order: by time, and of one time by controller epoch and leader epoch, then as the files were given. Each file's own
order is kept, also where its broker's clock was set back: a line counts as late as the latest before it in its file.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from klog.errors import NoSuchThing

OWN_FIELDS = ("ts", "broker", "kind", "topic", "partition")
EPOCH_FIELDS = ("controller_epoch", "leader_epoch", "epoch")


Detail: TypeAlias = int | float | str | bool | list[int] | list[str] | None


@dataclass(frozen=True, slots=True)
class StateRow:
    """One line of a state-change log; ``epoch`` is the leader epoch, else the controller's, that it tells of.

    An invalid line (a torn last one) is a row with ``error``.
    """

    time: datetime | None
    broker: int | None
    kind: str | None
    topic: str | None
    partition: int | None
    epoch: int | None
    detail: dict[str, Detail] | None
    file: str = field(metadata={"wide": True})
    line: int = field(metadata={"wide": True})
    error: str | None = None
    message: str | None = None


class _Place(NamedTuple):
    time: datetime
    controller_epoch: int
    leader_epoch: int
    file: int
    line: int


def merge_state(
    files: Sequence[Path],
    *,
    topics: Collection[str] | None = None,
    partitions: Collection[int] | None = None,
    kinds: Collection[str] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> Iterator[StateRow]:
    """The rows of all files, those of the wanted topics, partitions, kinds and times. NoSuchThing for a missing file.

    ``since`` is in the range, ``until`` is not. One line of each file is in memory at a time.
    """
    for path in files:
        if not path.is_file():
            raise NoSuchThing(f"{path} is not a file", hint="a broker writes state-change.log in its first log dir")
    begin, end = since or datetime.min.replace(tzinfo=UTC), until or datetime.max.replace(tzinfo=UTC)
    return (row for row in _merged(files, topics, partitions, kinds) if row.time is None or begin <= row.time < end)


def _merged(
    files: Sequence[Path],
    topics: Collection[str] | None,
    partitions: Collection[int] | None,
    kinds: Collection[str] | None,
) -> Iterator[StateRow]:
    for _, row in heapq.merge(*(_read(index, path) for index, path in enumerate(files)), key=lambda one: one[0]):
        if row.error is None and (
            (topics is not None and row.topic not in topics)
            or (partitions is not None and row.partition not in partitions)
            or (kinds is not None and row.kind not in kinds)
        ):
            continue
        yield row


def _read(index: int, path: Path) -> Iterator[tuple[_Place, StateRow]]:
    latest = datetime.min.replace(tzinfo=UTC)
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            row, epochs = _row(path, number, line)
            if row.time is not None:
                latest = max(latest, row.time)
            yield _Place(latest, *epochs, index, number), row


def _row(path: Path, number: int, line: bytes) -> tuple[StateRow, tuple[int, int]]:
    try:
        entry = json.loads(line.decode())
        time = datetime.fromisoformat(entry["ts"])
        if time.tzinfo is None:
            raise ValueError("a time without a zone")
        broker, kind = int(entry["broker"]), str(entry["kind"])
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        what = "UTF-8 text" if isinstance(error, UnicodeDecodeError) else f"JSON (column {error.colno}: {error.msg})"
        reason = f"line {number} is not {what}"
        failed = StateRow(None, None, None, None, None, None, None, str(path), number, "BAD_LINE", reason)
        return failed, (-1, -1)
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        reason = f"line {number} is not of a state-change log: {error}"
        failed = StateRow(None, None, None, None, None, None, None, str(path), number, "BAD_LINE", reason)
        return failed, (-1, -1)
    topic, partition = entry.get("topic"), entry.get("partition")
    controller_epoch, leader_epoch = (_number(entry.get(name)) for name in EPOCH_FIELDS[:2])
    if leader_epoch is None:
        leader_epoch = _number(entry.get("epoch"))
    row = StateRow(
        time,
        broker,
        kind,
        None if topic is None else str(topic),
        _number(partition),
        controller_epoch if leader_epoch is None else leader_epoch,
        {name: value for name, value in entry.items() if name not in OWN_FIELDS} or None,
        str(path),
        number,
    )
    return row, (-1 if controller_epoch is None else controller_epoch, -1 if leader_epoch is None else leader_epoch)


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
