"""The writing half of a copy: appends that happen once, whatever is lost on the way.

Theory
    Every copied message says in a header which offset of which source it is (`klog.record.provenance_header`), and
    ProduceAt appends only where nothing of that source is behind the end that its writer has seen. So a writer that has
    read everything committed, and appends, knows that it has seen everything before its append: there is neither
    another's copy of the same messages nor its own, sent earlier and not answered.

    `TargetLog` is what is known of one source in one target partition: its last message there, and how far the log was
    searched for it. An append moves both. What is found by reading counts as far as the source confirms it
    (`Originals`): others may write to the target as well, and marks like ours.

    When the answer says END_MOVED, what stands behind is read, and with it how far the source is copied now. That
    settles, too, what became of an append whose answer was lost: it is simply made again. An answer under another
    leader epoch than the one before is a reason to look whether what was acknowledged is still there (it is, unless an
    unclean election took it: then the place is searched again, and it is copied again).

Two copiers of one source
    cannot double anything, but they would take turns for ever. A writer's name begins with the time at which it
    started. The broker names the writer that moved the end to the one that finds it moved, and refuses the younger one
    where the older is alive; the younger of the two gives up (`Fenced`). What a dead one had under way arrives at most
    once, so a writer does not give up the first time.

A cluster that is not klog
    has no ProduceAt: it gets Produce, a batch a request, and what became of a request without an answer is read. What
    arrives later than that, or is sent by a second copier, is there twice.

Event loop only.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from klog.client import partition_requests
from klog.client.answers import error_in
from klog.client.cluster import Cluster
from klog.errors import (
    EndMoved,
    InconsistentTopicId,
    InvalidProducerEpoch,
    InvalidTimestamp,
    KlogError,
    LeaderNotAvailable,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
)
from klog.names import TopicPartition
from klog.net.channel import Channel
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.record.batch import walk
from klog.record.provenance_header import Copy, Marked, Source, copies_of
from klog.tools.copying.cluster_endpoint import AWAY, PAUSE_S, ClusterEndpoint, Fetched
from klog.tools.copying.source import Originals

COMMIT_TIMEOUT_S = 5.0
"""How long a leader may wait for its followers before it says that it does not know."""
ANSWER_GRACE_S = 2.0
"""How much longer it is waited for; then another broker may lead."""

SCAN_BYTES = 4 * 1024 * 1024
"""Of the target's log, at once, while copies are looked for."""

AT_END = -1
AT_LEAST_ONCE = "{} is not klog and has no conditional append: copied at least once, so messages may be doubled"

YOUNGER_CONFLICTS_MAX = 20
UNKNOWN_CONFLICTS_MAX = 3
OLDER_CONFLICTS_MAX = 2
"""How often in one partition another's copy of the same source may be found before it counts as a conflict."""


class Fenced(KlogError, code="FENCED"):
    """Another one copies the same source into the same partition."""


class Mark(NamedTuple):
    """The last message of a source in the target: its offset there (``source``), and at or before which it is here."""

    source: int
    here: int


class Confirms(Protocol):
    """`Originals`, or a stream's stamps (`klog.streams.stamp.Stamped`)."""

    async def confirm(self, position: int, copy: Copy) -> bool:
        """Whether the message counts as the copy that it says it is."""


class TargetLeader(NamedTuple):
    leader: int
    epoch: int
    topic_id: UUID | None


class Appended(NamedTuple):
    """What a leader has answered: ``base`` is where the append begins, ``end`` where the log ends behind it."""

    error: KlogError | None
    base: int = -1
    end: int = -1
    writer: str = ""


def writer_name(now_ms: int | None = None) -> str:
    """Names this process as a writer; the older one's name is the smaller."""
    started_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    return f"{started_ms:013d}/{socket.gethostname()}/{os.getpid()}/{os.urandom(4).hex()}"


def said_of(writer: str) -> str:
    """A writer's name in words."""
    parts = writer.split("/")
    if len(parts) != 4 or not parts[0].isdigit():
        return "another one"
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(parts[0]) / 1000))
    return f"process {parts[2]} on {parts[1]}, started {since},"


