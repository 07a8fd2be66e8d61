"""Look-ups that strangers ask for: by time, by count, checksums. Bounded, and over when their connection is (rule P1).

Strategy
    They read as much as it takes to find something out, so they have few threads (`Purpose.LOOK_UPS`), and a connection
    has one of them at most: whoever sends five hundred waits for himself; so does an address with many connections,
    since addresses take turns. What takes longer than its share is refused with REQUEST_TIMED_OUT, which clients ask
    again after; a walk through a segment is remembered in its index, so the next attempt begins further on.

Rules
    * A look-up whose connection ends while it waits is never begun; one that runs is over at the next batch.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, Self, TypeVar
from weakref import WeakKeyDictionary

from klog.errors import RequestTimedOut
from klog.net.connection import Connection
from klog.server.executors import Executors, Purpose
from klog.storage.patience import Patience

LOOK_UP_S: Final = 3.0
"""Of a thread, for one piece of work: a partition, or what one of klog's own requests asks. Those who wait for a thread
wait for so long a piece of work before them."""
LOOK_UP_BYTES_MAX: Final = 1 << 30
"""Walked over or read for one: the default size of a segment."""
REQUEST_S: Final = 30.0
"""For all that one request asks: then its client has given up."""

T = TypeVar("T")


class LookUps:
    """One for a broker. Event loop only."""

    def __init__(self, executors: Executors) -> None:
        self._executors = executors
        self._turns: WeakKeyDictionary[Connection, asyncio.Lock] = WeakKeyDictionary()

    def of(self, connection: Connection | None) -> LookUp:
        """What one request looks up; None where the broker asks itself."""
        turn = asyncio.Lock() if connection is None else self._turns.setdefault(connection, asyncio.Lock())
        return LookUp(self._executors, connection, turn)


class LookUp:
    """One request's. To be used as a context, by one task; it costs nothing until something is looked up."""

    def __init__(self, executors: Executors, connection: Connection | None, turn: asyncio.Lock) -> None:
        self._executors = executors
        self._connection = connection
        self._turn = turn
        self._has_turn = False
        self._until_s = time.monotonic() + REQUEST_S

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._has_turn:
            self._turn.release()

    async def run(self, disk: str, question: Callable[[Patience], T]) -> T:
        """The answer of a question to logs of that log dir, in a thread. RequestTimedOut beyond the bounds.

        Where the connection ends, the task that waits here is cancelled.
        """
        task = asyncio.current_task()
        assert task is not None
        connection = self._connection
        if connection is not None:
            connection.at_end.add(task.cancel)
        try:
            if not self._has_turn:
                await self._turn.acquire()
                self._has_turn = True
            if time.monotonic() > self._until_s:
                raise RequestTimedOut(f"the look-ups of one request may take {REQUEST_S:g} s")
            whose = "" if connection is None else connection.address
            patience = Patience(seconds=LOOK_UP_S, bytes_max=LOOK_UP_BYTES_MAX, is_wanted=self._is_wanted)
            return await self._executors.run_in_turn(whose, disk, Purpose.LOOK_UPS, question, patience)
        finally:
            if connection is not None:
                connection.at_end.discard(task.cancel)

    def _is_wanted(self) -> bool:
        """In the thread."""
        return self._connection is None or not self._connection.closed
