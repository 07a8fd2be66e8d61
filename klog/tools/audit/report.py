"""The audit (paper, section 4): what producers say they sent, held against what each tier has.

    sent      what producers have published in ``klog.audit``
    live      the cluster that they send to
    mirror    a cluster that copies it (``--mirror``)
    export    what an export's manifests say (``--export``)

Others are tiers that `klog audit run` has counted under a name of their own. A tier is first counted by its brokers,
without reading anything; where that differs, or where hosts are asked for, the stamps are read. What retention has
removed since is judged by what a run has counted before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from klog.admin.brokers import clock_ms
from klog.client.audit import TOPIC
from klog.client.cluster import Cluster
from klog.client.positions import Anchor, Range
from klog.errors import NoSuchThing, UsageError
from klog.metrics import Count
from klog.render.values import moment
from klog.tools.audit.compare import Judgement, State, sent
from klog.tools.audit.ledger import Ledger, read_ledger
from klog.tools.audit.tally import Window
from klog.tools.audit.tiers import ClusterTier, ExportTier, RunTier, Tier

GRACE_MS: Final = 60_000
"""How long after its end a window is left alone: producers publish, followers and mirrors catch up."""

CLOCK_MS: Final = 5000
"""Clocks that are less apart are taken for equal: a publication is under way for a while."""

OPEN: Final = Judgement(None, None, None, State.OPEN)
SENT: Final = "sent"
LIVE: Final = "live"
MIRROR: Final = "mirror"
EXPORT: Final = "export"


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One tier's window. MISSING and EXTRA are None where it is not judged (STATE says why).

    ``window`` is its start; ``producers``: see `Judgement`; ``counted``: offsets (brokers counted), stamps (read), run
    (an earlier `audit run`), manifests (an export's), published (the producers' word).
    """

    topic: str
    window: datetime | str
    tier: str
    messages: int | None
    missing: int | None
    extra: int | None
    state: str
    producers: tuple[str, ...] = ()
    counted: str | None = field(default=None, metadata={"wide": True})
    window_ms: int = field(default=0, metadata={"wide": True})
    note: str | None = field(default=None, metadata={"wide": True})

    @property
    def is_gap(self) -> bool:
        return self.state == State.GAP


@dataclass(frozen=True, slots=True)
class AuditReport:
    """``clocks`` are sentences about clocks that are ahead; ``windows`` were judged, ``unjudged`` were not."""

    rows: list[AuditRow]
    clocks: list[str]
    windows: int
    gaps: int
    unjudged: int
    strange: int


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """``times``: only windows that begin in this range of times. ``exact``: read the stamps of every window."""

    topics: Sequence[str] = ()
    exact: bool = False
    times: Range | None = None
    grace_ms: int = GRACE_MS
    window_ms: int | None = None
    only_gaps: bool = False
    audit_topic: str = TOPIC


