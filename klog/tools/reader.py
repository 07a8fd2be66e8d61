"""The thread that reads: from librdkafka's queue to a stream of bytes.

Strategy: one wait for a message, then whatever else is there, in runs of some hundred that are written by one call: a
message that comes alone is shown at once, and a backlog passes at librdkafka's pace. A Reader belongs to the thread
that runs `run`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Assigned

from klog.client.cluster import Cluster
from klog.client.headers import headers_from
from klog.client.servers import librdkafka_servers
from klog.errors import (
    CorruptBatch,
    KlogError,
    TimedOut,
    UnknownTopicOrPartition,
)
from klog.names import TAIL_GROUP, TopicPartition
from klog.security.errors import TopicAuthorizationFailed
from klog.tools.librdkafka import ConnectionErrors, made
from klog.tools.message_formatter import Message, MessageFormatter
from klog.tools.options import Sink, Span, TailOptions
from klog.tools.time_merge import Partition, TimeMerge

RUN_MESSAGES = 500
"""Taken at once. With runs of some thousand, the memory of each is given back to the system and asked for again, which
costs more than all else (seen: twice the CPU with ten thousand)."""

WAIT_S = 0.1
"""How long one wait for a message lasts: the time in which a stop is noticed."""

LEAVE_AFTER_S = 0.3
"""After a stop: how long the reading thread may take before its group is left without it."""

DELETION_MS = 5000
"""How long a topic may be missing from the brokers' answers before it is taken for deleted."""

_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


