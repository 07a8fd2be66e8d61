"""Clients' look-ups: by time, by count, checksums. They are limited, and end with their connection (rule P1).

Strategy
    A look-up may read a lot, so look-ups have few threads (`Purpose.LOOK_UPS`), and a connection uses one of them at
    most: a client that sends five hundred waits only for itself. So does an address with many connections, since
    addresses take turns. A look-up beyond its share of time gets REQUEST_TIMED_OUT, after which clients ask again. The
    segment's index keeps how far it got, so that the next attempt begins further on.

Rules
    * A look-up whose connection ends while it waits never begins; a running one ends at the next batch.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, Self, TypeVar

from klog.errors import RequestTimedOut
from klog.net.connection import Connection, while_open
from klog.server.executors import Executors, Purpose
from klog.storage.lookup_budget import LookupBudget

LOOK_UP_S: Final = 3.0
"""Thread time per piece of work: a partition, or a question of one of klog's own requests. Others wait that long per
piece before them."""
LOOK_UP_BYTES_MAX: Final = 1 << 30
"""Bytes walked over or read per look-up: the default size of a segment."""
REQUEST_S: Final = 30.0
"""Per request: by then its client has given up."""

T = TypeVar("T")


class LookUp:
    """The look-ups of one request. A context manager for one task; it costs nothing until the first look-up.

    ``connection``: None for the broker's own.
    """

    def __init__(self, executors: Executors, connection: Connection | None) -> None:
        self._executors = executors
        self._connection = connection
        self._turn = asyncio.Lock() if connection is None else connection.states.setdefault(LookUp, asyncio.Lock())
        self._has_turn = False
        self._until_s = time.monotonic() + REQUEST_S

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._has_turn:
            self._turn.release()

    async def run(self, disk: str, question: Callable[[LookupBudget], T]) -> T:
        """Ask logs of that log dir a question in a thread. Raises RequestTimedOut beyond the limits.

        If the connection ends, the waiting task is cancelled.
        """
        connection = self._connection
        with while_open(connection):
            if not self._has_turn:
                await self._turn.acquire()
                self._has_turn = True
            if time.monotonic() > self._until_s:
                raise RequestTimedOut(f"the look-ups of one request may take {REQUEST_S:g} s")
            whose = "" if connection is None else connection.address
            budget = LookupBudget(seconds=LOOK_UP_S, bytes_max=LOOK_UP_BYTES_MAX, is_wanted=self._is_wanted)
            return await self._executors.run_in_turn(whose, disk, Purpose.LOOK_UPS, question, budget)

    def _is_wanted(self) -> bool:
        """In the thread."""
        return self._connection is None or not self._connection.closed