async def report(
    cluster: Cluster,
    options: ReportOptions,
    *,
    mirror: Cluster | None = None,
    export: str | None = None,
    note: Callable[[str], None] = lambda text: None,
    count: Count | None = None,
) -> AuditReport:
    """Compare every tier with what producers have published on ``cluster``; ``count`` counts each tier's windows.

    NoSuchThing where no producer has published anything of the topics; errors of clusters are raised.
    """
    ledger = await read_ledger(cluster, options.audit_topic, window_ms=options.window_ms)
    windows = _chosen(ledger, options)
    if not windows:
        raise NoSuchThing(
            f"no producer has published counts of {', '.join(options.topics) or 'any topic'} in {options.audit_topic}",
            hint="producers take part by klog.Producer(..., audit=True) or `klog produce --audit`",
        )
    now_ms = round(time.time() * 1000)
    tiers: list[Tier] = [ClusterTier(LIVE, cluster, ledger, exact=options.exact, note=note)]
    if mirror is not None:
        tiers.append(ClusterTier(MIRROR, mirror, ledger, exact=options.exact, note=note))
    if export is not None:
        tiers.append(ExportTier(EXPORT, export, cluster, ledger))
    known = {tier.name for tier in tiers}
    tiers += [RunTier(name, ledger) for name in sorted({tier for tier, _ in ledger.counted} - known)]
    count = count or Count()
    count.total = len(windows) * len(tiers)
    rows: list[AuditRow] = []
    for topic in sorted({window.topic for window in windows}):
        own = sorted(window for window in windows if window.topic == topic)
        found = {}
        for tier in tiers:
            latest_ms = tier.known_ms(topic, now_ms) - ledger.window_ms - options.grace_ms
            over = [one for one in own if one.start_ms <= latest_ms]
            count.about = f"topic {topic}, {tier.name}"
            found[tier.name] = await tier.judge(topic, over, now_ms)
            count.done += len(own)
        for window in own:
            is_open = window.start_ms + ledger.window_ms + options.grace_ms > now_ms
            published = replace(sent(ledger.produced.get(window, {}), is_open=is_open), counted="published")
            rows.append(row_of(window, SENT, published, ledger.window_ms))
            known_of = ((name, judged) for name, judged in found.items() if judged is not None)
            rows += [row_of(window, name, one.get(window, OPEN), ledger.window_ms) for name, one in known_of]
    if export is not None and all(row.tier != EXPORT for row in rows):
        topics = sorted({window.topic for window in windows})
        raise NoSuchThing(
            f"{export} is not an export of {', '.join(topics)}", hint="`klog export list` shows what it has"
        )
    gaps = sum(row.is_gap for row in rows)
    judged_windows = sum(row.missing is not None for row in rows)
    unjudged = sum(row.tier != SENT and row.missing is None for row in rows)
    if options.only_gaps:
        rows = [row for row in rows if row.is_gap]
    clocks = await _clocks(cluster, ledger, now_ms)
    return AuditReport(rows, clocks, judged_windows, gaps, unjudged, ledger.strange)


def _chosen(ledger: Ledger, options: ReportOptions) -> list[Window]:
    """Windows with publications, or in which a run has found stamps."""
    begin_ms, end_ms = _times(options.times)
    wanted = set(options.topics)
    return [
        window
        for window in ledger.windows()
        if (not wanted or window.topic in wanted) and begin_ms <= window.start_ms < end_ms
    ]


def _times(times: Range | None) -> tuple[int, int]:
    """A range of times in ms; UsageError for other positions."""
    if times is None:
        return 0, 2**63
    ends = []
    for position, otherwise in ((times.begin, 0), (times.end, 2**63)):
        if position is None or position.anchor in (Anchor.START, Anchor.END):
            ends.append(otherwise)
        elif position.anchor is Anchor.TIME:
            ends.append(position.value)
        else:
            raise UsageError(f"{position} is not a time", hint="select windows by time: @-1d, @2026-02-01:@2026-02-02")
    return ends[0], ends[1]


def row_of(window: Window, tier: str, judged: Judgement, window_ms: int) -> AuditRow:
    numbers = judged.messages, judged.missing, judged.extra
    about = judged.state, judged.producers, judged.counted
    return AuditRow(window.topic, moment(window.start_ms), tier, *numbers, *about, window_ms, judged.note)


async def _clocks(cluster: Cluster, ledger: Ledger, now_ms: int) -> list[str]:
    """Producers whose time is ahead of the brokers'."""
    brokers_ms = await clock_ms(cluster)
    reference_ms, whose = (now_ms, "this machine's") if brokers_ms is None else (brokers_ms, "the broker's")
    ahead: dict[str, int] = {}
    for origin, sent_ms in ledger.publishes.items():
        apart_ms = sent_ms - reference_ms
        if apart_ms > CLOCK_MS:
            ahead[origin.host] = max(apart_ms, ahead.get(origin.host, 0))
    return [f"the clock of {host} is {apart / 1000:.0f} s ahead of {whose}" for host, apart in sorted(ahead.items())]
