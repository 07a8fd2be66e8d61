"""Shares the event loop among connections, so that long requests of some do not delay all others.

Strategy
    Work on requests is timed. After `TURN_S` connections with requests wait for the next turn, before which the loop
    polls its sockets once more: who asks during a turn is served in the next one. A connection whose last request took
    `EXPENSIVE_S`, or whose slice is used up, waits in a second queue, of which one per turn is served: between two long
    requests every other connection has a turn. Each queue is a round robin over addresses, so that many
    connections of one address delay only themselves. Other brokers come first, and their requests take no time from
    clients: a thousand clients with long requests must not delay a leadership.

Limits
    A single request is not divided; its time is bounded by its size (`protocol.bounds`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final, TypeVar

from klog.clock import SYSTEM_CLOCK
from klog.errors import PeerError
from klog.net.round_robin import RoundRobin

T = TypeVar("T")

TURN_S: Final = 0.01
"""Time for requests per turn; the rest waits for the next turn."""
SLICE_S: Final = 0.01
"""Time for the requests of one connection before others are served."""
SHORT_SLICE_S: Final = 0.003
"""The same while other connections wait for their turn."""
EXPENSIVE_S: Final = 0.02
"""A longer request makes its connection wait in the second queue."""
NOTED_S: Final = 0.001
"""Shorter requests are not counted; one with messages takes a tenth of that."""
WOKEN_MAX: Final = 16
"""Waiting tasks resumed per turn. The first goes on; the others do if time is left then."""


class ConnectionEnded(PeerError):
    """The client that asked for the work has disconnected."""


class Turns:
    """One per loop. Event loop only."""

    def __init__(self) -> None:
        self._spent_s = 0.0
        self._is_scheduled = False
        """The next turn has been asked for."""
        self._brokers: deque[Callable[[], None]] = deque()
        self._clients = RoundRobin[Callable[[], None]]()
        self._expensive = RoundRobin[Callable[[], None]]()
        self._tasks = RoundRobin[asyncio.Future[bool]]()

    @property
    def is_over(self) -> bool:
        """Whether this turn's time is used up."""
        return self._spent_s >= TURN_S

    @property
    def slice_s(self) -> float:
        """Time for the requests of one connection."""
        return SHORT_SLICE_S if self._clients or self._expensive else SLICE_S

    def spent(self, seconds: float) -> None:
        """Count time spent on a peer's request."""
        if seconds >= NOTED_S:
            self._spent_s += seconds
            self._schedule()

    def call_in_turn(
        self, address: str, go_on: Callable[[], None], *, is_expensive: bool, is_broker: bool = False
    ) -> None:
        """Call ``go_on`` when the turn of a connection from that address has come."""
        if is_broker:
            self._brokers.append(go_on)
        else:
            (self._expensive if is_expensive else self._clients).put(address, go_on)
        self._schedule()

    async def wait_for_turn(self, address: str) -> None:
        """Wait, in a task that works for that address, until the loop has time."""
        while self.is_over:
            waiting: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            self._tasks.put(address, waiting)
            self._schedule()
            if await waiting:
                return

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._let_in)

    def _let_in(self) -> None:
        """Before the next turn, what has come during the last one takes its place: the loop polls its sockets first."""
        asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        """Start a turn."""
        self._is_scheduled = False
        for _ in range(len(self._brokers)):
            self._spent_s = 0.0
            self._brokers.popleft()()
        self._spent_s = 0.0
        goes_on = True
        for _ in range(WOKEN_MAX):
            waiting = self._tasks.take()
            if waiting is None:
                break
            if not waiting.done():
                waiting.set_result(goes_on)
                goes_on = False
        for _ in range(len(self._clients)):
            go_on = None if self.is_over else self._clients.take()
            if go_on is None:
                break
            go_on()
        expensive = self._expensive.take()
        if expensive is not None:
            spent_s, self._spent_s = self._spent_s, 0.0
            expensive()
            self._spent_s = spent_s  # it does not count, so that the next turn is not shortened
        if self._tasks or self._clients or self._expensive or self._brokers:
            self._schedule()


class Share:
    """A task's share of the loop: call `yield_if_due` between pieces of long work."""

    def __init__(
        self,
        turns: Turns | None,
        address: str = "",
        *,
        has_ended: Callable[[], bool] | None = None,
    ) -> None:
        """``turns`` None: no other connections. ``address``: of the requesting peer. ``has_ended``: whether its
        connection has ended."""
        self._turns = turns
        self._address = address
        self._has_ended = has_ended
        self._began_s = SYSTEM_CLOCK.monotonic_s()

    async def yield_if_due(self) -> None:
        """Let others run if this task's time is used up. Raises ConnectionEnded if the client has disconnected."""
        if self._has_ended is not None and self._has_ended():
            raise ConnectionEnded("the client ended the connection before the request was done")
        spent_s = SYSTEM_CLOCK.monotonic_s() - self._began_s
        if self._turns is not None and spent_s >= TURN_S:
            self._turns.spent(spent_s)
            await self._turns.wait_for_turn(self._address)
            self._began_s = SYSTEM_CLOCK.monotonic_s()

    async def each(self, items: Iterable[T]) -> AsyncIterator[T]:
        """The items, with `yield_if_due` before each."""
        for one in items:
            await self.yield_if_due()
            yield one
