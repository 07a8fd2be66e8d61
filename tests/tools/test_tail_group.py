"""Reading as a member of a group: what was written is committed, nothing else, and nothing is left out."""

from __future__ import annotations

import asyncio
import io
import random
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Assigned

from klog.client.cluster import Cluster
from klog.client.positions import parse_range
from klog.errors import GroupIsHeld, TimedOut
from klog.names import TopicPartition
from klog.tools.options import TailOptions
from klog.tools.tail import tail
from tests.broker_fixture import RunningBroker
from tests.tools.verbs import make_topic, read, run

START = parse_range("start")


def fill(broker: RunningBroker, topic: str, partitions: int, count: int) -> list[bytes]:
    """Messages ``0``, ``1`` ... spread over the partitions."""
    spread = random.Random(5)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=spread.randrange(partitions))
    assert producer.flush(10) == 0
    return [b"%d" % number for number in range(count)]


def committed(broker: RunningBroker, group: str, topic: str, partitions: int) -> list[int]:
    """What the brokers say."""
    asking = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    found = asking.committed([Assigned(topic, one) for one in range(partitions)], timeout=10)
    asking.close()
    return [one.offset for one in found]


def ends(broker: RunningBroker, topic: str, partitions: int) -> list[int]:
    from klog.client.resolve import bounds

    names = [TopicPartition(topic, one) for one in range(partitions)]
    found = run(broker.bootstrap, lambda cluster: bounds(cluster, names))
    return [found[one].end for one in names]


class Sink(io.BytesIO):
    """Tells each time something was written; fails at the write that is told."""

    def __init__(self, told: Callable[[], None] = lambda: None, *, fails_at: int | None = None) -> None:
        super().__init__()
        self._told = told
        self._left = fails_at

    def write(self, content: object) -> int:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise BrokenPipeError
        return super().write(content)  # type: ignore[arg-type]

    def flush(self) -> None:
        self._told()


def test_a_group_goes_on_where_it_was(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 3)
    messages = fill(broker, topic, 3, 60)
    shown: list[bytes] = []
    for count in (0, 1, 7, 20):
        some, notes = read(broker.bootstrap, topic, group=topic, offset=START, count=count)
        assert len(some.split()) == count
        shown += some.split()
        if count:
            assert len(notes) == 1 and notes[0].endswith(f" {topic}-0, {topic}-1, {topic}-2")
    rest, _ = read(broker.bootstrap, topic, group=topic, until_end=True)
    assert sorted(shown + rest.split(), key=int) == messages, "each once"
    assert committed(broker, topic, topic, 3) == ends(broker, topic, 3)
    assert read(broker.bootstrap, topic, group=topic, until_end=True)[0] == b""
    again, _ = read(broker.bootstrap, topic, group=f"{topic}-b", offset=START, until_end=True)
    assert sorted(again.split(), key=int) == messages, "another group has places of its own"


def test_without_a_place_it_begins_at_the_end_and_that_is_committed(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 2)
    fill(broker, topic, 2, 10)
    shown, notes = read(broker.bootstrap, topic, group=topic, until_end=True)
    assert shown == b""
    assert f" {topic}-0, {topic}-1" in notes[-1] and "-o start" in notes[-1]
    assert committed(broker, topic, topic, 2) == ends(broker, topic, 2)
    later = fill(broker, topic, 2, 5)
    shown, _ = read(broker.bootstrap, topic, group=topic, until_end=True)
    assert sorted(shown.split()) == later


def test_what_is_left_out_by_a_search_is_done_with_too(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic)
    fill(broker, topic, 1, 40)
    options = {"group": topic, "offset": START, "grep": "5$"}
    assert read(broker.bootstrap, topic, **options, count=2)[0] == b"5\n15\n"
    rest, _ = read(broker.bootstrap, topic, group=topic, until_end=True)
    assert rest.split() == [b"%d" % number for number in range(16, 40)]


