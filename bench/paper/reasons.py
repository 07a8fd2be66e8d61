"""Each of the paper's reasons for its figures, taken alone: one thing is switched, all else stays."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import klog
from bench import consume
from bench.klog_system import REPOSITORY, Klog
from bench.one_log import Log, bootstrap_of, log_system, make_topic, segments_of, topic_of
from bench.paper.figures_4_and_5 import Say, Size
from bench.paper.loads import VALUE_BYTES, Point, consume_by_librdkafka, produce_by_librdkafka
from bench.paper.queues import ActiveMq, RabbitMq
from bench.paper.record import Reason, Record
from bench.produce import fill
from klog.errors import ConsumerTimeout

ACKS = (("none", "0", False), ("leader", "1", False), ("all", "all", False), ("all, idempotent", "all", True))
BATCHES = (1, 5, 20, 50, 200, 1000, 5000)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CODEC_BATCH = 200
READ_BYTES = 400_000_000
"""Of the topic that is read cold, warm, and by sendfile: more than any buffer, less than the memory."""
FILL_BATCH = 200
COMMIT_EVERY = 1000
FIRST_LOG_BYTES = 1_000_000_000
"""The log that grows is first looked at with so much in it, then with twice as much, and so on."""


def of_log(record: Record, folder: Path, name: str, size: Size, log_bytes: int, say: Say) -> None:
    """The reasons that klog and Kafka share. ``log_bytes``: the most in the log that grows."""
    with log_system(name, folder) as system:
        _acknowledgements(record, system, size, say)
        _batch_sizes(record, system, size, say)
        _codecs(record, system, size, say)
        with _filled(system, size) as (topic, messages):
            _cache(record, system, topic, messages, say)
            if isinstance(system, Klog):
                _sendfile(record, system, topic, size, say)
                _commits(record, system, topic, messages, size, say)
        _growing(record, system, min(log_bytes, shutil.disk_usage(folder).free // 2), size, say)


def of_activemq(record: Record, folder: Path, size: Size, say: Say) -> None:
    """Delivery state: each message acknowledged, or lazily."""
    system = ActiveMq(folder / "activemq-reasons")
    try:
        system.start()
        for how, ack in (("each message", "each"), ("lazily", "lazily")):
            course = system.produce(size.messages, 2 * size.limit_s)
            course = system.consume(course[-1].messages, size.limit_s, ack)
            _row(record, "state", say, system="activemq", acknowledged=how, messages_per_s=_rate(course))
    finally:
        system.stop()


def of_rabbitmq(record: Record, folder: Path, size: Size, say: Say) -> None:
    for quorum in (False, True):
        system = RabbitMq(folder / f"rabbitmq-reasons-{quorum}")
        name = "rabbitmq quorum" if quorum else "rabbitmq classic"
        try:
            system.start()
            for how, every in (("each message", 1), ("1,000 at once", 1000)):
                course = system.produce(size.messages, 2 * size.limit_s, quorum=quorum)
                course = system.consume(course[-1].messages, size.limit_s, quorum=quorum, ack_every=every)
                _row(record, "state", say, system=name, acknowledged=how, messages_per_s=_rate(course))
        finally:
            system.stop()


def _rate(course: Sequence[Point]) -> float:
    last = course[-1]
    return last.messages / last.seconds if last.seconds else 0.0


def _row(record: Record, key: str, say: Say, **values: Any) -> None:
    reason = next((one for one in record.reasons if one.key == key), None)
    if reason is None:
        reason = Reason(key)
        record.reasons.append(reason)
    reason.rows.append(values)
    told = ", ".join(
        f"{name} {value:,.3g}" if isinstance(value, float) else str(value) for name, value in values.items()
    )
    say(f"{key}: {told}")


def _produced(system: Log, size: Size, batch: int, settings: dict[str, object]) -> float:
    with topic_of(system) as topic:
        course = produce_by_librdkafka(bootstrap_of(system), topic, size.bounds, batch=batch, settings=settings)
        return _rate(course.points)


def _acknowledgements(record: Record, system: Log, size: Size, say: Say) -> None:
    for told, acks, idempotent in ACKS:
        settings: dict[str, object] = {"acks": acks, "enable.idempotence": idempotent}
        rate = _produced(system, size, 50, settings)
        _row(record, "acks", say, system=system.name, acknowledged=told, messages_per_s=rate)


def _batch_sizes(record: Record, system: Log, size: Size, say: Say) -> None:
    for batch in BATCHES:
        rate = _produced(system, size, batch, {"acks": "all", "enable.idempotence": False, "batch.size": 2_000_000})
        _row(record, "batch", say, system=system.name, batch=batch, messages_per_s=rate)


def page_views(count: int = 1000) -> list[bytes]:
    """Lines of 200 bytes as a web site's events are: some fields repeat, some never do. The same in each run."""
    chance = random.Random(2011)
    pages = [f"/in/{chance.choice(['profile', 'jobs', 'groups', 'search'])}/{number}" for number in range(50)]
    found = []
    for number in range(count):
        view = {
            "time": 1_300_000_000_000 + 37 * number,
            "member": chance.randrange(10**9),
            "page": chance.choice(pages),
            "agent": chance.choice(["Mozilla/5.0 (Windows NT 6.1)", "Mozilla/5.0 (Macintosh)", "Opera/9.80"]),
            "key": f"{chance.getrandbits(128):032x}",
        }
        found.append(json.dumps(view, separators=(",", ":")).encode().ljust(VALUE_BYTES)[:VALUE_BYTES])
    return found


