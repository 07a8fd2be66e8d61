"""What a reader meets under way: retention, deletion, a broker that goes and comes."""

import asyncio
import io
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from klog.admin import topics
from klog.client.cluster import Cluster
from klog.client.positions import parse_range
from klog.client.servers import silent_logger
from klog.errors import UnknownTopicOrPartition
from klog.names import TopicPartition
from klog.tools.options import Span, TailOptions
from klog.tools.reader import Reader
from klog.tools.tail import tail
from tests.broker_fixture import RunningBroker
from tests.tools.verbs import Arrivals, delete_before, make_topic, send


def reader(broker: RunningBroker, topic: str, span: Span, sink: io.BytesIO, **settings: Any) -> Reader:
    options = settings.pop("options", TailOptions())
    spans = {TopicPartition(topic, 0): span}
    return Reader(broker.bootstrap, spans, options, sink, stop=threading.Event(), timeout_s=10.0, **settings)


def test_what_retention_removes_under_a_reader_is_told(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic)
    send(broker.bootstrap, topic, b"one\n")
    second = send(broker.bootstrap, topic, b"two\n").partitions[0].first_offset
    assert second is not None
    delete_before(broker.bootstrap, topic, second)
    notes: list[str] = []
    sink = io.BytesIO()
    reader(broker, topic, Span(0, second + 1), sink, note=notes.append).run()
    assert sink.getvalue() == b"two\n"
    assert len(notes) == 1 and notes[0].startswith(f"{topic}-0:") and "retention" in notes[0]


def test_a_topic_that_is_deleted_under_a_reader_ends_it(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic)
    send(broker.bootstrap, topic, b"one\n")

    async def follow() -> None:
        async with await Cluster.connect(broker.bootstrap) as cluster:
            sink = Arrivals()
            options = TailOptions(offset=parse_range("start"), librdkafka={"topic.metadata.propagation.max.ms": "500"})
            following = asyncio.ensure_future(tail(cluster, [topic], options, sink))
            await sink.wait_for(b"one\n")
            await topics.delete_topics(cluster, await topics.preview_deletion(cluster, [topic]))
            await asyncio.wait_for(following, 20)

    with pytest.raises(UnknownTopicOrPartition, match=f"deleted.*{topic}"):
        asyncio.run(follow())


def test_partitions_that_are_added_are_followed_too(
    broker: RunningBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("klog.tools.tail.NEW_PARTITIONS_S", 0.1)
    make_topic(broker.bootstrap, topic)
    send(broker.bootstrap, topic, b"one\n")
    notes: list[str] = []

    async def follow() -> bytes:
        async with await Cluster.connect(broker.bootstrap) as cluster:
            sink = Arrivals()
            options = TailOptions(offset=parse_range("start"), count=4)
            following = asyncio.ensure_future(tail(cluster, [topic], options, sink, note=notes.append))
            await sink.wait_for(b"one\n")
            await topics.alter_topic(cluster, topic, 3)
            for partition in (2, 1, 0):
                await asyncio.to_thread(send, broker.bootstrap, topic, b"%d\n" % partition, partition=partition)
            await asyncio.wait_for(following, 30)
        return sink.getvalue()

    assert sorted(asyncio.run(follow()).split()) == [b"0", b"1", b"2", b"one"]
    assert len(notes) == 1 and notes[0].startswith(f"{topic}-1, {topic}-2: new")


def test_following_across_a_kill_of_the_broker(
    make_broker: Callable[..., RunningBroker], topic: str, capfd: pytest.CaptureFixture[str]
) -> None:
    one = make_broker().start()
    make_topic(one.bootstrap, topic)
    send(one.bootstrap, topic, b"before\n")
    notes: list[str] = []
    missed = threading.Event()

    def note(text: str) -> None:
        notes.append(text)
        if one.bootstrap in text:
            missed.set()

    async def follow() -> bytes:
        async with await Cluster.connect(one.bootstrap) as cluster:
            sink = Arrivals()
            options = TailOptions(offset=parse_range("start"))
            following = asyncio.ensure_future(tail(cluster, [topic], options, sink, note=note))
            await sink.wait_for(b"before\n")
            one.kill()
            assert await asyncio.to_thread(missed.wait, 30), "librdkafka says nothing of a broker that is back at once"
            await asyncio.to_thread(one.start)
            producer = Producer({"bootstrap.servers": one.bootstrap, "logger": silent_logger()})
            producer.produce(topic, b"after")
            assert await asyncio.to_thread(producer.flush, 20) == 0
            await sink.wait_for(b"after\n")
            following.cancel()
            await asyncio.wait([following])
            return sink.getvalue()

    assert asyncio.run(follow()) == b"before\nafter\n"
    assert capfd.readouterr().err == "", "librdkafka's own lines"
    (said,) = (text for text in notes if one.bootstrap in text)
    assert re.search(rf"{one.bootstrap}( \(broker 1\))?: .+", said)


def test_what_lay_behind_the_end_already_is_shown_when_following(broker: RunningBroker, topic: str) -> None:
    """Reading to the end pauses partitions that go on behind it; following must take that back."""
    make_topic(broker.bootstrap, topic)
    send(broker.bootstrap, topic, b"one\n")
    second = send(broker.bootstrap, topic, b"two\nthree\n").partitions[0].first_offset
    sink = io.BytesIO()
    following = reader(broker, topic, Span(0, second), sink, options=TailOptions(count=3), follow=True)
    following.run()
    assert sink.getvalue() == b"one\ntwo\nthree\n"
