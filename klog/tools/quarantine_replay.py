"""The messages of quarantined stretches: shown as tail shows them, and sent again.

A stretch is one file beside a replica's segments. Two replicas may have kept the same messages; to send those again,
the user chooses one broker.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import IO, BinaryIO, Final, Literal

from klog.admin.quarantine import LostRow, check_no_doubles
from klog.client.answers import check
from klog.client.cluster import Cluster
from klog.errors import KlogError
from klog.names import counted
from klog.protocol.apis import ApiKey
from klog.record.records import Record, each_record
from klog.render.columns import MayFail
from klog.render.jsonl import Content, to_line
from klog.storage.checking import Found, check_batches
from klog.tools.message_formatter import MessageFormatter
from klog.tools.options import ProduceOptions, TailOptions
from klog.tools.produce import produce
from klog.tools.replica_reader import message_of

READ_BYTES: Final = 1 << 20
SHOWN_AT_ONCE: Final = 10_000
"""Messages: a batch of a few KB may hold millions of them."""
GIVE_UP_AFTER_S: Final = 60.0
"""What is sent again is still there if it cannot be."""


@dataclass(frozen=True, slots=True)
class ReplayedRow(MayFail):
    """What was sent again of one stretch; ``messages`` were acknowledged, with acks=all."""

    topic: str
    partition: int
    broker: int
    from_: int
    to: int
    target: str
    messages: int


async def show(
    cluster: Cluster,
    rows: Sequence[LostRow],
    sink: BinaryIO,
    *,
    output: Literal["value", "format", "jsonl"] = "value",
    form: str | None = None,
    on_terminal: bool = False,
) -> tuple[int, int]:
    """Write the messages of stretches as tail does; how many, and how many bytes were not messages."""
    shower = MessageFormatter(TailOptions(output=output, format=form, on_terminal=on_terminal))
    messages = useless = 0
    for row in rows:
        place = row.topic or "", row.partition or 0
        with tempfile.TemporaryFile() as spool:
            stretch = await _spooled(cluster, row, spool)
            records = stretch.records()
            while some := [message_of(place, one) for one in islice(records, SHOWN_AT_ONCE)]:
                sink.write(shower.show(some))
                messages += len(some)
            useless += stretch.useless_bytes
    sink.flush()
    return messages, useless


async def replay(cluster: Cluster, rows: Sequence[LostRow], target: str) -> list[ReplayedRow]:
    """Send the messages of stretches to a topic, keys, headers and times kept, stretch by stretch with acks=all.

    Refused before anything is sent where two stretches hold the same addresses.
    """
    check_no_doubles(rows)
    await cluster.topic(target)
    done = []
    for row in rows:
        assert row.topic is not None and row.partition is not None and row.from_ is not None and row.to is not None
        with tempfile.TemporaryFile() as spool, tempfile.TemporaryFile() as lines:
            stretch = await _spooled(cluster, row, spool)
            for one in stretch.records():
                timestamp_ms = one.timestamp_ms if one.timestamp_ms >= 0 else None
                content = Content(one.key, one.value, list(one.headers), timestamp_ms)
                lines.write(to_line(row.topic, row.partition, one.offset, content).encode() + b"\n")
            lines.seek(0)
            receipt = await produce(
                cluster, target, [lines], ProduceOptions(input="jsonl", give_up_after_s=GIVE_UP_AFTER_S)
            )
        error = message = None
        if not receipt.is_complete:
            error, message = "FAILED", receipt.first_error or "not all messages were acknowledged"
        elif stretch.useless_bytes:
            error = "CORRUPT_MESSAGE"
            message = f"{counted(stretch.useless_bytes, 'byte')} kept that cannot be read as messages"
        place = row.topic, row.partition, row.broker, row.from_, row.to
        done.append(ReplayedRow(*place, target, receipt.messages, error=error, message=message))
    return done


async def _spooled(cluster: Cluster, row: LostRow, spool: IO[bytes]) -> _Stretch:
    """Bring all bytes of a stretch here."""
    position = 0
    while True:
        answer = await cluster.to_broker(
            row.broker,
            ApiKey.READ_LOST,
            0,
            topic=row.topic,
            partition_index=row.partition,
            file=row.file,
            position=position,
            max_bytes=READ_BYTES,
        )
        check(answer, f"broker {row.broker}: {row.topic}-{row.partition}/{row.file}")
        if not answer.data:
            assert row.from_ is not None
            return _Stretch(spool, position, row.from_)
        spool.write(answer.data)
        position += len(answer.data)


class _Stretch:
    """A temporary file, as the checker of batches reads it."""

    def __init__(self, file: IO[bytes], size: int, address: int) -> None:
        self.useless_bytes = 0
        """Of what `records` has skipped."""
        self._file = file
        self._size = size
        self._address = address

    def read_at(self, position: int, size: int) -> bytes:
        self._file.seek(position)
        return self._file.read(size)

    def records(self) -> Iterator[Record]:
        first = self._address
        for event in check_batches(self, first, first, first + self._size) if self._size else ():
            if not isinstance(event, Found):
                self.useless_bytes += event.end - event.address
                continue
            batch = self.read_at(event.address - first, event.header.size_bytes)
            try:
                for _ in each_record(batch):  # all of them, or none
                    pass
            except KlogError:
                self.useless_bytes += event.header.size_bytes
            else:
                yield from each_record(batch)
