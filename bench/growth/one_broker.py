"""Curves of one broker: partitions, connections, sizes of messages and batches, consumers, the log.

A broker is started for a curve and stopped behind it, so that no curve sees what another has left.
"""

from __future__ import annotations

import contextlib
import resource
import socket
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from bench import wire
from bench.consume import consume_together
from bench.growth.growing import (
    IDLE_S,
    SECONDS,
    TOPIC_PARTITIONS,
    TOPIC_TIMEOUT_S,
    VALUE_BYTES,
    Figures,
    Points,
    admin_at,
    command_costs,
    drop_topic,
    make_topic,
    make_topics,
    many_topics,
    new_name,
    on_one_broker,
    timed,
)
from bench.klog_system import Klog
from bench.latency import produce_to_ack
from bench.one_log import Log, bootstrap_of
from bench.processes import cpu_seconds, resident_bytes
from bench.produce import fill, pump

FETCH_GROWN_BYTES = 128 << 20


# --- Partitions -------------------------------------------------------------------------------------------------------


@on_one_broker
def partitions(system: Log, values: Sequence[int]) -> Points:
    """On one broker: made, weighed, written to, listed, and started again after kill -9."""
    there = 0
    for wanted in values:
        new, bootstrap = wanted - there, bootstrap_of(system)
        topics = many_topics(new, 1)
        made_s = timed(partial(make_topics, bootstrap, topics))
        there = wanted
        time.sleep(IDLE_S)
        figures: Figures = {"made_per_s": new / made_s, "megabytes": resident_bytes(system.broker_pids()) / 1e6}
        if pids := system.helper_pids():
            figures["helper_megabytes"] = resident_bytes(pids) / 1e6
        figures["messages_per_s"] = _spread_produce(bootstrap, topics)
        figures["metadata_s"] = timed(partial(admin_at(bootstrap).list_topics, timeout=60))
        if isinstance(system, Klog):
            figures |= command_costs("list", system, "topic", "list", "-B", bootstrap)
        system.kill()
        began = time.time()
        figures["restart_s"] = timed(partial(system.start, "first"))
        figures["restart_cpu_s"] = cpu_seconds(system.broker_pids())
        if isinstance(system, Klog):
            figures |= _parts_of_start(system.folder / "broker.log", began, began + figures["restart_s"])
        yield wanted, figures


def _parts_of_start(log: Path, began: float, ended: float) -> Figures:
    """Where the seconds of a start went, by the times of the broker's own log lines; none where it lacks one."""
    lines = [line.split() for line in log.read_text(errors="replace").splitlines()]
    since = [(_seconds(line[0]), line[2:]) for line in lines if len(line) > 2 and _seconds(line[0]) >= began]
    in_office = next((at for at, words in since if words[:2] == ["server.controller.controller:", "controller,"]), None)
    elected = max(
        (at for at, words in since if words[1:4] == ["new", "leader", "epochs"] and at <= ended), default=None
    )
    if in_office is None or elected is None:
        return {}
    return {"opened_s": in_office - began, "elected_s": elected - in_office, "led_s": ended - elected}


def _seconds(text: str) -> float:
    """Of a line's time; 0 where it has none."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def _spread_produce(bootstrap: str, topics: Sequence[NewTopic]) -> float:
    """Messages to all partitions of the newest topics in turn, acks=all, for SECONDS."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "log_level": 0})
    places = [(one.topic, partition) for one in topics for partition in range(one.num_partitions)]
    value, sent = b"v" * VALUE_BYTES, 0
    for name, partition in places:  # a first message opens what is opened once
        producer.produce(name, value, partition=partition)
    producer.flush(TOPIC_TIMEOUT_S)
    start = time.perf_counter()
    while time.perf_counter() - start < SECONDS:
        for name, partition in places[:TOPIC_PARTITIONS]:
            try:
                producer.produce(name, value, partition=partition)
                sent += 1
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    producer.flush(TOPIC_TIMEOUT_S)
    return sent / (time.perf_counter() - start)


# --- Connections ------------------------------------------------------------------------------------------------------


