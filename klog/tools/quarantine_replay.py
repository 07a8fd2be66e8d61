"""The messages of quarantined stretches: shown as tail shows them, and sent again.

A stretch is one file beside a replica's segments. Two replicas may have kept the same messages; to send those again,
the user chooses one broker.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Final, Literal

from klog.errors import KlogError
from klog.render.counts import counted

if TYPE_CHECKING:
    from klog.admin.quarantine import LostRow
    from klog.client.cluster import Cluster
    from klog.record.records import Record

READ_BYTES: Final = 1 << 20
SHOWN_AT_ONCE: Final = 10_000
"""Messages: a batch of a few KB may hold millions of them."""
GIVE_UP_AFTER_S: Final = 60.0
"""What is sent again is still there if it cannot be."""


@dataclass(frozen=True, slots=True)
class ReplayedRow:
    """What was sent again of one stretch; ``messages`` were acknowledged, with acks=all."""

    topic: str
    partition: int
    broker: int
    from_: int
    to: int
    target: str
    messages: int
    error: str | None = None
    message: str | None = None


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
    from klog.tools.message_formatter import MessageFormatter
    from klog.tools.tail_options import TailOptions

    shower = MessageFormatter(TailOptions(output=output, format=form, on_terminal=on_terminal))
    messages = useless = 0
    for row in rows:
        with tempfile.TemporaryFile() as spool:
            await _spool(cluster, row, spool)
            for found in _records(row, spool):
                if isinstance(found, int):
                    useless += found
                    continue
                while some := [_Shown(row, one) for one in islice(found, SHOWN_AT_ONCE)]:
                    sink.write(shower.show(some))
                    messages += len(some)
    sink.flush()
    return messages, useless


async def replay(cluster: Cluster, rows: Sequence[LostRow], target: str) -> list[ReplayedRow]:
    """Send the messages of stretches to a topic, keys, headers and times kept, stretch by stretch with acks=all.

    Refused before anything is sent where two stretches hold the same addresses.
    """
    from klog.admin.quarantine import check_no_doubles
    from klog.render.jsonl import Content, to_line
    from klog.tools.produce import produce
    from klog.tools.produce_options import ProduceOptions

    check_no_doubles(rows)
    await cluster.topic(target)
    done = []
    for row in rows:
        assert row.topic is not None and row.partition is not None and row.from_ is not None and row.to is not None
        result = ReplayedRow(row.topic, row.partition, row.broker, row.from_, row.to, target, 0)
        with tempfile.TemporaryFile() as spool, tempfile.TemporaryFile() as lines:
            await _spool(cluster, row, spool)
            useless = 0
            for found in _records(row, spool):
                if isinstance(found, int):
                    useless += found
                    continue
                for one in found:
                    timestamp_ms = one.timestamp_ms if one.timestamp_ms >= 0 else None
                    content = Content(one.key, one.value, list(one.headers), timestamp_ms)
                    lines.write(to_line(row.topic, row.partition, one.offset, content).encode() + b"\n")
            lines.seek(0)
            receipt = await produce(
                cluster, target, [lines], ProduceOptions(input="jsonl", give_up_after_s=GIVE_UP_AFTER_S)
            )
        result = replace(result, messages=receipt.messages)
        if not receipt.is_complete:
            result = replace(
                result, error="FAILED", message=receipt.first_error or "not all messages were acknowledged"
            )
        elif useless:
            result = replace(
                result,
                error="CORRUPT_MESSAGE",
                message=f"{counted(useless, 'byte')} kept that cannot be read as messages",
            )
        done.append(result)
    return done


async def _spool(cluster: Cluster, row: LostRow, spool: IO[bytes]) -> None:
    """Bring all bytes of a stretch here."""
    from klog.client.blocking import error_of
    from klog.protocol import codec
    from klog.protocol.apis import ApiKey

    channel = await cluster.channel(row.broker)
    position = 0
    while True:
        answer = await channel.request(
            codec.request(
                ApiKey.READ_LOST,
                0,
                topic=row.topic,
                partition_index=row.partition,
                file=row.file,
                position=position,
                max_bytes=READ_BYTES,
            )
        )
        wire = int(answer.error_code)
        if wire:
            raise error_of(
                wire, f"broker {row.broker}: {row.topic}-{row.partition}/{row.file}: {answer.error_code.name}"
            )
        if not answer.data:
            return
        spool.write(answer.data)
        position += len(answer.data)


class _Spooled:
    """A temporary file as the checker of batches reads it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def read_at(self, position: int, size: int) -> bytes:
        self._file.seek(position)
        return self._file.read(size)


def _records(row: LostRow, spool: IO[bytes]) -> Iterator[Iterator[Record] | int]:
    """The records of each batch that checks, one at a time, and how many other bytes lie between."""
    from klog.record.records import each_record
    from klog.storage.checking import Found, check_batches

    assert row.from_ is not None
    file = _Spooled(spool)
    size = spool.seek(0, 2)
    first = row.from_
    for event in check_batches(file, first, first, first + size) if size else ():
        if not isinstance(event, Found):
            yield event.end - event.address
            continue
        batch = file.read_at(event.address - first, event.header.size_bytes)
        try:
            for _ in each_record(batch):  # all of them, or none
                pass
        except KlogError:
            yield event.header.size_bytes
        else:
            yield each_record(batch)


class _Shown:
    """A record as `klog.tools.formats` takes messages: confluent-kafka's way."""

    def __init__(self, row: LostRow, record: Record) -> None:
        self._row = row
        self._record = record

    def topic(self) -> str | None:
        return self._row.topic

    def partition(self) -> int | None:
        return self._row.partition

    def offset(self) -> int:
        return self._record.offset

    def key(self) -> bytes | None:
        return self._record.key

    def value(self) -> bytes | None:
        return self._record.value

    def headers(self) -> Any:
        return list(self._record.headers)

    def timestamp(self) -> tuple[int, int]:
        return (1, self._record.timestamp_ms) if self._record.timestamp_ms >= 0 else (0, -1)
