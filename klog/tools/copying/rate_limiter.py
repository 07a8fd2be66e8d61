"""How fast a copy goes: as fast as it can, so many messages or bytes a second, or as the messages were written."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from klog.config.units import Rate
from klog.record.batch import walk
from klog.record.records import record_times

TICK_S = 0.1
"""What is held back goes out this often: smoother would be one request a message."""
LATE_S = 1.0
"""What was missed for longer is not caught up with."""
UNLIMITED = 2**63 - 1


class RateLimiter:
    """Asked before each append, and told after it. This one limits nothing."""

    async def allowance(self, run: memoryview, position: int) -> int:
        """How many messages of a run, from an offset on, may be copied now; waits until it is at least one."""
        return UNLIMITED

    def copied(self, messages: int, size: int) -> None: ...


class AtRate(RateLimiter):
    """So many messages or bytes a second, over all partitions."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._turn = asyncio.Lock()
        self._due: float | None = None
        self._reserved = 0.0
        self._messages = 0
        self._bytes = 0

    async def allowance(self, run: memoryview, position: int) -> int:
        async with self._turn:
            now = asyncio.get_running_loop().time()
            due = now if self._due is None else max(self._due, now - LATE_S)
            if due > now:
                await asyncio.sleep(due - now)
            each = 1.0
            if self._rate.what == "bytes":
                each = self._bytes / self._messages if self._messages else 1000.0
            allowed = max(1, int(self._rate.per_second * TICK_S / each))
            # Taken at once, so that no other partition takes the same moment; set right by `copied`.
            self._reserved = allowed * each
            self._due = due + self._reserved / self._rate.per_second
            return allowed

    def copied(self, messages: int, size: int) -> None:
        self._messages += messages
        self._bytes += size
        assert self._due is not None
        cost = messages if self._rate.what == "messages" else size
        self._due += (cost - self._reserved) / self._rate.per_second


class AsWritten(RateLimiter):
    """Each message when its time has come: the first at once, the others as long after it as they were written, divided
    by ``speed``. A message that is written before one that it follows in its partition comes right behind that one.
    """

    def __init__(self, speed: float, first_ms: int) -> None:
        """``first_ms``: the time of the first message of all partitions."""
        self._speed = speed
        self._first_ms = first_ms
        self._began: float | None = None

    async def allowance(self, run: memoryview, position: int) -> int:
        loop = asyncio.get_running_loop()
        if self._began is None:
            self._began = loop.time()
        times = iter(_times_from(run, position))
        first = next(times, None)
        if first is None:
            return UNLIMITED
        if (wait_s := self._due_s(first) - loop.time()) > 0:
            await asyncio.sleep(wait_s)
        until = loop.time() + TICK_S / 2
        allowed = 1
        for time_ms in times:
            if self._due_s(time_ms) > until:
                break
            allowed += 1
        return allowed

    def _due_s(self, time_ms: int) -> float:
        assert self._began is not None
        return self._began + (time_ms - self._first_ms) / 1000 / self._speed


def _times_from(run: memoryview, position: int) -> Iterator[int]:
    for at, header in walk(run):
        if header.last_offset < position or header.is_control:
            continue
        for offset, time_ms in record_times(run, at):
            if offset >= position:
                yield time_ms
