"""Record batches as they are in the log, fetched by offset ranges over blocking connections.

For readers that decode whole batches themselves (the pipeline). A range is ``[from, to)`` of one partition. The result
is whole batches as the broker stores them: the first may begin before ``from`` and the last may reach past ``to``, so a
decoder drops the messages outside.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from klog.client import partition_requests
from klog.client.answers import error_in, error_of
from klog.client.blocking import BlockingChannel
from klog.client.bootstrap import parse_bootstrap
from klog.client.metadata import TopicNode, metadata_fields, metadata_of
from klog.client.partition_requests import by_partition, ranges_by_partition
from klog.client.positions import EARLIEST, LATEST
from klog.client.servers import security_of
from klog.errors import (
    CannotConnect,
    CorruptBatch,
    KlogError,
    LeaderNotAvailable,
    NoSuchThing,
    NotLeader,
    OffsetOutOfRange,
    TimedOut,
    UnknownTopicOrPartition,
    UnsupportedFormat,
)
from klog.names import TopicPartition
from klog.protocol import codec, schema_errors
from klog.protocol.apis import ApiKey
from klog.record.batch import walk

FETCH_BYTES = 4 * 1024 * 1024
"""Bytes per request: some ten thousand small records, enough for the work on them to outweigh the round trip."""

WAIT_MS = 500
"""How long a broker may hold an empty answer; this happens only if the log ends before the range."""

RETRY_PAUSE_S = 0.1
"""Between attempts while a leader is being elected or a broker's counts are being rebuilt."""


class Range(NamedTuple):
    """``[from_offset, to_offset)`` of a partition; on klog the difference is bytes of log."""

    topic: str
    partition: int
    from_offset: int
    to_offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.from_offset}, {self.to_offset})"