class Target:
    """The cluster that is copied into. ``is_exact``: whether each message is appended once, not at least once."""

    def __init__(self, side: ClusterEndpoint, *, writer: str | None = None) -> None:
        self.side = side
        self.is_exact = side.cluster.is_klog
        self.writer = writer or writer_name()
        self._looking: asyncio.Task[Any] | None = None

    async def log(
        self, into: TopicPartition, side: ClusterEndpoint, one: TopicPartition, *, floor: int, below: int | None
    ) -> TargetLog:
        """What there is of a source's partition; see `TargetLog.floor` and `TargetLog.find`."""
        originals = Originals(side, one, keeps_times=self.is_exact)
        log = TargetLog(self, into, Source(side.cluster_id, *one), originals)
        log.floor = floor
        await log.find(below)
        return log

    async def place(self, partition: TopicPartition) -> TargetLeader:
        """Who leads it, by metadata that is fresh; many partitions that ask at once are answered by one question."""

        async def ask(cluster: Cluster) -> TargetLeader:
            if self._looking is None or self._looking.done():
                self._looking = asyncio.create_task(cluster.metadata([partition.topic], fresh=True))
            try:
                metadata = await asyncio.shield(self._looking)
                if partition.topic not in metadata.topics:  # another one's question
                    metadata = await cluster.metadata([partition.topic], fresh=True)
            except KlogError:
                self._looking = None
                raise
            topic = metadata.topics.get(partition.topic)
            node = None if topic is None else topic.partitions.get(partition.partition)
            if topic is None or node is None:
                raise UnknownTopicOrPartition(f"the target has no {partition}")
            if node.leader is None or node.leader not in metadata.brokers:
                raise LeaderNotAvailable(f"{partition} of the target has no leader")
            topic_id = UUID(topic.topic_id) if topic.topic_id is not None else None
            return TargetLeader(node.leader, -1 if node.leader_epoch is None else node.leader_epoch, topic_id)

        return await self.side.patiently(ask)


