"""The pure parts of the audit: stamps, numbers, publications, ledgers, and what is judged a gap."""

from __future__ import annotations

import json
import random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.client.audit import HEADER, Auditor, Count, Publication, Stamp, read_stamp, with_stamp
from klog.client.producer_settings import AuditSettings
from klog.errors import KlogError, LeaderNotAvailable, MalformedRequest, OffsetOutOfRange
from klog.names import TopicPartition
from klog.tools.audit import tiers
from klog.tools.audit.compare import State, by_number, by_stamps, sent
from klog.tools.audit.ledger import Ledger, Produced, build_ledger
from klog.tools.audit.tally import UNSTAMPED, Found, NumberSet, Origin, Tally, Window
from tests.hand_clock import HandClock
from tests.rows import each

MINUTE = 60_000
A, B = Origin("web-1", "aaaaaaaaaaaa"), Origin("web-2", "bbbbbbbbbbbb")


# --- Numbers ---


@given(st.lists(st.integers(0, 300)), st.lists(st.integers(0, 300)))
def test_a_set_of_numbers_is_a_set(first: list[int], second: list[int]) -> None:
    one, two = NumberSet(), NumberSet()
    for number in first:
        one.add(number)
    for number in second:
        two.add(number)
    one.update(two)
    expected = set(first) | set(second)
    assert one.distinct == len(expected)
    assert {number for begin, end in one.ranges for number in range(begin, end + 1)} == expected
    assert all(end + 1 < begin for (_, end), (begin, _) in zip(one.ranges, one.ranges[1:], strict=False))


def test_many_numbers_in_any_order() -> None:
    numbers = list(range(20_000))
    random.Random(7).shuffle(numbers)
    found = NumberSet()
    for number in numbers:
        found.add(number)
    assert found.ranges == [(0, 19_999)]


# --- Stamps and tallies ---


@each("value", [None, b"", b"x", b"1 2 3", b"a 2 p h", b"1 b p h", b"1 2 p h more", b"\xff 1 p h"])
def test_what_is_no_stamp(value: bytes | None) -> None:
    assert read_stamp(value) is None
    tally = Tally(MINUTE)
    tally.add("t", 61_000, [(HEADER, value)])
    assert [(window, origin, found.messages) for window, origin, found in tally] == [
        (Window("t", MINUTE), UNSTAMPED, 1)
    ]


def test_a_copy_is_stamped_anew() -> None:
    auditor = Auditor(AuditSettings("web-1"))
    when, value, _ = auditor.stamp("t", 1234)
    assert when == 1234
    assert read_stamp(value) == Stamp(1234, 0, auditor.producer, "web-1")
    assert with_stamp([("a", b"1"), (HEADER, b"old")], value) == [("a", b"1"), (HEADER, value)]


def test_a_tally_counts_by_window_and_producer_and_sees_copies() -> None:
    tally = Tally(MINUTE)
    for number in [0, 1, 2, 2, 3]:
        tally.add("t", 0, [("other", b"x"), (HEADER, b"%d %d p1 web-1" % (number * 20_000, number))])
    tally.add("t", 5, [(HEADER, b"5 0 p2 web-2")])
    tally.add("u", 5, None)
    rows = [(window, origin, found.messages, found.doubled) for window, origin, found in tally]
    assert rows == [
        (Window("t", 0), Origin("web-1", "p1"), 4, 1),
        (Window("t", 0), Origin("web-2", "p2"), 1, 0),
        (Window("t", MINUTE), Origin("web-1", "p1"), 1, 0),
        (Window("u", 0), UNSTAMPED, 1, 0),
    ]
    again = Tally(2 * MINUTE)
    again.add_json("t", json.loads(json.dumps(tally.to_json("t"))))
    again.update(tally)
    assert [(origin.host, found.messages, found.doubled) for _, origin, found in again] == [
        ("web-1", 10, 2),
        ("web-2", 2, 0),
        ("", 1, 0),
    ]
    with pytest.raises(MalformedRequest):
        again.add_json("t", [{"start_ms": 0}])


# --- What producers publish ---


def settled(auditor: Auditor, topic: str, when: int, error: KlogError | None = None, *, maybe: bool = False) -> None:
    _, _, window = auditor.stamp(topic, when)
    auditor.settle(window, error, maybe=maybe)


def test_what_was_acknowledged_is_published_once_it_is_final() -> None:
    auditor = Auditor(AuditSettings("web-1", window_ms=MINUTE, publish_ms=10_000_000))
    settled(auditor, "t", 1000)
    settled(auditor, "t", 2000, KlogError("refused"))
    settled(auditor, "t", 3000, KlogError("no answer"), maybe=True)
    _, _, under_way = auditor.stamp("t", 4000)
    assert auditor.due() == []  # not its time, and not final
    auditor.settle(under_way, None)
    (first,) = auditor.due()
    assert first.counts == (Count("t", 0, 0, 2, 1, 1000, 4000, True),)
    assert auditor.due() == []
    assert Publication.from_json(json.loads(first.to_json())) == first
    settled(auditor, "t", 5000)  # late
    (second,) = auditor.due()
    assert (second.sequence, second.counts[0].messages) == (2, 3)
    auditor.published(second, failed=True)
    (third,) = auditor.due()
    assert third.counts == second.counts
    ledger = build_ledger([one.to_json() for one in (third, first, second, first)])
    assert ledger.produced == {Window("t", 0): {Origin("web-1", auditor.producer): Produced(3, 1, True)}}


