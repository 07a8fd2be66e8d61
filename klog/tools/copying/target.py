"""The writing half of a copy between klog clusters: appends that happen once, whatever is lost on the way.

Theory
    Every copied message says in a header which offset of which source it is (`klog.record.provenance_header`), and
    ProduceAt appends only where nothing of that source is behind the end that its writer has seen. So a writer that has
    read everything committed, and appends, knows that it has seen everything before its append: there is neither
    another's copy of the same messages nor its own, sent earlier and not answered.

    `TargetLog` is what is known of one target partition: for each source its last message there, and how far the log
    was searched for them. An append moves both. What is found by reading counts as far as the source confirms it
    (`originals`): others may write to the target as well, and marks like ours.

    When the answer says END_MOVED, what stands behind is read, and with it how far the source is copied now. That
    settles, too, what became of an append whose answer was lost: it is simply made again. An answer under another
    leader epoch than the one before is a reason to look whether what was acknowledged is still there (it is, unless an
    unclean election took it: then the place is searched again, and it is copied again).

Two copiers of one source
    cannot double anything, but they would take turns for ever. A writer's name begins with the time at which it
    started. The broker names the writer that moved the end to the one that finds it moved, and refuses the younger one
    where the older is alive; the younger of the two gives up (`Fenced`). What a dead one had under way arrives at most
    once, so a writer does not give up the first time.

Event loop only.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from klog.client.blocking import error_of
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
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.record.provenance_header import Copy, Marked, Source, copies_of
from klog.tools.copying.cluster_endpoint import AWAY, PAUSE_S, ClusterEndpoint
from klog.tools.copying.fetch import Fetched, fetch
from klog.tools.copying.originals import Originals

COMMIT_TIMEOUT_S = 5.0
"""How long a leader may wait for its followers before it says that it does not know."""
ANSWER_GRACE_S = 2.0
"""How much longer it is waited for; then another broker may lead."""

SCAN_BYTES = 4 * 1024 * 1024
"""Of the target's log, at once, while copies are looked for."""

AT_END = -1

YOUNGER_CONFLICTS_MAX = 20
UNKNOWN_CONFLICTS_MAX = 3
OLDER_CONFLICTS_MAX = 2
"""How often in one partition another's copy of the same source may be found before it counts as a conflict."""


class Fenced(KlogError):
    """Another one copies the same source into the same partition."""

    code = "FENCED"


class Mark(NamedTuple):
    """The last message of a source in the target: its offset there (``source``), and at or before which it is here."""

    source: int
    here: int


class Place(NamedTuple):
    """Who leads a target partition."""

    leader: int
    epoch: int
    topic_id: UUID | None


