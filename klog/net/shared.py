"""What the connections of a loop share: buffers, memory, turns, and ready answers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final, NamedTuple

from klog.net.memory_pool import MemoryPool
from klog.net.rejected_peers import RejectedPeers
from klog.net.turns import Turns

SCRATCH_BYTES: Final = 1024 * 1024
SPARE_BYTES_MIN: Final = 64 * 1024
SPARE_BYTES_MAX: Final = 4 * 1024 * 1024
SPARES_MAX: Final = 4


class SocketLimits(NamedTuple):
    """Limits per connection."""

    frame_bytes_max: int
    """socket.request.max.bytes"""
    replies_max: int = 500
    """queued.max.requests, here per connection"""
    send_buffer_bytes: int | None = None
    """socket.send.buffer.bytes; None leaves it to the kernel, which adapts it"""
    receive_buffer_bytes: int | None = None


class Shared:
    """See the module. Event loop only."""

    def __init__(self, unfinished_bytes_max: float = math.inf) -> None:
        """``unfinished_bytes_max``: queued.max.request.bytes."""
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.memory_pool = MemoryPool(unfinished_bytes_max, lambda act: asyncio.get_running_loop().call_soon(act))
        self.turns = Turns()
        self.rejected_peers = RejectedPeers()
        self.on_handed_on: Callable[[], object] = lambda: None
        """Called when the requests of one receive have been handled."""
        self._spare: list[memoryview] = []
        self._together = False
        self._ready: list[Callable[[], None]] = []

    def take(self, frame_bytes: int, size: int) -> memoryview:
        """A buffer for an unfinished frame: a spare one of ``frame_bytes``, or a new one of ``size`` bytes."""
        for index, spare in enumerate(self._spare):
            if len(spare) >= frame_bytes:
                return self._spare.pop(index)
        return memoryview(bytearray(size))

    def give_back(self, buffer: memoryview) -> None:
        """Keep a buffer for the next large frame: a new one would be zeroed and its pages faulted in.

        The largest are kept, `SPARE_BYTES_MAX` in all: small ones are left behind as a frame's buffer grows.
        """
        if not SPARE_BYTES_MIN <= len(buffer) <= SPARE_BYTES_MAX:
            return
        spare = self._spare
        spare.append(buffer)
        while len(spare) > SPARES_MAX or sum(map(len, spare)) > SPARE_BYTES_MAX:
            del spare[min(range(len(spare)), key=lambda index: len(spare[index]))]

    def together(self, act: Callable[..., object], *arguments: object) -> None:
        """Call ``act``, which fills replies of many connections; then send once to each."""
        self._together = True
        try:
            act(*arguments)
        finally:
            self._together = False
            ready, self._ready = self._ready, []
            for send in ready:
                send()

    def is_ready(self, send: Callable[[], None]) -> bool:
        """Note how a connection sends, for the end of `together`; False outside of it."""
        if self._together:
            self._ready.append(send)
        return self._together
