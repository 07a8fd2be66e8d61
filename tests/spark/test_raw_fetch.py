"""Raw fetches over blocking connections, against a real broker."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from klog.client.positions import EARLIEST, LATEST
from klog.client.raw_fetch import Range, RawCluster
from klog.errors import (
    CannotConnect,
    CorruptBatch,
    KlogError,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
    UnsupportedFormat,
)
from klog.names import TopicPartition
from klog.record.records import Record, encode_batch, records_in
from tests.broker_fixture import RunningBroker
from tests.rows import each
from tests.spark.conftest import NewTopic, TopicOnBroker, make_messages


def read(cluster: RawCluster, wanted: Range, max_bytes: int = 1 << 20) -> list[int]:
    """The offsets inside the range that a fetch of it brings."""
    return [
        record.offset
        for records in cluster.fetch(wanted, max_bytes=max_bytes)
        for record in records_in(records, wanted.from_offset)
        if record.offset < wanted.to_offset
    ]


def test_a_range_brings_all_of_it_and_its_count(new_topic: NewTopic) -> None:
    topic = new_topic()
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    offsets = [at for codec in codecs for at in topic.produce(make_messages(500), codec=codec, batch=70)]
    with RawCluster(topic.bootstrap) as cluster:
        partition = TopicPartition(topic.name, 0)
        end = cluster.offsets({partition: LATEST})[partition]
        whole = Range(topic.name, 0, 0, end)
        assert read(cluster, whole) == offsets
        assert read(cluster, whole, max_bytes=1) == offsets  # a batch at a time, each asked for by itself
        assert cluster.counts([whole]) == {whole: 500 * len(codecs)}


def test_every_pair_of_offsets_in_and_between_batches(new_topic: NewTopic) -> None:
    topic = new_topic()
    offsets = topic.produce(make_messages(12), batch=4)
    end = offsets[-1] + 1
    edges = sorted({0, end, *offsets, *(at + 1 for at in offsets)})
    with RawCluster(topic.bootstrap) as cluster:
        ranges = [Range(topic.name, 0, a, b) for i, a in enumerate(edges) for b in edges[i + 1 :]]
        counts = cluster.counts(ranges)
        for wanted in ranges:
            inside = [at for at in offsets if wanted.from_offset <= at < wanted.to_offset]
            assert read(cluster, wanted) == inside
            assert counts[wanted] == len(inside)


def test_a_range_beyond_the_end_is_an_error(new_topic: NewTopic) -> None:
    topic = new_topic()
    offsets = topic.produce(make_messages(3))
    beyond = Range(topic.name, 0, 0, offsets[-1] + 1000)
    with RawCluster(topic.bootstrap, timeout_s=2) as cluster:
        with pytest.raises(OffsetOutOfRange):
            read(cluster, beyond)
        with pytest.raises(OffsetOutOfRange):
            cluster.counts([beyond])


def test_a_range_whose_beginning_was_deleted_is_an_error(new_topic: NewTopic) -> None:
    topic = new_topic()
    offsets = topic.produce(make_messages(30), batch=10)
    topic.delete_before(offsets[15])
    with RawCluster(topic.bootstrap) as cluster:
        partition = TopicPartition(topic.name, 0)
        assert cluster.offsets({partition: EARLIEST})[partition] == offsets[15]
        gone = Range(topic.name, 0, 0, offsets[-1] + 1)
        with pytest.raises(OffsetOutOfRange):
            read(cluster, gone)
        with pytest.raises(OffsetOutOfRange):
            cluster.counts([gone])
        kept = gone._replace(from_offset=offsets[15])
        assert read(cluster, kept) == offsets[15:]
        assert cluster.counts([kept]) == {kept: 15}


def test_messages_are_found_by_number_and_batches_by_offset(new_topic: NewTopic) -> None:
    topic = new_topic()
    offsets = topic.produce(make_messages(20), batch=5)
    partition = TopicPartition(topic.name, 0)
    with RawCluster(topic.bootstrap) as cluster:
        assert cluster.nth(partition, 0, 7) == offsets[7]
        assert cluster.nth(partition, offsets[3], 7) == offsets[10]
        assert cluster.nth(partition, offsets[-1] + 1, -4) == offsets[16]
        assert cluster.batch_start(partition, offsets[7]) in offsets
        assert (cluster.batch_start(partition, offsets[7]) or 0) <= offsets[7]


@each(("at", "data", "error"), [(8, bytes(4), CorruptBatch), (16, b"\1", UnsupportedFormat)])
def test_what_is_no_batch_is_an_error_of_its_range(at: int, data: bytes, error: type[KlogError]) -> None:
    records = bytearray(encode_batch([Record(0, 1000, None, b"value", ())]))
    records[at : at + len(data)] = data
    channel: Any = SimpleNamespace(versions={})
    with pytest.raises(error, match=r"^t-3 \[7, 9\): ") as raised:
        RawCluster._walk(channel, memoryview(records), Range("t", 3, 7, 9))
    assert type(raised.value) is error and (raised.value.hint is None) is (error is CorruptBatch)


def test_a_missing_topic_is_not_made_by_looking_for_it(new_topic: NewTopic) -> None:
    topic = new_topic()
    with RawCluster(topic.bootstrap) as cluster:
        assert cluster.describe(["is-not-there", topic.name]).keys() == {topic.name}
        assert "is-not-there" not in cluster.describe()
        with pytest.raises(UnknownTopicOrPartition):
            cluster.offsets({TopicPartition("is-not-there", 0): LATEST})


def test_no_broker_is_an_error_that_names_every_server() -> None:
    with pytest.raises(CannotConnect, match=r"127\.0\.0\.1:1\b.*127\.0\.0\.1:2\b"):
        RawCluster("127.0.0.1:1,127.0.0.1:2")


@pytest.mark.slow
def test_a_fetch_goes_on_after_the_broker_was_killed(make_broker: Callable[..., RunningBroker]) -> None:
    broker = make_broker().start()
    topic = TopicOnBroker(broker.bootstrap, "t", 1)
    offsets = topic.produce(make_messages(1000), batch=50)
    found: list[int] = []
    with RawCluster(broker.bootstrap, timeout_s=30) as cluster:
        for number, records in enumerate(cluster.fetch(Range("t", 0, 0, offsets[-1] + 1), max_bytes=1)):
            found += [record.offset for record in records_in(records)]
            if number == 3:
                broker.kill()
                broker.start()
    assert found == offsets
