"""Bytes that mean nothing: the connection ends with a line that names the peer, the broker goes on for all others."""

from __future__ import annotations

import random
import struct
from typing import Any

from klog.protocol.apis import ApiKey
from klog.record.records import encode_batch
from klog.render.log_lines import PEER_LINES_EVERY_S, PEER_LINES_MAX
from klog.server import handlers
from tests.broker_fixture import RunningBroker
from tests.chance import seed_of
from tests.rows import each
from tests.server.asking import ask, borders, create, error, metadata, offsets, produce, produce_raw, values
from tests.server.wire import RawConnection, bystander, fetched, framed, head, resident_bytes

assert handlers  # imported for the table of what is served

FRAME_BYTES_MAX = 104857600
API_VERSIONS_3 = head(18, 3) + b"\0" + b"\5test" + b"\2" + b"1" + b"\0"


# --- Frames ---


def test_random_bytes(broker: RunningBroker) -> None:
    elsewhere = "127.66.0.1"  # so much is wrong with this one that the broker no longer logs each
    chance = random.Random(seed_of("random bytes"))
    with bystander(broker):
        for _ in range(100):
            with RawConnection(broker.bootstrap, source_address=elsewhere) as connection:
                connection.send(chance.randbytes(chance.randrange(1, 3000)))
                connection.end_of_sending()
                assert connection.is_closed_by_broker()


def test_a_peer_that_errs_in_a_loop_does_not_fill_the_log(broker: RunningBroker) -> None:
    for _ in range(PEER_LINES_MAX + 20):
        with RawConnection(broker.bootstrap, source_address="127.66.0.2") as connection:
            connection.send(struct.pack(">i", 0))
            assert connection.is_closed_by_broker()
    lines = [line for line in broker.log_text.splitlines() if "127.66.0.2:" in line]
    assert len(lines) == PEER_LINES_MAX
    assert lines[-1].endswith(f"{PEER_LINES_EVERY_S:g} s)")


@each("other", [b"GET / HTTP/1.1\r\nHost: klog\r\n\r\n", b"\x16\x03\x01\x02\0\x01\0", b"ruok", b"\r\n"])
def test_other_protocols(broker: RunningBroker, other: bytes) -> None:
    with bystander(broker), RawConnection(broker.bootstrap) as connection:
        connection.send(other)
        connection.end_of_sending()
        assert connection.is_closed_by_broker()


def test_the_limit_of_a_frame_can_be_set(make_broker: Any, topic: str) -> None:
    broker = make_broker(socket__request__max__bytes="5000", message__max__bytes="100000").start()
    create(broker.bootstrap, topic)
    with bystander(broker), RawConnection(broker.bootstrap) as connection:
        connection.send(struct.pack(">i", 5001))
        assert connection.is_closed_by_broker()
        produce(broker.bootstrap, topic, [values(1, 4000)])


def test_a_length_too_short_for_its_request(broker: RunningBroker) -> None:
    with bystander(broker), RawConnection(broker.bootstrap) as connection:
        connection.send(struct.pack(">i", len(API_VERSIONS_3) - 4) + API_VERSIONS_3)
        assert connection.is_closed_by_broker()
        broker.wait_for_log(connection.name)


def test_announced_megabytes_that_never_come_cost_nothing(make_broker: Any) -> None:
    broker = make_broker().start()
    with bystander(broker):
        before = resident_bytes(broker.pid)
        connections = [RawConnection(broker.bootstrap) for _ in range(300)]
        try:
            for connection in connections:
                connection.send(struct.pack(">i", FRAME_BYTES_MAX) + head(0, 8))
            with RawConnection(broker.bootstrap) as last:  # behind all the others, so they have been read
                last.send(framed(API_VERSIONS_3))
                last.answer()
            assert resident_bytes(broker.pid) - before < 60_000_000
        finally:
            for connection in connections:
                connection.socket.close()


# --- Heads ---


@each(
    "body",
    [
        b"\0",
        head(18, 0)[:9],
        struct.pack(">hhih", 18, 0, 7, 500) + b"short",
        struct.pack(">hhih", 18, 0, 7, -2),
        head(18, 0, client_id=b"\xff\xfe"),
        head(18, 3) + b"\xff\xff\xff\xff\xff\xff",
        head(18, 3) + b"\1\0\xff\xff\x03",
        head(3, 1) + struct.pack(">i", 2**31 - 1),
        head(3, 1) + struct.pack(">ih", 1, 32767) + b"a",
        head(3, 1) + struct.pack(">ih", 1, -5),
        head(3, 9) + b"\0" + b"\xff\xff\xff\xff\x0f",
        head(1, 4) + b"\0" * 5,
        head(0, 8) + struct.pack(">hhii", -1, -1, 1000, 2**31 - 1),
        head(0, 8) + struct.pack(">hhii", -1, -1, 1000, 300_000) + bytes(6 * 300_000),
        head(1, 4) + struct.pack(">iiiibi", -1, 0, 0, 0, 0, 1) + struct.pack(">hi", 0, 300_000) + bytes(16 * 300_000),
        head(3, 1) + struct.pack(">i", 300_000) + bytes(2 * 300_000),
        head(0, 8)
        + struct.pack(">hhii", -1, -1, 1000, 1)
        + struct.pack(">h", 1)
        + b"t"
        + struct.pack(">iii", 1, 0, 99),
    ],
    ids=lambda body: f"{len(body)} bytes",
)
def test_requests_that_do_not_parse(broker: RunningBroker, body: bytes) -> None:
    with bystander(broker), RawConnection(broker.bootstrap) as connection:
        connection.send(framed(body))
        connection.end_of_sending()
        if body == struct.pack(">hhih", 18, 0, 7, -2):  # any negative length is taken for null
            assert connection.answer()[:6] == struct.pack(">ih", 7, 0)
            return
        assert connection.is_closed_by_broker()
        broker.wait_for_log(connection.name)


