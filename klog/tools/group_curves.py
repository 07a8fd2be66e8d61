"""The lag of groups over the last day, from what brokers remember (ReadLagHistory).

Strategy
    Leaders remember where logs ended, coordinators what groups committed. All brokers' points of a partition, and of a
    group in it, are put in the order of their times; the lag at a moment is the difference of the last two values. What
    a group has committed now, by the registry, holds since it was written, whether a broker remembers it or not.

Limits
    In bytes of the log, which is what offsets are. What is deleted by now does not count, as in `klog lag`. A
    moment at which an offset is unknown (the broker that knew it has ended; nothing was read or committed yet) has no
    lag of that partition. A group whose consumers commit to ZooKeeper themselves (0.8's) has no coordinator: its lag is
    known since its last commit only.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from klog.admin.group_lag import LagRow, of_groups
from klog.client.answers import check
from klog.client.cluster import Cluster
from klog.errors import KlogError, MalformedRequest
from klog.names import TopicPartition
from klog.protocol.apis import ApiKey

DAY_MS: Final = 86_400_000
MINUTE_MS: Final = 60_000
TREND_MS: Final = 10 * MINUTE_MS
"""How far back a trend looks."""
TIMES_MAX: Final = 300
"""Moments at which the lag is computed."""
PARTITIONS_MAX: Final = 20_000
"""Of groups, for which it is: some seconds."""
CURVES_MAX, POINTS_MAX = 20_000, 500_000
"""Of a broker's answer: more is refused."""
UNKNOWN: Final = -1


class Step(NamedTuple):
    """From ``time_ms`` on it was ``offset``; `UNKNOWN`: the broker that says so no longer knows."""

    time_ms: int
    offset: int


@dataclass
class LagHistory:
    """What brokers remember: in the order of time once `sort` was called."""

    ends: dict[TopicPartition, list[Step]] = field(default_factory=lambda: defaultdict(list))
    commits: dict[tuple[str, TopicPartition], list[Step]] = field(default_factory=lambda: defaultdict(list))
    full: list[int] = field(default_factory=list)
    """Brokers that remember no more numbers than they do."""

    @property
    def begin_ms(self) -> int | None:
        """Of the first thing that is remembered; None where nothing is."""
        return min((one[0].time_ms for one in (*self.ends.values(), *self.commits.values()) if one), default=None)

    def sort(self) -> None:
        """All brokers have been read."""
        for steps in (*self.ends.values(), *self.commits.values()):
            steps.sort()


class Curve(NamedTuple):
    """A group's lag in bytes at each of the moments; None where it is unknown. ``missing``: of its partitions, those
    that are known at no moment but the last."""

    group: str
    values: list[float | None]
    missing: int


@dataclass(frozen=True, slots=True)
class LagTrend:
    """Where a group's lag goes: by what it was `TREND_MS` ago, or as long as that is known.

    ``change_bytes_s``: of the lag, a second. ``left``: until nothing is left at that pace, where it shrinks. ``trend``
    is ``unknown`` where brokers remember nothing of the group before now.
    """

    group: str
    lag: int | None
    lag_bytes: int
    trend: Literal["growing", "shrinking", "steady", "unknown"]
    change_bytes_s: int | None
    left_ms: int | None


def trends(history: LagHistory, rows: Sequence[LagRow], now_ms: int) -> list[LagTrend]:
    """One row per group with committed offsets or members, by name. May take seconds."""
    times = [now_ms - at for at in range(TREND_MS, -1, -MINUTE_MS)]
    lags = {one.group: one.lag if one.error is None else None for one in of_groups(rows)}
    found = []
    for curve in sorted(curves(history, rows, times)):
        lag = lags.get(curve.group)
        now = int(curve.values[-1] or 0)
        before = next(
            ((then_ms, value) for then_ms, value in zip(times, curve.values[:-1], strict=False) if value is not None),
            None,
        )
        if before is None:
            found.append(LagTrend(curve.group, lag, now, "unknown", None, None))
            continue
        change = (now - before[1]) * 1000 / (now_ms - before[0])
        trend: Literal["growing", "shrinking", "steady"]
        trend = "growing" if change > 0 else "shrinking" if change < 0 else "steady"
        left_ms = int(now * 1000 / -change) if change < 0 else None
        found.append(LagTrend(curve.group, lag, now, trend, round(change), left_ms))
    return found


async def lag_history(cluster: Cluster, brokers: Iterable[int], since_ms: int) -> tuple[LagHistory, list[str]]:
    """What these brokers remember, and a sentence for each thing that is missing."""
    history, missing = LagHistory(), []
    for broker in brokers:
        try:
            await read_lag_history(cluster, broker, since_ms, history)
        except KlogError as error:
            missing.append(f"the lag of groups that broker {broker} remembers: {error.message}")
    for broker in history.full:
        missing.append(f"the lag of some groups in the past: broker {broker} has more partitions than it remembers")
    history.sort()
    return history, missing