def test_two_members_share_the_partitions(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 2)
    before = fill(broker, topic, 2, 20)

    async def both() -> tuple[list[bytes], list[bytes], list[bytes]]:
        loop, changed = asyncio.get_running_loop(), asyncio.Event()
        cooperative = {"partition.assignment.strategy": "cooperative-sticky"}
        options = TailOptions(group=topic, offset=START, librdkafka=cooperative)

        def written() -> None:
            loop.call_soon_threadsafe(changed.set)

        sinks = [Sink(written) for _ in range(2)]
        notes: list[list[str]] = [[], []]

        def note(member: int) -> Callable[[str], None]:
            def add(text: str) -> None:
                notes[member].append(text)
                changed.set()

            return add

        async def until(holds: Callable[[], bool]) -> None:
            async with asyncio.timeout(60):
                while not holds():
                    changed.clear()
                    await changed.wait()

        def has(member: int) -> set[str]:
            return set((notes[member] or [""])[-1].partition(" has ")[2].split(", "))

        async with await Cluster.connect(broker.bootstrap) as cluster:
            members = [asyncio.ensure_future(tail(cluster, [topic], options, sinks[0], note=note(0)))]
            await until(lambda: len(sinks[0].getvalue().split()) == 20)
            members.append(asyncio.ensure_future(tail(cluster, [topic], options, sinks[1], note=note(1))))
            await until(lambda: len(has(0)) == len(has(1)) == 1 and has(0) | has(1) == {f"{topic}-0", f"{topic}-1"})
            after = await asyncio.to_thread(fill, broker, topic, 2, 30)
            await until(lambda: sum(len(one.getvalue().split()) for one in sinks) >= 50)
            for member in members:
                member.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asyncio.wait_for(member, 5)
        return after, sinks[0].getvalue().split(), sinks[1].getvalue().split()

    after, first, second = asyncio.run(both())
    assert second and len(first) > 20
    assert sorted(first + second) == sorted(before + after), "each once: nobody died"
    assert committed(broker, topic, topic, 2) == ends(broker, topic, 2)


def test_what_the_sink_did_not_take_is_not_committed(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic)
    messages = fill(broker, topic, 1, 1500)  # several runs
    sink = Sink(fails_at=2)
    with pytest.raises(BrokenPipeError):
        run(broker.bootstrap, lambda cluster: tail(cluster, [topic], TailOptions(group=topic, offset=START), sink))
    shown = sink.getvalue().split()
    assert 0 < len(shown) < 1500
    rest, _ = read(broker.bootstrap, topic, group=topic, until_end=True)
    assert shown + rest.split() == messages


def test_one_who_is_not_let_in_hears_of_it(broker: RunningBroker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that lives and has not heard of the new generation, as it does when it beats, keeps others waiting."""
    monkeypatch.setattr("klog.tools.group_reader.MEMBERS_SILENT_S", 0.2)
    make_topic(broker.bootstrap, topic)
    seldom = {"heartbeat.interval.ms": 30_000, "session.timeout.ms": 45_000, "auto.offset.reset": "earliest"}
    holder = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic, **seldom})
    try:
        holder.subscribe([topic])
        fill(broker, topic, 1, 1)
        assert holder.poll(30) is not None, "it has joined"
        notes: list[str] = []
        options = TailOptions(group=topic, until_end=True)
        with pytest.raises(TimedOut, match="group"):
            run(
                broker.bootstrap,
                lambda cluster: tail(cluster, [topic], options, io.BytesIO(), note=notes.append),
                timeout_s=1.5,
            )
        assert len(notes) == 1 and "member" in notes[0]
    finally:
        holder.close()


def test_a_group_that_streams_hold_is_refused(broker: RunningBroker, topic: str) -> None:
    import klog

    make_topic(broker.bootstrap, topic)
    with klog.Consumer(zookeeper=broker.zookeeper, group=topic) as holder:
        holder.create_message_streams({topic: 1})
        with pytest.raises(GroupIsHeld, match=topic):
            read(broker.bootstrap, topic, group=topic, until_end=True)
