"""Copying partitions of one cluster into partitions of another, or of the same: what replay and mirror are made of.

A `PartitionCopy` takes runs of batches from its feed (`source`), marks them (`klog.record.provenance_header`) and has
them appended (`target`), one append in flight: while the target flushes one, the next is marked and
the one after that is fetched. Where an append turns out otherwise than was thought, the feed is set to where the target
says that the copy stands, and it goes on from there; nothing else is needed, since the target knows.

Event loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from klog.errors import KlogError
from klog.names import TopicPartition
from klog.record.codec import Codec
from klog.record.provenance_header import Marked, Marker
from klog.tools.copying.rate_limiter import UNLIMITED, RateLimiter
from klog.tools.copying.source import Feed, SourceReader
from klog.tools.copying.target import TargetLog


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
    def __init__(
        self,
        reader: SourceReader,
        log: TargetLog,
        *,
        begin: int,
        end: int | None,
        batch_bytes_max: int,
        pace: RateLimiter | None = None,
        budget: Budget | None = None,
        codec: Codec | None = None,
    ) -> None:
        """From ``begin`` of the source up to, not with, ``end`` (None: for ever); `TargetLog.find` was asked before.

        ``codec``: of the copies, None for the source's.
        """
        self.log = log
        self.source = log.source
        self.begin = begin
        self.end = end
        self.position = begin
        """Everything of the source below it stands, committed, in the target below `target_end`."""
        self.target_end = log.end
        self.messages = 0
        self.bytes = 0
        self.is_done = False
        self._reader = reader
        log.floor = begin
        self._marker = Marker(log.source, batch_bytes_max=batch_bytes_max, codec=codec)
        self._pace = pace or RateLimiter()
        self._budget = budget or Budget(None)
        self._looked = asyncio.get_running_loop().time(), 0
        self._under_way: asyncio.Task[bool] | None = None
        self._sent: Marked | None = None
        self.feed: Feed | None = None

    @property
    def high_watermark(self) -> int:
        """The source's end as last told; -1 while not known."""
        return -1 if self.feed is None else self.feed.high_watermark

    @property
    def has_caught_up(self) -> bool:
        return 0 <= self.high_watermark <= self.position

    def rate(self) -> int:
        """Messages a second since the last call."""
        (before_s, before), now_s = self._looked, asyncio.get_running_loop().time()
        self._looked = now_s, self.messages
        return round((self.messages - before) / (now_s - before_s)) if now_s > before_s else 0

    async def run(self) -> None:
        """Until the end, or until the budget is used up. Raises what ends this partition's copy."""
        if self._is_over(self.begin):
            self.is_done = True
            return
        feed = self.feed = self._reader.add(TopicPartition(self.source.topic, self.source.partition), self.begin)
        expected = self.begin
        try:
            while self._under_way is not None or not self._is_over(expected):
                if self._under_way is not None and (self._is_over(expected) or not feed.runs):
                    expected = await self._settled(expected)  # nothing to do meanwhile
                elif (fetched := await feed.next()).run:
                    expected = await self._copy(fetched.run, expected)
                else:
                    expected = max(expected, fetched.after)
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
            self._under_way = asyncio.create_task(self.log.append(marked))
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
        self.target_end = self.log.end
        if as_thought:
            self.messages += sent.messages
            self.bytes += len(sent.records)
            self.position = sent.next_offset
            return expected
        found = self.log.next_offset
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
    """Runs copies side by side until they are done, or something fails."""

    def __init__(self, *, forgives: Callable[[PartitionCopy, KlogError], bool] = lambda copy, error: False) -> None:
        """``forgives``: whether the others go on where a copy has ended with an error."""
        self.copies: list[PartitionCopy] = []
        self.failures: dict[PartitionCopy | None, KlogError] = {}
        """What has ended a copy, or work beside them (None)."""
        self._forgives = forgives
        self._running: dict[asyncio.Task[None], PartitionCopy | None] = {}
        self._news = asyncio.Event()

    def start(self, copy: PartitionCopy) -> None:
        self.copies.append(copy)
        self.start_beside(copy.run(), copy)

    def start_beside(self, work: Coroutine[Any, Any, None], copy: PartitionCopy | None = None) -> None:
        """Work for as long as there are copies."""
        task = asyncio.create_task(work)
        self._running[task] = copy
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        copy = self._running.pop(task)
        self._news.set()
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        failure = error if isinstance(error, KlogError) else _bug(copy, error)  # a bug ends a copy as well
        if copy is None or not self._forgives(copy, failure):
            self.failures[copy] = failure

    async def run(self, show: Callable[[], None], *, every_s: float, forever: bool = False) -> None:
        """Until all copies are done, or (``forever``) for ever; until one fails. ``show`` is called every so often."""
        loop = asyncio.get_running_loop()
        shown_at = loop.time()
        while not self.failures and (forever or any(self._running.values())):
            self._news.clear()
            try:
                async with asyncio.timeout_at(shown_at + every_s):
                    await self._news.wait()
            except TimeoutError:
                shown_at = loop.time()
                show()

    async def stop(self, patience_s: float = 0.3) -> None:
        """End them all in order: nothing new is begun, and what is under way gets a moment to be answered."""
        tasks = list(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(copy.finish(patience_s) for copy in self.copies), return_exceptions=True)


def _bug(copy: PartitionCopy | None, error: BaseException) -> KlogError:
    wrapped = KlogError(f"copying {copy.source if copy else 'groups'}: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
