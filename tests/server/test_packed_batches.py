"""Compressed batches that are more than they seem: looked into beside the event loop, bounded, in their order.

Rule P1.
"""

from __future__ import annotations

import contextlib
import secrets
import struct
import time
from collections.abc import Iterator

import cramjam
import pytest

from klog.coordination.embedded import ZooKeeperServer
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.record.batch import BatchHeader, write_header
from klog.record.codec import Codec
from klog.record.records import Record, encode_batch
from tests.broker_fixture import RunningBroker
from tests.rows import each
from tests.server.asking import FIRST_MS, ask, create, error, offsets, produce_raw, produce_request, values
from tests.server.test_produce_at import facts, one, produce_at
from tests.server.wire import RawConnection, bystander

TOO_LARGE, BAD_TIMESTAMP, BAD_RECORD = 10, 32, 87
TINY = bytes([12, 0, 0, 0, 1, 1, 0])


@pytest.fixture(scope="module")
def broker(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One of these tests alone: whoever lists all topics would look into their millions of records again."""
    chroot = f"{zookeeper.address}/packed-{secrets.token_hex(4)}"
    with RunningBroker(tmp_path_factory.mktemp("packed"), chroot).running() as made:
        yield made


def sealed(body: bytes, which: Codec, count: int, max_ms: int) -> bytes:
    batch = bytearray(61) + body
    write_header(
        batch, 0, BatchHeader(0, len(batch) - 12, -1, 2, 0, which, count - 1, FIRST_MS, max_ms, -1, -1, -1, count)
    )
    return bytes(batch)


def bomb(count: int = 30_000_000) -> bytes:
    """Zstd frames of tiny records behind a frame that is skipped, so that so many records seem possible."""
    piece = bytes(cramjam.zstd.compress(TINY * 1_000_000))
    packed = piece * (count // 1_000_000)
    padding = count // 64 + 100 - len(packed)
    assert padding > 0
    return sealed(struct.pack("<II", 0x184D2A50, padding) + bytes(padding) + packed, Codec.ZSTD, count, -1)


@each("max_ms", [-1, FIRST_MS], ids=["to be settled", "to be counted"])
def test_as_much_as_is_allowed_holds_nobody_up(broker: RunningBroker, topic: str, max_ms: int) -> None:
    create(broker.bootstrap, topic)
    count = 2_000_000
    body = bytes(cramjam.lz4.compress(TINY * count))
    with bystander(broker):
        assert error(produce_raw(broker.bootstrap, topic, sealed(body, Codec.LZ4, count, max_ms))) == 0
    assert offsets(broker.bootstrap, topic) == (0, count)


def test_one_address_waits_for_another_no_longer_than_its_share(broker: RunningBroker, topic: str) -> None:
    """By the order in which batches are appended: no clock is asked."""
    create(broker.bootstrap, topic, segment_bytes="1000000000")
    count, floods, asked = 500_000, 20, 2
    large = sealed(bytes(cramjam.lz4.compress(TINY * count)), Codec.LZ4, count, FIRST_MS)
    small = bytes(encode_batch(values(5_000), codec=Codec.LZ4))
    with contextlib.ExitStack() as stack:

        def connect(address: str) -> RawConnection:
            return stack.enter_context(RawConnection(broker.bootstrap, source_address=address))

        flood, other = [connect("127.0.0.2") for _ in range(floods)], connect("127.0.0.1")
        for one in flood:
            one.send(codec.encode_request(produce_request(topic, large, acks=1), 1, "flood"))
        other.send(codec.encode_request(produce_request(topic, small, acks=1), 1, "other") * asked)
        appended = [(base_offset(other), "o") for _ in range(asked)] + [(base_offset(one), "f") for one in flood]
    order = "".join(name for _, name in sorted(appended))
    # Each batch of the other one waits for the two that are being looked into and for one that has its turn first. What
    # is left when it has been served is what the flood could not put in front of it.
    assert order.count("f", order.index("o"), order.rindex("o")) <= 4 * asked, order
    assert order.count("f", order.rindex("o")) >= floods // 4, order


def base_offset(connection: RawConnection) -> int:
    _, found = codec.decode_response(connection.answer(), ApiKey.PRODUCE, 8)
    one = found.responses[0].partition_responses[0]
    assert error(one) == 0
    return int(one.base_offset)


def test_what_is_sent_behind_a_batch_stays_behind_it(broker: RunningBroker, topic: str) -> None:
    """Requests in one piece on one connection: one that takes long to look into, and small ones of its producer."""
    create(broker.bootstrap, topic)
    producer = {"producer_id": 77_000_000, "producer_epoch": 0}
    large = bytes(encode_batch(values(30_000), codec=Codec.ZSTD, base_sequence=0, **producer))
    small = [bytes(encode_batch(values(1), base_sequence=30_000 + at, **producer)) for at in range(20)]
    with RawConnection(broker.bootstrap) as connection:
        requests = [
            codec.encode_request(produce_request(topic, batch), number, "test")
            for number, batch in enumerate([large, *small])
        ]
        connection.send(b"".join(requests))
        found = [codec.decode_response(connection.answer(), ApiKey.PRODUCE, 8) for _ in requests]
    assert [number for number, _ in found] == list(range(21))
    answers = [answer.responses[0].partition_responses[0] for _, answer in found]
    assert [error(one) for one in answers] == [0] * 21
    bases = [one.base_offset for one in answers]
    assert bases == sorted(bases)


def test_one_partition_that_is_refused_does_not_spoil_the_others(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic, 3)
    large = bytes(encode_batch(values(20_000), codec=Codec.GZIP))
    lying = sealed(bytes(cramjam.zstd.compress(TINY * 5_000)), Codec.ZSTD, 4_000 - 1, FIRST_MS)
    data = [
        {"index": number, "records": one} for number, one in enumerate([large, lying, bytes(encode_batch(values(3)))])
    ]
    request = {"acks": -1, "timeout": 10_000, "topic_data": [{"name": topic, "partition_data": data}]}
    answer = ask(broker.bootstrap, ApiKey.PRODUCE, 8, **request)
    assert [error(one) for one in answer.responses[0].partition_responses] == [0, BAD_RECORD, 0]
    assert [offsets(broker.bootstrap, topic, number)[1] for number in range(3)] == [20_000, 0, 3]


def test_conditional_appends_are_looked_into_too(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    epoch, _ = facts(broker.bootstrap, topic)
    lying = sealed(bytes(cramjam.zstd.compress(TINY * 50_000)), Codec.ZSTD, 7, FIRST_MS)
    for records, wanted in ((bomb(), TOO_LARGE), (lying, BAD_RECORD)):
        (refused,) = produce_at(broker.bootstrap, {**one(topic, 0, epoch), "records": records})
        assert error(refused) == wanted
    good = bytes(encode_batch(values(20_000), codec=Codec.ZSTD))
    (taken,) = produce_at(broker.bootstrap, {**one(topic, 0, epoch), "records": good})
    assert (error(taken), taken.base_offset) == (0, 0)
    assert offsets(broker.bootstrap, topic) == (0, 20_000)


def test_without_acks_a_refusal_ends_the_connection(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    lying = sealed(bytes(cramjam.zstd.compress(TINY * 50_000)), Codec.ZSTD, 7, FIRST_MS)
    with RawConnection(broker.bootstrap) as connection:
        connection.send(codec.encode_request(produce_request(topic, lying, acks=0), 1, "test"))
        assert connection.is_closed_by_broker()


def test_a_connection_that_ends_meanwhile(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    with bystander(broker):
        for _ in range(5):
            with RawConnection(broker.bootstrap) as connection:
                connection.send(codec.encode_request(produce_request(topic, bomb(4_000_000)), 1, "test"))


# --- timestamps ---


@each("which", [Codec.NONE, Codec.LZ4])
def test_a_timestamp_far_ahead_is_refused_and_its_record_named(broker: RunningBroker, topic: str, which: Codec) -> None:
    create(broker.bootstrap, topic)
    year_9999_ms = 253_402_000_000_000
    rows = [*values(4), Record(0, year_9999_ms, None, b"late")]
    for version in (3, 8, 9):
        one = produce_raw(broker.bootstrap, topic, bytes(encode_batch(rows, codec=which)), version=version)
        assert error(one) == BAD_TIMESTAMP
        if version >= 8:
            assert "message.timestamp.after.max.ms" in one.error_message
            (named,) = one.record_errors
            assert named.batch_index == 4
            assert str(year_9999_ms) in named.batch_index_error_message
    soon = [Record(0, time.time_ns() // 1_000_000 + 50 * 60_000, None, b"soon")]
    assert error(produce_raw(broker.bootstrap, topic, bytes(encode_batch(soon, codec=which)))) == 0


def test_a_topics_own_bounds(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic, message_timestamp_before_max_ms="600000", message_timestamp_after_max_ms="1000000")
    now_ms = time.time_ns() // 1_000_000  # a test that comes late in a run is far from FIRST_MS
    fine = [Record(number, now_ms, None, b"fine") for number in range(5_000)]
    late = [Record(0, now_ms + 2_000_000, None, b"late")]
    old = [*fine[:1], Record(0, now_ms - 700_000, None, b"old")]
    none = [Record(0, -1, None, b"none")]
    found = [
        error(produce_raw(broker.bootstrap, topic, bytes(encode_batch(rows, codec=which))))
        for rows in (late, old, none, fine)
        for which in (Codec.NONE, Codec.ZSTD)
    ]
    assert found == [BAD_TIMESTAMP] * 4 + [0] * 4
