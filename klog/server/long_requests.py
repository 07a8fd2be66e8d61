"""How many requests of a kind that costs much clients have in hand at a time (rule P2).

Long ones: an element of a request takes a hundred bytes once it is decoded, so a request of 100,000 elements some ten
megabytes, until it is answered. A request that finds no place waits as the bytes that have come. Addresses have a bound
of their own: one that keeps all its places taken makes itself wait.

Acts of the controller: they are carried out one after the other, each in milliseconds of ZooKeeper. Clients that ask,
end the connection and ask again would else have it work for hours, and the requests lie in memory until then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from klog.net.connection import Connection

IN_HAND_MAX: Final = 32
OF_ADDRESS_MAX: Final = 8
ACTS_MAX: Final = 256
ACTS_OF_ADDRESS_MAX: Final = 64
"""More than of long ones: some wait for seconds, as for a topic's deletion, and hold up nothing meanwhile."""


class LongRequests:
    """Event loop only."""

    def __init__(self, in_hand_max: int = IN_HAND_MAX, of_address_max: int = OF_ADDRESS_MAX) -> None:
        self._of_address_max = of_address_max
        self._all = asyncio.Semaphore(in_hand_max)
        self._of_address: dict[str, tuple[asyncio.Semaphore, set[object]]] = {}
        """With the tasks that have a place or wait for one."""

    @asynccontextmanager
    async def in_hand(self, connection: Connection) -> AsyncIterator[None]:
        """Wait for a place. The task is cancelled where the connection ends meanwhile."""
        task = asyncio.current_task()
        assert task is not None
        address = connection.address
        places, there = self._of_address.setdefault(address, (asyncio.Semaphore(self._of_address_max), set()))
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
