"""`klog status --html`: a cluster as one page of HTML, for a ticket or a morning.

State, findings with their first causes, the rates that brokers remember (ReadHistory), groups by lag
and its curve (`klog.tools.group_curves`), acts and events of the last day. What cannot be read is left out, and the
page says so. `klog.render.page` makes the page, which needs no script and shows every name as text.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

from klog import __version__
from klog.admin import acts
from klog.admin.acts import ActRow
from klog.admin.health.findings import Finding
from klog.admin.health.snapshot import Snapshot, Where
from klog.admin.health.verdict import BrokerState, broker_states, count_partitions, group_lags
from klog.client.answers import check
from klog.client.cluster import Cluster
from klog.client.metadata import Metadata
from klog.client.positions import parse_position
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import KlogError, MalformedRequest, TimedOut
from klog.names import counted
from klog.protocol.apis import ApiKey
from klog.render import plots
from klog.render.columns import columns
from klog.render.page import Section, Tile, plotted, render_page
from klog.render.plots import Bars
from klog.render.value_texts import count_text, duration_text, moment_text, size_text
from klog.render.values import to_text
from klog.render.visible import visible
from klog.tools.events import Event, EventFilter, EventRow, events_since, row
from klog.tools.group_curves import PARTITIONS_MAX, Curve, curves, lag_history, moments
from klog.tools.status import look, with_causes
from klog.tools.top.facts import (
    BrokerLine,
    GroupLine,
    PartitionLine,
    TopicLine,
    broker_lines,
    group_lines,
    partition_lines,
    topic_lines,
)

DAY_MS: Final = 86_400_000
MINUTE_MS: Final = 60_000
POINTS_MAX: Final = 2_000
NAMES_MAX: Final = 100
"""Of a broker's answer: what is more is refused."""
FINDINGS_SHOWN, ROWS_SHOWN, EVENTS_SHOWN = 50, 30, 50
TEXT_MAX: Final = 300
EVENTS_S: Final = 10.0
_OTHERS: Final = "others"


@dataclass(frozen=True, slots=True)
class ReportRow:
    """The file that was made."""

    file: str
    bytes: int
    findings: int
    brokers: int
    hours: float
    """How far back the plots reach."""


class Point(NamedTuple):
    time_ms: int
    values: Mapping[str, float]


@dataclass
class Facts:
    snapshot: Snapshot
    findings: Sequence[Finding] = ()
    history: Mapping[int, Sequence[Point]] = field(default_factory=dict)
    curves: Sequence[Curve] = ()
    """The lag of groups at the moments of ``curve_times``."""
    curve_times: Sequence[int] = ()
    acts: Sequence[ActRow] = ()
    events: Sequence[Event] = ()
    missing: list[str] = field(default_factory=list)
    """What could not be read, and why."""

    @property
    def brokers(self) -> list[BrokerState]:
        """All that live, or have replicas."""
        return broker_states(self.snapshot)

    @property
    def now_ms(self) -> int:
        return self.snapshot.now_ms

    @property
    def metadata(self) -> Metadata:
        """Of its brokers."""
        return self.snapshot.metadata

    @property
    def hours(self) -> float:
        """How far back the brokers' history goes."""
        first = min((one[0].time_ms for one in self.history.values() if one), default=self.now_ms)
        return round(max(0, self.now_ms - first) / 3_600_000, 2)


async def gather(
    connect: Callable[[], Awaitable[Cluster]], zookeeper: Callable[[], Awaitable[ZooKeeper]], where: Where
) -> Facts:
    """All facts; a part that cannot be read is named in `Facts.missing`. Only a cluster without brokers is an error."""
    cluster = await connect()
    snapshot, findings = await with_causes(await look(where), connect, zookeeper)
    if not snapshot.answers:
        raise TimedOut(snapshot.no_brokers or "no broker answers")
    facts = Facts(snapshot, findings)
    if snapshot.no_groups is not None:
        facts.missing.append(f"the lag of groups: {snapshot.no_groups}")
    live = [one.broker for one in facts.brokers if one.state == "up"]
    histories = {}
    for broker in live:
        try:
            histories[broker] = await read_history(cluster, broker, facts.now_ms - DAY_MS)
        except KlogError as error:
            facts.missing.append(f"the history of broker {broker}: {error.message}")
    facts.history = histories
    if snapshot.groups:
        await _gather_curves(facts, cluster, live)
    try:
        session = await zookeeper()
        facts.acts = await asyncio.to_thread(lambda: acts.list_acts(session, since_ms=facts.now_ms - DAY_MS))
    except KlogError as error:
        facts.missing.append(f"the acts: {error.message}")
    facts.events, why = await events_since(
        cluster, EventFilter(), parse_position("@-1d"), most=EVENTS_SHOWN, within_s=EVENTS_S
    )
    if why is not None:
        facts.missing.append(f"the events: {why}")
    return facts


