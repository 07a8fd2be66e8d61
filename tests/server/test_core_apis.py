"""The requests that clients live by, against a real broker: each in every version that is served."""

from __future__ import annotations

import struct
import threading
import time
from typing import Any

from klog.errors import NotLeader
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.record.batch import walk
from klog.record.records import Record, decode_batch, encode_batch
from tests.broker_fixture import RunningBroker
from tests.rows import each
from tests.server.asking import (
    answered,
    ask,
    borders,
    create,
    error,
    metadata,
    offsets,
    offsets_request,
    produce,
    produce_raw,
    produce_request,
    until,
    values,
    with_channel,
)
from tests.server.wire import RawConnection, fetch_request, fetched, framed, head

OUT_OF_RANGE, UNKNOWN_TOPIC, NO_LEADER, FENCED, UNKNOWN_EPOCH = 1, 3, 5, 74, 75
NOT_SAID = -(2**31)
OUT_OF_ORDER, BAD_PRODUCER_EPOCH = 45, 47

LISTED = {
    0: (0, 9),
    1: (4, 12),
    2: (1, 7),
    3: (0, 9),
    10: (0, 4),
    18: (0, 4),
    19: (2, 7),
    20: (1, 6),
    21: (0, 2),
    22: (0, 4),
    23: (2, 4),
    32: (1, 4),
    33: (0, 2),
    35: (1, 4),
    37: (0, 3),
    44: (0, 1),
    60: (0, 1),
}
"""What stock clients are told, so that each finds all that it needs and nothing that changes its mind."""
NEVER_LISTED = {24, 25, 26, 28, 68, 69, 71, 72, 75, 76, 77, 78, 79}
"""Requests that clients send because they are offered, and that klog does not serve."""


# --- ApiVersions ---


@each("version", borders(ApiKey.API_VERSIONS, range(5)))
def test_what_is_listed(broker: RunningBroker, version: int) -> None:
    asked = {"client_software_name": "some-client", "client_software_version": "1"}
    answer = ask(broker.bootstrap, ApiKey.API_VERSIONS, version, **asked)
    assert error(answer) == 0
    listed = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
    assert {key: listed.get(key) for key in LISTED} == LISTED
    assert not listed.keys() & NEVER_LISTED
    assert max(listed) < 10000


def test_klogs_own_requests_are_listed_for_klogs_own_tools(broker: RunningBroker) -> None:
    asked = {"client_software_name": "klog", "client_software_version": "1"}
    answer = ask(broker.bootstrap, ApiKey.API_VERSIONS, 3, **asked)
    listed = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
    assert {10000, 10001, 10002, 10003, 10004} <= listed.keys()
    assert listed[3] == (0, 12)


# --- Metadata ---


@each("version", borders(ApiKey.METADATA, range(13)))
def test_metadata(broker: RunningBroker, topic: str, version: int) -> None:
    create(broker.bootstrap, topic, 2)
    names = [topic, topic + "-missing"] if version >= 4 else [topic]
    answer = metadata(broker.bootstrap, names, version)
    assert [f"{one.host}:{one.port}" for one in answer.brokers] == [broker.bootstrap]
    found = {one.name: one for one in answer.topics}
    assert error(found[topic]) == 0
    parts = [(one.partition_index, one.leader_id, tuple(one.replica_nodes)) for one in found[topic].partitions]
    assert parts == [(0, 1, (1,)), (1, 1, (1,))]
    if version >= 1:
        assert answer.controller_id == 1
    if version >= 2:
        assert len(answer.cluster_id) == 22
    if version >= 4:
        assert error(found[topic + "-missing"]) == UNKNOWN_TOPIC
    if version >= 7:
        assert [one.leader_epoch for one in found[topic].partitions] == [0, 0]
    everything = metadata(broker.bootstrap, None if version else [], version)
    assert topic in {one.name for one in everything.topics}
    if version >= 1:
        assert metadata(broker.bootstrap, [], version).topics == ()


@each("version", borders(ApiKey.METADATA, range(8, 13)))
def test_who_asks_what_one_may_do_hears_that_it_is_everything(broker: RunningBroker, topic: str, version: int) -> None:
    """As a broker of Kafka's without an authorizer says it; librdkafka's own tests count the operations."""
    create(broker.bootstrap, topic)

    def operations(wanted: bool) -> list[int]:
        flags = {f"include_{one}_authorized_operations": wanted for one in ("cluster", "topic")}
        answer = metadata(broker.bootstrap, (topic, topic + "-missing"), version, **flags)
        cluster = [answer.cluster_authorized_operations] if version <= 10 else []
        return cluster + [one.topic_authorized_operations for one in answer.topics]

    topics_bits = sum(1 << one for one in (3, 4, 5, 6, 7, 8, 10, 11))
    cluster_bits = sum(1 << one for one in (5, 7, 8, 9, 10, 11, 12))
    assert operations(wanted=True)[-2:] == [topics_bits, NOT_SAID]
    assert set(operations(wanted=False)) == {NOT_SAID}
    if version <= 10:
        assert operations(wanted=True)[0] == cluster_bits


