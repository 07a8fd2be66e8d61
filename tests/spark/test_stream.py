"""The streaming reader as Spark drives it, without Spark: where batches begin and end, and what is kept of that."""

from __future__ import annotations

import itertools
import json
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows

from klog.errors import CannotConnect, OffsetOutOfRange, Refused, UnknownTopicOrPartition
from klog.spark.options import SourceOptions
from klog.spark.stream import KlogStreamReader, shares
from tests.broker_fixture import RunningBroker
from tests.spark.conftest import NOW_MS, Message, NewTopic, TopicOnBroker, make_messages

Offsets = dict[str, Any]


def reader(topic: TopicOnBroker, **options: Any) -> KlogStreamReader:
    given = {"kafka.bootstrap.servers": topic.bootstrap, "startingOffsets": "earliest", **options}
    if not {"assign", "subscribePattern"} & given.keys():
        given["subscribe"] = topic.name
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in given.items()}
    return KlogStreamReader(SourceOptions.parse(texts, streaming=True))


def through_json(offsets: Offsets) -> Offsets:
    """As it comes back from the checkpoint."""
    found: Offsets = json.loads(json.dumps(offsets))
    return found


def read(stream: KlogStreamReader, start: Offsets, end: Offsets) -> list[tuple[int, int]]:
    """(partition, offset) of every message of the batch, read by what a task is given."""
    found = []
    tasks = stream.partitions(through_json(start), through_json(end))
    in_task = pickle.loads(pickle.dumps(stream))
    for task in pickle.loads(pickle.dumps(tasks)):
        for batch in in_task.read(task):
            found += zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True)
    return sorted(found)


def batches(stream: KlogStreamReader, start: Offsets, limit: ReadLimit | None = None) -> list[list[tuple[int, int]]]:
    """The batches until nothing is left to be read."""
    found = []
    while (end := stream.latestOffset(through_json(start), limit or stream.getDefaultReadLimit())) != start:
        found.append(read(stream, start, end))
        start = end
    return found


def flat(found: list[list[tuple[int, int]]]) -> list[tuple[int, int]]:
    return sorted(itertools.chain.from_iterable(found))


def test_batches_follow_each_other_exactly(new_topic: NewTopic) -> None:
    topic = new_topic(2)
    first = [(0, at) for at in topic.produce(make_messages(5))] + [(1, at) for at in topic.produce(make_messages(3), 1)]
    stream = reader(topic)
    start = stream.initialOffset()
    assert start["offsets"] == {topic.name: {"0": 0, "1": 0}}
    middle = stream.latestOffset(start, ReadAllAvailable())
    assert read(stream, start, middle) == first
    assert stream.latestOffset(through_json(middle), ReadAllAvailable()) == middle
    assert stream.partitions(middle, middle) == []
    assert len(reader(topic, maxRecordsPerPartition="2").partitions(start, middle)) == 3 + 2
    second = [(1, at) for at in topic.produce(make_messages(4), 1, codec="zstd")]
    end = stream.latestOffset(middle, ReadAllAvailable())
    assert read(stream, middle, end) == second
    assert read(reader(topic), start, end) == sorted(first + second)  # another process, after a crash
    nothing = {"messages": 0, "bytes": 0}
    assert stream.reportLatestOffset() == {**end, "reads": f"topic {topic.name} at {topic.bootstrap}", "lag": nothing}
    stream.stop()
    stream.stop()


