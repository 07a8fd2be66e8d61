"""A `logging.Handler` that writes to a topic: 0.8's log appender.

A program must not wait for its log. Records go into a bounded buffer and from there, by librdkafka's threads, to the
brokers; where brokers are away for longer than the buffer lasts, records are dropped and counted, and a line on stderr
says so.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from typing import Any, Final, Literal

from klog.client.message import Message
from klog.client.producer import Producer
from klog.client.sending import Place
from klog.errors import InvalidConfig, KlogError, UsageError
from klog.names import check_topic_name

CLOSE_S: Final = 5.0
REPORT_EVERY_S: Final = 10.0
"""Between lines on stderr about dropped records."""

OWN_LOGS: Final = "klog"
"""What klog itself logs of a send that failed would be sent again, for ever."""


class LogHandler(logging.Handler):
    """Writes log records to a topic, formatted; never blocks the program, and never raises into it.

    >>> logging.getLogger().addHandler(klog.LogHandler("logs", bootstrap_servers="127.0.0.1:9092"))

    ``dropped`` counts records that are not in the topic: the buffer was full, a broker refused them, or the brokers
    were away until `close`.
    """

    def __init__(
        self,
        topic: str,
        *,
        bootstrap_servers: str | None = None,
        zookeeper: str | None = None,
        level: int | str = logging.NOTSET,
        key: Literal["logger", "level"] | None = None,
        buffer_messages: int = 10_000,
        close_s: float = CLOSE_S,
        **settings: Any,
    ) -> None:
        """``key``: the message's key is the logger's name, or the level's. ``buffer_messages``: records that wait at
        most; ``close_s``: how long `close`, and so ``logging.shutdown``, waits for them. ``settings`` are a producer's.
        Raises what `Producer` raises for invalid ones.
        """
        super().__init__(level)
        self.topic = check_topic_name(topic)
        self._key = key
        self._close_s = close_s
        self._counting = threading.Lock()
        self._dropped = 0
        self._reported = 0
        self._reported_at = 0.0
        self._last_error: KlogError | None = None
        self._is_closed = False
        self._has_waited = False
        if callable(settings.get("partitioner")):
            raise InvalidConfig("a log handler takes no partitioner function: it may wait for the brokers")
        given = {"linger_ms": 100, "batch_num_messages": 1000, **settings}
        given.setdefault("queue_buffering_max_messages", buffer_messages)
        self._producer = Producer(
            bootstrap_servers=bootstrap_servers,
            zookeeper=zookeeper,
            producer_type="async",
            queue_enqueue_timeout_ms=0,  # a full buffer is not waited for
            **given,
        )

    @property
    def dropped(self) -> int:
        """Records that are not in the topic, as far as it is known."""
        return self._dropped

    def emit(self, record: logging.LogRecord) -> None:
        """Put the record into the buffer."""
        if record.name == OWN_LOGS or record.name.startswith(f"{OWN_LOGS}."):
            return
        try:
            value = self.format(record).encode("utf-8", "backslashreplace")
        except Exception:
            self.handleError(record)
            return
        self._has_waited = False
        message = Message(value, key=self._key_of(record), timestamp=int(record.created * 1000))
        try:
            self._producer.send(self.topic, message, callback=self._settled)
        except UsageError as error:  # closed
            self._drop(error)
        except KlogError:
            pass  # `_settled` has it
        except Exception:
            self.handleError(record)

    def _key_of(self, record: logging.LogRecord) -> bytes | None:
        if self._key is None:
            return None
        return (record.name if self._key == "logger" else record.levelname).encode("utf-8", "backslashreplace")

    def _settled(self, error: KlogError | None, place: Place | None) -> None:
        """In the producer's thread."""
        if error is not None:
            self._drop(error)

    def _drop(self, error: KlogError) -> None:
        with self._counting:
            self._dropped += 1
            self._last_error = error
            is_due = time.monotonic() - self._reported_at >= REPORT_EVERY_S or not self._reported
        if is_due:
            self._report()

    def _report(self) -> None:
        """One line on stderr; a program without one goes on all the same."""
        with self._counting:
            count = self._dropped - self._reported
            error = self._last_error
            self._reported, self._reported_at = self._dropped, time.monotonic()
        if not count or sys.stderr is None or not logging.raiseExceptions:
            return
        records = "1 log record" if count == 1 else f"{count} log records"
        try:
            sys.stderr.write(f"klog: dropped {records} for topic {self.topic}: {error}\n")
        except (OSError, ValueError):
            pass

    def flush(self) -> None:
        """Wait for what is buffered, at most as long as `close` does."""
        if self._is_closed:
            return
        try:
            self._producer.flush(self._close_s)
        except KlogError:
            self._has_waited = True  # what was not acknowledged is still under way

    def close(self) -> None:
        """Send what is buffered, within ``close_s``, and end; the rest is dropped and counted. May be called twice."""
        if not self._is_closed:
            self._is_closed = True
            try:
                # `logging.shutdown` flushes first: brokers that are away are waited for once.
                self._producer.close(0.1 if self._has_waited else self._close_s)
            except KlogError:
                pass  # each record that was given up is counted
            self._report()
        super().close()
