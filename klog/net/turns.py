"""Who is served in a turn of the event loop, so that long requests of some do not make all others wait.

Strategy
    What is handled at once is measured. Once a turn has taken `TURN_S`, other connections with requests wait for the
    next one. A connection whose last request took `EXPENSIVE_S` waits in a second queue, of which one is served a turn:
    between two requests that take long every other connection has a turn. Addresses take turns in each queue, so that a
    crowd of connections from one address delays itself. Other brokers come first, and what they ask takes nothing from
    the time of clients: a thousand clients with long requests must not delay a leadership.

Limits
    A single request is not divided; how long one may take is bounded by what it may ask for (`protocol.bounds`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from klog.clock import SYSTEM_CLOCK, Clock
from klog.errors import PeerError
from klog.net.round_robin import RoundRobin

TURN_S: Final = 0.03
"""After so long in a turn others wait for the next one."""
SLICE_S: Final = 0.01
"""After so long the requests that one connection has sent together give way to others."""
EXPENSIVE_S: Final = 0.02
"""A request that takes longer is one of those of which one is served a turn."""
NOTED_S: Final = 0.001
"""What takes less is not counted: requests of messages take a tenth of that."""
WOKEN_MAX: Final = 16
"""Tasks that go on in a turn, of those that wait."""


class ConnectionEnded(PeerError):
    """The client that asked for the work no longer waits for it."""


class Turns:
    """One for a loop. Event loop only."""

    def __init__(self) -> None:
        self._spent_s = 0.0
        self._is_scheduled = False
        """The next turn has been asked for."""
        self._brokers: deque[Callable[[], None]] = deque()
        self._clients = RoundRobin[Callable[[], None]]()
        self._expensive = RoundRobin[Callable[[], None]]()
        self._tasks = RoundRobin[asyncio.Future[None]]()

    @property
    def is_over(self) -> bool:
        """Whether so much has been done in this turn that what is not begun waits for another."""
        return self._spent_s >= TURN_S

    def spent(self, seconds: float) -> None:
        """So long has been worked at what a peer asked for."""
        if seconds >= NOTED_S:
            self._spent_s += seconds
            self._schedule()

    def call_in_turn(
        self, address: str, go_on: Callable[[], None], *, is_expensive: bool, is_broker: bool = False
    ) -> None:
        """Have ``go_on`` called when it is the turn of the connection, from that address."""
        if is_broker:
            self._brokers.append(go_on)
        else:
            (self._expensive if is_expensive else self._clients).put(address, go_on)
        self._schedule()

    async def wait_for_turn(self, address: str) -> None:
        """For a task, which works for a peer of that address: go on when there is time."""
        while self.is_over:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._tasks.put(address, waiting)
            self._schedule()
            await waiting

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        """A turn begins: this is called before what has come in meanwhile is looked at."""
        self._is_scheduled = False
        for _ in range(len(self._brokers)):
            self._spent_s = 0.0
            self._brokers.popleft()()
        self._spent_s = 0.0
        for _ in range(WOKEN_MAX):
            waiting = self._tasks.take()
            if waiting is None:
                break
            if not waiting.done():
                waiting.set_result(None)
        for _ in range(len(self._clients)):
            go_on = None if self.is_over else self._clients.take()
            if go_on is None:
                break
            go_on()
        expensive = self._expensive.take()
        if expensive is not None:
            spent_s, self._spent_s = self._spent_s, 0.0
            expensive()
            self._spent_s = spent_s  # it was one, and the others have their time all the same
        if self._tasks or self._clients or self._expensive or self._brokers:
            self._schedule()


class Share:
    """What one task has of the loop: call `yield_if_due` between two pieces of long work."""

    def __init__(
        self,
        turns: Turns | None,
        address: str = "",
        clock: Clock = SYSTEM_CLOCK,
        *,
        has_ended: Callable[[], bool] | None = None,
    ) -> None:
        """``turns`` None: no other connection waits. ``address``: of the peer that asks. ``has_ended``: whether the
        connection that asked has ended."""
        self._clock = clock
        self._turns = turns
        self._address = address
        self._has_ended = has_ended
        self._began_s = self._clock.monotonic_s()

    async def yield_if_due(self) -> None:
        """ConnectionEnded where the work is of no use."""
        if self._has_ended is not None and self._has_ended():
            raise ConnectionEnded("the client ended the connection before the request was done")
        spent_s = self._clock.monotonic_s() - self._began_s
        if self._turns is not None and spent_s >= TURN_S:
            self._turns.spent(spent_s)
            await self._turns.wait_for_turn(self._address)
            self._began_s = self._clock.monotonic_s()
