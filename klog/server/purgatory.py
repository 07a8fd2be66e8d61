"""Requests that wait: acks=all for the high watermark, long polls for bytes.

The name is Kafka's. A delayed produce waits in each partition that it wrote to, and answers when the last one is
committed or has failed. A delayed fetch watches its partitions and answers when there is enough data, or at its
time-out.

Limits
    A sweep checks the time-outs of produce requests every `SWEEP_EVERY_S`, since one timer per request costs more than
    the append itself.
    Long polls are limited per connection, and by the number of partitions that all of them wait for. A long poll may be
    answered early at any time, so beyond the limit the oldest one is answered. It ends with its connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from klog.errors import KlogError, RequestTimedOut
from klog.net.connection import Connection, Reply
from klog.protocol import produce
from klog.protocol.codec import RequestHead
from klog.protocol.produce import PartitionAnswer
from klog.replication.batch_order import BatchId, BatchOrder
from klog.replication.led_partition import LedPartition

SWEEP_EVERY_S = 0.1

FETCHES_OF_CONNECTION_MAX: Final = 16
"""Long polls that wait on one connection. A client has one or two; answers go out in order, so that all but the first
of many would only hold memory and the connection."""
FETCHED_PARTITIONS_MAX: Final = 1_000_000
"""Partitions that all long polls together wait for: some 300 bytes each."""


class DelayedProduce:
    """A produce request with acks=all that is appended and not committed yet. Event loop only."""

    __slots__ = ("_answers", "_batches", "_connection", "_head", "_left", "_order", "_reply", "deadline_s")

    def __init__(
        self,
        head: RequestHead,
        reply: Reply,
        answers: list[PartitionAnswer],
        deadline_s: float,
        batches: list[BatchId | None],
        connection: Connection,
        order: BatchOrder,
    ) -> None:
        """``batches``: the batch of each answer, for an idempotent producer."""
        self.deadline_s = deadline_s
        self._batches = batches
        self._connection = connection
        self._order = order
        self._head = head
        self._reply: Reply | None = reply
        self._answers = answers
        self._left = 0

    def wait_for(self, partition: LedPartition, address: int, index: int) -> None:
        """Answer ``index`` of the list succeeds once ``partition`` is committed up to ``address``."""
        if not partition.when_committed(address, _PartitionWait(self, index)):
            self._left += 1

    @property
    def done(self) -> bool:
        return self._left == 0

    def answered(self) -> bool:
        return self._reply is None

    def one(self, index: int, error: KlogError | None) -> None:
        batch = self._batches[index]
        if batch is not None and error is None:
            # An earlier batch of the same producer may have failed while this one waited.
            answer = self._answers[index]
            refusal = self._order.behind(self._connection, answer.topic, answer.partition, batch)
            if refusal is not None:
                self._answer_with(index, refusal)
        elif error is not None:
            self._fail(index, error)
        self._left -= 1
        if self._left == 0:
            self.answer()

    def expire(self) -> None:
        """Time out: uncommitted batches get REQUEST_TIMED_OUT, and may still be committed later."""
        if self._reply is None:
            return
        late = RequestTimedOut("not committed within the request's timeout")
        for index, answer in enumerate(self._answers):
            if answer.error_code == 0:
                self._fail(index, late)
        self.answer()

    def _answer_with(self, index: int, error: KlogError) -> None:
        answer = self._answers[index]
        self._answers[index] = answer._replace(error_code=error.wire, base_offset=-1, message=error.message)

    def _fail(self, index: int, error: KlogError) -> None:
        answer = self._answers[index]
        self._answer_with(index, error)
        self._order.refused(self._connection, answer.topic, answer.partition, self._batches[index], error)

    def answer(self) -> None:
        if self._reply is not None:
            self._reply.send(produce.write_response(self._head, self._answers))
            self._reply = None


class _PartitionWait:
    """A delayed produce's wait in one partition."""

    __slots__ = ("_index", "_request")

    def __init__(self, request: DelayedProduce, index: int) -> None:
        self._request = request
        self._index = index

    def committed(self, error: KlogError | None) -> None:
        self._request.one(self._index, error)


class DelayedFetch:
    """A long poll. Event loop only."""

    def __init__(
        self,
        purgatory: Purgatory,
        partitions: list[LedPartition],
        wait_s: float,
        enough: Callable[[LedPartition], bool],
        answer: Callable[[], None],
        connection: Connection,
    ) -> None:
        """``enough``: whether the new data of a partition completes the answer."""
        self.connection = connection
        self.partitions = partitions
        self._purgatory = purgatory
        self._enough = enough
        self._answer = answer
        self._timer = purgatory.loop.call_later(wait_s, self.finish)
        connection.at_end.add(self.finish)
        for partition in partitions:
            partition.watch(self)
        purgatory.park(self)

    def more(self, partition: LedPartition) -> None:
        """A high watermark has moved, or this broker no longer leads a partition."""
        if self._enough(partition):
            self.finish()

    def finish(self) -> None:
        """Answer: at the time-out, with enough data, after the connection's end, or in favour of other requests."""
        self._timer.cancel()
        self._purgatory.leave(self)
        self.connection.at_end.discard(self.finish)
        for partition in self.partitions:
            partition.unwatch(self)
        self._answer()


class Purgatory:
    """Times out produce requests. Event loop only; `produces` may be read from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._fetches: dict[DelayedFetch, None] = {}
        """In the order in which they came."""
        self._fetched_partitions = 0
        self._waiting: deque[DelayedProduce] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def fetches(self) -> int:
        """Waiting long polls. Any thread."""
        return len(self._fetches)

    def park(self, fetch: DelayedFetch) -> None:
        """Add a waiting request. If there are too many, the oldest one is answered with the data that there is."""
        of_connection: dict[DelayedFetch, None] = fetch.connection.states.setdefault(self, {})
        of_connection[fetch] = self._fetches[fetch] = None
        self._fetched_partitions += len(fetch.partitions)
        if len(of_connection) > FETCHES_OF_CONNECTION_MAX:
            next(iter(of_connection)).finish()
        while self._fetched_partitions > FETCHED_PARTITIONS_MAX and len(self._fetches) > 1:
            next(iter(self._fetches)).finish()

    def leave(self, fetch: DelayedFetch) -> None:
        """The request no longer waits."""
        del self._fetches[fetch]
        self._fetched_partitions -= len(fetch.partitions)
        del fetch.connection.states[self][fetch]

    def add(self, request: DelayedProduce) -> None:
        waiting = self._waiting
        while waiting and waiting[0].answered():  # nearly all are, long before the sweep
            waiting.popleft()
        waiting.append(request)
        if self._timer is None:
            self._timer = self.loop.call_later(SWEEP_EVERY_S, self._sweep)

    @property
    def produces(self) -> int:
        """Waiting requests with acks=all, as of the last sweep."""
        return sum(not request.answered() for request in self._waiting.copy())

    def _sweep(self) -> None:
        now = self.loop.time()
        left: deque[DelayedProduce] = deque()
        for request in self._waiting:
            if request.answered():
                continue
            if request.deadline_s <= now:
                request.expire()
            else:
                left.append(request)
        self._waiting = left
        self._timer = self.loop.call_later(SWEEP_EVERY_S, self._sweep) if left else None

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
