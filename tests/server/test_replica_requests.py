"""ChecksumRanges, ListLost, ReadLost over the wire, with what a broker must refuse."""

from __future__ import annotations

from typing import Any

from crc32c import crc32c

from klog.protocol.apis import ApiKey
from tests.broker_fixture import RunningBroker
from tests.rows import each
from tests.server.asking import ask, create, error, produce, values

INVALID_REQUEST, UNKNOWN_TOPIC = 42, 3
MIB = 1 << 20


def checksums(
    broker: RunningBroker, topic: str, *ranges: tuple[int, int, int], partition: int = 0, probe: int = -1
) -> Any:
    asked = [{"from_address": first, "to_address": end, "seed": seed} for first, end, seed in ranges]
    partitions = [{"partition_index": partition, "probe_address": probe, "ranges": asked}]
    return ask(broker.bootstrap, ApiKey.CHECKSUM_RANGES, 0, topics=[{"name": topic, "partitions": partitions}])


def filled(broker: RunningBroker, topic: str) -> bytes:
    """A topic of one segment; the bytes of its file."""
    create(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, [values(20), values(30)])
    return (broker.folder / "data" / f"{topic}-0" / f"{0:020d}.log").read_bytes()


def test_ends_and_crcs(broker: RunningBroker, topic: str) -> None:
    data = filled(broker, topic)
    half = len(data) // 2
    first = crc32c(data[:half])
    one = checksums(broker, topic, (0, half, 0), (half, len(data), first), (half, half, 7)).topics[0].partitions[0]
    assert error(one) == 0
    assert (one.start_address, one.high_watermark, one.end_address) == (0, len(data), len(data))
    assert (one.leads, list(one.holes), one.probe) == (True, [], -1)
    told = [(found.from_address, found.to_address, found.crc, found.bytes) for found in one.ranges]
    assert told == [(0, half, first, half), (half, len(data), crc32c(data), len(data) - half), (half, half, 7, 0)]


def test_a_range_beyond_the_log_ends_where_the_log_does(broker: RunningBroker, topic: str) -> None:
    data = filled(broker, topic)
    (found,) = checksums(broker, topic, (0, len(data) + MIB, 0)).topics[0].partitions[0].ranges
    assert (found.to_address, found.crc, found.bytes) == (len(data), crc32c(data), len(data))


def test_a_probe_says_whether_the_batch_checks(broker: RunningBroker, topic: str) -> None:
    data = filled(broker, topic)
    probed = [checksums(broker, topic, probe=at).topics[0].partitions[0].probe for at in (0, len(data) - 1, len(data))]
    assert probed == [1, 1, 0]


@each(
    "ranges",
    [
        [(-1, 5, 0)],
        [(5, 4, 0)],
        [(0, 5, -1)],
        [(0, 5, 1 << 32)],
        [(0, 257 * MIB, 0)],
        [(0, 128 * MIB, 0)] * 3,
        [(0, 0, 0)] * 10_001,
    ],
    ids=["negative", "backwards", "seed", "large seed", "too many bytes", "too many bytes together", "too many"],
)
def test_what_cannot_be_meant_is_refused(broker: RunningBroker, topic: str, ranges: list[tuple[int, int, int]]) -> None:
    filled(broker, topic)
    answer = checksums(broker, topic, *ranges)
    assert error(answer) == INVALID_REQUEST
    assert not answer.topics


def test_a_replica_that_is_not_here(broker: RunningBroker, topic: str) -> None:
    filled(broker, topic)
    assert error(checksums(broker, "no-such-topic", (0, 1, 0)).topics[0].partitions[0]) == UNKNOWN_TOPIC
    assert error(checksums(broker, topic, (0, 1, 0), partition=7).topics[0].partitions[0]) == UNKNOWN_TOPIC


def test_only_what_was_set_aside_is_read(broker: RunningBroker, topic: str) -> None:
    filled(broker, topic)
    kept = f"{5:020d}.lost"
    (broker.folder / "data" / f"{topic}-0" / kept).write_bytes(b"0123456789")

    def read(file: str, position: int = 0, size: int = 100, name: str = topic) -> tuple[int, bytes]:
        fields = {"topic": name, "partition_index": 0, "file": file, "position": position, "max_bytes": size}
        answer = ask(broker.bootstrap, ApiKey.READ_LOST, 0, **fields)
        return error(answer), bytes(answer.data)

    assert read(kept) == (0, b"0123456789")
    assert read(kept, 4, 3) == (0, b"456")
    assert read(kept, 10) == (0, b"")
    assert read(kept, 4, -3) == (0, b"")
    for bad in ("../meta.properties", f"{0:020d}.log", "/etc/hostname", f"../{topic}-0/{kept}", "", f"{6:020d}.lost"):
        assert read(bad) == (INVALID_REQUEST, b""), bad
    assert read(kept, -1) == (INVALID_REQUEST, b"")
    assert read(kept, name="no-such-topic") == (UNKNOWN_TOPIC, b"")


def test_the_list_is_of_the_topics_asked_for(broker: RunningBroker, topic: str) -> None:
    filled(broker, topic)
    (broker.folder / "data" / f"{topic}-0" / f"{5:020d}.lost").write_bytes(b"no batch")
    (one,) = ask(broker.bootstrap, ApiKey.LIST_LOST, 0, topics=[topic]).stretches
    assert (one.topic, one.partition_index, one.from_address, one.to_address, one.messages) == (topic, 0, 5, 13, 0)
    assert not ask(broker.bootstrap, ApiKey.LIST_LOST, 0, topics=["no-such-topic"]).stretches
    assert topic in {row.topic for row in ask(broker.bootstrap, ApiKey.LIST_LOST, 0, topics=None).stretches}
