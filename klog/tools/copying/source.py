"""The reading half of a copy: the partitions of one source, each leader asked by one request at a time.

Strategy: every leader has a task with one fetch in flight, which names the partitions that have room: a partition is
asked for again while what came last is being copied, so that neither side waits for the other. What waits in memory is
bounded over all partitions. A partition whose leader is not known waits for the one task that looks.

`Originals` are what copies are held against. A mark (`klog.record.provenance_header`) is a header: any client that may
write to the target can write one, with any offset of the source. So a mark is believed only of a message that *is* the
one at that offset of the source, and only where it is the next one to be copied: then nothing is missing in front of
it, whichever client has put it there. What a copier has committed itself, and what was acknowledged to it, need not be
looked at again.

Event loop only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator

from klog.client.resolve import bounds
from klog.errors import KlogError, OffsetOutOfRange, UnknownTopicOrPartition
from klog.names import TopicPartition
from klog.record.provenance_header import Copy
from klog.record.records import Record, records_in
from klog.tools.copying.cluster_endpoint import AWAY, PAUSE_S, ClusterEndpoint, Fetched, fetch

POLL_MS = 500
"""How long a leader may hold a fetch for which it has nothing."""
SHORT_POLL_MS = 20
"""The same while partitions are left out: one that gets room again must not wait behind a poll for others."""
RUNS_AHEAD = 2
BUFFERED_BYTES_MAX = 64 * 1024 * 1024
GONE_AFTER_S = 10.0
"""How long a topic may be missing from the brokers' answers before it is taken for deleted."""


class Feed:
    """One partition on its way: runs of batches in their order, from `offset` on."""

    def __init__(self, reader: SourceReader, partition: TopicPartition, offset: int) -> None:
        self.partition = partition
        self.offset = offset
        """Where to fetch next."""
        self.high_watermark = -1
        """The end that consumers are shown, as last told; -1 before the first answer."""
        self.leader: int | None = None
        self.runs: deque[Fetched] = deque()
        self.error: KlogError | None = None
        self.seeks = 0
        self._reader = reader
        self._news = asyncio.Event()
        self.missing_since: float | None = None

    @property
    def has_room(self) -> bool:
        return len(self.runs) < RUNS_AHEAD and self.error is None

    def seek(self, offset: int) -> None:
        """Go on from there; what has come already is dropped."""
        self.offset = offset
        self.seeks += 1
        self._reader.buffered -= sum(len(one.run) for one in self.runs)
        self.runs.clear()
        self._reader.wake(self)

    def lose(self, offset: int) -> None:
        """The log begins there now: go on from there behind what has come already, even if nothing follows."""
        self.took(Fetched(memoryview(b""), offset, self.high_watermark))
        self._reader.wake(self)

    async def next(self) -> Fetched:
        """The next run; without bytes where the log has lost what lies up to its end.

        Raises what keeps the partition from being read at all.
        """
        while not self.runs:
            if self.error is not None:
                raise self.error
            self._news.clear()
            await self._news.wait()
        one = self.runs.popleft()
        self._reader.buffered -= len(one.run)
        self._reader.wake(self)
        return one

    def took(self, one: Fetched) -> None:
        self.high_watermark = one.high_watermark
        if one.after >= 0:
            self.runs.append(one)
            self.offset = one.after
        self._news.set()

    def fail(self, error: KlogError) -> None:
        self.error = error
        self._news.set()