async def _gather_curves(facts: Facts, cluster: Cluster, brokers: Sequence[int]) -> None:
    rows = facts.snapshot.groups
    history, missing = await lag_history(cluster, brokers, facts.now_ms - DAY_MS)
    facts.missing += missing
    if len(rows) > PARTITIONS_MAX:
        what = f"{PARTITIONS_MAX:,} of {len(rows):,} partitions of groups are in its plot"
        facts.missing.append(f"the lag of all groups in the past: {what}")
    facts.curve_times = moments(facts.now_ms if history.begin_ms is None else history.begin_ms, facts.now_ms)
    facts.curves = await asyncio.to_thread(curves, history, rows, facts.curve_times)


async def read_history(cluster: Cluster, broker: int, since_ms: int) -> list[Point]:
    """What a broker remembers since a moment, the oldest first."""
    answer = await cluster.to_broker(broker, ApiKey.READ_HISTORY, 0, since_ms=since_ms)
    check(answer, f"history of broker {broker}")
    if len(answer.points) > POINTS_MAX or len(answer.names) > NAMES_MAX:
        raise MalformedRequest(f"broker {broker} sends {len(answer.points)} points, expected {POINTS_MAX} at most")
    found = [Point(int(one.time_ms), _values(answer.names, one.values)) for one in answer.points]
    return sorted((one for one in found if abs(one.time_ms - since_ms) <= 2 * DAY_MS), key=lambda one: one.time_ms)


def _values(names: Sequence[str], values: Sequence[float]) -> dict[str, float]:
    """What a plot can show: numbers from 0 on."""
    found = {name: value if 0 <= value < math.inf else 0.0 for name, value in zip(names, values, strict=False)}
    return found | {"cpu": 100 * found.get("cpu", 0.0)}


# --- The page ---------------------------------------------------------------------------------------------------------


def render(facts: Facts) -> str:
    missing = None
    if facts.missing:
        missing = Section("Not on this page", heads=("What",), rows=[(_text(one),) for one in facts.missing])
    by_trouble = sorted(
        topic_lines(facts.snapshot, {}), key=lambda one: (-one.offline, -one.under_replicated, one.topic)
    )
    sections = [
        missing,
        _plot(facts, "Messages in", "messages_in", lambda value: f"{count_text(value)}/s", "Appended by producers"),
        _plot(facts, "Bytes in", "bytes_in", lambda value: f"{size_text(value)}/s", "Appended by producers"),
        _plot(facts, "Bytes out", "bytes_out", lambda value: f"{size_text(value)}/s", "Sent to consumers"),
        _plot(facts, "Lag of replicas", "replica_lag_bytes", size_text, "Of each broker's slowest replica"),
        _plot(facts, "Processor", "cpu", lambda value: f"{value:.0f}%", "Of the event loops, as shares of a core"),
        _plot(facts, "Memory", "memory_bytes", size_text, "Resident"),
        _table("Findings", Finding, facts.findings, FINDINGS_SHOWN),
        _table("Brokers", BrokerLine, _brokers(facts)),
        _table("Partitions in trouble", PartitionLine, partition_lines(facts.metadata)),
        _table("Topics", TopicLine, by_trouble),
        _table("Groups by lag", GroupLine, group_lines(facts.snapshot.groups, {})),
        _lag_plot(facts),
        _table("Acts of the last day", ActRow, facts.acts[::-1], more="`klog events ACT` has what changed."),
        _table("The last events", EventRow, [row(one) for one in facts.events[::-1]], EVENTS_SHOWN),
    ]
    first = facts.now_ms - int(facts.hours * 3_600_000)
    return render_page(
        name=(facts.snapshot.bootstrap or "").replace(",", ", "),  # lines break behind addresses
        title="klog cluster",
        about=(
            ("", "Cluster "),
            ("code", facts.metadata.cluster_id or "unknown"),
            ("", f" at {moment_text(facts.now_ms)} UTC"),
        ),
        tiles=_tiles(facts),
        findings=[_text(f"{one.severity}: {one.what}: {one.found}") for one in facts.findings[:FINDINGS_SHOWN]],
        sections=[section for section in sections if section is not None],
        footer=(
            f"Made by klog {__version__} at {moment_text(facts.now_ms)} UTC. Rates since {moment_text(first)}: brokers "
            "remember a day, and begin with each start. All times are UTC."
        ),
    )


def _tiles(facts: Facts) -> list[Tile]:
    states, controller = facts.brokers, facts.metadata.controller_id
    live = sum(one.state == "up" for one in states)
    counts = count_partitions(facts.snapshot)
    not_in_sync = f"{counts.under_replicated:,} not in sync, {counts.offline:,} offline"
    all_in_sync = not counts.under_replicated and not counts.offline
    worst = next(iter(group_lags(facts.snapshot).most_common(1)), None)
    lag, whose = "–", "no groups" if facts.snapshot.no_groups is None else "unknown"
    if worst is not None and facts.snapshot.no_groups is None:
        lag, whose = count_text(worst[1]), _text(f"messages, group {worst[0]}")
    found = counted(len(facts.findings), "finding") if facts.findings else "no findings"
    tone = {True: "good", False: "bad"}
    led_by = f"controller {'none' if controller is None else controller}"
    return [
        Tile("Brokers", f"{live}/{len(states)}", led_by, tone[live == len(states)]),
        Tile("Partitions", f"{counts.partitions:,}", not_in_sync, tone[all_in_sync]),
        Tile("Topics", f"{counts.topics:,}", ""),
        Tile("Worst lag", lag, whose),
        Tile("Status", found, "see below" if facts.findings else "`klog status`", tone[not facts.findings]),
    ]


