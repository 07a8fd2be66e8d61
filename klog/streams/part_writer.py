"""In a task: the rows of one batch, appended to the partitions of a topic, each once.

The rows come sorted: those of one partition together, and in an order that a repeated batch has again
(`klog.streams.topic_sink` says why that is so). A task's memory is bounded by one Arrow batch and one append.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from klog.client.one_message import first_message
from klog.errors import OffsetOutOfRange, Refused
from klog.names import TopicPartition
from klog.record.provenance_header import Marked, Marker
from klog.record.records import Headers, Record, encode_batch
from klog.streams.stamp import ROWS_MAX, Digest, Stamp, Stamped, batch_of, place, source_of
from klog.tools.copying.cluster_endpoint import ClusterEndpoint
from klog.tools.copying.target import Fenced, Target, TargetLog

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

APPEND_BYTES = 512 * 1024
"""Of keys, values and headers in one append: enough for the round trip to be short beside the work."""
RECORD_BYTES = 64
"""What a record needs besides; generous."""
PATIENCE_S = 120.0
"""How long the target may be away (an election, a restart) before the task fails and Spark repeats it."""


@dataclass(frozen=True)
class PartPlan:
    """What a task must know, besides its rows. ``ends``: where the target ended before the batch's first attempt."""

    bootstrap: str
    topic: str
    query: str
    batch: int
    ends: tuple[int, ...] | None
    """By partition; None where nothing is known: then the whole partition is searched for rows of the batch."""
    batch_bytes_max: int
    secret: str = ""
    """By which the query's own stamps are known; kept with its checkpoint."""


@dataclass
class WrittenPart:
    """Of one partition: the rows that the batch has for it, and how many of these an earlier attempt had written."""

    partition: int
    rows: int
    there: int
    differs: bool = False
    """Whether that attempt had finished the part with other rows, which then count."""


class PartWriter:
    """Writes the parts of one task, one after the other. One thread; `close` it."""

    def __init__(self, plan: PartPlan) -> None:
        self.plan = plan
        self._runner = asyncio.Runner()
        self._endpoint: ClusterEndpoint | None = None
        self._target: Target | None = None

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._endpoint is not None:
            self._runner.run(self._endpoint.close())
        self._runner.close()

    def write(self, rows: Iterator[Row]) -> list[WrittenPart]:
        """Append all rows; one result per partition. Raises Refused and what the target answers with."""
        done: list[WrittenPart] = []
        part: _Part | None = None
        for partition, timestamp_ms, key, value, headers in rows:
            if part is None or part.partition.partition != partition:
                if part is not None:
                    done.append(part.finish())
                part = self._begin(partition)
            part.add(timestamp_ms, key, value, headers)
        if part is not None:
            done.append(part.finish())
        return done

    def _begin(self, partition: int) -> _Part:
        return self._runner.run(self._found(TopicPartition(self.plan.topic, partition)))

    async def _found(self, partition: TopicPartition) -> _Part:
        """A part, and how much of it an earlier attempt has written."""
        if self._target is None:
            endpoint = ClusterEndpoint(self.plan.bootstrap, "target", patience_s=PATIENCE_S, note=log.warning)
            self._endpoint = await endpoint.open()
            self._target = Target(endpoint)
        source = source_of(self.plan.query, partition.partition)
        ends = self.plan.ends
        below = None if ends is None else ends[partition.partition]
        stamped = Stamped(self.plan.query, partition, self.plan.secret)
        appended = TargetLog(self._target, partition, source, stamped)
        await appended.find(below)
        return _Part(self, appended, await self._there(appended))

    async def _there(self, appended: TargetLog) -> Stamp | None:
        """The stamp of the query's last message in a partition, if that is of this batch or a later one."""
        assert self._endpoint is not None
        mark, partition = appended.mark, appended.partition
        if mark is None or batch_of(mark.source) < self.plan.batch:
            return None
        try:
            record = await self._endpoint.patiently(
                lambda cluster: cluster.to_leader(partition, mark.here, first_message)
            )
        except OffsetOutOfRange:
            return None
        if record is None or record.offset != mark.here:
            return None
        return Stamp.of(record, partition, self.plan.secret)

    def append(self, appended: TargetLog, marked: Marked, stamp: Stamp) -> None:
        """Have these messages in the log, once."""
        self._runner.run(self._append(appended, marked, stamp))

    async def _append(self, appended: TargetLog, marked: Marked, stamp: Stamp) -> None:
        if await appended.append(marked):
            return
        # Something of this query came in between: this append itself, whose answer was lost, or another attempt's.
        there = await self._there(appended)
        if there is not None and (there.batch, there.rows, there.digest) == (stamp.batch, stamp.rows, stamp.digest):
            return
        raise Fenced(
            f"another attempt of batch {self.plan.batch} writes to {appended.partition} at the same time",
            hint="nothing is written twice: the task that Spark runs next continues where the log is",
        )


