"""The library's producer against real brokers: what is acknowledged is in the log, once, where it belongs."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME
from kafka.partitioner.default import murmur2

import klog
from klog.client import audit_publisher
from klog.client.producer_settings import read_settings
from klog.errors import (
    BufferFull,
    InvalidConfig,
    InvalidTopic,
    MessageTooLarge,
    SendFailed,
    TimedOut,
    UnknownTopicOrPartition,
    UsageError,
)
from tests.broker_fixture import RunningBroker
from tests.rows import each
from tests.tools.verbs import held, make_topic

ROOT = Path(__file__).resolve().parents[2]


def values(bootstrap: str, topic: str, partitions: int = 1) -> list[bytes]:
    return [one.value() for one in held(bootstrap, topic, partitions)]


@pytest.mark.parametrize("name", ["\ud800", "a\0b"])
def test_header_names_that_librdkafka_cannot_send(broker: RunningBroker, topic: str, name: str) -> None:
    """The first ended the process."""
    make_topic(broker.bootstrap, topic)
    with klog.Producer(bootstrap_servers=broker.bootstrap) as producer:
        with pytest.raises(UsageError):
            producer.send(topic, klog.Message(b"one", headers=((name, b"1"),)))
        with pytest.raises(UsageError):
            producer.send(topic, [klog.Message(b"one"), klog.Message(b"two", headers=((name, b"1"),))])
    assert values(broker.bootstrap, topic) == []


# --- Sync ---


def test_a_message_is_in_the_log_when_send_returns(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic)
    with klog.Producer(bootstrap_servers=broker.bootstrap) as producer:
        sent = producer.send(topic, klog.Message(b"one", key=b"k", headers=(("h", b"1"), ("n", None)), timestamp=1234))
        assert sent.done()
        assert sent.place == (topic, 0, 0)
        assert values(broker.bootstrap, topic) == [b"one"]
        second = producer.send(topic, b"two", key=b"k2").place
        empty = producer.send(topic, klog.Message(None, key=b"gone")).place
        assert 0 < second.offset < empty.offset
    one, two, three = held(broker.bootstrap, topic)
    assert (one.key(), one.headers(), one.timestamp()) == (
        b"k",
        [("h", b"1"), ("n", None)],
        (TIMESTAMP_CREATE_TIME, 1234),
    )
    assert (two.key(), two.value(), two.headers()) == (b"k2", b"two", None)
    assert (three.key(), three.value()) == (b"gone", None)


def test_a_set_is_acknowledged_as_one_and_keeps_together(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 4)
    messages = klog.MessageSet(*(klog.Message(b"%d" % i) for i in range(200)))
    with klog.Producer(bootstrap_servers=broker.bootstrap) as producer:
        places = producer.send(topic, messages).result()
        assert producer.send(topic, []).result() == ()
    assert len(places) == 200
    assert len({one.partition for one in places}) == 1
    assert [one.value() for one in held(broker.bootstrap, topic, 4)] == [b"%d" % i for i in range(200)]
    assert [one.offset for one in places] == [one.offset() for one in held(broker.bootstrap, topic, 4)]


def test_a_key_of_the_call_is_that_of_messages_without_one(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic)
    with klog.Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send(topic, [b"a", klog.Message(b"b", key=b"own"), klog.Message(b"c")], key=b"call")
    assert [one.key() for one in held(broker.bootstrap, topic)] == [b"call", b"own", b"call"]


def test_what_keeps_a_message_out_is_raised(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic, max_message_bytes="2000")
    with klog.Producer(bootstrap_servers=broker.bootstrap) as producer:
        with pytest.raises(MessageTooLarge, match=f"{topic}-0: .*5,000 bytes.* 2,000 "):
            producer.send(topic, b"x" * 5000)
        with pytest.raises(UnknownTopicOrPartition):
            producer.send(topic, b"x", partition=7)
        with pytest.raises(InvalidTopic):
            producer.send("no/topic", b"x")
        with pytest.raises(TypeError, match="encode"):
            producer.send(topic, "text")
        with pytest.raises(TypeError, match="int"):
            producer.send(topic, [1])  # type: ignore[list-item]
        producer.send(topic, b"fine")
    assert values(broker.bootstrap, topic) == [b"fine"]


def test_of_a_set_those_that_failed_are_named(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic, max_message_bytes="2000")
    with klog.Producer(bootstrap_servers=broker.bootstrap, batch_num_messages=1) as producer:
        with pytest.raises(SendFailed, match="1 of 3") as caught:
            producer.send(topic, [b"a", b"x" * 5000, b"c"])
        assert {index: type(error) for index, error in caught.value.errors.items()} == {1: MessageTooLarge}
        assert not caught.value.retriable
    assert values(broker.bootstrap, topic) == [b"a", b"c"]


def test_nobody_listens(topic: str) -> None:
    started = time.monotonic()
    with klog.Producer(bootstrap_servers="127.0.0.1:1", message_timeout_ms=300) as producer, pytest.raises(TimedOut):
        producer.send(topic, b"x")
    assert time.monotonic() - started < 10


def test_many_threads_send_through_one(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic)
    with klog.Producer(bootstrap_servers=broker.bootstrap) as producer:

        def work(number: int) -> None:
            for i in range(20):
                producer.send(topic, b"%d-%d" % (number, i))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    found = values(broker.bootstrap, topic)
    assert len(found) == 160
    for number in range(8):
        mine = [one for one in found if one.startswith(b"%d-" % number)]
        assert mine == [b"%d-%d" % (number, i) for i in range(20)]


# --- Async ---


def test_async_goes_by_count(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic)
    options: dict[str, Any] = {"producer_type": "async", "queue_buffering_max_ms": 60_000, "batch_num_messages": 5}
    with klog.Producer(bootstrap_servers=broker.bootstrap, **options) as producer:
        sent = [producer.send(topic, b"%d" % i) for i in range(5)]
        assert [len(one.result(20)) for one in sent] == [1] * 5  # long before the minute
        late = producer.send(topic, b"one more")
        assert len(producer) >= 1
        assert not late.done()
    assert late.result(0)[0].topic == topic
    assert values(broker.bootstrap, topic) == [b"0", b"1", b"2", b"3", b"4", b"one more"]


def test_async_goes_by_time(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic)
    with klog.Producer(
        bootstrap_servers=broker.bootstrap, producer_type="async", queue_buffering_max_ms=300
    ) as producer:
        producer.send(topic, b"warm").result(20)
        begun = time.monotonic()
        producer.send(topic, b"alone").result(20)
        assert time.monotonic() - begun >= 0.25


@pytest.mark.parametrize("messages", [b"one", [b"one", b"two"]], ids=["message", "set"])
def test_what_send_gives_is_a_future_like_any_other(
    broker: RunningBroker, topic: str, messages: bytes | list[bytes]
) -> None:
    """Before it is done, by each way of hearing of it; and when it is."""
    make_topic(broker.bootstrap, topic)
    heard: list[klog.Sending] = []
    told = threading.Event()
    with klog.Producer(
        bootstrap_servers=broker.bootstrap, producer_type="async", queue_buffering_max_ms=60_000
    ) as producer:
        sendings = [producer.send(topic, messages) for _ in range(3)]
        first = sendings[0]
        assert first.running() and not first.done() and not first.cancel() and "running" in repr(first)
        assert concurrent.futures.wait(sendings, timeout=0.01).not_done == set(sendings)
        for ask in (first.result, first.exception):
            with pytest.raises(TimeoutError):
                ask(0.01)
        first.add_done_callback(heard.append)
        first.add_done_callback(lambda _: told.set())
        with ThreadPoolExecutor(4) as pool:
            waiting = [pool.submit(ask, 30) for ask in (first.result, first.exception, sendings[1].result)]
            completed = pool.submit(list, concurrent.futures.as_completed(sendings, timeout=30))
            producer.flush()
            assert [one.result() for one in waiting] == [first.result(), None, sendings[1].result()]
            assert set(completed.result()) == set(sendings)
        assert told.wait(30) and heard == [first] and first.done() and "finished" in repr(first)
        assert concurrent.futures.wait(sendings).done == set(sendings)
        first.add_done_callback(heard.append)
        assert heard == [first, first]
        places = [place for sending in sendings for place in sending.result()]
        assert len(set(places)) == len(places) == 3 * (1 if isinstance(messages, bytes) else 2)


def test_async_tells_by_callback_and_by_future(
    broker: RunningBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    make_topic(broker.bootstrap, topic, max_message_bytes="2000")
    heard: list[tuple[Any, Any]] = []
    with klog.Producer(
        bootstrap_servers=broker.bootstrap, producer_type="async", linger_ms=1, batch_num_messages=1
    ) as producer:
        fine = producer.send(topic, b"fine", callback=lambda error, place: heard.append((error, place)))
        large = producer.send(topic, b"x" * 5000, callback=lambda error, place: heard.append((error, place)))
        with caplog.at_level(logging.WARNING, "klog.client.sending"):
            silent = producer.send(topic, b"x" * 5000)
            producer.flush()
            assert topic in caplog.text and "dropped" in caplog.text

        async def awaited() -> int:
            return (await asyncio.wrap_future(producer.send(topic, b"awaited")))[0].partition

        assert asyncio.run(awaited()) == 0
    assert fine.place.offset == 0
    assert isinstance(large.exception(), MessageTooLarge) and "2,000" in str(large.exception())
    assert isinstance(silent.exception(), MessageTooLarge)
    assert [type(error) for error, _ in heard] == [type(None), MessageTooLarge]
    assert heard[0][1] == fine.place


def test_a_callback_that_fails_harms_nobody(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic)

    def fails(error: object, place: object) -> None:
        raise RuntimeError("mine")

    with klog.Producer(bootstrap_servers=broker.bootstrap, producer_type="async", linger_ms=1) as producer:
        assert producer.send(topic, [b"a", b"b"], callback=fails).result(20)
        assert producer.send(topic, b"c").result(20)


@pytest.mark.parametrize(("enqueue_ms", "least_s"), [(0, 0.0), (400, 0.35)])
def test_a_full_buffer_is_raised_when_it_may_not_be_waited_for(enqueue_ms: int, least_s: float, topic: str) -> None:
    producer = klog.Producer(
        bootstrap_servers="127.0.0.1:1",
        producer_type="async",
        queue_buffering_max_messages=3,
        queue_enqueue_timeout_ms=enqueue_ms,
    )
    sent = [producer.send(topic, b"x") for _ in range(3)]
    begun = time.monotonic()
    with pytest.raises(BufferFull):
        producer.send(topic, b"one too many")
    assert least_s <= time.monotonic() - begun < 20
    with pytest.raises(TimedOut):
        producer.flush(0.1)
    with pytest.raises(TimedOut):
        producer.close(0.1)
    assert all(one.exception(5) is not None for one in sent)
    with pytest.raises(UsageError, match="closed"):
        producer.send(topic, b"x")
    producer.close()


def test_a_full_buffer_is_waited_for(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic)
    options: dict[str, Any] = {"producer_type": "async", "queue_buffering_max_messages": 10, "linger_ms": 5}
    with klog.Producer(bootstrap_servers=broker.bootstrap, **options) as producer:
        for i in range(500):
            producer.send(topic, b"%d" % i)
    assert values(broker.bootstrap, topic) == [b"%d" % i for i in range(500)]


def test_a_broker_that_is_killed_and_comes_back_loses_nothing(
    make_broker: Callable[..., RunningBroker], topic: str
) -> None:
    broker = make_broker().start()
    make_topic(broker.bootstrap, topic)
    with klog.Producer(bootstrap_servers=broker.bootstrap, producer_type="async", linger_ms=1) as producer:
        before = [producer.send(topic, b"%d" % i) for i in range(100)]
        broker.kill()
        after = [producer.send(topic, b"%d" % i) for i in range(100, 200)]
        broker.start()
        producer.flush(60)
    assert all(one.exception() is None for one in before + after)
    assert values(broker.bootstrap, topic) == [b"%d" % i for i in range(200)]


# --- The buffer and the end of the program ---

PROGRAM = """
import sys, klog
producer = klog.Producer(bootstrap_servers=sys.argv[1], producer_type="async", queue_buffering_max_ms=60000)
producer.send(sys.argv[2], b"acknowledged")
producer.flush()
producer.send(sys.argv[2], b"in the buffer")
print("sent", flush=True)
{rest}
"""


@pytest.mark.parametrize("way", ["it ends", "it is killed", "it fails"])
def test_what_becomes_of_the_buffer(broker: RunningBroker, topic: str, way: str) -> None:
    make_topic(broker.bootstrap, topic)
    rest = {"it ends": "", "it is killed": "import time; time.sleep(60)", "it fails": "raise SystemExit(3)"}[way]
    program = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM).format(rest=rest), broker.bootstrap, topic],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    )
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == b"sent\n"
        if way == "it is killed":
            os.kill(program.pid, signal.SIGKILL)
        code = program.wait(60)
        program.stdout.close()
    finally:
        if program.poll() is None:
            program.kill()
            program.wait()
    assert code == {"it ends": 0, "it is killed": -9, "it fails": 3}[way]
    kept = [b"acknowledged"] if way == "it is killed" else [b"acknowledged", b"in the buffer"]
    assert values(broker.bootstrap, topic) == kept


def test_importing_klog_loads_nothing() -> None:
    program = (
        "import sys, klog; klog.__version__; "
        "assert not {'confluent_kafka', 'kazoo', 'asyncio', 'klog.errors'} & set(sys.modules); "
        "klog.Message, klog.MessageSet, klog.KlogError, klog.errors; "
        "assert not {'confluent_kafka', 'kazoo', 'pyspark', 'typer', 'kio'} & set(sys.modules); "
        "klog.Producer; assert 'kazoo' not in sys.modules; assert {'Producer', 'Consumer'} <= set(dir(klog)); "
        "from klog.client.consumer import Consumer; assert klog.Consumer is Consumer"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
    with pytest.raises(AttributeError, match="Nothing"):
        klog.Nothing  # noqa: B018


# --- Partitions ---


def test_keys_go_where_javas_clients_put_them(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 7)
    keys = [b"user-%d" % i for i in range(60)]
    with klog.Producer(bootstrap_servers=broker.bootstrap) as producer:
        places = producer.send(topic, [klog.Message(b"x", key=key) for key in keys]).result()
    assert [one.partition for one in places] == [(murmur2(key) & 0x7FFFFFFF) % 7 for key in keys]


def test_a_partitioner_of_the_users(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 3)
    asked: list[tuple[bytes | None, int]] = []

    def by_length(key: bytes | None, partitions: int) -> int:
        asked.append((key, partitions))
        return len(key or b"")

    with klog.Producer(bootstrap_servers=broker.bootstrap, partitioner=by_length) as producer:
        places = producer.send(
            topic, [klog.Message(b"a"), klog.Message(b"b", b"k"), klog.Message(b"c", b"kk")]
        ).result()
        assert [one.partition for one in places] == [0, 1, 2]
        assert asked == [(None, 3), (b"k", 3), (b"kk", 3)]
        with pytest.raises(UsageError, match="3 for key"):
            producer.send(topic, b"d", key=b"kkk")
        assert producer.send(topic, b"d", key=b"kkk", partition=1).place.partition == 1
        new = producer.send(f"{topic}-made-by-asking", b"x").place
        assert new == (f"{topic}-made-by-asking", 0, 0)
    with klog.Producer(bootstrap_servers=broker.bootstrap, partitioner="consistent") as producer:
        assert producer.send(topic, b"by name", key=b"k").done()


# --- Settings ---


def read(**given: Any) -> dict[str, Any]:
    return read_settings(given, is_async=True, audit=False, partitioner=None).librdkafka


def test_names_of_today_and_of_0_8_mean_the_same() -> None:
    old = read(
        metadata_broker_list="h:1,i:2",
        request_required_acks=1,
        compression_codec=1,
        message_send_max_retries=5,
        queue_buffering_max_ms=7,
        topic_metadata_refresh_interval_ms=1000,
        send_buffer_bytes=4096,
    )
    new = read(
        bootstrap_servers=["h:1", "i:2"],
        acks="1",
        compression_type="gzip",
        retries=5,
        linger_ms=7,
        metadata_max_age_ms=1000,
        send_buffer_bytes=4096,
    )
    assert old == new
    assert (old["bootstrap.servers"], old["acks"], old["enable.idempotence"]) == ("h:1,i:2", "1", False)
    defaults = read()
    assert [defaults[name] for name in ("acks", "enable.idempotence", "linger.ms", "batch.num.messages")] == [
        *("all", True, 5000, 1000)
    ]
    assert read(retries=0)["enable.idempotence"] is False
    assert read(buffer_memory=65536)["queue.buffering.max.kbytes"] == 64


@each(
    ("settings", "named"),
    [
        ({"no_such_thing": 1, "linger_ms": 1, "nor_this": 2}, "no.such.thing, nor.this"),
        ({"acks": 1, "request_required_acks": 1}, "acks .*request.required.acks"),
        ({"request_required_acks": 2}, "acks=2"),
        ({"queue_buffering_max_ms": "soon"}, "queue.buffering.max.ms"),
        ({"serializer_class": "kafka.serializer.StringEncoder"}, "serializer.class"),
        ({"partitioner_class": "MyPartitioner"}, "partitioner.class"),
        ({"queue_enqueue_timeout_ms": "x"}, "queue.enqueue.timeout.ms"),
        ({"producer_type": "both"}, "both"),
        ({"bootstrap_servers": "h:port"}, "h:port"),
        ({"bootstrap_servers": None}, "needs bootstrap_servers"),
        ({"zookeeper": "127.0.0.1:1"}, "bootstrap_servers.*zookeeper"),
        ({"audit": True, "audit_host": "two words"}, "two words"),
        ({"partitioner": "no-such"}, "partitioner"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidConfig, match=named):
        klog.Producer(**{"bootstrap_servers": "127.0.0.1:1", **settings})


def test_a_set_holds_messages() -> None:
    with pytest.raises(TypeError, match="bytes"):
        klog.MessageSet(b"x")  # type: ignore[arg-type]
    assert klog.Message(b"abc").payload() == b"abc"
    assert klog.Message(None).payload() == b""


def test_counts_are_published_although_their_topic_could_not_be_created_at_first(
    make_broker: Callable[..., RunningBroker], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt fails, as it does while a broker dies; what was produced to the topic waits for it to exist."""
    broker = make_broker(auto__create__topics__enable="false").start()
    create = audit_publisher.ensure_audit_topic
    attempts: list[str] = []

    def fails_once(settings: Any, name: str) -> bool:
        attempts.append(name)
        return len(attempts) > 1 and create(settings, name)

    waits = threading.Event()
    publish = audit_publisher.AuditPublisher._publish

    def published(self: Any, publications: Any, **options: Any) -> None:
        publish(self, publications, **options)
        if publications:
            waits.set()

    monkeypatch.setattr(audit_publisher, "ensure_audit_topic", fails_once)
    monkeypatch.setattr(audit_publisher.AuditPublisher, "_publish", published)
    make_topic(broker.bootstrap, topic)
    with klog.Producer(
        bootstrap_servers=broker.bootstrap, audit=True, audit_topic=f"{topic}.audit", audit_publish_ms=1
    ) as producer:
        an_hour_ago_ms = round(time.time() * 1000) - 3_600_000
        producer.send(topic, klog.Message(b"counted", timestamp=an_hour_ago_ms))  # its window is over, its count final
        assert waits.wait(30)
    assert len(attempts) > 1
    assert values(broker.bootstrap, f"{topic}.audit")