def _plot(facts: Facts, title: str, name: str, unit: Callable[[float], str], said: str) -> Section | None:
    """A value over the last day, one colour per broker."""
    series = {
        f"broker {broker}": [(one.time_ms, one.values.get(name, 0.0)) for one in some]
        for broker, some in sorted(facts.history.items())
        if any(name in one.values for one in some)
    }
    if not series:
        return None
    mean = sum(map(_mean, series.values()))
    return _stacked(title, f"{said}, stacked by broker; on average {unit(mean)} in all.", series, unit)


def _lag_plot(facts: Facts) -> Section | None:
    """The lag of groups over the last day, one colour per group."""
    there = [one for one in facts.curves if any(value is not None for value in one.values[:-1])]
    series = {
        _text(one.group): [
            (time_ms, value) for time_ms, value in zip(facts.curve_times, one.values, strict=True) if value is not None
        ]
        for one in there
    }
    unknown = len(facts.curves) - len(there)
    parts = sum(one.missing for one in there)
    said = ["Bytes of the log between what a group has committed and the log's end, stacked by group."]
    if unknown:
        said.append(f"{counted(unknown, 'group')} without a past that brokers remember (0.8's have no coordinator).")
    if parts:
        said.append(f"{counted(parts, 'partition')} of the others: the same.")
    if not series:
        return Section("Lag of groups", " ".join(said)) if unknown else None
    return _stacked("Lag of groups", " ".join(said), series, size_text)


def _mean(points: Sequence[tuple[int, float]]) -> float:
    return sum(value for _, value in points) / len(points)


def _stacked(
    title: str, said: str, series: Mapping[str, Sequence[tuple[int, float]]], unit: Callable[[float], str]
) -> Section:
    """(time, value) by name; a bar is the mean of what is known in its time. The smallest become one."""
    times = [time_ms for some in series.values() for time_ms, _ in some]
    count = plots.SERIES_MAX - (len(series) > plots.SERIES_MAX)
    largest = set(sorted(series, key=lambda name: -_mean(series[name]))[:count])
    names = {name: name if name in largest else _OTHERS for name in series}
    legend = [name for name in series if name in largest] + [_OTHERS] * (len(largest) < len(series))

    def plot(count_max: int) -> Bars:
        bins = plots.bins_for(min(times), max(times), count_max, MINUTE_MS)
        values = {one: [0.0] * bins.count for one in legend}
        for name, some in series.items():
            sums: dict[int, list[float]] = {}
            for time_ms, value in some:
                if (at := bins.holding(time_ms)) is not None:
                    sums.setdefault(at, []).append(value)
            for at, found in sums.items():
                values[names[name]][at] += sum(found) / len(found)
        return plots.Bars(bins, [plots.Series(*one) for one in values.items()], unit)

    return plotted(title, said, plot, legend)


def _brokers(facts: Facts) -> list[BrokerLine]:
    last = {broker: points[-1].values for broker, points in facts.history.items() if points}
    names = {"lag_bytes": "replica_lag_bytes", "memory": "memory_bytes"}
    numbers = {broker: {said: values.get(name) for said, name in names.items()} for broker, values in last.items()}
    return broker_lines(facts.snapshot, numbers)


def _table(title: str, row_type: type, rows: Sequence[Any], shown: int = ROWS_SHOWN, more: str = "") -> Section | None:
    """The first rows, in the columns that have anything in them."""
    if not rows:
        return None
    some = rows[:shown]
    which = [one for one in columns(row_type) if any(getattr(row, one.field) is not None for row in some)]
    cells = [[_cell(one.name, getattr(row, one.field)) for one in which if not one.wide] for row in some]
    heads = [one.name.replace("_", " ").capitalize() for one in which if not one.wide]
    said = f"{len(some)} of {len(rows):,}." if len(some) < len(rows) else ""
    return Section(title, " ".join(filter(None, (said, more))), heads=heads, rows=cells)


def _cell(name: str, value: Any) -> str:
    """As people read it: numbers by their units."""
    if value is None:
        return "–"
    if isinstance(value, datetime):
        return f"{value:%m-%d %H:%M:%S}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        is_size = name in ("disk_free", "disk_total", "memory") or name.endswith("bytes")
        return size_text(value) if is_size else duration_text(value) if name.endswith("_ms") else f"{value:,}"
    return _text(to_text(value))


def _text(text: str) -> str:
    """Cut, and without characters that would reorder a line; the template escapes the rest."""
    shown = visible(text)
    return shown if len(shown) <= TEXT_MAX else shown[: TEXT_MAX - 3] + "..."
