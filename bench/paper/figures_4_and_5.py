"""The lines of the paper's figures 4 and 5: producers and consumers of each system, one after the other.

Each with the options that its makers advise for this, and with the paper's, where they differ: no acknowledgements,
and nothing flushed before it is answered.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench.klog_system import Klog
from bench.one_log import Log, bootstrap_of, bytes_below, delete_topic, log_system, make_topic, segments_of
from bench.paper.loads import (
    VALUE_BYTES,
    Bounds,
    Point,
    consume_by_klog,
    consume_by_librdkafka,
    produce_by_klog,
    produce_by_librdkafka,
)
from bench.paper.published import PULL_BYTES
from bench.paper.queues import ActiveMq, RabbitMq
from bench.paper.record import Line, Record, Stored, points_of

Say = Callable[[str], None]

FEW_MESSAGES = 1000
"""Fewer than these say nothing of bytes a message: what a system writes once weighs more."""


class Size(NamedTuple):
    """Of each line: messages, and the seconds it may take."""

    messages: int
    limit_s: float

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.messages, self.limit_s)


class _Producing(NamedTuple):
    client: str
    batch: int
    options: str
    settings: str
    load: Callable[[str, str, Bounds], list[Point]]


def _by_librdkafka(batch: int, acks: str, bootstrap: str, topic: str, bounds: Bounds) -> list[Point]:
    settings = {"acks": acks, "enable.idempotence": False}
    return produce_by_librdkafka(bootstrap, topic, bounds, batch=batch, settings=settings).points


def _by_klog(batch: int, acks: str, bootstrap: str, topic: str, bounds: Bounds) -> list[Point]:
    return produce_by_klog(bootstrap, topic, bounds, batch=batch, acks=acks).points


def _producing(system: str) -> list[_Producing]:
    lines = []
    for batch in (1, 50):
        for options, acks in (("advised", "all"), ("paper", "0")):
            settings = f"acks={acks}"
            lines.append(_Producing("librdkafka", batch, options, settings, partial(_by_librdkafka, batch, acks)))
            if system == "klog":
                own = f"{settings}, idempotent" if acks == "all" else settings
                lines.append(_Producing("klog.Producer", batch, options, own, partial(_by_klog, batch, acks)))
    return lines


def logs(record: Record, folder: Path, name: str, size: Size, say: Say) -> None:
    """klog's lines, or a Kafka's."""
    with log_system(name, folder) as system:
        record.versions[name] = system.version
        fullest, most = None, 0
        for one in _producing(name):
            topic = make_topic(system)
            os.sync()  # or what the line before has left would be written in this one's time
            course = one.load(bootstrap_of(system), topic, size.bounds)
            _add(record, "4", name, one, course, say)
            if one.client == "librdkafka" and one.options == "advised":
                _weigh(record, system, topic, f"batch {one.batch}", course[-1].messages + 1)
            if course[-1].messages > most:
                topic, fullest, most = fullest or "", topic, course[-1].messages
            if topic:
                delete_topic(system, topic)
        if fullest is not None:
            _read(record, system, fullest, size._replace(messages=most), say)


def _weigh(record: Record, system: Log, topic: str, how: str, messages: int) -> None:
    """The first message, which opened the connection, is there too."""
    if messages >= FEW_MESSAGES:
        size = sum(one.stat().st_size for one in segments_of(system, topic))
        record.stored.append(Stored(system.name, how, messages, size / messages - VALUE_BYTES))


def _read(record: Record, system: Log, topic: str, size: Size, say: Say) -> None:
    pull = {"fetch.message.max.bytes": PULL_BYTES}
    for options, settings, told in (("advised", {}, "as it comes"), ("paper", pull, "pulls of 200 KB")):
        os.sync()
        course = consume_by_librdkafka(bootstrap_of(system), topic, size.bounds, settings=settings).points
        _add(record, "5", system.name, _Reading("librdkafka", options, told), course, say)
    if isinstance(system, Klog):
        os.sync()
        course = consume_by_klog(system.zookeeper, f"paper-{topic}", topic, size.bounds).points
        _add(
            record,
            "5",
            system.name,
            _Reading("klog.Consumer", "advised", "as it comes, commits by itself"),
            course,
            say,
        )


class _Reading(NamedTuple):
    client: str
    options: str
    settings: str
    batch: int | None = None


def activemq(record: Record, folder: Path, size: Size, say: Say) -> None:
    for options, sync in (("advised", "ALWAYS"), ("paper", "NEVER")):
        here = folder / f"activemq-{options}"
        system = ActiveMq(here, sync)
        record.versions["activemq"] = system.version
        try:
            system.start()
            flush = "journal flushed" if sync == "ALWAYS" else "journal not flushed"
            told = f"asynchronous sends, {flush}"
            os.sync()
            before = bytes_below(system.data)
            course = system.produce(size.messages, size.limit_s)
            _add(record, "4", "activemq", _Sending(1, options, told), course, say)
            _weigh_queue(record, "activemq", flush, bytes_below(system.data) - before, course)
            messages = course[-1].messages
            if options == "advised":
                batched = system.produce(size.messages, size.limit_s, batch=50)
                _add(record, "4", "activemq", _Sending(50, options, f"transactions of 50, {flush}"), batched, say)
                messages += batched[-1].messages
            os.sync()
            course = system.consume(min(size.messages, messages), size.limit_s, "lazily")
            _add(record, "5", "activemq", _Reading("its own", options, "DUPS_OK_ACKNOWLEDGE"), course, say)
        finally:
            system.stop()
            shutil.rmtree(here, ignore_errors=True)


class _Sending(NamedTuple):
    batch: int
    options: str
    settings: str
    client: str = "its own"


def rabbitmq(record: Record, folder: Path, size: Size, say: Say) -> None:
    kinds: Sequence[tuple[str, str, bool, int | None, int | None]] = (
        ("rabbitmq classic", "advised", False, 1000, 100),
        ("rabbitmq quorum", "advised", True, 1000, 100),
        ("rabbitmq classic", "paper", False, None, None),
    )
    for name, options, quorum, confirm, ack_every in kinds:
        here = folder / f"rabbitmq-{options}-{quorum}"
        system = RabbitMq(here)
        try:
            system.start()
            record.versions["rabbitmq"] = system.version
            told = "persistent, " + ("no confirms" if confirm is None else f"{confirm:,} unconfirmed at most")
            os.sync()
            before = bytes_below(system.data)
            course = system.produce(size.messages, size.limit_s, quorum=quorum, confirm=confirm)
            _add(record, "4", name, _Sending(1, options, told), course, say)
            if options == "advised":
                _weigh_queue(record, name, told, bytes_below(system.data) - before, course)
            acked = "automatic acknowledgement" if ack_every is None else f"{ack_every} acknowledged at once"
            messages = min(size.messages, course[-1].messages)
            os.sync()
            course = system.consume(messages, size.limit_s, quorum=quorum, ack_every=ack_every)
            _add(record, "5", name, _Reading("its own", options, acked), course, say)
        finally:
            system.stop()
            shutil.rmtree(here, ignore_errors=True)


def _weigh_queue(record: Record, name: str, how: str, grown_bytes: int, course: Sequence[Point]) -> None:
    messages = course[-1].messages
    if messages >= FEW_MESSAGES:
        record.stored.append(Stored(name, how, messages, grown_bytes / messages - VALUE_BYTES))


def _add(
    record: Record, figure: str, system: str, what: _Producing | _Reading | _Sending, course: Sequence[Point], say: Say
) -> None:
    last = course[-1]
    line = Line(
        figure,
        system,
        what.client,
        what.batch,
        what.options,
        what.settings,
        last.messages,
        last.seconds,
        points_of(course),
    )
    record.lines.append(line)
    does = "produces" if figure == "4" else "consumes"
    say(f"{line.name} ({what.options}: {what.settings}) {does} {line.rate:,.0f} messages/s")
