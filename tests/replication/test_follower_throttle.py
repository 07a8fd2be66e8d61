"""The rate that catching up is held to: by Metadata, and gone with the reassignment; pure, with the time passed in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.names import TopicPartition
from klog.replication.follower_throttle import SLICE_S, Throttle

ME = 3
SLOW, OTHER = TopicPartition("slow", 0), TopicPartition("other", 0)
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def update(*parts: tuple[TopicPartition, tuple[int, ...], int], is_full: bool = False, deleted: str = "") -> Any:
    """An UpdateMetadata request, as far as this matters: partition, who is being added, the throttle."""
    topics: dict[str, list[Any]] = {}
    for name, adding, throttle in parts:
        one = SimpleNamespace(partition_index=name.partition, adding=adding, throttle=throttle)
        topics.setdefault(name.topic, []).append(one)
    listed = [SimpleNamespace(name=topic, is_deleted=False, partitions=found) for topic, found in topics.items()]
    if deleted:
        listed.append(SimpleNamespace(name=deleted, is_deleted=True, partitions=[]))
    return SimpleNamespace(is_full=is_full, topics=listed)


def throttle_of(rate: int) -> Throttle:
    """This broker is given `SLOW`."""
    throttle = Throttle(ME)
    assert throttle.take(update((SLOW, (ME,), rate)))
    return throttle


def follower(name: TopicPartition = SLOW, *, in_sync: bool = False) -> Any:
    return SimpleNamespace(topic_partition=name, is_in_sync=in_sync, reserved_bytes=0)


@given(
    rate=st.integers(20_000, 10_000_000),
    answers=st.lists(st.floats(0, 1.2), min_size=20, max_size=200),
    count=st.integers(1, 5),
)
def test_the_rate_holds_however_much_comes_of_what_was_asked(rate: int, answers: list[float], count: int) -> None:
    throttle, now, came = throttle_of(rate), 100.0, 0
    slow = [follower() for _ in range(count)]
    for number, part in enumerate(answers):
        one = slow[number % count]
        now += throttle.wait_s(one, now)
        asked = throttle.reserve(one, 1 << 20, now)
        size = int(asked * part)
        came += size
        throttle.received(one, size)
    slack = rate * SLICE_S + 2 * (1 << 20)  # what is asked at once, and what comes above it
    assert came <= rate * (now - 100.0) + slack


def test_whom_it_holds_back() -> None:
    throttle = throttle_of(1000)
    assert throttle.reserve(follower(), 1 << 20, 10.0) == 4096
    assert throttle.wait_s(follower(), 10.0) == pytest.approx(4.096)
    assert throttle.wait_s(follower(), 15.0) == 0
    assert throttle.wait_s(follower(OTHER), 10.0) == 0
    assert throttle.wait_s(follower(in_sync=True), 10.0) == 0
    assert throttle.reserve(follower(OTHER), 1 << 20, 10.0) == 1 << 20
    throttle.take(update((SLOW, (), 0)))
    assert throttle.wait_s(follower(), 10.0) == 0
    assert throttle.reserve(follower(), 1 << 20, 10.0) == 1 << 20


def test_what_does_not_come_is_given_back() -> None:
    throttle, one = throttle_of(100_000), follower()
    throttle.reserve(one, 1 << 20, 10.0)
    assert throttle.wait_s(one, 10.0) == pytest.approx(SLICE_S)
    throttle.received(one, 0)
    throttle.received(one, 0)  # once
    assert throttle.wait_s(one, 10.0) == 0


def test_only_what_this_broker_is_given_is_held_back_at_the_lowest_rate() -> None:
    throttle = Throttle(ME)
    assert throttle.take(update((T0, (ME,), 50_000), (T1, (4,), 10_000), (U0, (ME, 4), 0)))
    assert throttle.rates == {T0: 50_000}
    assert throttle.take(update((T1, (ME,), 20_000)))
    assert throttle.rates == {T0: 50_000, T1: 20_000}
    assert throttle.reserve(follower(T0), 1 << 20, 10.0) == 20_000 * SLICE_S


def test_what_has_not_changed_is_no_change() -> None:
    throttle = Throttle(ME)
    assert [throttle.take(update((T0, (ME,), 500), (U0, (), 0))), throttle.take(update())] == [True, False]
    assert not throttle.take(update((T0, (ME,), 500), (U0, (), 0)))


def test_it_is_gone_with_the_reassignment_however_that_ends() -> None:
    for end in (
        update((T0, (), 0)),  # done, or cancelled
        update((T0, (ME,), 0)),  # lifted
        update((T0, (4,), 500)),  # another is added in our place
        update(deleted="t"),
        update((U0, (), 0), is_full=True),  # another controller knows nothing of it
    ):
        throttle = Throttle(ME)
        throttle.take(update((T0, (ME,), 500)))
        assert throttle.take(end)
        assert not throttle.rates and throttle.wait_s(follower(T0), 10.0) == 0
