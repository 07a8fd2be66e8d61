"""Limits clients' requests under way (rule P2).

A request costs memory from its decoding until its answer has been taken: so only a limited number is decoded, per
address and in all. Others wait undecoded, one per connection, which is not read meanwhile. Addresses take turns, so
many connections of one delay only themselves; waiting requests end with their connection.

Requests that wait by their nature (JoinGroup, SyncGroup, a delayed heartbeat, Fetch) and brokers' requests need no
slot. There are three kinds of slots, by what an answer waits for: a disk that hangs, or a ZooKeeper that is away, must
not keep Metadata from clients whose look-ups or commits wait there.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from enum import Enum
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from klog.net.connection import Connection, while_open
from klog.net.round_robin import RoundRobin
from klog.net.turns import SLICE_S, Turns
from klog.protocol.apis import OWN_KEYS_FROM, ApiKey

SLOTS: Final = 512
OF_ADDRESS: Final = 64
"""Some take seconds, such as a topic's deletion, and delay nothing else meanwhile."""
LONG_MAX: Final = 32
LONG_OF_ADDRESS_MAX: Final = 8


class WaitsFor(Enum):
    """What an answer waits for."""

    NOTHING = "nothing"
    ZOOKEEPER = "zookeeper"
    DISKS = "disks"

    @classmethod
    def of(cls, key: int, *, of_controller: bool) -> WaitsFor:
        """By the request's API key."""
        if key in _OF_MEMORY:
            return cls.NOTHING
        # Nearly all of klog's own requests look into logs.
        is_look_up = key in (ApiKey.LIST_OFFSETS, ApiKey.DELETE_RECORDS) or key >= OWN_KEYS_FROM
        return cls.DISKS if is_look_up and not of_controller else cls.ZOOKEEPER


_OF_MEMORY: Final = frozenset({ApiKey.METADATA, ApiKey.API_VERSIONS, ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_CLUSTER})


class _Waiting(NamedTuple):
    connection: Connection
    begin: Callable[[], None]


class RequestSlots:
    """Event loop only. Each `enter` needs a `leave`."""

    def __init__(self) -> None:
        self._free = SLOTS
        self._taken = Counter[str]()
        self._waiting = RoundRobin[_Waiting]()
        self._is_scheduled = False

    def enter(self, address: str) -> bool:
        """Take a slot; False if there is none, or others of the address wait for one."""
        if not self._may_enter(address) or address in self._waiting:
            return False
        self._take(address)
        return True

    def call_when_free(self, connection: Connection, begin: Callable[[], None]) -> None:
        """Call ``begin`` once there is a slot, which it then has; never after the connection's end."""
        self._waiting.put(connection.address, _Waiting(connection, begin))

    def leave(self, address: str, turns: Turns) -> None:
        """Free a slot. ``turns``: of the loop, shared by waiting requests."""
        self._free += 1
        self._taken[address] -= 1
        if not self._taken[address]:
            del self._taken[address]
        self._schedule(turns)

    def _may_enter(self, address: str) -> bool:
        return self._free > 0 and self._taken[address] < OF_ADDRESS

    def _take(self, address: str) -> None:
        self._free -= 1
        self._taken[address] += 1

    def _schedule(self, turns: Turns) -> None:
        if self._waiting and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._begin, turns)

    def _begin(self, turns: Turns) -> None:
        """Start waiting requests, while there are slots and the slice lasts."""
        self._is_scheduled = False
        until_s = time.perf_counter() + SLICE_S
        while (one := self._waiting.take(self._may_enter)) is not None:
            if one.connection.closed:
                continue
            began_s = time.perf_counter()
            self._take(one.connection.address)
            one.begin()
            ended_s = time.perf_counter()
            turns.spent(ended_s - began_s)
            if ended_s >= until_s:
                self._schedule(turns)
                return


class LongRequests:
    """Limits clients' expensive requests under way. Event loop only.

    A decoded element takes a hundred bytes, so a request of 100,000 elements some ten megabytes until it is answered;
    and so does an answer until it has been taken. A request without a slot waits undecoded. Addresses have a limit of
    their own: one that uses all its slots delays itself.
    """

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(LONG_MAX)
        self._of_address = WeakValueDictionary[str, asyncio.Semaphore]()
        """Address -> its slots, which the requests hold that have one or wait for one."""

    @asynccontextmanager
    async def in_hand(self, connection: Connection) -> AsyncIterator[None]:
        """Wait for a slot. Cancels the task if the connection ends meanwhile."""
        async with self.of_address(connection), self.of_all(connection):
            yield

    def of_address(self, connection: Connection) -> AbstractAsyncContextManager[None]:
        """One of its address's slots."""
        slots = self._of_address.setdefault(connection.address, asyncio.Semaphore(LONG_OF_ADDRESS_MAX))
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