@each(("key", "version"), [(3, 13), (3, -1), (8, 1), (999, 0), (-1, 0), (32767, 32767), (10002, 1)])
def test_an_unknown_key_or_version(broker: RunningBroker, key: int, version: int) -> None:
    with bystander(broker), RawConnection(broker.bootstrap) as connection:
        connection.send(framed(head(key, version) + b"\0" * 30))
        assert connection.is_closed_by_broker()
        broker.wait_for_log(connection.name)


@each("version", [0, 1, 2])
def test_old_produce_versions_are_listed_and_refused(broker: RunningBroker, version: int) -> None:
    with RawConnection(broker.bootstrap) as connection:
        connection.send(framed(head(18, 0)))
        answer = connection.answer()
        count = struct.unpack_from(">i", answer, 6)[0]
        listed = {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", answer[10 : 10 + 6 * count])}
        assert listed[0] == (0, 9)
        assert listed[3] == (0, 9), "versions with topic ids are for klog's own tools"
        assert max(listed) < 10000
        connection.send(framed(head(0, version) + b"\0" * 30))
        assert connection.is_closed_by_broker()


@each("version", [5, 99, 32767, -1])
def test_unknown_versions_of_api_versions_are_answered_in_version_0s_form(broker: RunningBroker, version: int) -> None:
    with bystander(broker), RawConnection(broker.bootstrap) as connection:
        connection.send(framed(head(18, version, 41) + b"\0" + b"whatever that version has"))
        answer = connection.answer()
        correlation_id, code, count = struct.unpack_from(">ihi", answer)
        assert (correlation_id, code) == (41, 35)
        assert len(answer) == 10 + 6 * count, "there is more, or less, than version 0 has"
        listed = {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", answer[10:])}
        assert listed[18] == (0, 4)
        connection.send(framed(API_VERSIONS_3))
        assert connection.answer()[:6] == struct.pack(">ih", 7, 0)


# --- Names, places ---


@each("name", ["", ".", "..", "a/b", "../../etc", "a b", "a\0b", "ü", "a" * 250, "a" * 32767])
def test_bad_topic_names_are_never_made(broker: RunningBroker, name: str) -> None:
    with bystander(broker):
        (found,) = metadata(broker.bootstrap, [name], 5, allow_auto_topic_creation=True).topics
        assert (error(found), found.name, found.partitions) == (17, name, ())
        assert ask_to_produce(broker, name) in (3, 17)


def ask_to_produce(broker: RunningBroker, topic: str, partition: int = 0, version: int = 8) -> int:
    return error(produce_raw(broker.bootstrap, topic, bytes(encode_batch(values(1))), partition, version))


@each("version", [3, 7, 8, 9])
def test_producing_to_what_is_not_there(broker: RunningBroker, topic: str, version: int) -> None:
    with bystander(broker):
        assert ask_to_produce(broker, topic, version=version) == 3
        create(broker.bootstrap, topic)
        for partition in (1, -1, 2**31 - 1):
            assert ask_to_produce(broker, topic, partition, version) == 3
        assert offsets(broker.bootstrap, topic) == (0, 0)


@each("version", borders(ApiKey.FETCH, range(4, 13)))
def test_fetching_from_where_nothing_is(broker: RunningBroker, topic: str, version: int) -> None:
    create(broker.bootstrap, topic)
    first, second = produce(broker.bootstrap, topic, [values(10), values(10)])
    partitions = [{"partition_index": 0, "offset": first + 3}]
    ask(broker.bootstrap, ApiKey.DELETE_RECORDS, 2, topics=[{"name": topic, "partitions": partitions}], timeout=1000)

    def fetch(offset: int, name: str = topic, partition: int = 0) -> tuple[int, bytes]:
        one = fetched(broker.bootstrap, name, offset, version=version, partition=partition)
        return error(one), bytes(one.records or b"")

    with bystander(broker):
        assert fetch(first + 2) == (1, b""), "below the start"
        assert fetch(-1) == (1, b"")
        assert fetch(2**62) == (1, b"")
        assert fetch(0, topic + "-missing") == (3, b"")
        assert fetch(0, partition=5) == (3, b"")
        assert fetch(second + 10) == (0, b""), "where every client arrives"
        end_address = second + len(fetch(second)[1])
        assert fetch(end_address) == (0, b""), "between the last record and the log's end"
        assert fetch(end_address + 1) == (1, b"")
        code, records = fetch(first + 3)
        assert (code, struct.unpack_from(">q", records)[0]) == (0, first)
        code, records = fetch(first + 10)
        assert (code, struct.unpack_from(">q", records)[0]) == (0, second), "in the hole between two batches"


@each("version", [10, 11, 12])
def test_a_topic_asked_for_without_a_name(broker: RunningBroker, version: int) -> None:
    """Asking by id alone is not served; the answer of versions 10 and 11 could not even say so."""
    with bystander(broker), RawConnection(broker.bootstrap) as connection:
        connection.send(framed(head(ApiKey.METADATA, version) + b"\x00\x02" + bytes(16) + b"\x00\x00\x01\x00\x00\x00"))
        assert connection.is_closed_by_broker()