@each("version", [1, 4, 9])
def test_a_producer_makes_the_topic_that_is_missing(broker: RunningBroker, topic: str, version: int) -> None:
    deadline = time.monotonic() + 10
    codes = set()
    while True:
        (found,) = metadata(broker.bootstrap, [topic], version, allow_auto_topic_creation=True).topics
        codes |= {error(one) for one in (found, *found.partitions)}
        if found.partitions and found.partitions[0].leader_id == 1:
            break
        assert time.monotonic() < deadline
    assert codes <= {0, NO_LEADER}
    produce(broker.bootstrap, topic, [values(1)])


def test_no_topic_is_made_where_that_is_switched_off(make_broker: Any, topic: str) -> None:
    broker = make_broker(auto__create__topics__enable="false").start()
    for _ in range(2):
        (found,) = metadata(broker.bootstrap, [topic], allow_auto_topic_creation=True).topics
        assert error(found) == UNKNOWN_TOPIC


def test_topics_that_clients_ask_for_are_made_at_a_rate(make_broker: Any, topic: str) -> None:
    """At a topic a second ten at once; the others when they are asked for again, and all in the end."""
    broker = make_broker(klog__auto__create__topics__per__second="1").start()
    names = [f"{topic}-{number}" for number in range(12)]
    deadline = time.monotonic() + 60
    codes: set[int] = set()
    at_first = None
    while at_first is None or codes != {0}:
        assert time.monotonic() < deadline, "they are never made"
        codes = {error(one) for one in metadata(broker.bootstrap, names, allow_auto_topic_creation=True).topics}
        assert codes <= {0, NO_LEADER}, "who is put off asks again"
        there = len(metadata(broker.bootstrap, None).topics)
        at_first = there if at_first is None else at_first
        time.sleep(0.1)
    assert at_first < len(names)
    assert "klog.auto.create.topics.per.second" in broker.log_text


# --- Produce, Fetch ---


@each("version", borders(ApiKey.PRODUCE, range(3, 10)))
@each("acks", [-1, 1])
def test_produce(broker: RunningBroker, topic: str, version: int, acks: int) -> None:
    create(broker.bootstrap, topic, 2)
    batch = bytes(encode_batch(values(10)))

    async def twice(channel: Any) -> list[Any]:
        request = produce_request(topic, batch, 1, version, acks)
        return [(await channel.request(request)).responses[0] for _ in range(2)]

    first, second = with_channel(broker.bootstrap, twice)
    assert (first.name, first.partition_responses[0].index) == (topic, 1)
    assert [error(one.partition_responses[0]) for one in (first, second)] == [0, 0]
    assert [one.partition_responses[0].base_offset for one in (first, second)] == [0, len(batch)]
    if version >= 5:
        assert first.partition_responses[0].log_start_offset == 0
    until(lambda: offsets(broker.bootstrap, topic, 1) == (0, len(batch) + 10))  # with acks=1 visible a flush later


