"""The rows of `klog export`: what its verbs return. The verbs are `run`, `status`, `verify` beside it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from klog.names import TopicPartition, nested
from klog.render.columns import MayFail


@dataclass(frozen=True)
class ExportedRange:
    """What one run took of one partition: ``[from_, to)``.

    ``files`` hold its messages; one that holds several partitions' is counted with the first of these alone, so that
    the sum is that of the files. ``bytes`` is its share of them, by messages. Both are None in a dry run, and
    ``messages`` is where the broker cannot count.
    """

    topic: str
    partition: int
    from_: int
    to: int
    messages: int | None
    files: int | None
    bytes: int | None
    undecodable: int | None = None
    """Of the messages, those that could not be decoded; None in a dry run."""


@dataclass(frozen=True)
class SparkOption:
    """An option of ``format("klog")``, and of Spark's Kafka connector, and its value."""

    option: str
    value: str


def spark_options(rows: Sequence[ExportedRange]) -> list[SparkOption]:
    """What these ranges are as startingOffsets and endingOffsets, with the partitions that have something new."""
    starts = nested({TopicPartition(row.topic, row.partition): row.from_ for row in rows})
    ends = nested({TopicPartition(row.topic, row.partition): row.to for row in rows})
    assigned = {topic: sorted(map(int, partitions)) for topic, partitions in starts.items()}
    return [
        SparkOption(name, json.dumps(value))
        for name, value in (("assign", assigned), ("startingOffsets", starts), ("endingOffsets", ends))
    ]


@dataclass(frozen=True)
class ExportStatus:
    """How far an export is behind.

    ``lag`` is messages, exact, None where the broker cannot count; ``lag_ms`` is the age of the oldest message that is
    not exported, 0 where there is none.
    """

    topic: str
    partition: int
    exported: int
    log_end_offset: int | None
    lag: int | None
    lag_ms: int | None
    log_start_offset: int | None = field(default=None, metadata={"wide": True})
    undecodable: int = 0
    """Of the exported messages, those that could not be decoded."""


@dataclass(frozen=True)
class ExportCheck(MayFail):
    """The verdict on one partition of an export, or on something of the root itself (``partition`` None).

    ``state`` is ``ok`` or what was found: ``gap``, ``overlap``, ``wrong-count``, ``wrong-checksum``, ``missing-file``,
    ``changed-file``, ``broken-chain``, ``missing-batch``, ``unknown-file``; then ``error`` is its machine name and
    ``message`` says what and where. ``undecodable`` of the ``messages`` could not be decoded. ``broker_messages`` is
    None where the broker no longer has the range, or cannot count.
    """

    topic: str | None
    partition: int | None
    from_: int | None
    to: int | None
    batches: int
    messages: int
    undecodable: int
    broker_messages: int | None
    state: str
