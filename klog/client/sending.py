"""The outcome of one send: its messages are settled one by one, and reported by a future and by callbacks."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError

from klog.client.send_errors import undelivered
from klog.errors import KlogError, SendFailed

log = logging.getLogger(__name__)


class Place(NamedTuple):
    """A message's place in the log; ``offset`` is -1 if unknown (acks=0)."""

    topic: str
    partition: int
    offset: int


Callback = Callable[[KlogError | None, Place | None], None]
"""Called for each message when its outcome is known, in the producer's thread: it must not block for long."""


_UNKNOWN: Final[Mapping[str, int]] = {}


class Sending(Future[tuple[Place, ...]]):
    """The future of one `send`: its result is the places of its messages, in their order.

    It is running from the start: what is in the buffer cannot be taken back. Any thread settles it, message by message.

    Callers wait for hardly one in a million by itself, so settling takes no lock while there is no watcher. The thread
    that settles sets its flag and then looks for watchers; a thread that begins to watch sets its flag and then looks
    whether the send is settled: one of the two sees the other. From then on, what watchers see changes under their lock
    alone, as in `concurrent.futures`.
    """

    _exception: BaseException | None = None
    _is_settled = False
    _is_watched = False
    _is_announced = False
    """Settled, and watchers see it."""

    def __init__(
        self,
        topic: str,
        callback: Callback | None,
        shared: threading.Condition | None,
        max_bytes: Mapping[str, int] = _UNKNOWN,
    ) -> None:
        """``shared`` is the condition for watchers of an async producer's sends; a sync send has its own.

        ``max_bytes``: what is known of the topics' limits, by topic.

        `Future.__init__` is not called: it would cost as much as the rest of a send (`__getattr__`).
        """
        self._topic = topic
        self._max_bytes = max_bytes
        self._callback = callback
        self._watchers = shared or threading.Condition()
        self._logs = shared is not None and callback is None

    def __getattr__(self, name: str) -> Any:
        """The attributes that `concurrent.futures` reads: the condition and, while it holds that, the others."""
        if name == "_condition":
            self._watch()
            return self._watchers
        if name in ("_waiters", "_done_callbacks"):
            return self.__dict__.setdefault(name, [])
        raise AttributeError(name)

    @property
    def _state(self) -> str:  # type: ignore[override]
        """The state, for `concurrent.futures`."""
        return "FINISHED" if (self._is_announced if self._is_watched else self._is_settled) else "RUNNING"

    def result(self, timeout: float | None = None) -> tuple[Place, ...]:
        """The places; raises the messages' error, or TimeoutError after that many seconds."""
        self._wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The messages' error, None without one. TimeoutError after that many seconds."""
        self._wait(timeout)
        return self._exception

    def _watch(self) -> None:
        with self._watchers:
            if not self._is_watched:
                self._is_watched = True
                self._is_announced = self._is_settled

    def _wait(self, timeout: float | None) -> None:
        """Other sends share the condition."""
        self._watch()
        with self._watchers:
            if not self._watchers.wait_for(self.done, timeout):
                raise TimeoutError

    @property
    def place(self) -> Place:
        """The first message's place; waits for the acknowledgement, and raises its error."""
        return self.result()[0]

    @property
    def _result(self) -> tuple[Place, ...]:  # type: ignore[override]
        """The result that `Future` returns when it finishes without an exception."""
        raise NotImplementedError

    def _tell(self, error: KlogError | None, place: Place | None) -> None:
        assert self._callback is not None
        try:
            self._callback(error, place)
        except Exception:
            log.exception("the callback of a message to %s has failed", self._topic)

    def _finish(self, error: KlogError | None) -> None:
        """Called when the last message is settled."""
        if error is not None:
            self._exception = error
        self._is_settled = True
        if self._is_watched:
            self._announce()

    def _announce(self) -> None:
        with self._watchers:
            if self._is_announced:
                return
            self._is_announced = True
            self._watchers.notify_all()
            for waiter in self._waiters:
                waiter.add_result(self) if self._exception is None else waiter.add_exception(self)
        self._invoke_callbacks()


class SendingOne(Sending):
    """The sending of one message."""

    _partition = -1
    _offset = -1

    def __call__(self, error: KafkaError | None, answer: Any) -> None:
        """librdkafka's delivery report of the message."""
        if error is None:
            self._partition, self._offset = answer.partition(), answer.offset()
            if self._callback is not None:
                self._tell(None, self._place())
            self._finish(None)
        else:
            self.failed(undelivered(error, self._topic, answer, self._max_bytes))

    def failed(self, error: KlogError) -> None:
        if self._callback is not None:
            self._tell(error, None)
        if self._logs:
            log.warning("a message to %s is dropped: %s", self._topic, error)
        self._finish(error)

    @property
    def _result(self) -> tuple[Place, ...]:  # type: ignore[override]
        return (self._place(),)

    def _place(self) -> Place:
        return Place(self._topic, self._partition, self._offset)


class SendingSet(Sending):
    """The sending of a set of messages; settled by their numbers in it."""

    def __init__(
        self,
        topic: str,
        callback: Callback | None,
        shared: threading.Condition | None,
        count: int,
        max_bytes: Mapping[str, int] = _UNKNOWN,
    ) -> None:
        super().__init__(topic, callback, shared, max_bytes)
        self._found: dict[int, tuple[int, int]] = {}
        """Partition and offset, by number."""
        self._errors: dict[int, KlogError] = {}
        self._count = count
        # Counts without a lock: if two threads settle the last two messages, only one sees the last number.
        self._settled = itertools.count(1)
        if not count:
            self._finish(None)

    def delivered(self, index: int, error: KafkaError | None, answer: Any) -> None:
        """librdkafka's delivery report of one of them."""
        if error is None:
            found = self._found[index] = answer.partition(), answer.offset()
            if self._callback is not None:
                self._tell(None, Place(self._topic, *found))
            self._settle_one()
        else:
            self.failed(index, undelivered(error, self._topic, answer, self._max_bytes))

    def failed(self, index: int, error: KlogError) -> None:
        self._errors[index] = error
        if self._callback is not None:
            self._tell(error, None)
        self._settle_one()

    def _settle_one(self) -> None:
        if next(self._settled) != self._count:
            return
        if not self._errors:
            self._finish(None)
            return
        first = self._errors[min(self._errors)]
        if self._logs:
            log.warning("%d messages to %s are dropped: %s", len(self._errors), self._topic, first)
        said = f"{len(self._errors)} of {self._count} messages were not acknowledged; the first: {first}"
        self._finish(SendFailed(said, self._errors, hint=first.hint))

    @property
    def _result(self) -> tuple[Place, ...]:  # type: ignore[override]
        return tuple(Place(self._topic, *self._found[index]) for index in sorted(self._found))