class TargetLog:
    """The copies of one source in one target partition. `find` them before the first `append`."""

    def __init__(
        self, target: Target, partition: TopicPartition, source: Source, originals: Confirms | None = None
    ) -> None:
        """``originals``: what copies are held against; without them every mark is believed. Where they are those of a
        copy, and not a stream's own stamps, what does not count is told."""
        self.partition = partition
        self.source = source
        self.floor = 0
        """What lies below in the source is not to be copied: it is known to be here, or is not wanted."""
        self.mark: Mark | None = None
        self.end = 0
        """Below which nothing of the source is here but what is known."""
        self.conflicts: dict[str, int] = {}
        """Writer -> how often its copies were found."""
        self.losses = 0
        """How often the target had lost what it had acknowledged."""
        self._target = target
        self._side = target.side
        self._originals = originals
        self._place: TargetLeader | None = None
        self._is_copy = isinstance(originals, Originals)
        self._has_doubted = False

    @property
    def next_offset(self) -> int:
        """Where to go on in the source."""
        return self.floor if self.mark is None else max(self.floor, self.mark.source + 1)

    # --- where to go on ---

    async def find(self, below: int | None = None) -> None:
        """Look for the last copy, and for the log's end.

        ``below``: what is behind this offset of the target is all that is to be read (what is below is known
        otherwise); AT_END: nothing is.
        """
        self._place = await self._target.place(self.partition)
        start, end = await self._side.bounds(self.partition)
        if below == AT_END:
            self.end = end
            return
        # The first copies may have been removed. What the copier has committed tells where to go on, whatever is here.
        is_cut_off = start > 0 and below is None
        begin = start if below is None or below > end else max(start, below)
        self.end = await self._scan(begin, end, may_begin_anywhere=is_cut_off)

    async def _scan(self, begin: int, end: int, *, may_begin_anywhere: bool = False) -> int:
        """Take in the copies from ``begin`` up to ``end``, and behind as far as the last run has them, as far as each
        goes on where the one before it ended; the offset reached.
        """
        reached = begin
        async for at, fetched in self._runs(begin, end):
            for copy in copies_of(self.source, fetched.run, at):
                position = self.next_offset
                if copy.there < position:
                    continue
                is_first = may_begin_anywhere and self.mark is None
                if await self._is_confirmed(copy.there if is_first else position, copy):
                    if is_first and copy.there > position and self._is_copy:
                        self._side.note(
                            f"{self.partition} of the target has lost its first messages to retention, and its first"
                            f" copy is that of {copy.there} of {self.source}: what lies before that in the source is"
                            " taken for copied"
                        )
                    self.mark = Mark(copy.there, copy.record.offset)
                elif self._is_copy and not self._has_doubted:
                    self._has_doubted = True
                    self._side.note(
                        f"{self.partition} of the target has a message at {copy.record.offset} that says it is the copy"
                        f" of {copy.there} of {self.source}, and is not the one to be copied next: it does not count,"
                        " nor do others like it. Another client wrote it, or a copy of another range"
                    )
            reached = fetched.after
        return reached

    async def _is_confirmed(self, position: int, copy: Copy) -> bool:
        return self._originals is None or await self._originals.confirm(position, copy)

    async def _stands(self, mark: Mark) -> bool:
        """Whether what was acknowledged last is still there, below the known end."""
        async for at, fetched in self._runs(mark.here, self.end):
            for copy in copies_of(self.source, fetched.run, at):
                if copy.there == mark.source:
                    return await self._is_confirmed(mark.source, copy)
        return False

    async def _runs(self, begin: int, end: int) -> AsyncIterator[tuple[int, Fetched]]:
        """What lies from ``begin`` up to ``end``, and behind as far as the last run has it: (where asked, a run)."""
        at = begin
        while at < end:
            fetched = await self._side.fetch(self.partition, at, SCAN_BYTES)
            if fetched.after >= 0:
                yield at, fetched
                at = fetched.after
            elif fetched.high_watermark <= at:
                return  # the end has become another one: the caller finds out
            else:
                await asyncio.sleep(PAUSE_S)

    # --- appending ---

    async def append(self, marked: Marked) -> bool:
        """Have these messages in the target, committed, once. False where the target turned out to be copied to
        further, or less far, than was thought: `next_offset` says where to go on.

        Raises Fenced, MessageTooLarge and what else trying again would not change.
        """
        in_doubt = False
        while True:
            before = self.mark
            place = self._place = self._place or await self._target.place(self.partition)
            used = self._side.cluster
            send = self._produce_at if self._target.is_exact else self._produce
            try:
                answer = await send(await used.channel(place.leader), marked.records, place)
            except AWAY as lost:
                answer = Appended(lost)
            error = answer.error
            if error is None:
                self._side.fine()
                self.end = answer.end
                self.mark = Mark(marked.last_offset, answer.base)
                return True
            if error.wire == EndMoved.wire:
                end_before = self.end
                await self._read_on()
                if self.mark != before:
                    is_ours = in_doubt and self.mark is not None and self.mark.source <= marked.last_offset
                    if self.mark is not None and not is_ours:
                        self._count_conflict(answer.writer)
                    return False
                if self.end == end_before:
                    await asyncio.sleep(PAUSE_S)  # what is in the way is not committed yet, or will never be
            elif error.wire == InvalidProducerEpoch.wire:
                self._count_conflict(answer.writer)
            elif error.retriable or isinstance(error, AWAY):
                # It may have been appended, and it may yet be, until the leader's epoch is over.
                in_doubt = True
                await self._side.back_off(error, used)
                await self._look_again()
                if self.mark != before:
                    return False
            elif error.wire == InvalidTimestamp.wire:
                raise InvalidTimestamp(
                    f"{self.partition} of the target rejects the messages from offset {marked.first_offset} and"
                    f" {marked.last_offset} of {self.source}: {error.message}",
                    hint=f"`klog topic config {self.partition.topic} message.timestamp.after.max.ms=...` of the target"
                    " (before.max.ms for old ones), then go on",
                )
            else:
                raise self._made_again() if error.wire == InconsistentTopicId.wire else error

    async def _produce_at(self, channel: Channel, records: bytes, place: TargetLeader) -> Appended:
        wanted = {
            "topic": self.partition.topic,
            "topic_id": place.topic_id,
            "partition_index": self.partition.partition,
            "leader_epoch": place.epoch,
            "expected_end": self.end,
            "source": str(self.source),
            "writer": self._target.writer,
            "records": records,
        }
        asked = codec.request(ApiKey.PRODUCE_AT, 0, timeout_ms=int(COMMIT_TIMEOUT_S * 1000), partitions=[wanted])
        one = (await channel.request(asked, timeout_s=COMMIT_TIMEOUT_S + ANSWER_GRACE_S)).partitions[0]
        return Appended(error_in(one), int(one.base_offset), int(one.end_offset), str(one.writer))

    async def _produce(self, channel: Channel, records: bytes, place: TargetLeader) -> Appended:
        """By Kafka's own request, which takes one batch of a partition."""
        base = end = -1
        for position, header in walk(records):
            batch = records[position : position + header.size_bytes]
            asked = partition_requests.produce(channel, self.partition, batch, timeout_ms=int(COMMIT_TIMEOUT_S * 1000))
            answer = await channel.request(asked, timeout_s=COMMIT_TIMEOUT_S + ANSWER_GRACE_S)
            one = answer.responses[0].partition_responses[0]
            if error := error_in(one):
                return Appended(error)
            base, end = base if base >= 0 else int(one.base_offset), int(one.base_offset) + header.count
        return Appended(None, base, end)

    async def _look_again(self) -> None:
        """Who leads now; under a new epoch, whether what was acknowledged is there."""
        known = self._place
        now = self._place = await self._target.place(self.partition)
        if known is not None and now.topic_id != known.topic_id:
            raise self._made_again()
        if known is not None and now.epoch != known.epoch:
            await self._verify()
        elif not self._target.is_exact:
            await self._read_on()

    async def _verify(self) -> None:
        start, end = await self._side.bounds(self.partition)
        if end >= self.end and (self.mark is None or self.mark.here < start or await self._stands(self.mark)):
            self.end = max(end, await self._scan(max(start, self.end), end))
        else:
            await self._lost()

    async def _lost(self) -> None:
        """The target has lost what it had acknowledged: what is there is found out from nothing."""
        self.losses += 1
        self._side.note(
            f"{self.partition} of the target has lost messages that it had acknowledged; they are copied again"
        )
        self.mark = None
        await self.find()

    async def _read_on(self) -> None:
        """Take in what others have put behind the known end, as far as it is committed."""
        start, end = await self._side.bounds(self.partition)
        if end < self.end:
            # Committed messages do not go away; a leader that is behind says so (rule R8). This one has lost some.
            await self._lost()
            return
        try:
            reached = await self._scan(max(start, self.end), end)
        except OffsetOutOfRange:
            await self._lost()
            return
        self.end = max(end, reached)

    def _count_conflict(self, writer: str) -> None:
        if writer == self._target.writer:
            return
        count = self.conflicts[writer] = self.conflicts.get(writer, 0) + 1
        if not writer:
            allowed = UNKNOWN_CONFLICTS_MAX
        else:
            allowed = OLDER_CONFLICTS_MAX if writer < self._target.writer else YOUNGER_CONFLICTS_MAX
        if count >= allowed:
            raise Fenced(
                f"{said_of(writer)} also copies {self.source} into {self.partition} of the target",
                hint="one is enough; nothing was copied twice, and the other one continues",
            )

    def _made_again(self) -> InconsistentTopicId:
        return InconsistentTopicId(
            f"topic {self.partition.topic} of the target was deleted and created again during the copy",
            hint="start again: it is then copied from the start",
        )