class RawCluster:
    """A cluster over blocking connections, one per broker, opened when first needed. One thread at a time."""

    def __init__(self, bootstrap: str, *, timeout_s: float = 10.0, client_id: str = "klog") -> None:
        """``bootstrap`` is ``host:port,...``; connects to the first server that answers.

        Brokers count quotas by ``client_id``.

        Raises CannotConnect naming every server tried, UsageError if the text is not such a list.
        """
        self.bootstrap = bootstrap
        self.cluster_id: str | None = None
        self._timeout_s = timeout_s
        self._client_id = client_id
        self._addresses: dict[int, tuple[str, int]] = {}
        self._channels: dict[int, BlockingChannel] = {}
        self._leaders: dict[TopicPartition, int | None] = {}
        self._schemas: dict[int, str] = {}
        self._any = self._connect_any()

    def __enter__(self) -> RawCluster:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End every connection; may be called twice."""
        self._any.close()
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def _connect_any(self) -> BlockingChannel:
        tried = []
        for host, port in parse_bootstrap(self.bootstrap, "the bootstrap servers"):
            try:
                return self._connect(host, port)
            except CannotConnect as error:
                tried.append(error.message)
        raise CannotConnect("no broker answers: " + "; ".join(tried), hint="is the broker running? try: klog status")

    def _connect(self, host: str, port: int) -> BlockingChannel:
        return BlockingChannel.connect(
            host,
            port,
            timeout_s=self._timeout_s,
            client_id=self._client_id,
            security=security_of(self.bootstrap),
        )

    def _to(self, broker: int) -> BlockingChannel:
        channel = self._channels.get(broker)
        if channel is None:
            channel = self._channels[broker] = self._connect(*self._addresses[broker])
        return channel

    def _to_leader(self, partition: TopicPartition) -> BlockingChannel:
        if partition not in self._leaders:
            self.describe([partition.topic])
        if partition not in self._leaders:
            raise UnknownTopicOrPartition(f"{partition}: no such partition")
        broker = self._leaders[partition]
        if broker is None:
            raise LeaderNotAvailable(f"{partition} has no leader")
        return self._to(broker)

    def _forget(self, partition: TopicPartition) -> None:
        """Read the leader again next time, over a new connection."""
        broker = self._leaders.pop(partition, None)
        if broker is not None and (channel := self._channels.pop(broker, None)) is not None:
            channel.close()

    # --- What is there ---

    def describe(self, topics: Iterable[str] | None = None) -> dict[str, TopicNode]:
        """The topics' ids, partitions and leaders; None: all there are. A missing topic is left out of the result.
        Raises LeaderNotAvailable for one that is asked for and has no partitions yet.

        Never creates a topic.
        """
        wanted = None if topics is None else list(topics)
        found = metadata_of(self._ask_any(ApiKey.METADATA, 12, 4, **metadata_fields(wanted)))
        for topic, wire in found.errors.items():
            is_new = wire == LeaderNotAvailable.wire and wanted is None
            if wire != UnknownTopicOrPartition.wire and not is_new:
                raise error_of(wire, f"topic {topic}")
        self._addresses = {broker_id: (one.host, one.port) for broker_id, one in found.brokers.items()}
        self.cluster_id = found.cluster_id
        for name, node in found.topics.items():
            for number, one in node.partitions.items():
                self._leaders[TopicPartition(name, number)] = one.leader
        return dict(found.topics)

    def _ask_any(self, key: ApiKey, highest: int, lowest: int = 0, **fields: Any) -> Any:
        """The answer of any connected broker, or of another one if that one has left."""

        def ask() -> Any:
            return self._any.request(codec.request(key, self._any.version_for(key, highest, lowest), **fields))

        try:
            return ask()
        except (CannotConnect, TimedOut):
            self._any.close()
            self._any = self._connect_any()
            return ask()

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """For each partition the offset at its time in ms, -1 if no record is that late; EARLIEST and LATEST mean its
        start and its end."""
        return self._ask_leaders(wanted, _ask_offsets)

    def bounds(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Where each partition starts, and where it ends."""
        wanted = list(partitions)
        return self.offsets(dict.fromkeys(wanted, EARLIEST)), self.offsets(dict.fromkeys(wanted, LATEST))

    def counts(self, ranges: Iterable[Range], *, patience_s: float = 60.0) -> dict[Range, int | None]:
        """The number of messages in each range, by the leaders; None if a broker cannot count them (plain Kafka).

        While a klog broker rebuilds its counts, this retries for ``patience_s``; then TimedOut. OffsetOutOfRange if a
        part of the range is no longer in the log.
        """
        found: dict[Range, int | None] = {}
        deadline = time.monotonic() + patience_s
        todo = list(dict.fromkeys(ranges))
        while todo:
            asked: dict[TopicPartition, list[Range]] = {}
            for one in todo:
                asked.setdefault(TopicPartition(one.topic, one.partition), []).append(one)
            for partition, counts in self._ask_leaders(asked, _ask_counts).items():
                found.update(zip(asked[partition], counts, strict=True))
            todo = [one for one, count in found.items() if count is not None and count < 0]
            if todo and time.monotonic() > deadline:
                raise TimedOut(
                    f"the broker does not know yet how many messages {todo[0]} has: it is counting its log again",
                    hint="try again in a while",
                )
            if todo:
                time.sleep(RETRY_PAUSE_S)
        return found

    def nth(self, partition: TopicPartition, offset: int, n: int) -> int:
        """The offset of the ``n``-th message from ``offset`` on (0: the first; below 0: that many before it).

        Clamped to the log's ends. If the broker cannot find messages by number, offsets count as consecutive.
        """
        return self.nths({partition: (offset, n)})[partition]

    def nths(self, wanted: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
        """As `nth`, for many partitions at once: partition -> (offset, n)."""
        return self._ask_leaders(wanted, _ask_nths)

    def batch_start(self, partition: TopicPartition, offset: int) -> int | None:
        """The first offset of the batch that holds this offset; None if the broker cannot find it."""
        channel = self._to_leader(partition)
        if ApiKey.LOCATE_MESSAGE not in channel.versions:
            return None
        answer = channel.request(
            codec.request(
                ApiKey.LOCATE_MESSAGE, 0, topic=partition.topic, partition_index=partition.partition, offset=offset
            )
        )
        return int(answer.batch_offset) if answer.error_code == 0 else None

    def schema(self, schema_id: int) -> str:
        """The text of a registered schema, read once and kept: the schema of an id never changes.

        SchemaNotFound for an unused id, NoSuchThing if the broker has no registry (plain Kafka), TimedOut when no
        broker can read it within the time-out.
        """
        known = self._schemas.get(schema_id)
        if known is None:
            schemas = self._ask_registry(ids=[schema_id], text=None, subjects=[]).schemas
            if not schemas:
                raise schema_errors.SchemaNotFound(f"schema {schema_id} does not exist")
            known = self._schemas.setdefault(schema_id, str(schemas[0].schema))
        return known

    def newest_schema_id(self, subject: str) -> int:
        """The id of a subject's newest version. SubjectNotFound if it has none; otherwise as `schema`."""
        listed = self._ask_registry(ids=[], text=None, subjects=[subject]).subjects
        versions = [one for one in listed[0].versions if not one.is_deleted] if listed else []
        if not versions:
            raise schema_errors.SubjectNotFound(f"the registry of schemas has no subject {subject}")
        return int(max(versions, key=lambda one: one.version).id)

    def _ask_registry(self, **fields: Any) -> Any:
        """The answer to a ReadSchemas, without an error; retries retriable errors until the time-out."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            if ApiKey.READ_SCHEMAS not in self._any.versions:
                raise NoSuchThing(
                    f"{self._any.address} has no schema registry: it is not a klog broker, or an older one",
                    hint="use a klog broker: schema ids are looked up there",
                )
            try:
                found: Any = self._ask_any(ApiKey.READ_SCHEMAS, 0, **fields)
                refused = next((one for one in (found, *found.subjects) if one.error), None)
                if refused is None:
                    return found
                failure = schema_errors.error_of(int(refused.error), refused.error_message)
            except (CannotConnect, TimedOut) as error:
                failure = error
            if not failure.retriable or time.monotonic() > deadline:
                raise failure
            time.sleep(RETRY_PAUSE_S)

    def _ask_leaders(
        self,
        wanted: Mapping[TopicPartition, Any],
        ask: Callable[[BlockingChannel, dict[TopicPartition, Any]], dict[TopicPartition, Any]],
    ) -> dict[TopicPartition, Any]:
        """``ask`` each leader about its partitions; retries retriable errors until the time-out. In their order."""
        found: dict[TopicPartition, Any] = {}
        todo = dict(wanted)
        deadline = time.monotonic() + self._timeout_s
        while todo:
            failure: KlogError | None = None
            by_channel: dict[int, tuple[BlockingChannel, dict[TopicPartition, Any]]] = {}
            for partition, what in todo.items():
                try:
                    channel = self._to_leader(partition)
                except (LeaderNotAvailable, CannotConnect) as error:
                    failure = error
                    self._forget(partition)
                    continue
                by_channel.setdefault(id(channel), (channel, {}))[1][partition] = what
            for channel, share in by_channel.values():
                try:
                    answers = ask(channel, share)
                except (CannotConnect, TimedOut) as error:
                    failure = error
                    for partition in share:
                        self._forget(partition)
                    continue
                for partition, answer in answers.items():
                    if isinstance(answer, KlogError):
                        if not answer.retriable:
                            raise answer
                        failure = answer
                        self._forget(partition)
                    else:
                        found[partition] = answer
                        todo.pop(partition)
            if failure is not None:
                if time.monotonic() > deadline:
                    raise failure
                time.sleep(RETRY_PAUSE_S)
        return {partition: found[partition] for partition in wanted}

    # --- The bytes ---

    def fetch(self, wanted: Range, *, max_bytes: int = FETCH_BYTES) -> Iterator[memoryview]:
        """The batches of a range, in the order of the log, as runs of whole batches.

        The next run is requested before this one is returned, so that the broker works while the caller does.
        Raises OffsetOutOfRange when the range begins before the log's start or ends behind its end (retention,
        DeleteRecords or a truncation went past it), CorruptBatch when the bytes are not batches, and CannotConnect or
        another retriable error when no leader answers within the time-out.
        """
        partition = TopicPartition(wanted.topic, wanted.partition)
        position = wanted.from_offset
        deadline = time.monotonic() + self._timeout_s
        asked: BlockingChannel | None = None
        while position < wanted.to_offset:
            try:
                channel = asked or self._ask_fetch(partition, position, max_bytes)
                asked = None
                answer = channel.receive(timeout_s=self._timeout_s + WAIT_MS / 1000)
                one = answer.responses[0].partitions[0]
                if one.error_code != 0:
                    raise _fetch_error(one, wanted, position)
            except KlogError as error:
                asked = None
                self._forget(partition)
                if not error.retriable or time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_PAUSE_S)
                continue
            whole, after = self._walk(channel, memoryview(one.records or b""), wanted)
            if after is None:
                if one.high_watermark < wanted.to_offset:
                    self._forget(partition)
                    raise OffsetOutOfRange(f"{wanted}: the log ends at {one.high_watermark}")
                if time.monotonic() > deadline:
                    raise TimedOut(f"{wanted}: the broker sends nothing from {position} on")
                continue
            deadline = time.monotonic() + self._timeout_s
            position = after
            if position < wanted.to_offset:
                with suppress(KlogError):  # the top of the loop meets and handles it again
                    asked = self._ask_fetch(partition, position, max_bytes)
            try:
                yield whole
            except GeneratorExit:
                self._forget(partition)  # an answer may be due on that connection
                raise

    def _ask_fetch(self, partition: TopicPartition, position: int, max_bytes: int) -> BlockingChannel:
        channel = self._to_leader(partition)
        asked = partition_requests.fetch(channel, {partition: position}, max_wait_ms=WAIT_MS, max_bytes=max_bytes)
        channel.send(asked)
        return channel

    @staticmethod
    def _walk(channel: BlockingChannel, records: memoryview, wanted: Range) -> tuple[memoryview, int | None]:
        """The whole batches among ``records`` that begin before the range's end, and the offset to go on at.

        On klog a batch's bytes are its addresses, so the next batch's start is known and a range that ends there needs
        no further request. None as the offset: not one whole batch.
        """
        end, after = 0, None
        addressed = ApiKey.COUNT_MESSAGES in channel.versions
        try:
            for at, header in walk(records, allow_partial=True):
                if header.base_offset >= wanted.to_offset:
                    return records[:at], header.base_offset
                if header.last_offset_delta < 0:
                    raise CorruptBatch(f"the batch at {header.base_offset} ends before it begins")
                end = at + header.size_bytes
                after = header.next_address if addressed else header.last_offset + 1
        except (CorruptBatch, UnsupportedFormat) as error:
            raise type(error)(f"{wanted}: {error.message}", hint=error.hint) from None
        return records[:end], after


def _ask_offsets(channel: BlockingChannel, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, Any]:
    answer = channel.request(partition_requests.list_offsets(channel, wanted))
    return {name: error_in(one, name) or int(one.offset) for name, one in by_partition(answer.topics)}


def _ask_counts(channel: BlockingChannel, wanted: dict[TopicPartition, list[Range]]) -> dict[TopicPartition, Any]:
    if ApiKey.COUNT_MESSAGES not in channel.versions:
        return {partition: [None] * len(ranges) for partition, ranges in wanted.items()}
    asked = {partition: [(one.from_offset, one.to_offset) for one in ranges] for partition, ranges in wanted.items()}
    answer = channel.request(partition_requests.count_messages(asked))
    return {name: _counts(wanted[name], answers) for name, answers in ranges_by_partition(answer.topics).items()}


def _counts(ranges: list[Range], answers: list[Any]) -> list[int] | KlogError:
    """The first error, if there is one."""
    for asked, one in zip(ranges, answers, strict=True):
        error = error_in(one, asked)
        if error is not None:
            return error
        if (one.from_offset, one.to_offset) != (asked.from_offset, asked.to_offset):
            # The broker has counted only the part of the range that it still has: the range is no longer whole.
            return OffsetOutOfRange(f"{asked}: the log has only [{one.from_offset}, {one.to_offset}) of it")
    return [int(one.messages) for one in answers]


def _ask_nths(channel: BlockingChannel, wanted: dict[TopicPartition, Any]) -> dict[TopicPartition, Any]:
    if ApiKey.FIND_MESSAGE not in channel.versions:
        return {one: offset + n for one, (offset, n) in wanted.items()}
    answer = channel.request(partition_requests.find_message(wanted))
    return {name: error_in(one, name) or int(one.offset) for name, one in by_partition(answer.topics)}


def _fetch_error(one: Any, wanted: Range, position: int) -> KlogError:
    if one.error_code == OffsetOutOfRange.wire:
        return OffsetOutOfRange(
            f"{wanted}: offset {position} is not in the log any more"
            + (f" (it starts at {one.log_start_offset})" if getattr(one, "log_start_offset", -1) >= 0 else "")
        )
    if one.error_code in (NotLeader.wire, UnknownTopicOrPartition.wire):
        return error_of(int(one.error_code), f"{wanted}: the broker does not lead it")
    return error_of(int(one.error_code), f"{wanted}: {one.error_code.name} at offset {position}")
