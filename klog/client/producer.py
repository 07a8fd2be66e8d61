"""The paper's producer: messages, or sets of them, to a topic; one at a time or buffered.

Strategy: librdkafka keeps the buffer, the connections, the order and the retries. This module has the paper's interface
over it, with 0.8's names and its two modes. One thread per producer reads the acknowledgements: it settles the futures,
calls the callbacks and publishes the audit's counts.

    sync    `send` returns when the message is acknowledged, and raises where it is not
    async   `send` puts it into the buffer; a request goes when there are ``batch.num.messages`` (1000), or the
            oldest has waited ``queue.buffering.max.ms`` (5 s). While the buffer is full
            (``queue.buffering.max.messages``, 10,000), a send waits for ``queue.enqueue.timeout.ms`` (-1: until there
            is room), then raises BufferFull.

A crash (kill -9, a power cut) loses the buffer: unacknowledged messages may be gone. A program that cannot bear that
sends sync, or keeps each message until its future is done. An ordinary end of the program closes producers that are
still open, which sends what they have.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Literal

from confluent_kafka import KafkaException

from klog.client.audit import Auditor, with_stamp
from klog.client.audit_publisher import AuditPublisher, settle_delivery
from klog.client.audited_topics import AuditedTopics
from klog.client.headers import check_header_name
from klog.client.message import Headers, Message
from klog.client.partition_choice import PartitionChoice, Partitioner
from klog.client.producer_settings import AuditSettings, read_settings
from klog.client.send_errors import open_producer, untaken
from klog.client.sending import Callback, Sending, SendingOne, SendingSet
from klog.client.servers import librdkafka_servers
from klog.client.zookeeper_access import without_access
from klog.clock import SYSTEM_CLOCK, Clock
from klog.coordination.zookeeper_access import ZooKeeperServers
from klog.errors import (
    BufferFull,
    InvalidConfig,
    KlogError,
    TimedOut,
    UsageError,
)
from klog.names import check_topic_name
from klog.security.client_security import PLAINTEXT, PROTOCOL

log = logging.getLogger(__name__)

POLL_S = 0.1
"""How long the thread waits for an event, and so the time in which it notices that it must end."""

HEAD_START_S = 0.01

_Parts = tuple[bytes | None, bytes | None, Headers, int | None]
"""Value, key, headers and timestamp of a message to send."""

_Delivered = Callable[[Any, Any], None]
"""librdkafka's delivery report of a message: an error or None, and the message."""


