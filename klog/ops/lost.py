"""What truncation, an unclean election or recovery has set aside: listed, shown, and sent again.

All of it comes from the brokers that hold it, by klog's own requests. A stretch is one file beside a replica's
segments; two replicas may have kept the same messages, so sending them again wants one broker where that is so.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Final, Literal

from klog.errors import CannotConnect, KlogError, NoSuchThing, Refused

if TYPE_CHECKING:
    from klog.client.cluster import Cluster
    from klog.record.records import Record

READ_BYTES: Final = 1 << 20
GIVE_UP_AFTER_S: Final = 60.0
"""What is sent again is still there if it cannot be."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class LostRow:
    """Addresses [from_, to) of a replica's log; ``messages`` None where the bytes did not check.

    A broker that cannot be asked is a row with ``error`` and nothing else: what it holds is not known.
    """

    topic: str | None
    partition: int | None
    broker: int
    from_: int | None
    to: int | None
    messages: int | None
    reason: str | None
    time: datetime | None
    bytes: int | None = field(default=None, metadata={"wide": True})
    file: str | None = field(default=None, metadata={"wide": True})
    error: str | None = None
    message: str | None = None


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


async def list_lost(cluster: Cluster, topics: Sequence[str] = ()) -> list[LostRow]:
    """A row a stretch, by topic, partition, broker and address; last the brokers that could not be asked."""
    if not cluster.is_klog:
        raise Refused(f"{cluster} is no klog: only klog's brokers tell what they have set aside")
    for topic in topics:
        await cluster.topic(topic)
    metadata = await cluster.metadata(fresh=True)
    assigned = {
        broker for topic in metadata.topics.values() for p in topic.partitions.values() for broker in p.replicas
    }
    brokers = sorted(assigned | set(metadata.brokers))
    told = await asyncio.gather(*(_of_broker(cluster, one, one in metadata.brokers, topics) for one in brokers))
    return sorted(
        (row for rows in told for row in rows),
        key=lambda row: (row.error is not None, row.topic or "", row.partition or 0, row.broker, row.from_ or 0),
    )


async def _of_broker(cluster: Cluster, broker: int, is_live: bool, topics: Sequence[str]) -> list[LostRow]:
    from klog.protocol import codec
    from klog.protocol.apis import ApiKey

    try:
        if not is_live:
            raise CannotConnect(f"broker {broker} is not alive: what it has set aside is not known")
        channel = await cluster.channel(broker)
        channel.version_for(ApiKey.LIST_LOST, 0)
        answer = await channel.request(codec.request(ApiKey.LIST_LOST, 0, topics=list(topics) or None))
    except KlogError as error:
        return [LostRow(None, None, broker, None, None, None, None, None, None, None, error.code, error.message)]
    return [
        LostRow(
            str(one.topic),
            int(one.partition_index),
            broker,
            int(one.from_address),
            int(one.to_address),
            int(one.messages) if one.messages >= 0 else None,
            str(one.reason),
            _EPOCH + timedelta(milliseconds=int(one.time_ms)),
            int(one.bytes),
            str(one.file),
        )
        for one in answer.stretches
    ]


async def choose(
    cluster: Cluster,
    topic: str,
    *,
    partitions: Sequence[int] | None = None,
    broker: int | None = None,
    from_address: int | None = None,
) -> list[LostRow]:
    """The stretches of a topic that are meant; NoSuchThing where there is none, an unreachable broker's error."""
    rows = await list_lost(cluster, [topic])
    for row in rows:
        if row.error is not None and row.broker == broker:
            raise CannotConnect(row.message or f"broker {broker} does not answer")
    chosen = [
        row
        for row in rows
        if row.error is None
        and (partitions is None or row.partition in partitions)
        and (broker is None or row.broker == broker)
        and (from_address is None or row.from_ == from_address)
    ]
    if not chosen:
        silent = ", ".join(str(row.broker) for row in rows if row.error is not None)
        raise NoSuchThing(
            f"nothing of topic {topic!r} was set aside that fits" + (f"; not asked: broker {silent}" if silent else ""),
            hint="`klog lost list` shows what there is",
        )
    return chosen


def check_no_doubles(rows: Sequence[LostRow]) -> None:
    """Refused where two brokers have kept the same addresses: sent again, both would be sent."""
    ends: dict[tuple[str | None, int | None], tuple[int, int]] = {}
    for row in sorted(rows, key=lambda row: (row.topic or "", row.partition or 0, row.from_ or 0)):
        place = (row.topic, row.partition)
        end, broker = ends.get(place, (0, row.broker))
        if (row.from_ or 0) < end:
            raise Refused(
                f"{row.topic}-{row.partition}: brokers {broker} and {row.broker} have both kept address {row.from_}"
                if broker != row.broker
                else f"{row.topic}-{row.partition}: broker {broker} has kept address {row.from_} more than once",
                hint="choose one with --broker ID or --from ADDRESS, so that nothing is sent twice",
            )
        ends[place] = (row.to or 0, row.broker)


async def show(
    cluster: Cluster,
    rows: Sequence[LostRow],
    sink: BinaryIO,
    *,
    output: Literal["value", "format", "jsonl"] = "value",
    form: str | None = None,
    on_terminal: bool = False,
) -> tuple[int, int]:
    """Write the messages of stretches as tail does; how many, and how many bytes were no messages."""
    from klog.ops.shower import Shower
    from klog.ops.tail_options import TailOptions

    shower = Shower(TailOptions(output=output, format=form, on_terminal=on_terminal))
    messages = useless = 0
    for row in rows:
        with tempfile.TemporaryFile() as spool:
            await _spool(cluster, row, spool)
            for found in _records(row, spool):
                if isinstance(found, int):
                    useless += found
                    continue
                sink.write(shower.show([_Shown(row, one) for one in found]))
                messages += len(found)
    sink.flush()
    return messages, useless


async def replay(cluster: Cluster, rows: Sequence[LostRow], target: str) -> list[ReplayedRow]:
    """Send the messages of stretches to a topic, keys, headers and times kept, stretch by stretch with acks=all.

    Refused before anything is sent where two stretches hold the same addresses.
    """
    from klog.ops.jsonl import Content, to_line
    from klog.ops.produce import produce
    from klog.ops.produce_options import ProduceOptions

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
            result = replace(result, error="FAILED", message=receipt.first_error or "not all of it was acknowledged")
        elif useless:
            result = replace(result, error="CORRUPT_MESSAGE", message=f"{useless} bytes kept are no messages")
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


def _records(row: LostRow, spool: IO[bytes]) -> Iterator[list[Record] | int]:
    """The records of each batch that checks, and how many bytes lie between that are none."""
    from klog.record.records import decode_batch
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
            yield list(decode_batch(batch))
        except KlogError:
            yield event.header.size_bytes


class _Shown:
    """A record as `klog.ops.formats` takes messages: confluent-kafka's way."""

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