def test_produce_without_an_answer(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    with RawConnection(broker.bootstrap) as connection:
        request = codec.encode_request(produce_request(topic, bytes(encode_batch(values(5))), acks=0), 1, "test")
        connection.send(request * 3 + framed(head(18, 0)))
        assert connection.answer()[:4] == struct.pack(">i", 7), "something was answered before ApiVersions"
    until(lambda: len(read_all(broker, topic)) == 15)


def read_all(broker: RunningBroker, topic: str, version: int = 11) -> list[Record]:
    async def read(channel: Any) -> list[Record]:
        records: list[Record] = []
        while True:
            start = records[-1].offset + 1 if records else 0
            answer = await channel.request(fetch_request(topic, start, version=version))
            one = answer.responses[0].partitions[0]
            assert error(one) == 0, one
            data = bytearray(one.records or b"")
            if not data:
                assert start == (one.high_watermark if records else start)
                return records
            for at, _ in walk(data):
                records += [record for record in decode_batch(data, at) if record.offset >= start]

    return with_channel(broker.bootstrap, read)


@each("version", borders(ApiKey.FETCH, range(4, 13)))
def test_fetch(broker: RunningBroker, topic: str, version: int) -> None:
    create(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, [values(10), values(5), values(1)])
    assert [record.value for record in read_all(broker, topic, version)] == [
        record.value for count in (10, 5, 1) for record in values(count)
    ]


def test_a_fetch_gives_at_least_one_batch_however_small_its_limits(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, [values(10), values(10)])
    for limits in ({"max_bytes": 1}, {"partition_max_bytes": 1}, {"max_bytes": 0, "partition_max_bytes": 0}):
        assert len(list(walk(bytearray(fetched(broker.bootstrap, topic, 0, **limits).records)))) == 1, limits


def test_a_fetch_waits_for_data_and_no_longer(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)

    def fetch(wait_ms: int, min_bytes: int = 1) -> tuple[float, bytes]:
        began = time.monotonic()
        records = fetched(broker.bootstrap, topic, 0, max_wait_ms=wait_ms, min_bytes=min_bytes).records
        return time.monotonic() - began, bytes(records or b"")

    took_s, data = fetch(300)
    assert data == b""
    assert took_s >= 0.3
    producer = threading.Timer(0.3, produce, (broker.bootstrap, topic, [values(1)]))
    producer.start()
    took_s, data = fetch(60_000)
    producer.join()
    assert data
    assert took_s < 60, "the answer comes with the data, not with the end of the wait"
    took_s, data = fetch(300, min_bytes=1_000_000)
    assert data, "what there is, when the time is over"
    assert took_s >= 0.3


def test_a_long_poll_ends_when_its_topic_goes(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    with RawConnection(broker.bootstrap) as waiting:
        waiting.send(codec.encode_request(fetch_request(topic, 0, max_wait_ms=60_000), 1, "test"))
        waiting.send(codec.encode_request(codec.request(ApiKey.API_VERSIONS, 0), 2, "test"))
        ask(broker.bootstrap, ApiKey.DELETE_TOPICS, 5, timeout=10_000, topic_names=[topic])
        _, answer = codec.decode_response(waiting.answer(), ApiKey.FETCH, 11)
        assert error(answer.responses[0].partitions[0]) in (3, 6)
        assert waiting.answer()[:4] == b"\0\0\0\2"


def test_requests_of_one_connection_are_answered_in_order(broker: RunningBroker, topic: str) -> None:
    """A long poll first: what comes after it waits for it, on this connection and no other."""
    create(broker.bootstrap, topic)
    with RawConnection(broker.bootstrap) as connection:
        connection.send(codec.encode_request(fetch_request(topic, 0, max_wait_ms=60_000), 1, "test"))
        for number in range(2, 30):
            connection.send(framed(head(18, 0, number)))
        with RawConnection(broker.bootstrap) as other:
            other.send(framed(head(18, 0, 99)))
            other.answer()  # a minute before the long poll ends by itself
        produce(broker.bootstrap, topic, [values(1)])
        got = [struct.unpack_from(">i", connection.answer())[0] for _ in range(29)]
        assert got == list(range(1, 30))


def test_a_wrong_leader_epoch_makes_clients_look_again(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    for epoch, code in ((5, UNKNOWN_EPOCH), (0, 0), (-1, 0)):
        assert error(fetched(broker.bootstrap, topic, 0, epoch=epoch)) == code


# --- ListOffsets, OffsetForLeaderEpoch ---


@each("version", borders(ApiKey.LIST_OFFSETS, range(1, 8)))
def test_list_offsets(broker: RunningBroker, topic: str, version: int) -> None:
    create(broker.bootstrap, topic)
    first, second = produce(broker.bootstrap, topic, [values(10), values(10)])
    first_ms = values(1)[0].timestamp_ms

    def look_up(timestamp: int, partition: int = 0) -> Any:
        asked = offsets_request(topic, timestamp, partition, version=version)
        return answered(broker.bootstrap, asked).topics[0].partitions[0]

    found = {at: look_up(at) for at in (-2, -1, 0, first_ms, first_ms + 3, first_ms + 10)}
    assert {at: (error(one), one.offset) for at, one in found.items()} == {
        -2: (0, 0),
        -1: (0, second + 10),
        0: (0, 0),
        first_ms: (0, 0),
        first_ms + 3: (0, first + 3),
        first_ms + 10: (0, -1),
    }
    assert [found[at].timestamp for at in (-2, -1, first_ms + 3, first_ms + 10)] == [-1, -1, first_ms + 3, -1]
    if version >= 4:
        assert found[first_ms].leader_epoch == 0
    if version >= 7:
        newest = look_up(-3)
        assert (newest.offset, newest.timestamp) == (first + 9, first_ms + 9)
    assert error(look_up(-1, 5)) == UNKNOWN_TOPIC


def test_offset_for_leader_epoch(make_broker: Any, topic: str) -> None:
    """Over a kill, behind which no producer id is given out again either."""
    broker = make_broker().start()
    asked = {"transactional_id": None, "transaction_timeout": 60_000}
    ids = {ask(broker.bootstrap, ApiKey.INIT_PRODUCER_ID, 1, **asked).producer_id}
    create(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, [values(10)])
    broker.kill()
    broker.start()  # leads under a new epoch
    assert ask(broker.bootstrap, ApiKey.INIT_PRODUCER_ID, 1, **asked).producer_id not in ids
    (second,) = produce(broker.bootstrap, topic, [values(10)])
    assert second > 10

    def look_up(version: int, epoch: int, current: int = -1) -> tuple[int, int, int]:
        asked = [{"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}]
        answer = ask(
            broker.bootstrap,
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            version,
            replica_id=-1,
            topics=[{"topic": topic, "partitions": asked}],
        )
        one = answer.topics[0].partitions[0]
        return error(one), one.leader_epoch, one.end_offset

    for version in range(2, 5):
        assert look_up(version, 0) == (0, 0, 10), "where it ended as clients see it: behind its last record"
        assert look_up(version, 1) == (0, 1, second + 10)
        assert look_up(version, 1, 1) == (0, 1, second + 10)
        assert look_up(version, 9)[0] == UNKNOWN_EPOCH
        assert look_up(version, 1, 0)[0] == FENCED
        assert look_up(version, 1, 7)[0] == UNKNOWN_EPOCH


# --- InitProducerId, sequences ---


@each("version", borders(ApiKey.INIT_PRODUCER_ID, range(5)))
def test_producer_ids_are_never_given_twice(broker: RunningBroker, version: int) -> None:
    ids = set()
    for _ in range(3):
        asked = {"transactional_id": None, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
        answer = ask(broker.bootstrap, ApiKey.INIT_PRODUCER_ID, version, **asked)
        assert (error(answer), answer.producer_epoch) == (0, 0)
        ids.add(answer.producer_id)
    assert len(ids) == 3


def test_sequences_of_an_idempotent_producer(make_broker: Any, topic: str) -> None:
    """A repeated batch is acknowledged where it lies, a gap and an older epoch are refused; over a kill as well."""
    broker = make_broker().start()
    create(broker.bootstrap, topic)
    asked = {"transactional_id": None, "transaction_timeout": 60_000}
    producer_id = ask(broker.bootstrap, ApiKey.INIT_PRODUCER_ID, 1, **asked).producer_id

    def send(sequence: int, count: int = 2, epoch: int = 1) -> tuple[int, int]:
        batch = encode_batch(values(count), producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        one = produce_raw(broker.bootstrap, topic, bytes(batch))
        return error(one), one.base_offset

    def settled(sequence: int) -> tuple[int, int]:
        """The answer once nothing can be under way any more that was refused before this broker led."""
        deadline = time.monotonic() + 30
        while send(sequence)[0] == NotLeader.wire and time.monotonic() < deadline:
            time.sleep(0.2)
        return send(sequence)

    # An id that nobody knows may go on anywhere (retention forgets), but not as soon as a broker leads: what it sent
    # before may have been refused, and librdkafka takes one success for that of all before it.
    assert send(4)[0] == NotLeader.wire
    placed = {sequence: send(sequence) for sequence in (0, 2, 4)}
    assert [code for code, _ in placed.values()] == [0, 0, 0]
    assert {sequence: send(sequence) for sequence in (0, 2, 4)} == placed
    assert settled(8)[0] == OUT_OF_ORDER
    assert send(6, epoch=0)[0] == BAD_PRODUCER_EPOCH
    broker.kill()
    broker.start()
    assert send(4) == placed[4]
    # For a while its predecessor may be on its way again, refused by the leader before: librdkafka answers an error
    # about the order with a new epoch in all partitions, and sends twice what is not acknowledged there.
    assert send(8)[0] == NotLeader.wire
    assert settled(8)[0] == OUT_OF_ORDER
    assert send(6)[0] == 0
    assert len(read_all(broker, topic)) == 8


def test_a_topic_that_grows_never_loses_sight_of_its_partitions(broker: RunningBroker, topic: str) -> None:
    """While new partitions are being led, metadata goes on to show those that were there."""
    metadata(broker.bootstrap, [topic], allow_auto_topic_creation=True)
    grown = threading.Event()
    seen: list[int] = []

    def watch() -> None:
        while not grown.is_set():
            (found,) = metadata(broker.bootstrap, [topic]).topics
            seen.append(min((one.partition_index for one in found.partitions), default=-1))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for count in (4, 8, 12):
            wanted = [{"name": topic, "count": count, "assignments": None}]
            ask(broker.bootstrap, ApiKey.CREATE_PARTITIONS, 3, topics=wanted, timeout=10_000, validate_only=False)
    finally:
        grown.set()
        watcher.join()
    assert seen
    assert set(seen) == {0}