def _codecs(record: Record, system: Log, size: Size, say: Say) -> None:
    values = page_views()
    for codec in CODECS:
        topic = make_topic(system)
        settings: dict[str, object] = {"acks": "all", "enable.idempotence": False, "compression.type": codec}
        where = bootstrap_of(system)
        course = produce_by_librdkafka(where, topic, size.bounds, batch=CODEC_BATCH, settings=settings, values=values)
        sent = course.last.messages + 1
        stored = sum(one.stat().st_size for one in segments_of(system, topic)) / sent
        read = consume_by_librdkafka(where, topic, size._replace(messages=sent).bounds)
        _row(
            record,
            "codec",
            say,
            system=system.name,
            codec=codec,
            messages_per_s=_rate(course.points),
            read_messages_per_s=_rate(read.points),
            stored_bytes=stored,
        )


@contextmanager
def _filled(system: Log, size: Size) -> Iterator[tuple[str, int]]:
    """A topic of READ_BYTES, or of as much as the run's messages are, and how many messages it has."""
    wanted = min(READ_BYTES, size.messages * VALUE_BYTES)
    with topic_of(system) as topic:
        yield topic, fill(system.port, topic, FILL_BATCH, VALUE_BYTES, wanted)


def _cache(record: Record, system: Log, topic: str, messages: int, say: Say) -> None:
    """The page cache is the only one: the same read with the segments in it, and after they were dropped from it."""
    for state in ("cold", "warm"):
        dropped = 0
        if state == "cold":
            for one in segments_of(system, topic):
                dropped += _drop_from_page_cache(one)
        began = time.perf_counter()
        received = consume.consume(system.port, topic, messages)
        seconds = time.perf_counter() - began
        _row(
            record,
            "cache",
            say,
            system=system.name,
            cache=state,
            messages_per_s=messages / seconds,
            megabytes_per_s=received / seconds / 1e6,
        )


def _growing(record: Record, system: Log, log_bytes: int, size: Size, say: Say) -> None:
    """Producing to the end of a log and reading its start, while it grows."""
    with topic_of(system) as topic:
        where, messages, wanted = bootstrap_of(system), 0, min(FIRST_LOG_BYTES, log_bytes)
        while wanted <= log_bytes:
            messages += fill(system.port, topic, FILL_BATCH, VALUE_BYTES, max(1, wanted - messages * VALUE_BYTES))
            os.sync()  # or what was filled in would be written in the producer's time
            settings: dict[str, object] = {"acks": "all", "enable.idempotence": False}
            produced = produce_by_librdkafka(where, topic, size.bounds, batch=50, settings=settings)
            messages += produced.last.messages + 1
            read = consume_by_librdkafka(where, topic, size.bounds)
            _row(
                record,
                "growing",
                say,
                system=system.name,
                log_gb=wanted / 1e9,
                messages_per_s=_rate(produced.points),
                read_messages_per_s=_rate(read.points),
            )
            wanted *= 2


def _drop_from_page_cache(path: Path) -> int:
    """What is dirty is written first: only clean pages can go."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return path.stat().st_size


def _sendfile(record: Record, system: Klog, topic: str, size: Size, say: Say) -> None:
    """The largest segment of the topic, as a broker sends it, and as one would that has it in its own memory."""
    segment = max(segments_of(system, topic), key=lambda one: one.stat().st_size)
    for how in ("read", "sendfile", "read", "sendfile"):  # in turns; the better one of two counts
        found = _serve(segment, how, size.limit_s)
        row = {
            "megabytes_per_s": found["bytes"] / found["seconds"] / 1e6,
            "cpu_s_per_gb": found["cpu_s"] / (found["bytes"] / 1e9),
            "copies": found["copies"],
        }
        before = next((one for one in record.reason("sendfile").rows if one["how"] == how), None)
        if before is None:
            _row(record, "sendfile", say, how=how, **row)
        elif row["megabytes_per_s"] > before["megabytes_per_s"]:
            before.update(row)


def _serve(path: Path, how: str, seconds: float) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.paper.sending", str(path), how, str(seconds)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=60 + seconds,
        check=True,
    )
    told: dict[str, float] = json.loads(done.stdout)
    return told


def _commits(record: Record, system: Klog, topic: str, messages: int, size: Size, say: Say) -> None:
    """One offset a partition, kept by the consumer: written now and then, or after each message."""
    ways: Sequence[tuple[str, int | None]] = (
        ("every 5 s", None),
        (f"every {COMMIT_EVERY:,} messages", COMMIT_EVERY),
        ("each message", 1),
    )
    for how, every in ways:
        rate = _committing(system, f"paper-{every}", topic, messages, size.limit_s, every)
        _row(record, "state", say, system="klog", acknowledged=f"offset committed {how}", messages_per_s=rate)


def _committing(system: Klog, group: str, topic: str, messages: int, limit_s: float, every: int | None) -> float:
    with klog.Consumer(
        system.zookeeper,
        group,
        auto_offset_reset="smallest",
        auto_commit_enable=every is None,
        consumer_timeout_ms=2000,
    ) as consumer:
        (stream,) = consumer.create_message_streams(topic)
        next(stream)
        read, began = 0, time.perf_counter()
        try:
            for _ in stream:
                read += 1
                if every is not None and not read % every:
                    consumer.commit_offsets()
                if read >= messages - 1 or (not read % 10 and time.perf_counter() - began >= limit_s):
                    break
        except ConsumerTimeout:
            began += 2.0
        return read / (time.perf_counter() - began)