@on_one_broker
def connections(system: Log, values: Sequence[int]) -> Points:
    """Idle ones, each of which has asked once; and what another client still gets."""
    _allow_files(max(values) + 1000)
    topic = make_topic(bootstrap_of(system))
    idle = resident_bytes(system.broker_pids())
    with contextlib.ExitStack() as stack:
        there = 0
        for wanted in values:
            for number in range(there, wanted):
                stack.enter_context(_connection(system.port, number))
            there = wanted
            time.sleep(IDLE_S)
            before = cpu_seconds(system.broker_pids())
            time.sleep(IDLE_S)
            used = cpu_seconds(system.broker_pids()) - before
            grown = resident_bytes(system.broker_pids()) - idle
            latency = produce_to_ack(system.port, topic, 500)
            yield (
                wanted,
                {
                    "grown_kilobytes": grown / 1e3,
                    "cores": used / IDLE_S,
                    "p50_ms": latency.p50_ms,
                    "p99_ms": latency.p99_ms,
                },
            )


@contextlib.contextmanager
def _connection(port: int, number: int) -> Iterator[None]:
    """It asks for the versions, as any client does first. From several loopback addresses: ports of one run out."""
    source = f"127.0.{number // 250 % 250}.{1 + number % 250}"
    with socket.create_connection(("127.0.0.1", port), timeout=30, source_address=(source, 0)) as one:
        one.sendall(b"\0\0\0\x0d\0\x12\0\0\0\0\0\1\0\3you")
        size = int.from_bytes(_exactly(one, 4), "big")
        _exactly(one, size)
        yield


def _exactly(one: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        more = one.recv(size - len(got))
        if not more:
            raise wire.NoAnswer("the broker closed the connection")
        got += more
    return got


def _allow_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))


# --- Messages ---------------------------------------------------------------------------------------------------------


@on_one_broker
def message_sizes(system: Log, values: Sequence[int]) -> Points:
    """Ready-made requests of 1 MB or of one message, acks=all, 5 in flight."""
    for size in values:
        topic = _big_topic(system)
        batch = max(1, 1_000_000 // (size + 20))
        load = pump(system.port, topic, batch, size, 5, SECONDS)
        yield (
            size,
            {"megabytes_per_s": load.value_bytes / load.seconds / 1e6, "messages_per_s": load.messages / load.seconds},
        )
        drop_topic(bootstrap_of(system), topic)


def _big_topic(system: Log) -> str:
    name = new_name()
    make_topics(bootstrap_of(system), [NewTopic(name, 1, 1, config={"max.message.bytes": str(64 << 20)})])
    # Kafka says that a topic is made before its broker leads it.
    wire.produce_until_acknowledged(system.port, name, TOPIC_TIMEOUT_S, alive=lambda: bool(system.broker_pids()))
    return name


@on_one_broker
def batches(system: Log, values: Sequence[int]) -> Points:
    """Ready-made requests, acks=all; as many in flight as keep the broker busy."""
    for size in values:
        topic = _big_topic(system)
        before = cpu_seconds(system.broker_pids())
        load = pump(system.port, topic, size, VALUE_BYTES, max(5, min(1000, 10_000 // size)), SECONDS)
        used = cpu_seconds(system.broker_pids()) - before
        yield size, {"messages_per_s": load.messages / load.seconds, "cpu_us": 1e6 * used / load.messages}
        drop_topic(bootstrap_of(system), topic)


@on_one_broker
def consumers(system: Log, values: Sequence[int]) -> Points:
    """Each reads the same data from the page cache and throws it away."""
    topic = make_topic(bootstrap_of(system))
    messages = fill(system.port, topic, 80, VALUE_BYTES, FETCH_GROWN_BYTES)
    for number in values:
        before = cpu_seconds(system.broker_pids())
        load = consume_together(system.port, topic, messages, number, 1)
        used = cpu_seconds(system.broker_pids()) - before
        yield (
            number,
            {"megabytes_per_s": load.value_bytes / load.seconds / 1e6, "cpu_s_per_gb": used / (load.value_bytes / 1e9)},
        )


# --- The log ----------------------------------------------------------------------------------------------------------


@on_one_broker
def log_sizes(system: Log, values: Sequence[int]) -> Points:
    """GB in one partition: started again after kill -9, and a look-up by time in the middle."""
    topic, there = make_topic(bootstrap_of(system)), 0
    for gigabytes in values:
        fill(system.port, topic, 8, 2000, (gigabytes - there) * 10**9)
        there = gigabytes
        middle_ms = int(time.time() * 1000) - 1
        look_up = min(timed(partial(_offset_at, system, topic, middle_ms)) for _ in range(5))
        system.kill()
        yield gigabytes, {"look_up_ms": 1000 * look_up, "restart_s": timed(lambda: system.start("first"))}


def _offset_at(system: Log, topic: str, time_ms: int) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap_of(system), "group.id": "growth", "log_level": 0})
    try:
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, time_ms)], timeout=30)
        assert found.error is None, found.error
    finally:
        consumer.close()