def test_windows_that_were_forgotten_add_up() -> None:
    auditor = Auditor(AuditSettings("web-1", window_ms=MINUTE, publish_ms=10_000_000))
    published = []
    for _ in range(3):
        settled(auditor, "t", 1000)
        (one,) = auditor.due()
        auditor.published(one)
        assert auditor.due() == []  # and now it is forgotten
        published.append(one)
    ledger = build_ledger(one.to_json() for one in published)
    assert [one.counts[0].part for one in published] == [0, 1, 2]
    assert ledger.produced[Window("t", 0)][Origin("web-1", auditor.producer)].messages == 3


def test_an_open_window_is_published_from_time_to_time_and_at_the_end() -> None:
    clock = HandClock()
    auditor = Auditor(AuditSettings("web-1", window_ms=3_600_000 * 20, publish_ms=1), clock)
    settled(auditor, "t", auditor.stamp("x", None)[0])
    assert auditor.due() == []
    clock.move(0.001)
    published = auditor.due()
    assert {(one.topic, one.final) for one in published[0].counts} == {("t", False)}
    (last,) = auditor.due(closing=True)
    assert {(one.topic, one.final) for one in last.counts} == {("t", True)}
    assert last.closed


# --- The ledger ---


def publication(origin: Origin, sequence: int, sent_ms: int, *counts: Count, window_ms: int = MINUTE) -> bytes:
    return Publication(origin.producer, origin.host, sequence, sent_ms, window_ms, False, counts).to_json()


def count(start_ms: int, messages: int, *, final: bool = True, unknown: int = 0) -> Count:
    return Count("t", start_ms, 0, messages, unknown, start_ms, start_ms, final)


def test_what_is_strange_in_the_topic_is_counted_and_passed_over() -> None:
    values = [
        b"",
        b"{",
        b"[]",
        b'{"version": 2}',
        b'{"version": 1, "kind": "other"}',
        b'{"version": 1, "kind": "produced"}',
        b"[" * 100_000,
        b'{"version": 1, "kind": "counted", "window_ms": 1e999}',
    ]
    values += [b'{"version": 1, "kind": "counted", "parts": 1, "part": 0}', publication(A, 1, 0, count(0, 5))]
    ledger = build_ledger(values)
    assert ledger.strange == len(values) - 1
    assert ledger.produced == {Window("t", 0): {A: Produced(5, 0, True)}}


@each(
    ("lengths", "wanted", "found"),
    [([], None, 600_000), ([], 5000, 5000), ([2, 3], None, 6), ([2, 3], 4, 12), ([2, 4], 8, 8), ([10], 4, 20)],
)
def test_windows_of_different_lengths_are_put_together(lengths: list[int], wanted: int | None, found: int) -> None:
    values = [publication(A, i, 0, window_ms=length) for i, length in enumerate(lengths)]
    assert build_ledger(values, wanted).window_ms == found


def test_what_was_counted_in_longer_windows_makes_them_longer() -> None:
    run = counted("live", {"0": [0, 500]}, range(5), window_ms=3 * MINUTE)
    ledger = build_ledger([publication(A, 1, 0, count(0, 5), count(MINUTE, 5)), run])
    assert ledger.window_ms == 3 * MINUTE
    assert ledger.produced == {Window("t", 0): {A: Produced(10)}}


def counted(
    tier: str, spans: dict[str, list[int]], numbers: range, *, anew: bool = False, run: str = "", **more: Any
) -> bytes:
    found = {"start_ms": 0, "host": A.host, "producer": A.producer, "messages": len(numbers)}
    window = {**found, "distinct": len(numbers)}
    message = {"version": 1, "kind": "counted", "tier": tier, "run": run or str(spans), "part": 0, "parts": 1}
    message |= {
        "counted_ms": 99,
        "window_ms": MINUTE,
        "topic": "t",
        "anew": anew,
        "partitions": spans,
        "windows": [window],
    }
    return json.dumps({**message, **more}).encode()


def messages_of(ledger: Ledger, tier: str) -> tuple[int, dict[int, int]]:
    one = ledger.counted[tier, "t"]
    return sum(found.messages for _, _, found in one.tally), one.ends


