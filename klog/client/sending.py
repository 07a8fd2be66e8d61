"""What becomes of the messages of one send: settled one by one, told as a future and by callbacks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple

from klog.errors import KlogError, SendFailed

log = logging.getLogger(__name__)


class Place(NamedTuple):
    """Where a message is; ``offset`` is -1 where nobody said (acks=0)."""

    topic: str
    partition: int
    offset: int


Callback = Callable[[KlogError | None, Place | None], None]
"""What is called for each message when its fate is known, in the producer's thread: it must not wait for long."""


class Sending(Future[tuple[Place, ...]]):
    """What becomes of one `send`: its result are the places of its messages, in their order."""

    def __init__(self, settled: threading.Condition | None = None) -> None:
        """Running from the start: what is in the buffer cannot be taken back.

        ``settled`` is what all futures of an async producer wait on. A condition of each one's own would cost as much
        as all the rest of a send, for the few that are ever waited for. Who sends sync waits for each, and has one.
        """
        if settled is None:
            super().__init__()
        else:
            self._condition = settled
            self._result = None
            self._exception = None
            self._waiters = []
            self._done_callbacks: list[Callable[[Future[tuple[Place, ...]]], object]] = []
        self._state = "RUNNING"

    def result(self, timeout: float | None = None) -> tuple[Place, ...]:
        """The places; raises what kept the messages from the log, TimeoutError after that many seconds."""
        self._wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What kept the messages from the log; None where nothing did. TimeoutError after that many seconds."""
        self._wait(timeout)
        return super().exception(0)

    def _wait(self, timeout: float | None) -> None:
        """Others, too, are told of by the condition."""
        with self._condition:
            self._condition.wait_for(self.done, timeout)

    @property
    def place(self) -> Place:
        """Of the first message; waits for the acknowledgement, and raises where there is none."""
        return self.result()[0]


class Underway:
    """The messages of one send, until the last of them is settled. Any thread."""

    __slots__ = ("_callback", "_errors", "_is_set", "_left", "_lock", "_logs", "_places", "_topic", "sending")

    def __init__(
        self, topic: str, count: int, is_set: bool, callback: Callback | None, settled: threading.Condition | None
    ) -> None:
        """``settled``: as `Sending` has it; None where it is sent sync."""
        self.sending = Sending(settled)
        self._topic = topic
        self._places: list[Place | None] = [None] * count
        self._errors: dict[int, KlogError] = {}
        self._left = count
        self._is_set = is_set
        self._callback = callback
        self._logs = settled is not None and callback is None
        self._lock = threading.Lock()

    def settle(self, index: int, error: KlogError | None, place: Place | None) -> None:
        with self._lock:
            self._left -= 1
            is_last = self._left == 0
            if error is not None:
                self._errors[index] = error
            else:
                self._places[index] = place
        if self._callback is not None:
            try:
                self._callback(error, place)
            except Exception:
                log.exception("the callback of a message to %s has failed", self._topic)
        if is_last:
            self._finish()

    def _finish(self) -> None:
        if not self._errors:
            self.sending.set_result(tuple(one for one in self._places if one is not None))
            return
        first = self._errors[min(self._errors)]
        if self._logs:
            log.warning("%d messages to %s are dropped: %s", len(self._errors), self._topic, first)
        if self._is_set:
            said = f"{len(self._errors)} of {len(self._places)} messages were not acknowledged; the first: {first}"
            self.sending.set_exception(SendFailed(said, self._errors, hint=first.hint))
        else:
            self.sending.set_exception(first)
