"""Clients that ask too much of the broker's memory, descriptors or patience: bounded, and others do not notice.

Rule P2.
"""

from __future__ import annotations

import contextlib
import resource
import secrets
import shutil
import socket
import struct
import time
from collections.abc import Callable, Iterator

import pytest

from klog.coordination.embedded import ZooKeeperServer
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.record.records import encode_batch
from tests.broker_fixture import RunningBroker
from tests.rows import each
from tests.server.asking import (
    answered,
    create,
    error,
    offsets,
    offsets_request,
    produce,
    produce_request,
    until,
    values,
)
from tests.server.wire import RawConnection, bystander, fetch_request, framed, head, open_descriptors, resident_bytes

MakeBroker = Callable[..., RunningBroker]
MEGABYTE = 1_000_000
STORAGE = 56
OWN_DESCRIPTORS = 150
"""More than a broker opens by itself at any time: logs, connections, notes that it writes. Few beside a thousand."""
UNNOTICED_S = 5.0
"""No round of a well-behaved client may take longer meanwhile; it takes milliseconds on an idle machine."""


@contextlib.contextmanager
def connections(broker: RunningBroker, count: int, *, hello: bool = False) -> Iterator[list[RawConnection]]:
    """So many connections; the test's own limit of descriptors allows them.

    ``hello``: each has said it and was answered before the next one: more at once than the queue of
    socket.listen.backlog.size holds are tried again after a second.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count + 200:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 200), hard))
    opened: list[RawConnection] = []
    try:
        for _ in range(count):
            opened.append(RawConnection(broker.bootstrap))
            if hello:
                opened[-1].send(framed(head(18, 0)))
                opened[-1].answer()
        yield opened
    finally:
        for one in opened:
            one.socket.close()


@pytest.fixture(scope="module")
def besieged(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker with the usual limits, whose memory and descriptors are looked at."""
    chroot = f"{zookeeper.address}/besieged-{secrets.token_hex(4)}"
    with RunningBroker(tmp_path_factory.mktemp("besieged"), chroot).running() as broker:
        yield broker


def test_a_client_that_asks_and_does_not_read(besieged: RunningBroker, topic: str) -> None:
    broker = besieged
    create(broker.bootstrap, topic, max_message_bytes=str(4 * MEGABYTE))
    produce(broker.bootstrap, topic, [values(3, MEGABYTE)] * 4)
    request = codec.encode_request(fetch_request(topic, 0, max_bytes=50 * MEGABYTE), 1, "deaf")
    with bystander(broker) as other:
        other.go_on()
        before = resident_bytes(broker.pid)
        with RawConnection(broker.bootstrap, receive_buffer_bytes=4096) as deaf:
            deaf.socket.setblocking(False)
            sent = 0
            with contextlib.suppress(BlockingIOError):
                while sent < 50 * MEGABYTE:
                    sent += deaf.socket.send(request * 200)
            other.go_on(20)
            assert sent < 20 * MEGABYTE, "the broker reads on though nobody takes its answers"
            assert resident_bytes(broker.pid) - before < 20 * MEGABYTE
    assert other.slowest_s < UNNOTICED_S


@each(("key", "version"), [(ApiKey.METADATA, 1), (ApiKey.DESCRIBE_GROUPS, 0)])
def test_what_is_named_often_is_answered_once(broker: RunningBroker, topic: str, key: int, version: int) -> None:
    create(broker.bootstrap, topic)
    name, count = struct.pack(">h", len(topic)) + topic.encode(), 20_000
    with RawConnection(broker.bootstrap) as connection:
        connection.send(framed(head(key, version) + struct.pack(">i", count) + count * name))
        assert len(connection.answer()) < 10 * len(topic) + 1_000


def test_hundreds_of_idle_connections(besieged: RunningBroker) -> None:
    broker = besieged
    with bystander(broker) as other:
        other.go_on(20)
        before_bytes = resident_bytes(broker.pid)
        with connections(broker, 400, hello=True):
            assert open_descriptors(broker.pid) >= 400
            assert resident_bytes(broker.pid) - before_bytes < 8 * MEGABYTE, "more than 20 kB a connection"
            other.slowest_s = 0.0
            other.go_on(30)
            assert other.slowest_s < UNNOTICED_S
        until(lambda: open_descriptors(broker.pid) <= OWN_DESCRIPTORS)  # those of the connections that ended are closed


@pytest.mark.timed
def test_eight_thousand_connect_in_a_row(make_broker: MakeBroker) -> None:
    """A fleet that reconnects; each stays. Those that were connected before are served meanwhile."""
    broker = make_broker().start()
    with bystander(broker) as other:
        other.go_on()
        other.slowest_s = 0.0
        begun_s = time.monotonic()
        with connections(broker, 8_000) as fleet:
            took_s = time.monotonic() - begun_s
            slowest_s = other.slowest_s
            fleet[-1].send(framed(head(18, 0)))
            fleet[-1].answer()
        print(f"8,000 connects took {took_s:.2f} s; the slowest round of another client took {slowest_s:.3f} s")
        assert took_s < 3
        assert slowest_s < 0.5


