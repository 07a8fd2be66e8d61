"""Limits clients' expensive requests under way (rule P2).

A decoded element takes a hundred bytes, so a request of 100,000 elements some ten megabytes until it is answered; and
so does an answer until it has been taken. A request without a slot waits undecoded. Addresses have a limit of their
own: one that uses all its slots delays itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final
from weakref import WeakValueDictionary

from klog.net.connection import Connection, while_open

IN_HAND_MAX: Final = 32
OF_ADDRESS_MAX: Final = 8


class LongRequests:
    """Event loop only."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(IN_HAND_MAX)
        self._of_address = WeakValueDictionary[str, asyncio.Semaphore]()
        """Address -> its slots, which the requests hold that have one or wait for one."""

    @asynccontextmanager
    async def in_hand(self, connection: Connection) -> AsyncIterator[None]:
        """Wait for a slot. Cancels the task if the connection ends meanwhile."""
        async with self.of_address(connection), self.of_all(connection):
            yield

    def of_address(self, connection: Connection) -> AbstractAsyncContextManager[None]:
        """One of its address's slots."""
        slots = self._of_address.setdefault(connection.address, asyncio.Semaphore(OF_ADDRESS_MAX))
        return _waited_for(slots, connection)

    def of_all(self, connection: Connection) -> AbstractAsyncContextManager[None]:
        """One of the slots of all addresses."""
        return _waited_for(self._all, connection)

    def is_full(self, address: str) -> bool:
        """Whether the next one of the address would wait."""
        slots = self._of_address.get(address)
        return self._all.locked() or (slots is not None and slots.locked())


@asynccontextmanager
async def _waited_for(slots: asyncio.Semaphore, connection: Connection) -> AsyncIterator[None]:
    with while_open(connection):
        await slots.acquire()
    try:
        yield
    finally:
        slots.release()
