"""Copies within a cluster: what is kept, where it goes on, how fast it goes, and others who write beside it."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from klog.client.positions import parse_range
from klog.config.units import parse_rate
from klog.errors import (
    InvalidPartitions,
    InvalidTimestamp,
    KlogError,
    MessageTooLarge,
    Refused,
    UnknownTopicOrPartition,
    UsageError,
)
from klog.names import TopicPartition
from klog.record.codec import Codec
from klog.record.provenance_header import Source, mark_of
from klog.record.records import Record, encode_batch
from klog.tools.copying.cluster_endpoint import ClusterEndpoint
from klog.tools.copying.copier import Copier, PartitionCopy
from klog.tools.copying.rate_limiter import RateLimiter
from klog.tools.copying.replay import ReplayedRange, ReplayOptions, replay
from klog.tools.copying.source import SourceReader
from klog.tools.copying.target import Fenced, Target, TargetLog, writer_name
from tests.broker_fixture import RunningBroker
from tests.cli.runner import klog
from tests.server import asking
from tests.server.asking import FIRST_MS, create, produce
from tests.tools.copies import everything, unmarked, values, with_sides, without_offsets
from tests.tools.verbs import delete_before


def replayed(bootstrap: str, topic: str, into: str, **options: Any) -> list[ReplayedRange]:
    return with_sides(lambda one, other: replay(one, other, topic, into, ReplayOptions(**options)), bootstrap)


def batches(count: int, each: int, *, first: int = 0) -> list[list[Record]]:
    """Numbered messages."""
    return [
        [
            Record(i, FIRST_MS + first + batch * each + i, None, b"%06d" % (first + batch * each + i))
            for i in range(each)
        ]
        for batch in range(count)
    ]


def test_keys_headers_times_and_compression_are_kept(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic, 2)
    rows = [
        Record(0, FIRST_MS, b"key", b"value", (("trace", b"1"), ("trace", None))),
        Record(1, FIRST_MS + 70_000, None, b"x" * 300),
        Record(2, FIRST_MS + 5, b"", None, (("klog.source", b"elsewhere/t/0/5"),)),
    ]

    async def send(channel: Any) -> None:
        for partition, codec in ((0, Codec.ZSTD), (1, Codec.LZ4), (1, Codec.NONE)):
            request = asking.produce_request(topic, bytes(encode_batch(rows, codec=codec)), partition)
            assert asking.error((await channel.request(request)).responses[0].partition_responses[0]) == 0

    asking.with_channel(broker.bootstrap, send)
    result = replayed(broker.bootstrap, topic, f"{topic}-copy")
    assert [(row.partition, row.messages) for row in result] == [(0, 3), (1, 6)]
    before, after = everything(broker.bootstrap, topic), everything(broker.bootstrap, f"{topic}-copy")
    cluster_id = with_sides(_cluster_id, broker.bootstrap)
    for partition, rows_there in after.items():
        assert without_offsets([row._replace(headers=row.headers[:-1]) for row in rows_there]) == without_offsets(
            before[partition]
        )
        assert [mark_of(row) for row in rows_there] == [
            (Source(cluster_id, topic, partition).key, row.offset) for row in before[partition]
        ]


async def _cluster_id(side: ClusterEndpoint, _: ClusterEndpoint) -> str:
    return side.cluster_id


def test_a_range_and_what_is_left_of_it(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    bases = produce(broker.bootstrap, topic, batches(4, 10))
    into = f"{topic}-copy"
    begin, end = bases[1] + 3, bases[3] + 4
    wanted = [b"%06d" % i for i in range(13, 34)]
    (row,) = replayed(broker.bootstrap, topic, into, range=parse_range(f"{begin}:{end}"), count=5)
    assert (row.from_, row.messages) == (begin, 5)
    assert values(everything(broker.bootstrap, into)[0]) == wanted[:5]
    (row,) = replayed(broker.bootstrap, topic, into, range=parse_range(f"{begin}:{end}"))
    assert (row.from_, row.to, row.messages) == (begin + 5, end, 16)
    assert values(everything(broker.bootstrap, into)[0]) == wanted
    # An earlier range, although the target ends with a later one; and once more on purpose.
    first_five = parse_range(f"{bases[0]}:{bases[0] + 5}")
    assert replayed(broker.bootstrap, topic, into, range=first_five)[0].messages == 5
    assert replayed(broker.bootstrap, topic, into, range=first_five)[0].messages == 0
    assert replayed(broker.bootstrap, topic, into, range=first_five, again=True)[0].messages == 5
    assert values(everything(broker.bootstrap, into)[0]) == wanted + 2 * [b"%06d" % i for i in range(5)]


def test_a_range_that_ends_between_two_batches(broker: RunningBroker, topic: str) -> None:
    """Where it ends lies behind the last message in front of it: nothing is left to wait for."""
    create(broker.bootstrap, topic)
    bases = produce(broker.bootstrap, topic, batches(3, 10))
    between = bases[1] + 10 + 3
    assert between < bases[2]
    wanted = [b"%06d" % i for i in range(20)]
    time_of_third = FIRST_MS + 20  # what a time stands for is the offset of the first message that is not earlier
    for number, end in enumerate((between, bases[2], f"@{time_of_third}")):
        into = f"{topic}-copy-{number}"
        (row,) = replayed(broker.bootstrap, topic, into, range=parse_range(f"start:{end}"))
        assert (row.to, row.messages, row.error) == (between if number == 0 else bases[2], 20, None)
        assert values(everything(broker.bootstrap, into)[0]) == wanted
        assert replayed(broker.bootstrap, topic, into, range=parse_range(f"start:{end}"))[0].messages == 0
    # Of such a range nothing may lie in it at all, in front of a batch or behind the last one.
    end = end_of(broker.bootstrap, topic)
    for words in (f"{bases[1] + 10}:{bases[2]}", f"{bases[1] + 10}:{between}", f"{end}:{end + 50}", f"{end}:end"):
        (row,) = replayed(broker.bootstrap, topic, f"{topic}-none", range=parse_range(words))
        assert (row.messages, row.error) == (0, None), words


def test_a_range_by_time_as_a_shell_has_it(broker: RunningBroker, make_broker: Any, topic: str) -> None:
    """What was produced before a moment, into the same cluster and into another one."""
    other = make_broker().start()
    create(broker.bootstrap, topic)
    target = ("-B", broker.bootstrap)
    assert klog(*target, "produce", topic, input="".join(f"{i}\n" for i in range(100))).code == 0
    moment_ms = time.time_ns() // 1_000_000 + 1
    while time.time_ns() // 1_000_000 <= moment_ms:
        time.sleep(0.001)
    moment = datetime.fromtimestamp(moment_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert klog(*target, "produce", topic, input="".join(f"{i}\n" for i in range(100, 200))).code == 0
    for bootstrap, more in (
        (broker.bootstrap, ()),
        (other.bootstrap, ("--to-bootstrap-server", other.bootstrap)),
    ):
        ran = klog(*target, "replay", topic, f"{topic}-copy", "--from", f"start:@{moment}", *more)
        assert ran.code == 0, ran.stderr
        assert "100 messages" in ran.stderr
        assert values(everything(bootstrap, f"{topic}-copy")[0]) == [b"%d" % i for i in range(100)]


def test_a_range_that_retention_takes_under_way(broker: RunningBroker, topic: str) -> None:
    """All of it is gone, and nothing lies behind it: told, and over."""
    create(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, batches(2, 10))
    end = end_of(broker.bootstrap, topic)

    async def work(one: ClusterEndpoint, other: ClusterEndpoint) -> Running:
        running = Running(one, await log_of(Target(other), Source(one.cluster_id, topic, 0), topic), end)
        await running.run()
        return running

    delete_before(broker.bootstrap, topic, end)
    running = with_sides(work, broker.bootstrap)
    assert (running.failure, running.copy.is_done, running.copy.messages) == (None, True, 0)
    assert running.copy.position == end


def test_as_slow_as_told(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, batches(2, 100))
    began = time.monotonic()
    (row,) = replayed(broker.bootstrap, topic, f"{topic}-rate", rate=parse_rate("400/s"))
    assert row.messages == 200
    assert time.monotonic() - began > 0.3
    began = time.monotonic()  # they were written a millisecond apart
    (row,) = replayed(broker.bootstrap, topic, f"{topic}-speed", speed=0.5)
    assert row.messages == 200
    assert time.monotonic() - began > 0.25
    for into in (f"{topic}-rate", f"{topic}-speed"):
        assert values(everything(broker.bootstrap, into)[0]) == [b"%06d" % i for i in range(200)]


def test_what_cannot_be_replayed(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic, 3)
    create(broker.bootstrap, f"{topic}-small", 2)
    with pytest.raises(InvalidPartitions, match=r"\b2 partitions.*\b3\b") as few:
        replayed(broker.bootstrap, topic, f"{topic}-small")
    assert "klog topic alter" in str(few.value.hint)
    with pytest.raises(Refused, match=topic):
        replayed(broker.bootstrap, topic, topic)
    with pytest.raises(UnknownTopicOrPartition):
        replayed(broker.bootstrap, f"{topic}-none", topic)
    with pytest.raises(UnknownTopicOrPartition, match="partition 7"):
        replayed(broker.bootstrap, topic, f"{topic}-copy", partitions=(7,))
    with pytest.raises(UsageError):
        replayed(broker.bootstrap, topic, f"{topic}-copy", speed=1.0, rate=parse_rate("1/s"))


def test_batches_that_the_target_does_not_take_are_cut(broker: RunningBroker, topic: str) -> None:
    into = f"{topic}-copy"
    create(broker.bootstrap, topic)
    create(broker.bootstrap, into, max_message_bytes="2000")
    produce(broker.bootstrap, topic, batches(2, 100))
    assert replayed(broker.bootstrap, topic, into)[0].messages == 200
    assert values(everything(broker.bootstrap, into)[0]) == [b"%06d" % i for i in range(200)]
    produce(broker.bootstrap, topic, [[Record(0, FIRST_MS, None, b"x" * 3000)]])
    (row,) = replayed(broker.bootstrap, topic, into)
    assert (row.error, row.messages) == (MessageTooLarge.code, 0), row
    assert "2000" in str(row.message)


def test_times_that_the_target_does_not_take(broker: RunningBroker, topic: str) -> None:
    into = f"{topic}-copy"
    for name, ahead_ms in ((topic, str(2**62)), (into, "3600000")):
        create(broker.bootstrap, name, message_timestamp_after_max_ms=ahead_ms)
    old, far = Record(0, 1_000, None, b"of 1970"), Record(0, 253_402_000_000_000, None, b"of 9999")
    offsets = produce(broker.bootstrap, topic, [[old], [far], [old]])
    assert klog("topic", "config", into, "retention.ms=-1", "-B", broker.bootstrap).code == 0
    (row,) = replayed(broker.bootstrap, topic, into)
    assert row.error == InvalidTimestamp.code
    assert f" 0 and {offsets[-1]} " in str(row.message)
    assert "1 of 1 records" in str(row.message)
    allowed = f"message.timestamp.after.max.ms={2**62}"
    assert klog("topic", "config", into, allowed, "-B", broker.bootstrap).code == 0
    assert replayed(broker.bootstrap, topic, into)[0].messages == 3
    assert values(everything(broker.bootstrap, into)[0]) == [b"of 1970", b"of 9999", b"of 1970"]


def test_the_command(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, batches(3, 10))
    target = ("-B", broker.bootstrap)
    ran = klog(*target, "replay", topic, f"{topic}-copy", "-c", "12", "-o", "json")
    assert ran.code == 0, ran.stderr
    assert [(row["partition"], row["from"], row["messages"]) for row in ran.rows] == [(0, 0, 12)]
    ran = klog(*target, "replay", topic, f"{topic}-copy")
    assert ran.code == 0, ran.stderr
    assert "18 messages" in ran.stderr
    assert "100 messages" not in ran.stderr
    assert values(everything(broker.bootstrap, f"{topic}-copy")[0]) == [b"%06d" % i for i in range(30)]
    for words in (("--speed", "fast"), ("--speed", "0"), ("--rate", "5"), ("--speed", "1x", "--rate", "5/s")):
        assert klog(*target, "replay", topic, f"{topic}-other", *words).code == 2, words
    assert klog(*target, "replay", topic, topic).code == 1
    assert klog(*target, "replay", topic, f"{topic}-copy", "--to-bootstrap-server", "127.0.0.1:1").code == 1


def test_a_dry_run(broker: RunningBroker, topic: str) -> None:
    """What would be copied, with nothing made and nothing written."""
    into = f"{topic}-copy"
    create(broker.bootstrap, topic, 2)
    bases = produce(broker.bootstrap, topic, batches(3, 10))
    target = ("-B", broker.bootstrap, "-o", "json")
    for words, count in (((), 30), (("--from", f"{bases[1] + 3}:{bases[2]}"), 7), (("-c", "5"), 30)):
        ran = klog("replay", topic, into, "--dry-run", *words, *target)
        assert ran.code == 0, ran.stderr
        assert [row["messages"] for row in ran.rows] == [count, 0]
        assert "2 partitions" in ran.stderr
        assert (" 5 " in ran.stderr) is ("-c" in words)
        assert into not in klog("topic", "list", "-B", broker.bootstrap).stdout
    assert ran.rows[0]["bytes"] > 0
    assert klog("replay", topic, into, "-c", "12", *target).code == 0
    ran = klog("replay", topic, into, "--dry-run", *target)
    assert [(row["from"], row["messages"]) for row in ran.rows] == [(bases[1] + 2, 18), (0, 0)]
    assert len(everything(broker.bootstrap, into)[0]) == 12
    assert klog("replay", topic, topic, "--dry-run", *target).code == 1


def test_a_range_beyond_the_end_is_told(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, batches(1, 10))
    dry = ("replay", topic, f"{topic}-copy", "--dry-run", "-B", broker.bootstrap, "--from")
    ran = klog(*dry, "5000:6000")
    assert ran.code == 0, ran.stderr
    assert " 5000" in ran.stderr
    assert "time" in klog(*dry, "@2199-01-01").stderr
    for words in ("3:5", "@2001-01-01", "end"):
        assert len(klog(*dry, words).stderr.splitlines()) < len(ran.stderr.splitlines()), words


class Running:
    """One partition copied by a writer of its own."""

    def __init__(self, side: ClusterEndpoint, log: TargetLog, end: int) -> None:
        self._reader = SourceReader(side)
        self._copier = Copier()
        self.copy = PartitionCopy(self._reader, log, begin=0, end=end, batch_bytes_max=1_000_000)

    @property
    def failure(self) -> KlogError | None:
        return self._copier.failures.get(self.copy)

    async def run(self) -> None:
        self._copier.start(self.copy)
        await self._copier.run(lambda: None, every_s=1)
        await self._copier.stop()
        await self._reader.close()


async def log_of(target: Target, source: Source, into: str) -> TargetLog:
    log = TargetLog(target, TopicPartition(into, 0), source)
    await log.find()
    return log


def end_of(bootstrap: str, topic: str) -> int:
    return asking.offsets(bootstrap, topic)[1]


def test_producers_that_write_beside_it(broker: RunningBroker, topic: str) -> None:
    into = f"{topic}-copy"
    for name in (topic, into):
        create(broker.bootstrap, name)
    produce(broker.bootstrap, topic, batches(80, 5))
    end = end_of(broker.bootstrap, topic)

    async def work(one: ClusterEndpoint, other: ClusterEndpoint) -> int:
        log = await log_of(Target(other), Source(one.cluster_id, topic, 0), into)
        running = asyncio.create_task(Running(one, log, end).run())
        written = 0
        async with asyncio.timeout(60):
            while not running.done():  # without a pause, which must not keep the copier from its work
                batch = bytes(encode_batch([Record(0, FIRST_MS, None, b"other")]))
                channel = await other.cluster.channel(broker.broker_id)
                await channel.request(asking.produce_request(into, batch))
                written += 1
        await running
        return written

    written = with_sides(work, broker.bootstrap)
    found = values(everything(broker.bootstrap, into)[0])
    assert [value for value in found if value != b"other"] == [b"%06d" % i for i in range(400)]
    assert found.count(b"other") == written > 0


def test_of_two_copiers_the_younger_gives_up(broker: RunningBroker, topic: str) -> None:
    into = f"{topic}-copy"
    for name in (topic, into):
        create(broker.bootstrap, name)
    produce(broker.bootstrap, topic, batches(200, 3))
    end = end_of(broker.bootstrap, topic)

    async def work(one: ClusterEndpoint, other: ClusterEndpoint) -> list[Running]:
        both = []
        for age in (1, 2):
            target = Target(other, writer=writer_name(age))
            one_run = Running(one, await log_of(target, Source(one.cluster_id, topic, 0), into), end)
            one_run.copy._pace = _Slowly()
            both.append(one_run)
        await asyncio.gather(*(running.run() for running in both))
        return both

    older, younger = with_sides(work, broker.bootstrap)
    assert older.failure is None
    assert older.copy.is_done
    assert isinstance(younger.failure, Fenced)
    assert values(everything(broker.bootstrap, into)[0]) == [b"%06d" % i for i in range(600)]


class _Slowly(RateLimiter):
    """A message at a time, so that both come to append."""

    async def allowance(self, run: memoryview, position: int) -> int:
        await asyncio.sleep(0)
        return 1


def test_two_sources_into_one_partition(broker: RunningBroker, topic: str) -> None:
    """Sources that share a target within one process do not get in each other's way."""
    into, second = f"{topic}-copy", f"{topic}-2"
    for name in (topic, second, into):
        create(broker.bootstrap, name)
    produce(broker.bootstrap, topic, batches(50, 4))
    produce(broker.bootstrap, second, batches(50, 4, first=1000))

    async def work(one: ClusterEndpoint, other: ClusterEndpoint) -> None:
        target, runs = Target(other), []
        for name in (topic, second):
            log = await log_of(target, Source(one.cluster_id, name, 0), into)
            runs.append(Running(one, log, end_of_many[name]))
        await asyncio.gather(*(running.run() for running in runs))
        assert all(running.failure is None for running in runs)
        assert all(running.copy.log.conflicts == {} for running in runs)

    end_of_many = {name: end_of(broker.bootstrap, name) for name in (topic, second)}
    with_sides(work, broker.bootstrap)
    found = [int(value or b"") for value in values(everything(broker.bootstrap, into)[0])]
    assert [number for number in found if number < 1000] == list(range(200))
    assert [number for number in found if number >= 1000] == list(range(1000, 1200))


