"""Copying partitions of one cluster into partitions of another, or of the same: what replay and mirror are made of.

A `PartitionCopy` takes runs of batches from its feed (`source`), marks them (`klog.record.provenance_header`) and has
them appended (`target`, `plain`), one append in flight: while the target flushes one, the next is marked and
the one after that is fetched. Where an append turns out otherwise than was thought, the feed is set to where the target
says that the copy stands, and it goes on from there; nothing else is needed, since the target knows.

Event loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from klog.errors import KlogError
from klog.names import TopicPartition
from klog.record.codec import Codec
from klog.record.provenance_header import Marked, Marker, Source
from klog.tools.copying.rate_limiter import UNLIMITED, AtOnce, RateLimiter
from klog.tools.copying.source import Feed, SourceReader
from klog.tools.copying.target import TargetLog


class Target(Protocol):
    """Where messages are copied to: `target.ExactTarget`, or `plain.KafkaTarget`."""

    is_exact: bool

    def log(self, partition: TopicPartition) -> TargetLog: ...

    async def find(self, partition: TopicPartition, source: Source, *, below: int | None = None) -> None: ...

    async def append(self, partition: TopicPartition, marked: Marked, source: Source) -> bool: ...

    async def close(self) -> None: ...


class Budget:
    """At most so many messages, over all partitions of a copy."""

    def __init__(self, messages: int | None) -> None:
        self.left = UNLIMITED if messages is None else messages

    def take(self, wanted: int) -> int:
        taken = min(self.left, wanted)
        self.left -= taken
        return taken

    def give_back(self, messages: int) -> None:
        self.left += messages


class PartitionCopy:
    """One partition on its way."""

    def __init__(
        self,
        reader: SourceReader,
        target: Target,
        source: Source,
        into: TopicPartition,
        *,
        begin: int,
        end: int | None,
        batch_bytes_max: int,
        pace: RateLimiter | None = None,
        budget: Budget | None = None,
        codec: Codec | None = None,
    ) -> None:
        """From ``begin`` of the source up to, not with, ``end`` (None: for ever); `Target.find` was asked before.

        ``codec``: of the copies, None for the source's.
        """
        self.source = source
        self.into = into
        self.begin = begin
        self.end = end
        self.position = begin
        """Everything of the source below it stands, committed, in the target below `target_end`."""
        self.target_end = target.log(into).ends[source]
        self.messages = 0
        self.bytes = 0
        self.is_done = False
        self._reader = reader
        self._target = target
        self._log = target.log(into)
        self._log.floors[source] = begin
        self._marker = Marker(source, batch_bytes_max=batch_bytes_max, codec=codec)
        self._pace = pace or AtOnce()
        self._budget = budget or Budget(None)
        self._under_way: asyncio.Task[bool] | None = None
        self._sent: Marked | None = None
        self.feed: Feed | None = None

    @property
    def high_watermark(self) -> int:
        """The source's end as last told; -1 while not known."""
        return -1 if self.feed is None else self.feed.high_watermark

    async def run(self) -> None:
        """Until the end, or until the budget is used up. Raises what ends this partition's copy."""
        if self._is_over(self.begin):
            self.is_done = True
            return
        feed = self.feed = self._reader.add(TopicPartition(self.source.topic, self.source.partition), self.begin)
        expected = self.begin
        try:
            while not self._is_over(expected) or self._under_way is not None:
                if self._is_over(expected):
                    expected = await self._settled(expected)
                    continue
                if not feed.runs and self._under_way is not None:
                    # Nothing to do meanwhile: what is under way is settled as soon as it is answered.
                    expected = await self._settled(expected)
                    continue
                fetched = await feed.next()
                if fetched is None:
                    expected = max(expected, feed.lost_up_to)
                else:
                    expected = await self._copy(fetched.run, expected)
            self.position = max(self.position, expected if self.end is None else min(expected, self.end))
            self.is_done = True
        finally:
            self._reader.remove(feed)

    def _is_over(self, position: int) -> bool:
        return (self.end is not None and position >= self.end) or self._budget.left <= 0

    async def _copy(self, run: memoryview, expected: int) -> int:
        """A run of batches; where to go on."""
        end = UNLIMITED if self.end is None else self.end
        while not self._is_over(expected):
            allowed = self._budget.take(await self._pace.allowance(run, expected))
            marked = self._marker.mark(run, expected, end, messages_max=allowed)
            self._budget.give_back(allowed - marked.messages)
            self._pace.copied(marked.messages, len(marked.records))
            settled = await self._settled(expected)
            if settled != expected:
                self._budget.give_back(marked.messages)
                return settled
            if not marked.messages:
                # Nothing is under way, and there is nothing to copy up to there (a transaction's end, a hole).
                self.position = max(self.position, expected, marked.next_offset)
                return max(expected, marked.next_offset)
            self._sent = marked
            self._under_way = asyncio.create_task(self._target.append(self.into, marked, self.source))
            expected = marked.next_offset
            await asyncio.sleep(0)  # it is sent before the next run is worked on
        return expected

    async def _settled(self, expected: int) -> int:
        """Wait for what is under way: ``expected``, or where to go on instead, to which the feed is set then."""
        if self._under_way is None:
            return expected
        assert self._sent is not None
        sent, task = self._sent, self._under_way
        as_thought = await asyncio.shield(task)
        self._under_way = None
        self.target_end = self._log.ends[self.source]
        if as_thought:
            self.messages += sent.messages
            self.bytes += len(sent.records)
            self.position = sent.next_offset
            return expected
        found = self._log.next_of(self.source)
        # Of what was sent, what stands there now is ours, or is another's copy of it: in either case it is copied.
        self._budget.give_back(sent.messages)
        self.position = found
        assert self.feed is not None
        self.feed.seek(found)
        return found

    async def finish(self, patience_s: float) -> None:
        """Stopped: what is under way may still be answered, so that its position is known."""
        if self._under_way is not None:
            await asyncio.wait([self._under_way], timeout=patience_s)
            if self._under_way.done() and not self._under_way.cancelled() and self._under_way.exception() is None:
                await self._settled(0)
            else:
                self._under_way.cancel()


class Copier:
    """Runs copies side by side and says how each of them ended."""

    def __init__(self, *, failed: Callable[[PartitionCopy, KlogError], None]) -> None:
        self.copies: list[PartitionCopy] = []
        self._tasks: dict[asyncio.Task[None], PartitionCopy] = {}
        self._failed = failed

    def start(self, copy: PartitionCopy) -> None:
        self.copies.append(copy)
        task = asyncio.create_task(copy.run())
        self._tasks[task] = copy
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        copy = self._tasks.pop(task)
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, KlogError):
            self._failed(copy, error)
        elif error is not None:
            self._failed(copy, _bug(copy, error))

    @property
    def is_busy(self) -> bool:
        """Whether any copy is not done yet."""
        return bool(self._tasks)

    async def wait(self, timeout_s: float | None = None) -> None:
        """Until one of them ends, or the time is over."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        elif timeout_s is not None:
            await asyncio.sleep(timeout_s)

    async def stop(self, patience_s: float = 0.3) -> None:
        """End them all in order: nothing new is begun, and what is under way gets a moment to be answered."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(copy.finish(patience_s) for copy in self.copies), return_exceptions=True)


def _bug(copy: PartitionCopy, error: BaseException) -> KlogError:
    wrapped = KlogError(f"copying {copy.source}: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