class SourceReader:
    def __init__(self, side: ClusterEndpoint) -> None:
        self._side = side
        self._feeds: dict[TopicPartition, Feed] = {}
        self._links: dict[int, asyncio.Task[None]] = {}
        self._room: dict[int, asyncio.Event] = {}
        self._homeless = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self.buffered = 0

    async def close(self) -> None:
        tasks = [*self._links.values(), *([self._looking] if self._looking is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def add(self, partition: TopicPartition, offset: int) -> Feed:
        feed = self._feeds[partition] = Feed(self, partition, offset)
        self._homeless.set()
        if self._looking is None:
            self._looking = asyncio.create_task(self._find_leaders())
        return feed

    def remove(self, feed: Feed) -> None:
        self._feeds.pop(feed.partition, None)
        self.buffered -= sum(len(one.run) for one in feed.runs)
        feed.runs.clear()

    def wake(self, feed: Feed) -> None:
        """It has room, or wants to be read from elsewhere."""
        if feed.leader is not None and feed.leader in self._room:
            self._room[feed.leader].set()

    # --- who leads ---

    async def _find_leaders(self) -> None:
        while True:
            await self._homeless.wait()
            self._homeless.clear()
            wanted = [feed for feed in self._feeds.values() if feed.leader is None and feed.error is None]
            if not wanted:
                continue
            try:
                metadata = await self._side.look({feed.partition.topic for feed in wanted})
            except KlogError as error:
                for feed in wanted:
                    feed.fail(error)
                continue
            now = asyncio.get_running_loop().time()
            for feed in wanted:
                topic = metadata.topics.get(feed.partition.topic)
                node = None if topic is None else topic.partitions.get(feed.partition.partition)
                if node is not None:
                    feed.missing_since = None
                elif feed.missing_since is None:
                    feed.missing_since = now
                elif now - feed.missing_since > GONE_AFTER_S:
                    feed.fail(UnknownTopicOrPartition(f"the source no longer has {feed.partition}"))
                if node is not None and node.leader is not None and node.leader in metadata.brokers:
                    self._settle(feed, node.leader)
            if any(feed.leader is None and feed.error is None for feed in wanted):
                await asyncio.sleep(PAUSE_S)
                self._homeless.set()

    def _settle(self, feed: Feed, leader: int) -> None:
        feed.leader = leader
        self._room.setdefault(leader, asyncio.Event()).set()
        link = self._links.get(leader)
        if link is None or link.done():
            self._links[leader] = asyncio.create_task(self._read(leader))

    def _unsettle(self, feed: Feed) -> None:
        feed.leader = None
        self._homeless.set()

    # --- reading ---

    async def _read(self, leader: int) -> None:
        """One leader's partitions, for ever."""
        room = self._room[leader]
        turn = 0
        while True:
            mine = [feed for feed in self._feeds.values() if feed.leader == leader]
            wanted = [feed for feed in mine if feed.has_room]
            if not wanted or self.buffered > BUFFERED_BYTES_MAX:
                room.clear()
                await room.wait()
                continue
            turn += 1
            shift = turn % len(wanted)  # an answer is filled in the order asked: everybody is first in turn
            share = {feed.partition: feed.offset for feed in (*wanted[shift:], *wanted[:shift])}
            seeks = {feed.partition: feed.seeks for feed in wanted}
            used = self._side.cluster
            try:
                channel = await used.channel(leader)
                answers = await fetch(channel, share, wait_ms=POLL_MS if len(wanted) == len(mine) else SHORT_POLL_MS)
            except KlogError as error:
                for feed in mine:
                    self._unsettle(feed)
                if not (error.retriable or isinstance(error, AWAY)):
                    for feed in mine:
                        feed.fail(error)
                await self._side.back_off(error, used)
                continue
            self._side.fine()
            for feed in wanted:
                answer = answers.get(feed.partition)
                if answer is None or feed.seeks != seeks[feed.partition]:
                    continue
                if isinstance(answer, KlogError):
                    await self._refused(feed, answer)
                else:
                    self.buffered += len(answer.run)
                    feed.took(answer)

    async def _refused(self, feed: Feed, error: KlogError) -> None:
        if isinstance(error, OffsetOutOfRange):
            try:
                await self._out_of_range(feed)
                return
            except KlogError as other:
                error = other
        if error.retriable or isinstance(error, AWAY):
            self._unsettle(feed)
        else:
            feed.fail(error)

    async def _out_of_range(self, feed: Feed) -> None:
        """Retention has gone past it: go on at the log's start, and say so. Past the end it is another log."""
        start, end = (await bounds(self._side.cluster, [feed.partition]))[feed.partition]
        if feed.offset < start:
            what = f"{feed.partition}: {feed.offset} to {start} was removed by retention before it was copied"
            self._side.note(f"the source {self._side.bootstrap}: {what}")
            feed.lose(start)
        elif feed.offset > end:
            raise OffsetOutOfRange(
                f"{feed.partition} of the source ends at {end}, and it is copied up to {feed.offset} already",
                hint="if the topic was deleted and created again, copy it into another topic",
            )


class Originals:
    """One partition of the source. It is read forwards: what is asked for next should lie behind."""

    def __init__(self, side: ClusterEndpoint, partition: TopicPartition, *, keeps_times: bool = True) -> None:
        """``keeps_times``: whether copies have the times of their originals."""
        self._side = side
        self._partition = partition
        self._keeps_times = keeps_times
        self._records: Iterator[Record] = iter(())
        self._head: Record | None = None
        self._asked = 0
        """The last position: the head is the first message there or behind it."""
        self._after = 0
        """Where the next run is fetched."""

    async def confirm(self, position: int, copy: Copy) -> bool:
        """Whether ``copy`` is the first message that the source has at ``position`` or behind it."""
        original = await self._first(position)
        if original is None or original.offset != copy.there:
            return False
        _, time_ms, key, value, headers = copy.record
        if self._keeps_times and time_ms != original.timestamp_ms:
            return False
        return (key, value, headers[:-1]) == (original.key, original.value, original.headers)  # the mark is the last

    async def _first(self, position: int) -> Record | None:
        if position < self._asked:
            self._records, self._head, self._after = iter(()), None, position
        self._asked = position
        while self._head is None or self._head.offset < position:
            self._head = next(self._records, None)
            if self._head is None and not await self._fetch(max(position, self._after)):
                return None
        return self._head

    async def _fetch(self, at: int) -> bool:
        """The next run, from ``at`` on or from where the log begins now; False where there is none."""
        try:
            fetched = await self._side.fetch(self._partition, at)
        except OffsetOutOfRange:
            start, _ = await self._side.bounds(self._partition)
            return start > at and await self._fetch(start)
        if fetched.after < 0:
            return False
        self._after = fetched.after
        self._records = records_in(fetched.run)
        return True