class TargetLog:
    """What is known of one target partition; shared by all that copy into it, each with a source of its own."""

    def __init__(self, side: ClusterEndpoint, partition: TopicPartition) -> None:
        self.side = side
        self.partition = partition
        self.originals: dict[Source, Originals] = {}
        """What copies of a source are held against; of a source that is not here every mark is believed."""
        self.floors: dict[Source, int] = {}
        """Of a source, what lies below is not to be copied: it is known to be here, or is not wanted."""
        self.ends: dict[Source, int] = {}
        """Below which offset nothing of a source is there but what is known."""
        self.marks: dict[Source, Mark] = {}
        self.place: Place | None = None
        self.conflicts: dict[str, int] = {}
        self.losses = 0
        """How often it had lost what it had acknowledged."""
        self._doubted: set[Source] = set()

    def next_of(self, source: Source) -> int:
        """Where to go on in the source."""
        mark, floor = self.marks.get(source), self.floors.get(source, 0)
        return floor if mark is None else max(floor, mark.source + 1)

    async def find(self, source: Source, below: int | None) -> None:
        """Look for the last copy of a source, and for the log's end.

        ``below``: what is behind this offset of the target is all that is to be read (what is below is known
        otherwise); AT_END: nothing is.
        """
        start, end = await self.side.bounds(self.partition)
        if below == AT_END:
            self.ends[source] = end
            return
        is_cut_off = start > 0 and (below is None or below < start)  # the first copies may have been removed
        begin = start if below is None or below > end else max(start, below)
        self.ends[source] = await self.scan(source, begin, end, may_begin_anywhere=is_cut_off)

    async def scan(self, source: Source, begin: int, end: int, *, may_begin_anywhere: bool = False) -> int:
        """Take in the copies of a source from ``begin`` up to ``end``, and behind as far as the last run has them, as
        far as each goes on where the one before it ended; the offset reached.
        """
        originals = self.originals.get(source)
        reached = begin
        async for at, fetched in self._runs(begin, end):
            for copy in copies_of(source, fetched.run, at):
                position = self.next_of(source)
                if copy.there < position:
                    continue
                if may_begin_anywhere and source not in self.marks:
                    position = copy.there
                if originals is None or await originals.confirm(position, copy):
                    self.marks[source] = Mark(copy.there, copy.record.offset)
                else:
                    self._doubt(source, copy)
            reached = fetched.after
        return reached

    async def stands(self, source: Source, mark: Mark) -> bool:
        """Whether what was acknowledged last is still there, below the known end."""
        originals = self.originals.get(source)
        async for at, fetched in self._runs(mark.here, self.ends[source]):
            for copy in copies_of(source, fetched.run, at):
                if copy.there == mark.source:
                    return originals is None or await originals.confirm(mark.source, copy)
        return False

    def _doubt(self, source: Source, copy: Copy) -> None:
        if source not in self._doubted:
            self._doubted.add(source)
            self.side.note(
                f"{self.partition} of the target has a message at {copy.record.offset} that says it is the copy of"
                f" {copy.there} of {source}, and is not the one to be copied next: it does not count, nor do others"
                " like it. Another client wrote it, or a copy of another range"
            )

    async def _runs(self, begin: int, end: int) -> AsyncIterator[tuple[int, Fetched]]:
        """What lies from ``begin`` up to ``end``, and behind as far as the last run has it: (where asked, a run)."""
        at = begin
        while at < end:
            fetched = await self.side.patiently(partial(self._fetch, at))
            if fetched.after >= 0:
                yield at, fetched
                at = fetched.after
            elif fetched.high_watermark <= at:
                return  # the end has become another one: the caller finds out
            else:
                await asyncio.sleep(PAUSE_S)

    async def _fetch(self, at: int, cluster: Cluster) -> Fetched:
        return await cluster.to_leader(
            self.partition, at, lambda channel, share: fetch(channel, share, partition_bytes=SCAN_BYTES)
        )


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