class Producer:
    """Sends messages. Any number of threads, in one process (create it after a fork, not before).

    >>> with klog.Producer(bootstrap_servers="127.0.0.1:9092") as producer:
    ...     producer.send("topic1", klog.Message(b"payload"), key=b"user-7")
    """

    def __init__(
        self,
        *,
        bootstrap_servers: str | Sequence[str] | None = None,
        zookeeper: str | None = None,
        producer_type: Literal["sync", "async"] = "sync",
        partitioner: Partitioner | str | None = None,
        audit: bool | None = None,
        clock: Clock = SYSTEM_CLOCK,
        **settings: Any,
    ) -> None:
        """Finds the cluster by its brokers (``h:9092,...``) or by its ZooKeeper (``h:2181,.../chroot``).

        ``partitioner``: a function of key and number of partitions, or the name of one of librdkafka's. The default
        puts keys where Java's clients put them (murmur2), and messages without a key anywhere. ``audit``: stamp and
        count the messages (``audit_window_ms``, ``audit_host``, ``audit_topic``); None: those of the topics whose
        ``klog.audit.enable`` says so. ``settings`` are Kafka's, ``_`` for ``.``, by today's names or 0.8's.
        InvalidConfig for an invalid setting; HostError if ZooKeeper is away.
        """
        if producer_type not in ("sync", "async"):
            raise InvalidConfig(f"producer_type={producer_type!r}: sync or async is wanted")
        access, given = without_access(settings, "the producer")
        if bootstrap_servers is not None:
            given["bootstrap_servers"] = bootstrap_servers
        by_name = partitioner if isinstance(partitioner, str) else None
        self._settings = read_settings(given, is_async=producer_type == "async", audit=audit, partitioner=by_name)
        rdkafka = self._settings.librdkafka
        if zookeeper is not None:
            if "bootstrap.servers" in rdkafka:
                raise InvalidConfig("bootstrap_servers and zookeeper: give one of them")
            brokers = registered_brokers(ZooKeeperServers(zookeeper, access), rdkafka.get(PROTOCOL, PLAINTEXT))
            rdkafka["bootstrap.servers"] = brokers
        if "bootstrap.servers" not in rdkafka:
            raise InvalidConfig("a producer needs bootstrap_servers='host:port,...' or zookeeper='host:port/chroot'")
        rdkafka.update(librdkafka_servers(rdkafka["bootstrap.servers"]))
        self._auditor = None if self._settings.audit is None else Auditor(self._settings.audit, clock)
        self._rdkafka = open_producer(rdkafka)
        self._choice = PartitionChoice(
            self._rdkafka,
            None if isinstance(partitioner, str) else partitioner,
            age_s=self._settings.metadata_age_s,
            answer_s=self._settings.answer_s,
        )
        publisher = None if self._auditor is None else AuditPublisher(self._rdkafka, self._auditor, rdkafka)
        # librdkafka asks for its producer id when it starts, then every 500 ms; a message that is handed over in the
        # first milliseconds disturbs the first attempt. So it gets a moment for itself.
        self._rdkafka.poll(HEAD_START_S)
        self._watchers = threading.Condition() if self._settings.is_async else None
        self._topics: set[str] = set()
        self._audited: set[str] = set()
        self._audited_topics = (
            None if audit is not None else AuditedTopics(rdkafka, self._audited, age_s=self._settings.metadata_age_s)
        )
        self._max_bytes = {} if self._audited_topics is None else self._audited_topics.max_bytes
        self._serving = _Serving(self._rdkafka, publisher, self._audited_topics)
        self._room, self._closed = self._serving.room, self._serving.closed
        # Also runs at the end of the program, and when the producer is garbage.
        self._finalizer = weakref.finalize(self, self._serving.shut, None)

    # --- Sending ---

    def send(
        self,
        topic: str,
        messages: Message | bytes | Iterable[Message | bytes],
        key: bytes | None = None,
        *,
        partition: int | None = None,
        callback: Callback | None = None,
    ) -> Sending:
        """Send a message, or several as one set; ``key`` is the key of messages that have none.

        Sync: returns when all are acknowledged; otherwise raises the message's error, or SendFailed for a set. Async:
        returns at once; the future and the callback get the outcome, and failures without a callback are logged. Both
        raise BufferFull, UsageError, InvalidTopic and errors of the partitioner.
        """
        if self._closed.is_set():
            raise UsageError("the producer is closed")
        if partition is not None and partition < 0:
            raise UsageError(f"partition={partition}: 0 or more is wanted")
        if topic not in self._topics:
            self._begin(check_topic_name(topic))
        sending: Sending
        if isinstance(messages, bytes):
            sending = self._send_one(topic, (messages, key, (), None), partition, callback)
        elif isinstance(messages, Message):
            sending = self._send_one(topic, _parts(messages, key), partition, callback)
        else:
            sending = self._send_set(topic, _parts_of_all(messages, key), partition, callback)
        if self._watchers is None:
            sending.result()
        return sending

    def _begin(self, topic: str) -> None:
        """Before the first message to a topic: is it audited?"""
        if self._audited_topics is not None:
            self._audited_topics.ask(topic, self._settings.first_answer_s)
        elif self._auditor is not None:
            self._audited.add(topic)
        self._topics.add(topic)

    def _send_one(self, topic: str, message: _Parts, partition: int | None, callback: Callback | None) -> Sending:
        where = self._choice.of_one(topic, message[1]) if partition is None else partition
        sending = SendingOne(topic, callback, self._watchers, self._max_bytes)
        hand_over = self._stamp_and_buffer if topic in self._audited else self._buffer
        try:
            hand_over(topic, message, where, sending)
        except KlogError as error:
            sending.failed(error)
            if self._watchers is not None:
                raise
        return sending

    def _send_set(
        self, topic: str, messages: list[_Parts], partition: int | None, callback: Callback | None
    ) -> Sending:
        places = self._choice.of(topic, [message[1] for message in messages], partition)
        sending = SendingSet(topic, callback, self._watchers, len(messages), self._max_bytes)
        delivered = sending.delivered
        hand_over = self._stamp_and_buffer if topic in self._audited else self._buffer
        for index, message in enumerate(messages):
            try:
                hand_over(topic, message, places[index], partial(delivered, index))
            except KlogError as error:
                # The messages before it are under way; it and those behind it are not.
                for rest in range(index, len(messages)):
                    sending.failed(rest, error)
                if self._watchers is not None:
                    raise
                break
        return sending

    def _stamp_and_buffer(self, topic: str, message: _Parts, partition: int, delivered: _Delivered) -> None:
        """`_buffer` a message that the audit counts."""
        auditor = self._auditor
        assert auditor is not None
        value, key, headers, timestamp = message
        timestamp, stamp, window = auditor.stamp(topic, timestamp)
        stamped = value, key, tuple(with_stamp(headers, stamp)), timestamp
        try:
            self._buffer(topic, stamped, partition, partial(settle_delivery, auditor, window, delivered))
        except KlogError as error:
            auditor.settle(window, error)
            raise

    def _buffer(self, topic: str, message: _Parts, partition: int, delivered: _Delivered) -> None:
        """Put a message into the buffer, waiting for room as the settings say; ``delivered`` gets the outcome."""
        value, key, headers, timestamp = message
        full_since: float | None = None
        while True:
            try:
                if timestamp is None and not headers:
                    self._rdkafka.produce(topic, value, key, partition, delivered)
                else:
                    self._rdkafka.produce(
                        topic, value, key, partition, delivered, timestamp=timestamp or 0, headers=list(headers) or None
                    )
                return
            except BufferError:
                full_since = time.monotonic() if full_since is None else full_since
                self._wait_for_room(topic, full_since)
            except KafkaException as error:
                size = len(value or b"") + len(key or b"")
                raise untaken(error.args[0], topic, size, self._settings.librdkafka) from None

    def _wait_for_room(self, topic: str, full_since: float) -> None:
        wait_s = self._settings.enqueue_timeout_s
        left_s = POLL_S if wait_s is None else full_since + wait_s - time.monotonic()
        if left_s <= 0:
            raise BufferFull(
                f"{topic}: the producer's buffer is full",
                hint="queue.buffering.max.messages is its size, queue.enqueue.timeout.ms how long a send waits",
            )
        with self._room:
            self._room.wait(min(left_s, POLL_S))

    # --- Ends ---

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all that was sent before is acknowledged or has failed; TimedOut after ``timeout`` seconds."""
        if self._serving.flush(timeout):
            raise TimedOut(f"after {timeout:g} s not all messages are acknowledged")

    def close(self, timeout: float | None = None) -> None:
        """Send the buffer and end; may be called twice.

        After ``timeout`` seconds, unacknowledged messages are dropped: TimedOut, and their futures fail. Without it,
        this returns when each message was acknowledged or its time (``delivery.timeout.ms``, 2 minutes) is over.
        """
        if self._finalizer.detach() is None:
            return
        if self._serving.shut(timeout):
            raise TimedOut(f"what was not acknowledged within {timeout:g} s was given up")

    def __len__(self) -> int:
        """The number of messages and other events of librdkafka that are buffered or under way."""
        return len(self._rdkafka)

    def __bool__(self) -> bool:
        return True  # also with an empty buffer

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def audit(self) -> AuditSettings | None:
        """How messages are counted, of the topics that are audited; None if none are."""
        return self._settings.audit


def _parts_of_all(messages: Iterable[Message | bytes], key: bytes | None) -> list[_Parts]:
    """Of each message; raises TypeError for anything else."""
    if isinstance(messages, str):  # type: ignore[unreachable]
        raise TypeError("a message is bytes; encode the text: text.encode()")
    return [(one, key, (), None) if isinstance(one, bytes) else _parts(one, key) for one in messages]


def _parts(message: Message, key: bytes | None) -> _Parts:
    """``key`` is used if the message has none. Raises TypeError for anything but a message, UsageError for headers."""
    if not isinstance(message, Message):
        raise TypeError(f"a message is a klog.Message or bytes, not {type(message).__name__}")
    value, its_key, headers, timestamp, _, _, _ = message
    for name, _ in headers:
        check_header_name(name)
    return value, key if its_key is None else its_key, headers, timestamp


class _Serving:
    """The producer's thread. It has no reference to the Producer, which can thus be garbage-collected."""

    def __init__(self, rdkafka: Any, publisher: AuditPublisher | None, audited_topics: AuditedTopics | None) -> None:
        self.closed = threading.Event()
        self.room = threading.Condition()
        self._rdkafka = rdkafka
        self._publisher = publisher
        self._audited_topics = audited_topics
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="klog-producer", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._end.is_set():
            if self._rdkafka.poll(POLL_S):
                with self.room:
                    self.room.notify_all()
            if self._publisher is not None:
                self._publisher.tick()
            if self._audited_topics is not None:
                self._audited_topics.tick()

    def flush(self, timeout_s: float | None) -> int:
        """Flush for that time; None waits for all. Returns the number of messages left."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            wait_s = POLL_S if deadline is None else min(POLL_S, max(deadline - time.monotonic(), 0.0))
            left: int = self._rdkafka.flush(wait_s)
            if left == 0 or (deadline is not None and time.monotonic() >= deadline):
                return left

    def shut(self, timeout_s: float | None) -> int:
        """Flush, publish the last counts, and end the thread. Returns the number of dropped messages."""
        self.closed.set()
        left = self.flush(timeout_s)
        self._end.set()
        if self._thread is not threading.current_thread():
            self._thread.join()
        if left:
            self._rdkafka.purge()
            self._rdkafka.poll(0)
        if self._publisher is not None:
            self._publisher.close()
            self.flush(timeout_s)
        return left


def registered_brokers(zookeeper: str, protocol: str) -> str:
    """``host:port,...`` of the brokers registered there, for clients with ``protocol``. As `brokers.bootstrap_of`."""
    from klog.coordination import brokers
    from klog.coordination.zookeeper import ZooKeeper

    with ZooKeeper(zookeeper) as session:
        session.start(patient=False)
        return brokers.bootstrap_of(session, protocol)