@pytest.mark.skipif(shutil.which("prlimit") is None, reason="there is no prlimit (util-linux) on this machine")
def test_no_descriptors_left(make_broker: MakeBroker, topic: str) -> None:
    """Accepting pauses and the log says why; whoever is connected goes on, through rolls and checkpoints."""
    broker = make_broker(log__flush__offset__checkpoint__interval__ms="200")
    broker.wrapper = ["prlimit", "--nofile=150:150"]
    broker.start()
    create(broker.bootstrap, topic, segment_bytes="1000")
    with bystander(broker) as other, RawConnection(broker.bootstrap) as producer:
        request = produce_request(topic, bytes(encode_batch(values(20))))
        frame = codec.encode_request(request, 1, "test")
        with connections(broker, 80):  # the rest waits in the queue of socket.listen.backlog.size
            broker.wait_for_log("accepting pauses")
            assert "ulimit -n" in broker.log_text
            assert "127.0.0.1 (" in broker.log_text
            for _ in range(60):  # a new segment each second time or so
                producer.send(frame)
                assert b"\0\0" in producer.answer()
            other.go_on(50)
        with RawConnection(broker.bootstrap) as late:
            late.send(framed(head(18, 0)))
            late.answer()
    assert offsets(broker.bootstrap, topic)[1] > 0
    assert "offline" not in broker.log_text, broker.log_text
    (end,) = {offsets(broker.bootstrap, topic)[1]}
    broker.kill()
    broker.wrapper = []
    broker.start()
    assert offsets(broker.bootstrap, topic)[1] == end


@pytest.mark.skipif(shutil.which("prlimit") is None, reason="there is no prlimit (util-linux) on this machine")
def test_more_partitions_in_one_request_than_descriptors(make_broker: MakeBroker, topic: str) -> None:
    """Each has bytes to flush, so none of their files may be let go: some are refused, no log dir is at fault."""
    broker = make_broker()
    broker.wrapper = ["prlimit", "--nofile=220:220"]
    broker.start()
    partitions = 260
    create(broker.bootstrap, topic, partitions)
    batch = bytes(encode_batch(values(1, 5000)))
    acknowledged = dict.fromkeys(range(partitions), 0)
    refused = 0
    to_all = produce_request(topic, dict.fromkeys(acknowledged, batch))
    for _ in range(3):
        answer = answered(broker.bootstrap, to_all)
        for one in answer.responses[0].partition_responses:
            assert error(one) in (0, STORAGE), one
            acknowledged[one.index] += error(one) == 0
            refused += error(one) == STORAGE
    assert "offline" not in broker.log_text
    for number in [number for number, count in acknowledged.items() if not count][:20]:
        produce(broker.bootstrap, topic, [values(1)], partition=number)  # alone it finds one
        acknowledged[number] = 1
    broker.kill()
    broker.wrapper = []
    broker.start()
    asked = offsets_request(topic, -1, *range(partitions))
    answer = answered(broker.bootstrap, asked)
    ends = {one.partition_index: one.offset for one in answer.topics[0].partitions}
    assert all(ends[number] > 0 for number, count in acknowledged.items() if count), "acknowledged and gone"
    print("refused", refused)


def test_idle_connections_are_closed_and_busy_ones_are_not(make_broker: MakeBroker) -> None:
    broker = make_broker(connections__max__idle__ms="1500").start()
    with bystander(broker), RawConnection(broker.bootstrap) as idle, RawConnection(broker.bootstrap) as busy:
        began = time.monotonic()
        idle.socket.setblocking(False)
        while time.monotonic() - began < 15:
            busy.send(framed(head(18, 0)))
            busy.answer()
            with contextlib.suppress(BlockingIOError):
                assert idle.socket.recv(1) == b""
                break
            time.sleep(0.05)
        assert 1.4 < time.monotonic() - began < 10
        busy.send(framed(head(18, 0)))
        busy.answer()


def test_a_long_poll_whose_client_goes_away(besieged: RunningBroker, topic: str) -> None:
    broker = besieged
    create(broker.bootstrap, topic)
    request = codec.encode_request(fetch_request(topic, 0, max_wait_ms=60_000), 1, "gone")
    with bystander(broker):
        with connections(broker, 2 * OWN_DESCRIPTORS) as gone:
            for one in gone:
                one.send(request)
        until(lambda: open_descriptors(broker.pid) <= OWN_DESCRIPTORS)
        produce(broker.bootstrap, topic, [values(1)])


def test_a_peer_that_resets_in_the_middle(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, [values(10, 50_000)])
    linger_0 = b"\1\0\0\0\0\0\0\0"
    with bystander(broker):
        for _ in range(20):
            with RawConnection(broker.bootstrap, receive_buffer_bytes=4096) as one:
                one.send(codec.encode_request(fetch_request(topic, 0, max_bytes=MEGABYTE), 1, "rude") * 3)
                one.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_0)
