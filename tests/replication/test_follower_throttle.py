"""The rate that catching up is held to: pure, with the time passed in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.names import TopicPartition
from klog.replication.follower_throttle import SLICE_S, Throttle

SLOW, OTHER = TopicPartition("slow", 0), TopicPartition("other", 0)


def follower(name: TopicPartition = SLOW, *, in_sync: bool = False) -> Any:
    return SimpleNamespace(topic_partition=name, is_in_sync=in_sync, reserved_bytes=0)


@given(
    rate=st.integers(20_000, 10_000_000),
    answers=st.lists(st.floats(0, 1.2), min_size=20, max_size=200),
    count=st.integers(1, 5),
)
def test_the_rate_holds_however_much_comes_of_what_was_asked(rate: int, answers: list[float], count: int) -> None:
    throttle, now, came = Throttle(), 100.0, 0
    throttle.set({SLOW}, float(rate))
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
    throttle = Throttle()
    throttle.set({SLOW}, 1000.0)
    assert throttle.reserve(follower(), 1 << 20, 10.0) == 4096
    assert throttle.wait_s(follower(), 10.0) == pytest.approx(4.096)
    assert throttle.wait_s(follower(), 15.0) == 0
    assert throttle.wait_s(follower(OTHER), 10.0) == 0
    assert throttle.wait_s(follower(in_sync=True), 10.0) == 0
    assert throttle.reserve(follower(OTHER), 1 << 20, 10.0) == 1 << 20
    throttle.set(set(), None)
    assert throttle.wait_s(follower(), 10.0) == 0
    assert throttle.reserve(follower(), 1 << 20, 10.0) == 1 << 20


def test_what_does_not_come_is_given_back() -> None:
    throttle, one = Throttle(), follower()
    throttle.set({SLOW}, 100_000.0)
    throttle.reserve(one, 1 << 20, 10.0)
    assert throttle.wait_s(one, 10.0) == pytest.approx(SLICE_S)
    throttle.received(one, 0)
    throttle.received(one, 0)  # once
    assert throttle.wait_s(one, 10.0) == 0
