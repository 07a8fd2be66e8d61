"""A stream of messages: a blocking iterator over the partitions that its thread owns at the moment.

Strategy: each stream has its own librdkafka, which fetches ahead up to `queued.max.message.chunks`. The iterating
thread takes runs of messages out of it; there is no thread and no queue between. The consumer's rebalancer gives the
stream partitions, and takes them away, from its own thread.

Rules
- One lock guards all of it but the run. The iterating thread holds it while it waits for messages, for WAIT_S at most;
  a visitor (`_visit`) announces itself, and the iterating thread lets it in first.
- The iterator takes a message from the run by one `popleft`, without the lock: no other work per message is cheaper.
  A visitor first empties the run, from the other end, and at last fills it again with what stays; the iterating thread
  meanwhile finds it empty and waits for the lock. The rest of the run shows what was taken (`_account`).
- A message is *delivered* when the iterator returns it, and *done* when the caller asks for the next one. Automatic
  commits take what is done. The message in hand is committed when the partition is taken away and the message was not
  done in time, or when the user commits.
- The iterator delivers nothing after the lease has ended: then ZooKeeper may have given the partitions to others.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as Assigned

from klog.client.answers import error_of
from klog.client.message import Message
from klog.client.servers import silent_logger
from klog.errors import ConsumerTimeout, CorruptBatch, KlogError, NotOwned
from klog.names import TopicPartition

WAIT_S = 0.05
"""How long one wait for a message holds the lock, and so delays a rebalance."""
RUN_MESSAGES = 1000
"""Messages taken out of librdkafka at once; they are in memory already."""

_log = logging.getLogger("klog.consumer")

_PASSING = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._PARTITION_EOF,
    KafkaError.OFFSET_OUT_OF_RANGE,
)
"""Errors that ZooKeeper reports better, or that librdkafka handles itself."""


class Lease:
    """The time until which the consumer owns its partitions for certain. Monotonic seconds."""

    __slots__ = ("until",)

    def __init__(self) -> None:
        self.until = 0.0

    @property
    def is_over(self) -> bool:
        return monotonic() > self.until


class MessageStream(Iterator[Message]):
    """Iterate in one thread. Ends (StopIteration) when the consumer is shut down, and never before."""

    def __init__(self, topic: str | None, number: int, lease: Lease, timeout_s: float | None) -> None:
        """Made by `Consumer.create_message_streams`. ``topic`` is None for a stream of a filter."""
        self.topic = topic
        self.number = number
        self._lease = lease
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._visitors: list[None] = []
        self._source: Any = None
        """confluent-kafka's Consumer, while the stream has partitions."""
        self._run: deque[Message] = deque()
        """The messages for the iterating thread; empty during a visit, when the rest of it is in `_ahead`."""
        self._run_filled: list[Message] = []
        """The run as it was when it was filled."""
        self._ahead: list[Message] = []
        """Messages out of librdkafka that the iterator may not take yet."""
        self._next: dict[tuple[str, int], int] = {}
        """Partition -> the offset behind its delivered messages, without the run's."""
        self._in_hand: tuple[tuple[str, int], int] | None = None
        """Partition and offset of the message that is delivered but not done, unless a later one was taken."""
        self._error: KlogError | None = None
        self._is_failed = False
        """The error stays."""
        self._is_closed = False
        self._reader = 0
        """The thread that iterates."""

    def __repr__(self) -> str:
        return (
            f"<stream {self.number} of {self.topic or 'a filter'}: {', '.join(map(str, self.partitions)) or 'nothing'}>"
        )

    def __iter__(self) -> MessageStream:
        return self

    def __next__(self) -> Message:
        """The next message; waits for one. ConsumerTimeout after ``consumer.timeout.ms``; errors of brokers."""
        try:
            if monotonic() < self._lease.until:
                return self._run.popleft()
        except IndexError:
            return self._next_run()
        return self._next_run()

    def _next_run(self) -> Message:
        with self._lock:
            self._account()
            self._in_hand = None
            self._reader = threading.get_ident()
            return self._wait()

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions that this stream reads at the moment."""
        return sorted(TopicPartition(*key) for key in list(self._next))

    # --- who iterates (lock held) -------------------------------------------------------------------------------------

    def _account(self) -> None:
        """Empty the run, and record what was delivered of it."""
        left: list[Message] = []
        with suppress(IndexError):
            while True:
                left.append(self._run.pop())  # from the end that the iterator does not take from
        delivered = self._run_filled[: len(self._run_filled) - len(left)]
        self._run_filled = []
        left.reverse()
        self._ahead[:0] = left
        if not delivered:
            return
        last = delivered[-1]
        self._in_hand = (_key(last), last.offset or 0)
        unseen = set(self._next)
        for message in reversed(delivered):
            key = _key(message)
            if key in unseen:
                self._next[key] = (message.offset or 0) + 1
                unseen.remove(key)
                if not unseen:
                    break

    def _release(self) -> None:
        """Let the iterator take what is ahead; the visit is over."""
        self._run_filled, self._ahead = self._ahead, []
        self._run.extend(self._run_filled)

    def _wait(self) -> Message:
        deadline = None if self._timeout_s is None else monotonic() + self._timeout_s
        while True:
            if self._visitors:
                self._changed.notify_all()
                self._changed.wait(WAIT_S)
            elif self._error is not None:
                error = self._error
                if not self._is_failed:
                    self._error = None
                raise error
            elif self._is_closed:
                raise StopIteration
            elif self._lease.is_over:
                self._changed.wait(WAIT_S)
            elif self._run or self._ahead:
                if not self._run:
                    self._release()
                return self._run.popleft()
            elif self._source is not None and self._next:
                self._fill()
            else:
                self._changed.wait(WAIT_S if deadline is None else min(WAIT_S, max(0.001, deadline - monotonic())))
            if (
                deadline is not None
                and monotonic() >= deadline
                and (not (self._run or self._ahead) or self._lease.is_over)
            ):
                raise self._timed_out()

    def _fill(self) -> None:
        first = self._source.poll(WAIT_S)
        if first is None:
            return
        found = [first, *self._source.consume(RUN_MESSAGES - 1, 0)]
        self._ahead = _messages([one for one in found if one.error() is None or self._heard(one)])

    def _heard(self, message: Any) -> bool:
        """Handle an event that is not a message; returns False."""
        error = message.error()
        where = f"{message.topic()}-{message.partition()}"
        if error.code() in _PASSING or error.retriable():
            _log.debug("%s: %s", where, error.str())
        elif error.code() == KafkaError._BAD_MSG:
            self._error = CorruptBatch(f"{where} at offset {message.offset()}: {error.str()}")
        else:
            self._error = error_of(error.code(), f"{where}: {error.str()}")
        return False

    def _timed_out(self) -> ConsumerTimeout:
        reads = ", ".join(map(str, self.partitions)) or "no partition: others of its group have them, or there are none"
        return ConsumerTimeout(f"no message within {self._timeout_s:g} s; the stream reads {reads}")

    # --- the rebalancer, from its thread ------------------------------------------------------------------------------

    @contextmanager
    def _visit(self) -> Iterator[None]:
        """Take the lock before the iterating thread takes it again, and record what was delivered."""
        self._visitors.append(None)
        with self._lock:
            try:
                self._account()
                yield
            finally:
                self._visitors.pop()
                if not self._visitors:
                    self._release()
                self._changed.notify_all()

    def open(self, settings: Mapping[str, Any]) -> None:
        """Open a librdkafka with these settings; it replaces an earlier one and continues at its offsets."""
        with self._visit():
            self._close_source()
            self._source = Consumer(dict(settings), logger=silent_logger())
            self._ahead.clear()
            if self._next:
                self._source.incremental_assign([Assigned(*key, offset) for key, offset in self._next.items()])

    @property
    def is_open(self) -> bool:
        return self._source is not None

    def give(self, starts: Mapping[TopicPartition, int]) -> None:
        """Read these partitions as well, each from its offset."""
        with self._visit():
            for partition, offset in starts.items():
                self._next[partition.topic, partition.partition] = offset
            self._source.incremental_assign([Assigned(*partition, offset) for partition, offset in starts.items()])

    def take(
        self, partitions: Collection[TopicPartition], deadline: float, *, in_hand: bool
    ) -> dict[TopicPartition, int]:
        """Stop reading these partitions. Returns where the next reader of each continues, if anything was delivered.

        Waits until ``deadline`` (monotonic) for a message in hand to be done. After that, it counts as done with
        ``in_hand``; otherwise the next reader gets it.
        """
        gone = {(one.topic, one.partition) for one in partitions if one in self._next}
        with self._visit():
            if gone and self._source is not None:
                self._ahead = [one for one in self._ahead if _key(one) not in gone]
                self._source.incremental_unassign([Assigned(*key) for key in gone])
            while (
                self._in_hand is not None
                and self._in_hand[0] in gone
                and self._reader != threading.get_ident()
                and (left_s := deadline - monotonic()) > 0
            ):
                self._changed.wait(left_s)
            found = self._positions(done=not in_hand)
            for key in gone:
                del self._next[key]
            return {one: offset for one, offset in found.items() if one in gone}

    def positions(self, *, done: bool) -> dict[TopicPartition, int]:
        """The offset behind each partition's delivered messages; ``done`` excludes the message in hand.

        Without partitions that have delivered nothing and whose start offset is up to their leader.
        """
        with self._visit():
            return self._positions(done=done)

    def _positions(self, *, done: bool) -> dict[TopicPartition, int]:
        found = {TopicPartition(*key): offset for key, offset in self._next.items() if offset >= 0}
        if done and self._in_hand is not None and self._in_hand[0] in self._next:
            found[TopicPartition(*self._in_hand[0])] = self._in_hand[1]
        return found

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at this offset. NotOwned if the stream does not read the partition."""
        key = (partition.topic, partition.partition)
        with self._visit():
            if key not in self._next:
                raise NotOwned(f"the stream does not read {partition} any more")
            self._ahead = [one for one in self._ahead if _key(one) != key]
            if self._in_hand is not None and self._in_hand[0] == key:
                self._in_hand = None
            self._next[key] = offset
            self._source.incremental_unassign([Assigned(*key)])
            self._source.incremental_assign([Assigned(*key, offset)])

    def fail(self, error: KlogError) -> None:
        """Make the iterator raise this error from now on."""
        with self._visit():
            self._error, self._is_failed = error, True

    def close(self) -> None:
        """End the iteration. May be called twice."""
        with self._visit():
            self._is_closed = True
            self._ahead.clear()
            self._next.clear()
            self._close_source()

    def _close_source(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.close()


def _messages(found: list[Any]) -> list[Message]:
    """klog's message from librdkafka's. Avoids `Message.__new__`, which costs as much as the rest."""
    new = tuple.__new__
    return [
        new(
            Message,
            (
                one.value(),
                one.key(),
                tuple(headers) if (headers := one.headers()) else (),
                stamp[1] if (stamp := one.timestamp())[0] else None,
                one.topic(),
                one.partition(),
                one.offset(),
            ),
        )
        for one in found
    ]


def _key(message: Message) -> tuple[str, int]:
    """Its partition. What was read has one; the types of a `Message` allow for none."""
    return message.topic or "", message.partition or 0