class ExactTarget:
    """Appends to the partitions of a klog cluster, once each."""

    is_exact = True

    def __init__(self, side: ClusterEndpoint, *, writer: str | None = None) -> None:
        self.side = side
        self.writer = writer or writer_name()
        self._logs: dict[TopicPartition, TargetLog] = {}
        self._looking: asyncio.Task[Any] | None = None

    def log(self, partition: TopicPartition) -> TargetLog:
        """What is known of a partition."""
        known = self._logs.get(partition)
        if known is None:
            known = self._logs[partition] = TargetLog(self.side, partition)
        return known

    async def close(self) -> None:
        """Nothing is left under way: the caller of each append waits for it."""

    # --- where to go on ---

    async def find(self, partition: TopicPartition, source: Source, *, below: int | None = None) -> None:
        """See `TargetLog.find`."""
        await self._find(self.log(partition), source, below)

    async def _find(self, log: TargetLog, source: Source, below: int | None = None) -> None:
        log.place = await self._look(log.partition)
        await log.find(source, below)

    async def _look(self, partition: TopicPartition) -> Place:
        """Who leads it, by metadata that is fresh; many partitions that ask at once are answered by one question."""

        async def ask(cluster: Cluster) -> Place:
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
            return Place(node.leader, -1 if node.leader_epoch is None else node.leader_epoch, topic_id)

        return await self.side.patiently(ask)

    # --- appending ---

    async def append(self, partition: TopicPartition, marked: Marked, source: Source) -> bool:
        """Have these messages in the target, committed, once. False where the target turned out to be copied to
        further, or less far, than was thought: what is known of its log says where to go on.

        Raises Fenced, MessageTooLarge and what else trying again would not change.
        """
        log = self.log(partition)
        in_doubt = False
        while True:
            before = log.marks.get(source)
            place = log.place = log.place or await self._look(log.partition)
            used = self.side.cluster
            try:
                channel = await used.channel(place.leader)
                answer = await channel.request(
                    self._request(log, marked, place, source), timeout_s=COMMIT_TIMEOUT_S + ANSWER_GRACE_S
                )
                one = answer.partitions[0]
                error = error_of(int(one.error_code), str(one.error_message)) if int(one.error_code) else None
            except AWAY as lost:
                # It may have been appended, and it may yet be, until the leader's epoch is over.
                in_doubt = True
                await self.side.trouble(lost, used)
                await self._look_again(log, source)
                if log.marks.get(source) != before:
                    return False
                continue
            if error is None:
                self.side.fine()
                log.ends[source] = int(one.end_offset)
                log.marks[source] = Mark(marked.last_offset, int(one.base_offset))
                return True
            if error.wire == EndMoved.wire:
                before_end = log.ends[source]
                await self._read_on(log, source)
                now = log.marks.get(source)
                if now != before:
                    is_ours = in_doubt and now is not None and now.source <= marked.last_offset
                    if now is not None and not is_ours:
                        self._count_conflict(log, source, str(one.writer))
                    return False
                if log.ends[source] == before_end:
                    await asyncio.sleep(PAUSE_S)  # what is in the way is not committed yet, or will never be
                continue
            if error.wire == InvalidProducerEpoch.wire:
                self._count_conflict(log, source, str(one.writer))
                continue
            if error.wire == InconsistentTopicId.wire:
                raise _made_again(log)
            if error.wire == InvalidTimestamp.wire:
                raise InvalidTimestamp(
                    f"{log.partition} of the target rejects the messages from offset {marked.first_offset} and"
                    f" {marked.last_offset} of {source}: {error.message}",
                    hint=f"`klog topic config {log.partition.topic} message.timestamp.after.max.ms=...` of the target"
                    " (before.max.ms for old ones), then go on",
                )
            if not error.retriable:
                raise error
            in_doubt = True
            await self.side.trouble(error, used)
            await self._look_again(log, source)
            if log.marks.get(source) != before:
                return False

    def _request(self, log: TargetLog, marked: Marked, place: Place, source: Source) -> Any:
        return codec.request(
            ApiKey.PRODUCE_AT,
            0,
            timeout_ms=int(COMMIT_TIMEOUT_S * 1000),
            partitions=[
                {
                    "topic": log.partition.topic,
                    "topic_id": place.topic_id,
                    "partition_index": log.partition.partition,
                    "leader_epoch": place.epoch,
                    "expected_end": log.ends[source],
                    "source": str(source),
                    "writer": self.writer,
                    "records": marked.records,
                }
            ],
        )

    async def _look_again(self, log: TargetLog, source: Source) -> None:
        """Who leads now; under a new epoch, whether what was acknowledged is there."""
        known = log.place
        log.place = await self._look(log.partition)
        if known is not None and log.place.topic_id != known.topic_id:
            raise _made_again(log)
        if known is not None and log.place.epoch != known.epoch:
            await self._verify(log, source)

    async def _verify(self, log: TargetLog, source: Source) -> None:
        start, end = await self.side.bounds(log.partition)
        known, mark = log.ends[source], log.marks.get(source)
        if end >= known and (mark is None or mark.here < start or await log.stands(source, mark)):
            log.ends[source] = max(end, await log.scan(source, max(start, known), end))
        else:
            await self._lost(log, source)

    async def _lost(self, log: TargetLog, source: Source) -> None:
        """The target has lost what it had acknowledged: what is there is found out from nothing."""
        log.losses += 1
        self.side.note(
            f"{log.partition} of the target has lost messages that it had acknowledged; they are copied again"
        )
        log.marks.pop(source, None)
        await self._find(log, source)

    async def _read_on(self, log: TargetLog, source: Source) -> None:
        """Take in what others have put behind the known end, as far as it is committed."""
        start, end = await self.side.bounds(log.partition)
        if end < log.ends[source]:
            # Committed messages do not go away; a leader that is behind says so (rule R8). This one has lost some.
            await self._lost(log, source)
            return
        try:
            reached = await log.scan(source, max(start, log.ends[source]), end)
        except OffsetOutOfRange:
            await self._lost(log, source)
            return
        log.ends[source] = max(end, reached)

    def _count_conflict(self, log: TargetLog, source: Source, writer: str) -> None:
        if writer == self.writer:
            return
        count = log.conflicts[writer] = log.conflicts.get(writer, 0) + 1
        if not writer:
            allowed = UNKNOWN_CONFLICTS_MAX
        else:
            allowed = OLDER_CONFLICTS_MAX if writer < self.writer else YOUNGER_CONFLICTS_MAX
        if count >= allowed:
            raise Fenced(
                f"{said_of(writer)} also copies {source} into {log.partition} of the target",
                hint="one is enough; nothing was copied twice, and the other one continues",
            )


def _made_again(log: TargetLog) -> InconsistentTopicId:
    return InconsistentTopicId(
        f"topic {log.partition.topic} of the target was deleted and created again during the copy",
        hint="start again: it is then copied from the start",
    )