def test_a_limit_is_in_messages_and_over_all_partitions(new_topic: NewTopic) -> None:
    topic = new_topic(3)
    sizes = (50, 20, 1)
    offsets = [
        [(number, at) for at in topic.produce(make_messages(size), number, batch=7)]
        for number, size in enumerate(sizes)
    ]
    stream = reader(topic, maxOffsetsPerTrigger="10")
    assert stream.getDefaultReadLimit() == ReadMaxRows(10)
    found = batches(stream, stream.initialOffset())
    assert [len(one) for one in found] == [10] * 7 + [1]
    assert flat(found) == flat(offsets)
    stream.latestOffset(stream.initialOffset(), ReadMaxRows(10))
    lag = (stream.reportLatestOffset() or {})["lag"]
    assert lag["messages"] == sum(sizes) - 10 < lag["bytes"]
    assert (2, offsets[2][0][1]) in found[0]  # a quiet partition is not starved by the busy ones
    # Trigger.Once reads all there is, whatever the limit.
    assert [len(one) for one in batches(stream, stream.initialOffset(), ReadAllAvailable())] == [sum(sizes)]


def test_too_little_is_waited_for_but_not_for_ever(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.produce(make_messages(2))
    stream = reader(topic, minOffsetsPerTrigger="5", maxTriggerDelay="1h")
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMinRows(5)
    start = stream.initialOffset()
    one = stream.latestOffset(start, limit)
    assert len(read(stream, start, one)) == 2  # the first batch waits for nothing
    topic.produce(make_messages(4))
    assert stream.latestOffset(one, limit) == one
    topic.produce(make_messages(1))
    two = stream.latestOffset(one, limit)
    assert len(read(stream, one, two)) == 5
    topic.produce(make_messages(1))
    impatient = reader(topic, minOffsetsPerTrigger="5", maxTriggerDelay="0s")
    impatient.latestOffset(two, limit)
    assert len(read(impatient, two, impatient.latestOffset(two, limit))) == 1


def test_available_now_ends_where_it_began(new_topic: NewTopic) -> None:
    topic = new_topic(2)
    topic.produce(make_messages(20))
    stream = reader(topic, maxOffsetsPerTrigger="8", minOffsetsPerTrigger="8", maxTriggerDelay="1h")
    stream.prepareForTriggerAvailableNow()
    topic.produce(make_messages(30), 1)
    topic.grow(3)
    topic.produce(make_messages(5), 2)
    found = batches(stream, stream.initialOffset())
    assert [len(one) for one in found] == [8, 8, 4]
    assert {partition for one in found for partition, _ in one} == {0}
    later = stream.initialOffset()
    restarted = reader(topic)
    restarted.prepareForTriggerAvailableNow()
    assert len(flat(batches(restarted, later))) == 55


def test_new_partitions_begin_at_their_start_and_do_so_again(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.produce(make_messages(3))
    stream = reader(topic)
    start = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    topic.grow(2)
    offsets = topic.produce(make_messages(9), 1, batch=3)
    end = stream.latestOffset(start, ReadAllAvailable())
    assert end["added"] == {topic.name: {"1": 0}}
    assert read(stream, start, end) == [(1, at) for at in offsets]
    assert stream.latestOffset(end, ReadAllAvailable()) == end
    topic.delete_before(offsets[4], 1)
    with pytest.raises(OffsetOutOfRange):  # the batch is run again: it would be shorter now
        reader(topic).partitions(start, end)
    lenient = reader(topic, failOnDataLoss="false")
    assert read(lenient, start, end) == [(1, at) for at in offsets[4:]]


def test_offsets_that_are_gone(new_topic: NewTopic) -> None:
    topic = new_topic()
    offsets = topic.produce(make_messages(10), batch=2)
    stream = reader(topic)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    tasks = stream.partitions(start, end)
    topic.delete_before(offsets[4])
    with pytest.raises(OffsetOutOfRange, match=r"\b0,"):
        stream.latestOffset(start, ReadAllAvailable())
    with pytest.raises(OffsetOutOfRange):
        stream.partitions(start, end)
    with pytest.raises(OffsetOutOfRange):
        list(stream.read(tasks[0]))
    lenient = reader(topic, failOnDataLoss="false", maxOffsetsPerTrigger="4")
    assert batches(lenient, start) == [[(0, at) for at in offsets[4:8]], [(0, at) for at in offsets[8:]]]


def test_a_log_that_ends_before_what_was_read(new_topic: NewTopic) -> None:
    """After an unclean election: what is written from there on is read, by who says that losses are no error."""
    topic = new_topic()
    topic.produce(make_messages(10))
    start = reader(topic).initialOffset()
    end = reader(topic).latestOffset(start, ReadAllAvailable())
    beyond = through_json(end)
    beyond["offsets"][topic.name]["0"] += 10_000
    with pytest.raises(OffsetOutOfRange, match=r"offset\b.*\b\d+,"):
        reader(topic).latestOffset(beyond, ReadAllAvailable())
    lenient = reader(topic, failOnDataLoss="false")
    back = lenient.latestOffset(beyond, ReadAllAvailable())
    assert back["offsets"] == end["offsets"]
    assert lenient.partitions(beyond, back) == []
    offsets = topic.produce(make_messages(3))
    assert batches(lenient, back) == [[(0, at) for at in offsets]]


def test_a_topic_that_is_gone_and_one_made_anew(new_topic: NewTopic) -> None:
    one = new_topic()
    one.produce(make_messages(5))
    how = {"kafka.request.timeout.ms": "500"}  # so long it must be missing to be taken for gone
    stream = reader(one, **how)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    one.delete()
    with pytest.raises(UnknownTopicOrPartition, match="topic"):
        stream.latestOffset(end, ReadAllAvailable())
    lenient = reader(one, failOnDataLoss="false", **how)
    without = lenient.latestOffset(end, ReadAllAvailable())
    assert without["offsets"] == {}
    assert lenient.partitions(start, end) == []
    anew = TopicOnBroker(one.bootstrap, one.name, 1)
    offsets = anew.produce(make_messages(50))  # its log is longer already: offsets alone would tell nothing
    with pytest.raises(Refused, match="deleted"):
        stream.latestOffset(end, ReadAllAvailable())
    with pytest.raises(Refused, match="deleted"):
        stream.partitions(start, end)
    after = lenient.latestOffset(end, ReadAllAvailable())
    assert read(lenient, end, after) == [(0, at) for at in offsets]
    assert read(lenient, start, end) == []  # of the old one nothing is left


def test_a_pattern_finds_topics_that_come_later(new_topic: NewTopic) -> None:
    one = new_topic()
    one.produce(make_messages(2))
    stream = reader(one, subscribePattern=f"{one.name}.*")
    start = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    two = TopicOnBroker(one.bootstrap, f"{one.name}-two", 1)
    two.produce(make_messages(3))
    end = stream.latestOffset(start, ReadAllAvailable())
    assert len(read(stream, start, end)) == 3
    assert set(end["topicIds"]) == {one.name, two.name}


def test_a_broker_that_restarts_is_waited_for(make_broker: Callable[..., RunningBroker]) -> None:
    broker = make_broker().start()
    topic = TopicOnBroker(broker.bootstrap, "t", 1)
    offsets = topic.produce(make_messages(5))
    stream = reader(topic)
    start = stream.initialOffset()
    broker.kill()
    with pytest.raises(CannotConnect):
        reader(topic).initialOffset()
    again = threading.Thread(target=broker.start)
    again.start()
    end = stream.latestOffset(start, ReadAllAvailable())
    again.join()
    assert read(stream, start, end) == [(0, at) for at in offsets]
    (task,) = stream.partitions(start, end)
    broker.kill()
    again = threading.Thread(target=broker.start)
    again.start()
    assert [batch.num_rows for batch in stream.read(task)] == [5]
    again.join()


# --- Where a query began ---


@pytest.mark.parametrize(
    "starting",
    [
        {"startingOffsets": "latest"},
        {"startingOffsets": {"T": {"0": 5, "1": -1}}},
        {"startingOffsetsByTimestamp": {"T": {"0": NOW_MS + 5000, "1": NOW_MS}}},
    ],
)
def test_the_end_of_the_first_batch_says_where_it_began(new_topic: NewTopic, starting: dict[str, Any]) -> None:
    """It is run again as it was, wherever the query would begin now."""
    topic = new_topic(2)
    for partition in (0, 1):
        topic.produce([Message(None, b"x", (), NOW_MS + 1000 * i) for i in range(10)], partition, batch=2)
    options = json.loads(json.dumps(starting).replace('"T"', json.dumps(topic.name)))
    first = reader(topic, **options)
    start = first.initialOffset()
    topic.produce(make_messages(3), 1)
    assert first.initialOffset() == start
    end = first.latestOffset(through_json(start), ReadAllAvailable())
    batch = read(first, start, end)
    assert batch
    later = [(0, at) for at in topic.produce(make_messages(4))]
    again = reader(topic, **options)
    assert read(again, again.initialOffset(), end) == batch
    assert read(again, end, again.latestOffset(through_json(end), ReadAllAvailable())) == later
    topic.delete_before(batch[-1][1] + 1, 1)
    with pytest.raises(OffsetOutOfRange):
        again.partitions(again.initialOffset(), end)


def test_a_first_batch_without_messages_is_one(new_topic: NewTopic) -> None:
    """Where it ends is written down: so it is known where the query began, though nothing has come in yet."""
    topic = new_topic()
    topic.produce(make_messages(3))
    for options in ({"startingOffsets": "latest"}, {"subscribePattern": f"{topic.name}-none"}):
        stream = reader(topic, **options)
        start = stream.initialOffset()
        end = stream.latestOffset(through_json(start), ReadAllAvailable())
        assert end != start and read(stream, start, end) == []
        assert stream.latestOffset(through_json(end), ReadAllAvailable()) == end


def test_a_stream_begins_at_offsets_and_at_times(new_topic: NewTopic) -> None:
    topic = new_topic(2)
    offsets = topic.produce([Message(None, b"x", (), NOW_MS + 1000 * i) for i in range(10)], batch=3)
    by_offset = reader(topic, startingOffsets={topic.name: {"0": offsets[4]}})
    assert by_offset.initialOffset()["offsets"] == {topic.name: {"0": offsets[4], "1": 0}}
    by_time = reader(topic, startingTimestamp=str(NOW_MS + 6500), startingOffsetsByTimestampStrategy="latest")
    start = by_time.initialOffset()
    assert read(by_time, start, by_time.latestOffset(start, ReadAllAvailable())) == [(0, at) for at in offsets[7:]]
    none_as_late = reader(topic, startingTimestamp=str(NOW_MS + 10**6))
    with pytest.raises(OffsetOutOfRange, match="late"):
        none_as_late.initialOffset()


def test_a_checkpoint_of_another_source(new_topic: NewTopic) -> None:
    stream = reader(new_topic())
    with pytest.raises(Refused, match="offsets"):
        stream.latestOffset({"clicks": {"0": 1}}, ReadAllAvailable())


# --- Shares of a limit ---


@given(st.dictionaries(st.integers(0, 40), st.integers(0, 10**6)), st.integers(1, 10**6))
def test_shares_are_exact_and_nobody_has_more_than_waits(waiting: dict[int, int], limit: int) -> None:
    found = shares(waiting, limit)
    there = {one for one, count in waiting.items() if count}
    assert sum(found.values()) == min(limit, sum(waiting.values()))
    assert all(1 <= count <= waiting[one] for one, count in found.items())
    if limit >= len(there):
        assert set(found) == there


def test_shares_are_in_proportion() -> None:
    assert shares({"a": 600, "b": 300, "c": 100}, 100) == {"a": 60, "b": 30, "c": 10}
    assert shares({"a": 10**9, "b": 1, "c": 0}, 10) == {"a": 9, "b": 1}
    assert shares({"a": 5, "b": 9, "c": 7}, 2) == {"b": 1, "c": 1}
