"""How far a reassignment is: percent, bytes left, when it will be done, why it stands still."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime, timedelta

from klog.admin.reassignment import Look, reasons, rows_of, summary
from klog.client.reassignments import Reassigning
from klog.names import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def moving(name: TopicPartition = T0, *, missing: tuple[int, ...] = (3,), throttle: int = 0) -> Reassigning:
    return Reassigning(name, (1, 2), (3, 2), missing, 1, throttle, "copying", "")


def look(one: Reassigning, left: int | None, total: int | None, after_s: float = 0, into: int | None = None) -> Look:
    at = NOON + timedelta(seconds=after_s)
    return Look(
        at, {one.partition: one}, {one.partition: left}, {one.partition: total}, Counter({3: into or left or 0})
    )


def test_percent_is_of_the_bytes_that_have_to_come() -> None:
    (row,) = rows_of(look(moving(), 250, 1000))
    assert (row.from_, row.to, row.state, row.percent, row.bytes_left) == ((1, 2), (3, 2), "copying", 75.0, 250)


def test_it_is_not_whole_before_the_replica_is_in_sync() -> None:
    assert rows_of(look(moving(), 0, 1000))[0].percent == 99.9
    assert rows_of(look(moving(), 0, 0))[0].percent == 99.9
    assert rows_of(look(moving(missing=()), 0, 1000))[0].percent == 100.0


def test_what_is_not_known_is_not_guessed() -> None:
    (row,) = rows_of(look(moving(), None, None))
    assert (row.percent, row.bytes_left, row.eta) == (None, None, None)


def test_when_it_will_be_done_follows_from_how_fast_the_bytes_come() -> None:
    (row,) = rows_of(look(moving(), 600, 1000, after_s=2), look(moving(), 800, 1000))
    assert row.eta == NOON + timedelta(seconds=2 + 6)
    (row,) = rows_of(look(moving(), 0, 1000, after_s=2), look(moving(), 800, 1000))
    assert row.eta == NOON + timedelta(seconds=2)


def test_without_any_that_came_the_throttle_says_it_and_else_nothing_does() -> None:
    slow = moving(throttle=100)
    (row,) = rows_of(look(slow, 600, 1000, after_s=2, into=1600), look(slow, 600, 1000))
    assert row.eta == NOON + timedelta(seconds=2 + 16), "all that is to come into that broker comes at this rate"
    assert rows_of(look(moving(), 600, 1000, after_s=2), look(moving(), 600, 1000))[0].eta is None
    assert rows_of(look(slow, 600, 1000))[0].eta is not None


def test_one_that_stands_still_has_a_reason_and_no_end() -> None:
    stalled = moving(throttle=100)._replace(state="stalled", reason="a reason")
    (row,) = rows_of(look(stalled, 600, 1000))
    assert (row.state, row.eta, row.reason) == ("stalled", None, "a reason")
    other = rows_of(look(stalled._replace(partition=T1), 600, 1000))
    assert reasons([row, *other]) == (f"t-0 and 1 more: stalled, {row.reason}",)
    assert re.findall(r"[\d,]*\d", summary([row, *other])) == ["2", "2", "1,200"] and "stalled" in summary([row])
    assert not re.search(r"\d", summary([]))


def test_one_that_goes_back_says_so() -> None:
    back = Reassigning(T0, (1, 2), (1, 2), (2,), 1, 0, "copying", "")
    assert rows_of(look(back, 0, 0))[0].state == "cancelling"
