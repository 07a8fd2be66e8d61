"""The order of time over partitions: exact for what is there, after a while for what comes, in bounded memory."""

from __future__ import annotations

import pytest
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from klog.tools.time_merge import MESSAGE_BYTES, TimeMerge


def message(partition: int, offset: int, timestamp_ms: int | None) -> Message:
    time = (0, -1) if timestamp_ms is None else (1, timestamp_ms)
    return Message(topic="t", partition=partition, offset=offset, value=b"", timestamp=time)


def places(count: int) -> list[tuple[str, int]]:
    return [("t", partition) for partition in range(count)]


def place(one: Message) -> tuple[int, int]:
    return one.partition(), one.offset()


LOGS = st.lists(st.lists(st.one_of(st.none(), st.integers(0, 20)), max_size=12), min_size=1, max_size=4)


def in_order(logs: list[list[int | None]]) -> list[tuple[int, int]]:
    """By the largest time so far, then partition, then offset: what the merge promises, the short way."""
    rows = []
    for partition, times in enumerate(logs):
        largest = 0
        for offset, time in enumerate(times):
            largest = max(largest, time or 0)
            rows.append((largest, partition, offset))
    return [row[1:] for row in sorted(rows)]


@given(LOGS, st.data())
def test_what_is_there_is_in_order_however_it_comes(logs: list[list[int | None]], data: st.DataObject) -> None:
    merge = TimeMerge(places(len(logs)))
    read = [0] * len(logs)
    shown: list[Message] = []
    while any(at < len(log) for at, log in zip(read, logs, strict=True)):
        partition = data.draw(st.sampled_from([one for one, at in enumerate(read) if at < len(logs[one])]))
        size = data.draw(st.integers(1, 4))
        run = list(enumerate(logs[partition]))[read[partition] :][:size]
        read[partition] += len(run)
        merge.add([message(partition, offset, time) for offset, time in run])
        shown += merge.ready({("t", one) for one, at in enumerate(read) if at < len(logs[one])})
    shown += merge.ready(set())
    assert [place(one) for one in shown] == in_order(logs)
    assert not merge


@given(LOGS)
def test_what_comes_within_the_while_is_in_order(logs: list[list[int | None]]) -> None:
    merge = TimeMerge(places(len(logs)))
    for partition, times in enumerate(logs):  # one partition after the other, all within the while
        merge.add([message(partition, offset, time) for offset, time in enumerate(times)], float(partition))
        assert merge.settled(-1.0) == []
    shown = merge.settled(float(len(logs)))
    assert [place(one) for one in shown] == in_order(logs)
    assert not merge


def test_nobody_waits_longer_than_the_while() -> None:
    merge = TimeMerge(places(2))
    merge.add([message(0, 0, 100)], 1.0)
    merge.add([message(1, 0, 50), message(1, 1, 200)], 2.0)
    assert [merge.oldest_arrival] == [1.0]
    assert [place(one) for one in merge.settled(1.5)] == [(1, 0), (0, 0)], "what is earlier goes along"
    assert [merge.oldest_arrival] == [2.0]
    merge.add([message(0, 1, 10)], 2.5)  # counts as of time 100: its partition was there already
    assert [place(one) for one in merge.settled(2.0)] == [(0, 1), (1, 1)]
    assert merge.settled(2.5) == []
    assert [merge.oldest_arrival, bool(merge)] == [None, False]


def test_a_partition_that_has_nothing_yet_is_waited_for() -> None:
    merge = TimeMerge(places(3))
    merge.add([message(0, 0, 1), message(1, 0, 2)])
    assert merge.ready(places(3)) == []
    assert [place(one) for one in merge.ready(places(2))] == [(0, 0)], "partition 0 might go on with time 1"
    assert [place(one) for one in merge.ready([])] == [(1, 0)]


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_partition_far_ahead_is_told_to_wait(partitions: int) -> None:
    merge = TimeMerge(places(partitions), memory_bytes=partitions * 10 * MESSAGE_BYTES)
    merge.add([message(0, offset, offset) for offset in range(10)], 0.0)
    assert merge.crowded() == set() and not merge.is_full
    merge.add([message(0, 10, 10)], 1.0)
    assert merge.crowded() == {("t", 0)} and merge.is_full == (partitions == 1)
    assert merge.starved([("t", 0)]) == set()
    merge.settled(1.0)
    assert merge.crowded() == set() and merge.starved([("t", 0)]) == {("t", 0)}