class Reader:
    around_damage = (
        "`--replica ID` reads another replica, `-X check.crcs=false` shows the bytes as they are; "
        "`klog log verify` on its broker tells all that is damaged"
    )

    def __init__(
        self,
        bootstrap: str,
        spans: Mapping[TopicPartition, Span],
        options: TailOptions,
        sink: Sink,
        *,
        stop: threading.Event,
        timeout_s: float,
        follow: bool = False,
        earlier: int | None = None,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        """``follow``: go on behind the ends of the spans. Raises UsageError for options that make no sense."""
        self._shower = MessageFormatter(options, self._watermark, headers_from(bootstrap, timeout_s))
        self._options = options
        self._spans = spans
        self._sink = sink
        self._follow = follow
        self._earlier = earlier
        self._stop = stop
        self._note = note
        self._timeout_s = timeout_s
        self._ends: dict[Partition, int] = {}
        self._open: set[Partition] = set()
        """Partitions whose end was not reached yet."""
        self._paused: set[Partition] = set()
        self._messages = 0
        self._told: set[str] = set()
        """Why values could not be decoded, as far as a note has it."""
        self._errors = ConnectionErrors()
        self._gone: str | None = None
        self._failure: KlogError | None = None
        """What ends the reading once all that came before it is shown."""
        self._assigned: Mapping[Partition, int] = {}
        self._news: deque[Callable[[], None]] = deque()
        """Of topics: what is to be done about it, in the thread that reads."""
        self._merge = TimeMerge(spans) if options.merge_by_time else None
        self._consumer = self._connected(bootstrap)

    def _connected(self, bootstrap: str) -> Any:
        """Where messages come from: confluent-kafka's Consumer."""
        return made(Consumer, self._settings(bootstrap))

    def _settings(self, bootstrap: str) -> dict[str, Any]:
        return {
            **librdkafka_servers(bootstrap),
            "client.id": "klog-tail",
            "group.id": TAIL_GROUP,  # asked for, and never used: partitions are assigned, nothing is committed
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",  # report a jump over what retention removed
            "allow.auto.create.topics": False,
            "topic.metadata.propagation.max.ms": DELETION_MS,
            "enable.partition.eof": True,
            "check.crcs": True,  # report damaged batches, do not show them
            "queued.min.messages": 100_000,
            "queued.max.messages.kbytes": 64 * 1024,
            "fetch.queue.backoff.ms": 5,  # by default a full queue stops fetching for a second: 5 x slower
            "fetch.message.max.bytes": 4 * 1024 * 1024,
            # Where partitions wait for each other, a fetch that waits for one must not hold up the others.
            **({"fetch.wait.max.ms": 50} if self._options.merge_by_time or self._options.last is not None else {}),
            "error_cb": self._on_error,
            **self._options.librdkafka,
        }

    def run(self) -> None:
        """Until the ends, the count or the stop. BrokenPipeError where the output is closed.

        Raises TimedOut where nothing comes although the end was not reached.
        """
        try:
            self._read()
        finally:
            self._consumer.close()
        if (undecoded := self._shower.undecodable.total()) > 1:
            self._note(f"{undecoded:,} of {self._messages:,} values could not be decoded")

    async def run_in_thread(self) -> None:
        """`run`; where the task is cancelled that is a stop, and the thread has ended when the cancellation goes on."""
        work = asyncio.ensure_future(asyncio.to_thread(self.run))
        try:
            await asyncio.shield(work)
        finally:
            self._stop.set()
            if not work.done():
                _, hanging = await asyncio.wait([work], timeout=LEAVE_AFTER_S)
                if hanging:
                    await asyncio.to_thread(self.abandon)
                    await asyncio.wait([work])
            if not work.cancelled():
                work.exception()  # seen: of a task that was cancelled no other asks, and asyncio would complain

    def _read(self) -> None:
        if any(span.end is not None for span in self._spans.values()):
            self._read_to_the_ends()
        if self._follow and not self._is_done:
            self._read_on()

    def abandon(self) -> None:
        """What is to be done, from another thread, where the reading one hangs in a write: here nothing."""

    @property
    def _is_done(self) -> bool:
        """Whether someone said stop, or enough was shown."""
        count = self._options.count
        return self._stop.is_set() or (count is not None and self._messages >= count)

    # --- What is there ---

    def _read_to_the_ends(self) -> None:
        wanted = {one: span for one, span in self._spans.items() if not span.is_empty}
        self._ends = {one: span.end for one, span in wanted.items() if span.end is not None}
        self._open = set(self._ends)
        self._assign({one: span.begin for one, span in wanted.items()})
        if self._options.last is not None:
            self._show_last(self._options.last)
        elif self._merge is not None:
            for run in self._merged_to_the_ends(self._merge):
                self._write(run)
        else:
            while self._open and not self._is_done:
                self._write(self._next_run())

    def _show_last(self, count: int) -> None:
        """The last ``count`` of all partitions in the order of `TimeMerge`."""
        newest: deque[Message] = deque(maxlen=count)
        seen = 0
        for run in self._merged_to_the_ends(TimeMerge(self._spans)):
            newest.extend(run)
            seen += len(run)
        if self._stop.is_set():
            return
        if self._earlier is not None and (earlier := self._earlier + seen - len(newest)):
            self._note(f"{earlier} earlier: -o start")
        self._write(list(newest))

    def _merged_to_the_ends(self, merge: TimeMerge) -> Iterator[list[Message]]:
        """All messages in the order of time; a partition that is far ahead of the others waits for them."""
        held: set[Partition] = set()
        while not self._is_done and (self._open or merge):
            merge.add(self._next_run() if self._open else ())
            yield merge.ready(self._open)
            crowded, starved = merge.crowded() - held, merge.starved(held)
            if crowded:
                self._pause(crowded)
            if starved:
                self._resume(starved)
            held = (held | crowded) - starved

    # --- What comes ---

    def _read_on(self) -> None:
        self._ends = {}
        ends = {one: span.begin if span.end is None else span.end for one, span in self._spans.items()}
        self._assign({one: max(span.begin, ends[one]) for one, span in self._spans.items()})
        if self._merge is not None:
            self._merge_on(self._merge, self._options.settle_s)
        while not self._is_done:
            self._hear_of_topics()
            self._write(self._next_run())

    def _hear_of_topics(self) -> None:
        while self._news:
            self._news.popleft()()

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions that are new: once what comes is read, theirs is too, from the start. Any thread."""
        places: list[Partition] = list(partitions)
        self._news.append(partial(self._take_on, places))

    def drop(self, topic: str) -> None:
        """Read on without a topic that was deleted. Any thread."""
        self._news.append(partial(self._let_go, topic))

    @property
    def _outlives_topics(self) -> bool:
        """Whether it goes on when a topic is deleted: who looks for those that match tells of it by `drop`."""
        return self._follow and self._options.match is not None

    def _take_on(self, places: list[Partition]) -> None:
        names = ", ".join(f"{topic}-{partition}" for topic, partition in places)
        self._note(f"{names}: new, shown from the start")
        self._assigned = {**self._assigned, **dict.fromkeys(places, OFFSET_BEGINNING)}
        self._consumer.incremental_assign([Assigned(*place, OFFSET_BEGINNING) for place in places])

    def _let_go(self, topic: str) -> None:
        places = [place for place in self._assigned if place[0] == topic]
        if not places:
            return
        self._note(f"topic {topic} was deleted")
        self._open.difference_update(places)
        self._assigned = {place: offset for place, offset in self._assigned.items() if place[0] != topic}
        self._consumer.incremental_unassign([Assigned(*place) for place in places])

    def _merge_on(self, merge: TimeMerge, settle_s: float) -> None:
        """What comes, each message after it has waited for earlier ones of other partitions."""
        while not self._is_done:
            oldest = merge.oldest_arrival
            wait_s = WAIT_S if oldest is None else min(max(oldest + settle_s - time.monotonic(), 0.0), WAIT_S)
            if merge.is_full:
                self._stop.wait(wait_s)  # librdkafka's own queue fills up then, and fetching stops
            else:
                merge.add(self._next_run(wait_s), time.monotonic())
            self._write(merge.settled(time.monotonic() - settle_s))

    # --- librdkafka ---

    def _assign(self, offsets: Mapping[Partition, int]) -> None:
        self._assigned = offsets
        self._resume(self._paused)  # librdkafka keeps a pause across assignments
        self._consumer.assign([Assigned(topic, partition, offset) for (topic, partition), offset in offsets.items()])
        self._last_heard = time.monotonic()

    def _pause(self, places: Collection[Partition]) -> None:
        self._consumer.pause([Assigned(*place) for place in places])
        self._paused.update(places)

    def _resume(self, places: Collection[Partition]) -> None:
        self._consumer.resume([Assigned(*place) for place in places])
        self._paused.difference_update(list(places))

    def _next_run(self, wait_s: float = WAIT_S) -> list[Message]:
        """What has come, without what lies behind the ends; empty after a while of nothing."""
        if self._failure is not None:
            raise self._failure
        first = self._consumer.poll(wait_s)
        if self._gone is not None:
            raise UnknownTopicOrPartition(f"the topic was deleted: {self._gone}")
        if first is None:
            self._check_patience()
            return []
        self._last_heard = time.monotonic()
        taken = [first, *self._consumer.consume(RUN_MESSAGES - 1, 0)]
        run = [message for message in taken if message.error() is None]
        if len(run) < len(taken):
            run = self._up_to_a_failure(taken)
        return self._before_the_ends(run) if self._ends and run else run

    def _up_to_a_failure(self, taken: list[Message]) -> list[Message]:
        """The messages among these; where one of the others is the end of all reading, those before it."""
        run = []
        for message in taken:
            if message.error() is None:
                run.append(message)
                continue
            try:
                self._heard(message)
            except KlogError as error:
                self._failure = error
                break
        return run

    def _check_patience(self) -> None:
        waited_s = time.monotonic() - self._last_heard
        if self._open and waited_s > self._timeout_s:
            missing = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(self._open)[:5])
            raise TimedOut(
                f"no message came for {self._timeout_s:g} s before the end of {missing}"
                + (f" ({self._errors.last})" if self._errors.last else "")
            )

    def _before_the_ends(self, run: list[Message]) -> list[Message]:
        """A run without what lies behind the ends; partitions whose end it reaches are open no longer.

        The last message of each partition in the run says whether any of them needs a look of its own.
        """
        ends, beyond = self._ends, []
        for place, offset in {(one.topic(), one.partition()): one.offset() for one in run}.items():
            end = ends.get(place, 0)
            if offset >= end - 1:
                self._open.discard(place)
                if offset >= end:
                    beyond.append(place)
        if not beyond:
            return run
        self._pause(beyond)
        return [one for one in run if one.offset() < ends.get((one.topic(), one.partition()), 0)]

    def _heard(self, message: Message) -> None:
        error, key = message.error(), (message.topic(), message.partition())
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            # Also where the last messages before the end are gone or were never shown to consumers.
            if message.offset() >= self._ends.get(key, 0):
                self._open.discard(key)
        elif code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self._go_on_inside(key, message.offset())
        elif code in _GONE and self._outlives_topics:
            self._open = {place for place in self._open if place[0] != key[0]}
        elif code in _GONE:
            self._gone = f"{key[0]}-{key[1]}: {error.str()}"
        elif code == KafkaError._BAD_MSG:
            raise CorruptBatch(f"{TopicPartition(*key)}: {error.str()}", hint=self.around_damage)
        elif code == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return  # librdkafka looks for the coordinator of a group that is not used
        elif code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise TopicAuthorizationFailed(f"{key[0]}-{key[1]}: {error.str()}")
        elif not error.retriable():
            raise KlogError(f"{key[0]}-{key[1]}: {error.str()}")

    def _go_on_inside(self, place: Partition, offset: int) -> None:
        """Read on although the log has no such offset."""
        name = f"{place[0]}-{place[1]}"
        start, end = self._bounds(place)
        if offset <= end:
            self._note(f"{name}: retention has removed the next messages; continuing at the log's start")
            self._go_on_at(place, start)
        else:
            self._note(
                f"{name}: reading was to continue at offset {offset}, but the log ends at {end} (truncated, or the "
                "topic was made again?); continuing at its end"
            )
            self._go_on_at(place, end)

    def _bounds(self, place: Partition) -> tuple[int, int]:
        try:
            start, end = self._consumer.get_watermark_offsets(Assigned(*place), timeout=self._timeout_s, cached=False)
        except KafkaException as failed:
            raise KlogError(
                f"{TopicPartition(*place)}: its start and end are unknown: {failed.args[0].str()}"
            ) from None
        return start, end

    def _go_on_at(self, place: Partition, offset: int) -> None:
        """Assign all partitions again, this one there: a partition in error takes no seek."""
        assigned = self._consumer.position(self._consumer.assignment())
        for one in assigned:
            if (one.topic, one.partition) == place:
                one.offset = offset
            elif one.offset < 0:  # nothing was read of it yet
                one.offset = self._assigned[one.topic, one.partition]
        self._consumer.assign(assigned)

    def _on_error(self, error: KafkaError) -> None:
        """What librdkafka says of its connections; it goes on trying by itself."""
        if error.code() in _GONE:
            if not self._outlives_topics:
                self._gone = error.str()
            return
        sentence = self._errors.sentence(error)
        if sentence is not None:
            self._note(sentence)

    def _watermark(self, topic: str, partition: int) -> int:
        """The high watermark as the last fetch has told it; -1 where none has."""
        marks = self._consumer.get_watermark_offsets(Assigned(topic, partition), cached=True)
        return max(int(marks[1]), -1) if marks else -1

    # --- The sink ---

    def _write(self, messages: list[Message]) -> list[Message]:
        """Write those that are wanted; which are done with: all, or those up to the last one that -c lets through."""
        if callable(self._sink):
            if messages:
                self._sink(messages)
            return messages
        wanted = self._shower.wanted(messages)
        count = self._options.count
        if count is not None and self._messages + len(wanted) >= count:
            wanted = wanted[: count - self._messages]
            messages = messages[: messages.index(wanted[-1]) + 1] if wanted else []
        if wanted:
            self._sink.write(self._shower.show(wanted))
            self._sink.flush()
            self._messages += len(wanted)
            for reason in [one for one in self._shower.undecodable if one not in self._told]:
                self._told.add(reason)
                self._note(f"a value that cannot be decoded is shown as it is: {reason}")
        return messages


async def read_ranges(
    cluster: Cluster, ranges: Mapping[TopicPartition, tuple[int, int]], take: Callable[[Any], None]
) -> None:
    """Every message with begin <= offset < end of each partition, in the order of its log, to ``take``, in a thread.

    What retention removes meanwhile is skipped. TimedOut where nothing comes within the cluster's time-out although
    an end was not reached.
    """
    spans = {one: Span(*span) for one, span in ranges.items() if span[0] < span[1]}
    if not spans:
        return

    def each(messages: list[Message]) -> None:
        for one in messages:
            take(one)

    # It is to tell soon that nothing comes behind the end.
    options = TailOptions(librdkafka={"client.id": "klog-audit", "fetch.wait.max.ms": "20"})
    stop, timeout_s = threading.Event(), cluster.timeout_s
    reader = await asyncio.to_thread(Reader, cluster.bootstrap, spans, options, each, stop=stop, timeout_s=timeout_s)
    await reader.run_in_thread()
