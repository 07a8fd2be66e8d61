"""Positions resolved by a real broker, and where messages lie."""

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from klog.admin.offsets import OffsetRow, list_offsets
from klog.client.cluster import Cluster
from klog.client.positions import parse_position, parse_range
from klog.client.resolve import resolve
from klog.errors import InvalidTopic, OffsetOutOfRange, UnknownTopicOrPartition
from klog.names import TopicPartition
from klog.render.values import moment
from klog.tools.where import where
from tests.broker_fixture import RunningBroker
from tests.tools.verbs import make_topic, read, run, send, send_at

TIMES_MS = [1_700_000_000_000 + 1000 * i for i in range(10)]


@pytest.fixture
def sent(broker: RunningBroker, topic: str) -> Iterator[list[int]]:
    """Ten messages, a second apart, in batches of three; their offsets, which are addresses with gaps."""
    make_topic(broker.bootstrap, topic, 2, retention_ms="-1")
    receipt = send_at(broker.bootstrap, topic, TIMES_MS, in_batches_of=3)
    assert receipt.messages == 10
    offsets = []
    for when in TIMES_MS:
        row, _ = at(broker, topic, f"@{when}")
        offsets.append(row.offset)
    assert offsets == sorted(set(offsets))
    assert offsets[-1] == receipt.partitions[0].last_offset
    assert offsets[-1] > 9, "addresses, not counts"
    yield offsets


def at(broker: RunningBroker, topic: str, position: str) -> list[OffsetRow]:
    return run(broker.bootstrap, lambda cluster: list_offsets(cluster, topic, parse_position(position)))


def test_every_kind_of_position(broker: RunningBroker, topic: str, sent: list[int]) -> None:
    end = sent[-1] + 1
    expected = {
        "start": sent[0],
        "end": end,
        "+0": sent[0],
        "+1": sent[1],
        "+9": sent[9],
        "+10": end,
        "+99": end,
        "-0": end,
        "-1": sent[9],
        "-4": sent[6],
        "-10": sent[0],
        "-99": sent[0],
        f"@{TIMES_MS[4]}": sent[4],
        f"@{TIMES_MS[4] + 1}": sent[5],
        "@0": sent[0],
        "@2100-01-01": end,
        str(sent[3]): sent[3],
        "999999999": end,
    }
    assert {position: at(broker, topic, position)[0].offset for position in expected} == expected
    assert {row.offset for position in expected for row in at(broker, topic, position)[1:]} == {0}


def test_a_timestamp_beyond_the_calendar_is_its_number(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 1, message_timestamp_after_max_ms=str(2**62))
    send(broker.bootstrap, topic, b'{"value": "far", "timestamp": %d}' % 2**60, input="jsonl")
    assert at(broker, topic, "start")[0].timestamp == str(2**60)


def test_the_timestamp_is_that_of_the_message_there(broker: RunningBroker, topic: str, sent: list[int]) -> None:
    first, empty = at(broker, topic, "+5")
    assert first.timestamp == moment(TIMES_MS[5])
    assert empty.timestamp is None
    assert at(broker, topic, "end")[0].timestamp is None
    between = at(broker, topic, str(sent[2] + 1))[0]  # in the gap behind the first batch
    assert between.timestamp is not None
    assert round(between.timestamp.timestamp() * 1000) == TIMES_MS[3]


def test_where_a_message_lies(broker: RunningBroker, topic: str, sent: list[int]) -> None:
    place = run(broker.bootstrap, lambda cluster: where(cluster, topic, 0, sent[4]))
    assert (place.broker, place.batch_offset, place.position, place.messages) == (broker.broker_id, sent[3], sent[3], 3)
    assert place.state == "committed"
    with Path(place.file).open("rb") as file:
        file.seek(place.position)
        batch = file.read(place.length)
    assert int.from_bytes(batch[:8], "big") == sent[3], "the batch carries its own address"
    assert batch[17:21].hex() == place.crc
    dumped = subprocess.run(["sh", "-c", place.dump], capture_output=True, check=True).stdout
    assert b"m3" in dumped


def test_where_refuses_what_is_not_there(broker: RunningBroker, topic: str, sent: list[int]) -> None:
    with pytest.raises(OffsetOutOfRange, match=rf"\b0,.* {sent[-1]}$"):
        run(broker.bootstrap, lambda cluster: where(cluster, topic, 0, sent[-1] + 10**6))
    gap = sent[2] + 1  # behind the first batch, whose last message is sent[2]
    assert gap < sent[3]
    for offset in (gap, sent[3] - 1):
        with pytest.raises(OffsetOutOfRange, match=rf"\b{offset}\b.*batch") as caught:
            run(broker.bootstrap, lambda cluster, at=offset: where(cluster, topic, 0, at))
        assert caught.value.exit_code == 1
    with pytest.raises(OffsetOutOfRange, match=f"{topic}-1"):
        run(broker.bootstrap, lambda cluster: where(cluster, topic, 1, 0))
    with pytest.raises(InvalidTopic, match="'a b'"):
        run(broker.bootstrap, lambda cluster: where(cluster, "a b", 0, 0))
    with pytest.raises(UnknownTopicOrPartition, match="has 2 partitions"):
        run(broker.bootstrap, lambda cluster: where(cluster, topic, 9, 0), timeout_s=0.5)
    with pytest.raises(UnknownTopicOrPartition, match="partition 7"):
        run(
            broker.bootstrap,
            lambda cluster: list_offsets(cluster, topic, parse_position("start"), [7]),
            timeout_s=0.5,
        )


def test_positions_counted_in_messages_are_exact_in_any_log(broker: RunningBroker, topic: str) -> None:
    """Batches of all sizes and codecs, among them some with more records than bytes, so that addresses jump."""
    make_topic(broker.bootstrap, topic)
    chance = random.Random(11)
    producer_of = {
        codec: Producer({"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 5000})
        for codec in ("none", "zstd", "gzip")
    }
    sizes = [chance.choice([1, 2, 7, 40, 900]) for _ in range(12)]
    for size in (*sizes, 9000, 1):
        producer = producer_of[chance.choice(list(producer_of)) if size < 9000 else "zstd"]
        for _ in range(size):
            producer.produce(topic, b"" if size == 9000 else chance.randbytes(30))
        assert producer.flush(10) == 0
    shown, _ = read(broker.bootstrap, topic, offset=parse_range("start:end"), format="%o\\n")
    offsets = [int(line) for line in shown.split()]
    end = offsets[-1] + 1
    count = len(offsets)
    assert offsets[-2] - offsets[-9001] == 8999
    assert offsets[-1] == offsets[-2] + 1, "a batch of more records than bytes takes an address for each record"
    some = sorted({*range(12), *chance.sample(range(count), min(count, 40)), count - 1, count, count + 5})

    name = TopicPartition(topic, 0)

    async def ask(cluster: Cluster) -> dict[str, int]:
        return {
            text: (await resolve(cluster, {name: parse_position(text)}))[name]
            for number in some
            for text in (f"+{number}", f"-{number}")
        }

    found = run(broker.bootstrap, ask)
    expected = {}
    for number in some:
        expected[f"+{number}"] = offsets[number] if number < count else end
        expected[f"-{number}"] = end if number == 0 else offsets[max(count - number, 0)]
    assert found == expected