Row = tuple[int, int | None, bytes | None, bytes | None, Headers]
"""(target partition, timestamp in ms, key, value, headers)."""


class _Part:
    """The rows of one partition. Those that are there already are counted and compared, the others appended."""

    def __init__(self, writer: PartWriter, appended: TargetLog, there: Stamp | None) -> None:
        self.partition = appended.partition
        self._appended = appended
        self._writer = writer
        self._plan = writer.plan
        self._there = there
        self._is_done = there is not None and (there.is_last or there.batch > self._plan.batch)
        self._marker = Marker(appended.source)
        self._digest = Digest()
        self._rows = 0
        self._records: list[Record] = []
        self._bytes = 0
        self._bytes_max = min(APPEND_BYTES, self._plan.batch_bytes_max // 2)

    def add(self, timestamp_ms: int | None, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        if self._rows == ROWS_MAX:
            raise Refused(f"{self.partition}: a batch has at most {ROWS_MAX} rows for one partition")
        size = RECORD_BYTES + len(key or b"") + len(value or b"")
        size += sum(len(name) + len(content or b"") for name, content in headers)
        if self._records and self._bytes + size > self._bytes_max:
            self._flush(is_last=False)
        self._digest.add(timestamp_ms, key, value, headers)
        number = self._rows
        self._rows += 1
        if self._is_done:
            return
        if self._there is not None and number < self._there.rows:
            if self._rows == self._there.rows and self._digest.text() != self._there.digest:
                raise self._other_rows(f"the first {self._rows} rows are others")
            return
        mark = self._marker.header(place(self._plan.batch, number))
        time_ms = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
        self._records.append(Record(number, time_ms, key, value, (*headers, mark)))
        self._bytes += size

    def finish(self) -> WrittenPart:
        """Append what is left."""
        there = self._there
        if self._is_done:
            assert there is not None
            same = there.batch != self._plan.batch or (there.rows, there.digest) == (self._rows, self._digest.text())
            return WrittenPart(self.partition.partition, self._rows, self._rows, not same)
        if there is not None and self._rows < there.rows:
            raise self._other_rows(f"{self._rows} rows where {there.rows} were written before")
        if self._records:
            self._flush(is_last=True)
        return WrittenPart(self.partition.partition, self._rows, 0 if there is None else there.rows)

    def _flush(self, *, is_last: bool) -> None:
        stamp = Stamp(self._plan.query, self._plan.batch, self._rows, self._digest.text(), is_last)
        header, records = stamp.header(self.partition, self._plan.secret), self._records
        records[-1] = records[-1]._replace(headers=(*records[-1].headers, header))
        first, last = (place(self._plan.batch, one.offset) for one in (records[0], records[-1]))
        # One record batch, so that it is in the log whole or not at all.
        encoded = bytes(encode_batch(records))
        self._writer.append(self._appended, Marked(encoded, len(records), first, last, last + 1), stamp)
        self._records, self._bytes = [], 0

    def _other_rows(self, what: str) -> Refused:
        return Refused(
            f"batch {self._plan.batch} has other rows for {self.partition} than when it was begun: {what}",
            hint="the query is not deterministic (random values, order of a limit), or its text has changed: finish the"
            " batch with the text it was begun with, or begin with a new checkpoint",
        )


def rows_of(batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    """The rows of Arrow batches with the columns to, timestamp, key, value, headers."""
    import pyarrow as pa

    for batch in batches:
        times: list[Any] = batch.column("timestamp").cast(pa.int64()).to_pylist()
        yield from zip(
            batch.column("to").to_pylist(),
            [None if one is None else one // 1000 for one in times],
            batch.column("key").to_pylist(),
            batch.column("value").to_pylist(),
            [_headers(one) for one in batch.column("headers").to_pylist()],
            strict=True,
        )


def _headers(found: list[dict[str, Any]] | None) -> Headers:
    return tuple((one["key"], one["value"]) for one in found or ())
