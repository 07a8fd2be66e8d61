"""Goal: the lag of groups in the past is the difference of what leaders and coordinators remember, and else unknown.

Method: histories of chosen minutes, as several brokers would tell them.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from klog.admin.group_lag import LagRow
from klog.admin.health.snapshot import Snapshot
from klog.errors import MalformedRequest
from klog.names import TopicPartition
from klog.tools.cluster_report import Facts, _lag_plot
from klog.tools.group_curves import (
    CURVES_MAX,
    DAY_MS,
    MINUTE_MS,
    TIMES_MAX,
    Curve,
    LagHistory,
    Step,
    curves,
    moments,
    read_lag_history,
    trends,
)
from tests.rows import each

T0 = TopicPartition("t", 0)
NOW_MS = 100 * MINUTE_MS
TIMES = [minute * MINUTE_MS for minute in range(95, 101)]


def row(offset: int | None, written_minute: float, *, start: int = 0, end: int = 1000, group: str = "g") -> LagRow:
    committed = None if offset is None else datetime.fromtimestamp(written_minute * 60, UTC)
    lag = end - max(offset or 0, start)
    return LagRow(group, "t", 0, offset, start, end, lag, lag, 0, None, committed)


def history(ends: dict[float, int], commits: dict[float, int] | None = None) -> LagHistory:
    found = LagHistory()
    found.ends[T0] += [Step(int(minute * MINUTE_MS), offset) for minute, offset in ends.items()]
    for minute, offset in (commits or {}).items():
        found.commits["g", T0].append(Step(int(minute * MINUTE_MS), offset))
    found.sort()
    return found


@each(
    "committed, trend, change_bytes_s, left_ms",
    [
        ({88: 0}, "growing", 1, None),
        ({88: 0, 94: 0, 95: 800}, "shrinking", -1, 200_000),
        ({97: 900}, "steady", 0, None),
        ({}, "unknown", None, None),
    ],
)
def test_a_trend_is_the_difference_to_the_earliest_lag_of_ten_minutes(
    committed: dict[float, int], trend: str, change_bytes_s: int | None, left_ms: int | None
) -> None:
    ends = {"growing": {88: 0, 90: 400, 100: 1000}, "shrinking": {80: 800, 99: 800, 100: 1000}, "steady": {80: 1000}}
    known = history(ends.get(trend, {80: 1000}), committed)
    last = max(committed, default=0)
    (found,) = trends(known, [row(committed.get(last), last)], NOW_MS)
    assert (found.group, found.trend, found.change_bytes_s, found.left_ms) == ("g", trend, change_bytes_s, left_ms)
    assert found.lag == found.lag_bytes == 1000 - committed.get(last, 0)


def test_lag_is_end_minus_committed() -> None:
    known = history({94: 0, 95: 500, 97: 700, 100: 1000}, {94: 0, 95: 500, 96: 500})
    (found,) = curves(known, [row(500, 95)], TIMES)
    assert found.values == [0, 0, 200, 200, 200, 500] and found.missing == 0
    (found,) = curves(known, [row(500, 95, start=600)], TIMES)
    assert found.values == [0, 0, 100, 100, 100, 400], "what is deleted by now does not count"


def test_within_the_minute_before_a_point_it_has_changed_evenly() -> None:
    known = history({90: 0, 96: 600})
    (found,) = curves(known, [row(0, 90)], [int(minute * MINUTE_MS) for minute in (94, 95, 95.5, 96, 97)])
    assert found.values == [0, 0, 300, 600, 1000]


def test_a_group_that_has_stopped_needs_no_coordinator_that_remembers() -> None:
    (found,) = curves(history({90: 1000}), [row(400, 97)], TIMES)
    assert found.values == [None, None, 600, 600, 600, 600]


def test_what_no_broker_knows_is_left_out() -> None:
    known = history({90: 500, 96: -1, 98: 1000}, {90: 500, 97: -1})
    (found,) = curves(known, [row(900, 99)], TIMES)
    assert found.values == [0, None, None, None, 100, 100]
    (found,) = curves(LagHistory(), [row(900, 80)], TIMES)
    assert found.values == [None] * 5 + [100] and found.missing == 1
    (found,) = curves(history({90: 1000}), [row(None, 0)], TIMES)
    assert found.values == [None] * 5 + [1000], "nothing was committed"
    assert curves(LagHistory(), [LagRow("g", "t", 0, 1)], TIMES) == []


def test_groups_are_sums_of_their_partitions_and_the_largest_comes_first() -> None:
    known = history({90: 1000})
    rows = [row(900, 90, group="a"), row(100, 90, group="b"), row(300, 90, group="b")]
    assert [(one.group, one.values[0]) for one in curves(known, rows, TIMES)] == [("b", 1600), ("a", 100)]


@each("minutes", [0, 1, 60, TIMES_MAX + 1, 1440, 100_000])
def test_moments_reach_back_a_day_and_end_now(minutes: int) -> None:
    found = moments(NOW_MS - minutes * MINUTE_MS, NOW_MS)
    assert found[-1] == NOW_MS and 1 <= len(found) <= TIMES_MAX + 1
    assert found == sorted(found) and found[0] >= NOW_MS - DAY_MS
    assert found[0] - max(NOW_MS - minutes * MINUTE_MS, NOW_MS - DAY_MS) < (found[1] - found[0] if minutes else 1)


def facts_with(*found: Curve) -> Facts:
    return Facts(Snapshot(NOW_MS), curves=found, curve_times=TIMES[-3:])


def test_the_plot_has_the_largest_groups_and_says_what_it_lacks() -> None:
    evil = "<b>&\u202e"
    groups = [Curve(f"g{number}", [None, 100.0 * number, 5.0], 0) for number in range(1, 9)]
    found = _lag_plot(facts_with(*groups, Curve(evil, [None, 9_000.0, 1.0], 1), Curve("old", [None, None, 7.0], 2)))
    assert found is not None and {evil[:-1] + "\\u202e", "g8", "others"} < set(found.legend)
    assert "g1" not in found.legend and "old" not in found.legend
    svg = found.plots[0][1]
    assert "<b>" not in svg and "g8: 800 B" in svg.replace("\n", " ")
    assert "1 group " in found.said and "1 partition " in found.said
    assert _lag_plot(facts_with()) is None
    without = _lag_plot(facts_with(Curve("old", [None, None, 7.0], 2)))
    assert without is not None and not without.plots


def answer(**fields: Any) -> Any:
    empty: dict[str, Any] = {"end_curves": (), "end_minutes": (), "commit_curves": (), "commit_minutes": ()}
    empty |= {"end_since_ms": 0, "commit_since_ms": 0}
    return SimpleNamespace(**{"error_code": 0, "is_full": False, **empty, **fields})


def asked(given: Any) -> LagHistory:
    async def to_broker(*_: object) -> Any:
        return given

    found = LagHistory()
    asyncio.run(read_lag_history(cast(Any, SimpleNamespace(to_broker=to_broker)), 1, 7, found))
    return found


def test_answers_of_brokers_are_read_and_whatever_they_make_up_is_bounded() -> None:
    curve = SimpleNamespace(number=3, group="g", topic="t", partition_index=0, base=5)
    minute = SimpleNamespace(time_ms=9, curves=(3, 4), offsets=(6, 7))
    found = asked(answer(commit_curves=(curve,), commit_minutes=(minute,), is_full=True))
    assert found.commits == {("g", T0): [Step(7, 5), Step(9, 6)]} and found.full == [1] and not found.ends
    later = answer(commit_curves=(curve,), commit_since_ms=8)
    assert asked(later).commits == {("g", T0): [Step(8, 5)]}, "no value of before the broker's beginning"
    wild = SimpleNamespace(time_ms=9, curves=(3, 3, 3), offsets=(-(1 << 62),))
    assert asked(answer(end_curves=(curve,), end_minutes=(wild,))).ends == {T0: [Step(7, 5), Step(9, -1)]}
    with pytest.raises(MalformedRequest):
        asked(answer(end_curves=(curve,) * (CURVES_MAX + 1)))