def test_runs_go_on_where_the_one_before_ended() -> None:
    start = [publication(A, 1, 0, count(0, 10))]
    first, second = counted("live", {"0": [0, 500]}, range(5)), counted("live", {"0": [500, 900]}, range(5, 10))
    assert messages_of(build_ledger([*start, first, second]), "live") == (10, {0: 900})
    same = counted("live", {"0": [0, 600]}, range(6), run="at the same time")
    assert messages_of(build_ledger([*start, first, same, second, second]), "live") == (10, {0: 900})
    anew = counted("live", {"0": [0, 950]}, range(11), anew=True)
    assert messages_of(build_ledger([*start, first, same, second, anew]), "live") == (11, {0: 950})
    half = counted("other", {"0": [0, 500]}, range(5), parts=2)
    ledger = build_ledger([*start, half, first])
    assert ("other", "t") not in ledger.counted
    other = counted("other", {"0": [0, 500]}, range(5, 8), parts=2, part=1)
    assert messages_of(build_ledger([*start, half, half, other]), "other") == (8, {0: 500})


# --- Judging ---


def found(numbers: list[int]) -> Found:
    one = Found(len(numbers))
    for number in numbers:
        one.numbers.add(number)
    return one


def judged(
    produced: dict[Origin, Produced], there: dict[Origin, Found]
) -> tuple[State, int | None, int | None, tuple[str, ...]]:
    one = by_stamps(produced, there, {A: 1, B: 1})
    return one.state, one.missing, one.extra, one.producers


def test_a_loss_and_a_copy_of_the_same_window_do_not_hide_each_other() -> None:
    produced = {A: Produced(5), B: Produced(3)}
    assert judged(produced, {A: found([0, 1, 2, 3, 4]), B: found([0, 1, 2])}) == (State.OK, 0, 0, ())
    assert judged(produced, {A: found([0, 1, 2, 3, 3]), B: found([0, 1, 2])}) == (State.GAP, 1, 1, ("web-1 -1 +1",))
    assert judged(produced, {A: found([0, 1, 2, 3, 4]), B: found([2])}) == (State.GAP, 2, 0, ("web-2 -2",))
    assert judged(produced, {}) == (State.GAP, 8, 0, ("web-1 -5", "web-2 -3"))
    assert by_number(produced, 8).state is State.OK  # which is why hosts and copies need the stamps
    assert (by_number(produced, 7).missing, by_number(produced, 10).extra) == (1, 2)


def test_what_nobody_knows_is_no_gap() -> None:
    produced = {A: Produced(5, unknown=2)}
    for size in (5, 6, 7):
        assert judged(produced, {A: found(list(range(size)))})[0] is State.OK
        assert by_number(produced, size).state is State.OK
    assert judged(produced, {A: found(list(range(8)))}) == (State.GAP, 0, 1, ("web-1 +1",))
    assert judged(produced, {A: found(list(range(4)))}) == (State.GAP, 1, 0, ("web-1 -1",))


def test_a_producer_that_died_is_short_of_nothing_that_it_did_not_tell() -> None:
    produced = {A: Produced(5, is_final=False)}
    assert judged(produced, {A: found(list(range(9)))}) == (State.UNFINISHED, 0, 0, ())
    assert judged(produced, {A: found(list(range(4)))}) == (State.GAP, 1, 0, ("web-1 -1",))
    assert judged(produced, {A: found([0, 1, 2, 3, 4, 4])}) == (State.GAP, 0, 1, ("web-1 +1",))
    assert by_number(produced, 9).state is State.UNFINISHED
    assert sent(produced, is_open=False).state is State.UNFINISHED
    assert sent(produced, is_open=True).state is State.OPEN
    stranger = Origin("web-3", "cccccccccccc")
    one = by_stamps({}, {stranger: found([0, 1])}, {A: 1})
    assert (one.state, one.extra) == (State.UNFINISHED, 0)
    assert "web-3" in (one.note or "")


def test_stamps_outside_of_what_their_host_publishes_are_seen() -> None:
    one = by_stamps({A: Produced(2)}, {A: found([0, 1]), B: found([0, 1, 2])}, {A: 1, B: 1})
    assert (one.state, one.missing, one.extra, one.producers) == (State.GAP, 0, 3, ("web-2 +3",))


def test_messages_without_a_stamp_are_nobodys() -> None:
    one = by_stamps({A: Produced(2)}, {A: found([0, 1]), UNSTAMPED: Found(7)}, {A: 1})
    assert (one.state, one.messages) == (State.OK, 2) and (one.note or "").startswith("7 messages")


async def test_a_window_that_retention_has_come_to_has_no_count_and_any_other_error_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a count all of a window is read, which an election is no reason for."""

    async def offsets_at(cluster: object, topic: str, times_ms: list[int]) -> dict[int, dict[TopicPartition, int]]:
        return {when: {TopicPartition(topic, 0): when} for when in times_ms}

    async def ask_leaders(spans: object, ask: object) -> object:
        raise failure

    monkeypatch.setattr(tiers, "offsets_at", offsets_at)
    cluster: Any = SimpleNamespace(ask_leaders=ask_leaders)
    failure: KlogError = OffsetOutOfRange("gone")
    assert await tiers.count_windows(cluster, "t", [0], MINUTE) == {0: None}
    failure = LeaderNotAvailable("t-0 has no leader at the moment")
    with pytest.raises(LeaderNotAvailable):
        await tiers.count_windows(cluster, "t", [0], MINUTE)
