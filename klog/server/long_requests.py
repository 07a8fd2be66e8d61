"""How many long requests of clients are in hand at a time (rule P2).

An element of a request takes a hundred bytes once it is decoded, so a request of 100,000 elements some ten megabytes,
until it is answered. A request that finds no place waits as the bytes that have come. Addresses have a bound of their
own: one that keeps all its places taken makes itself wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from klog.net.connection import Connection

IN_HAND_MAX: Final = 32
OF_ADDRESS_MAX: Final = 8


class LongRequests:
    """Event loop only."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(IN_HAND_MAX)
        self._of_address: dict[str, tuple[asyncio.Semaphore, set[object]]] = {}
        """With the tasks that have a place or wait for one."""

    @asynccontextmanager
    async def in_hand(self, connection: Connection) -> AsyncIterator[None]:
        """Wait for a place. The task is cancelled where the connection ends meanwhile."""
        task = asyncio.current_task()
        assert task is not None
        address = connection.address
        places, there = self._of_address.setdefault(address, (asyncio.Semaphore(OF_ADDRESS_MAX), set()))
        there.add(task)
        try:
            connection.at_end.add(task.cancel)
            try:
                await places.acquire()
                try:
                    await self._all.acquire()
                except BaseException:
                    places.release()
                    raise
            finally:
                connection.at_end.discard(task.cancel)
            try:
                yield
            finally:
                self._all.release()
                places.release()
        finally:
            there.discard(task)
            if not there:
                del self._of_address[address]