async def read_lag_history(cluster: Cluster, broker: int, since_ms: int, into: LagHistory) -> None:
    """Add what a broker remembers. UnsupportedVersion of an older one, MalformedRequest where it sends too much."""
    answer = await cluster.to_broker(broker, ApiKey.READ_LAG_HISTORY, 0)
    check(answer, f"history of broker {broker}")
    curves = len(answer.end_curves) + len(answer.commit_curves)
    points = sum(len(one.curves) for one in (*answer.end_minutes, *answer.commit_minutes))
    if curves > CURVES_MAX or points > POINTS_MAX:
        raise MalformedRequest(
            f"broker {broker} sends {curves} curves with {points} points, "
            f"expected {CURVES_MAX} and {POINTS_MAX} at most"
        )
    if answer.is_full:
        into.full.append(broker)
    for found, steps in _steps(answer.end_curves, answer.end_minutes, max(since_ms, answer.end_since_ms)):
        into.ends[TopicPartition(found.topic, found.partition_index)] += steps
    for found, steps in _steps(answer.commit_curves, answer.commit_minutes, max(since_ms, answer.commit_since_ms)):
        into.commits[found.group, TopicPartition(found.topic, found.partition_index)] += steps


def _steps(curves: Iterable[Any], minutes: Iterable[Any], since_ms: int) -> Iterable[tuple[Any, list[Step]]]:
    by_number: dict[int, list[Step]] = {}
    known = {one.number: one for one in curves}
    for number, one in known.items():
        by_number[number] = [Step(since_ms, int(one.base))] if one.base >= 0 else []
    for minute in minutes:
        for number, offset in zip(minute.curves, minute.offsets, strict=False):
            if number in by_number:
                by_number[number].append(Step(int(minute.time_ms), max(UNKNOWN, int(offset))))
    return [(known[number], steps) for number, steps in by_number.items()]


def moments(first_ms: int, now_ms: int) -> list[int]:
    """Equal steps of whole minutes up to now, `TIMES_MAX` at most."""
    first_ms = max(first_ms, now_ms - DAY_MS)
    step_ms = MINUTE_MS * max(1, -(-(now_ms - first_ms) // (MINUTE_MS * TIMES_MAX)))
    count = min(TIMES_MAX, max(0, now_ms - first_ms) // step_ms)
    return [now_ms - at * step_ms for at in range(count, -1, -1)]


def curves(history: LagHistory, rows: Sequence[LagRow], times: Sequence[int]) -> list[Curve]:
    """The groups' lag at these moments, of which the last is now; the largest first. May take seconds."""
    sums: dict[str, list[float | None]] = {}
    missing: Counter[str] = Counter()
    for row in rows[:PARTITIONS_MAX]:
        if row.group is None or row.topic is None or row.partition is None or row.lag_bytes is None:
            continue
        found = _of_partition(history, row, times)
        missing[row.group] += all(value is None for value in found[:-1])
        total = sums.setdefault(row.group, [None] * len(times))
        for at, value in enumerate(found):
            if value is not None:
                total[at] = (total[at] or 0.0) + value
    made = [Curve(group, values, missing[group]) for group, values in sums.items()]
    return sorted(made, key=lambda one: (-max(value or 0.0 for value in one.values), one.group))


def _of_partition(history: LagHistory, row: LagRow, times: Sequence[int]) -> list[float | None]:
    assert row.group is not None and row.topic is not None and row.partition is not None
    name = TopicPartition(row.topic, row.partition)
    ends = history.ends.get(name, [])
    commits = history.commits.get((row.group, name), [])
    start = row.log_start_offset or 0
    if row.current_offset is not None and row.committed is not None:
        written = Step(int(row.committed.timestamp() * 1000), row.current_offset)
        commits = [*(one for one in commits if one.time_ms < written.time_ms), written]
    found: list[float | None] = []
    for at, committed in zip(_at(ends, times), _at(commits, times), strict=True):
        known = at is not None and committed is not None
        found.append(float(max(0, at - max(committed, start))) if known else None)  # type: ignore[operator,type-var]
    if found:
        found[-1] = float(row.lag_bytes or 0)
    return found


def _at(steps: Sequence[Step], times: Sequence[int]) -> list[int | None]:
    """The value at each moment. What a point says has changed within the minute before it: evenly, for want of more."""
    begins = [one.time_ms for one in steps]
    found: list[int | None] = []
    for time_ms in times:
        after = bisect_right(begins, time_ms)
        here = steps[after - 1].offset if after else UNKNOWN
        if here != UNKNOWN and after < len(steps) and steps[after].offset != UNKNOWN:
            until_ms, then = steps[after]
            since_ms = max(begins[after - 1], until_ms - MINUTE_MS)
            if time_ms > since_ms:
                here += (then - here) * (time_ms - since_ms) // (until_ms - since_ms)
        found.append(None if here == UNKNOWN else here)
    return found