def test_a_target_without_the_conditional_append(broker: RunningBroker, topic: str) -> None:
    """As into plain Kafka: whole, in order, and found again by the headers."""
    into = f"{topic}-copy"
    for name in (topic, into):
        create(broker.bootstrap, name)
    produce(broker.bootstrap, topic, batches(20, 10))
    end = end_of(broker.bootstrap, topic)

    async def work(one: ClusterEndpoint, other: ClusterEndpoint) -> int:
        target = Target(other)
        target.is_exact = False
        log = await log_of(target, Source(one.cluster_id, topic, 0), into)
        running = Running(one, log, end)
        await running.run()
        assert running.failure is None
        return log.next_offset

    assert with_sides(work, broker.bootstrap) == end
    assert values(everything(broker.bootstrap, into)[0]) == [b"%06d" % i for i in range(200)]

    async def look(one: ClusterEndpoint, other: ClusterEndpoint) -> int:
        return (await log_of(Target(other), Source(one.cluster_id, topic, 0), into)).next_offset

    assert with_sides(look, broker.bootstrap) == end
    assert without_offsets(unmarked(everything(broker.bootstrap, into)[0])) == without_offsets(
        everything(broker.bootstrap, topic)[0]
    )


def test_a_source_that_has_lost_its_beginning(broker: RunningBroker, topic: str) -> None:
    """What was removed before it was copied is told, and the rest is copied."""
    create(broker.bootstrap, topic)
    bases = produce(broker.bootstrap, topic, batches(3, 10))
    told: list[str] = []

    async def work(one: ClusterEndpoint, other: ClusterEndpoint) -> None:
        one.note = told.append
        reader = SourceReader(one)
        feed = reader.add(TopicPartition(topic, 0), 0)
        lost, run = await feed.next(), await feed.next()
        assert (len(lost.run), lost.after) == (0, bases[1])
        assert run.after > lost.after
        await reader.close()

    delete_before(broker.bootstrap, topic, bases[1])
    with_sides(work, broker.bootstrap)
    assert len(told) == 1 and f"{topic}-0: 0 to {bases[1]} was removed" in told[0]
