"""The facts of `klog top`: the snapshot of `klog status`, its parts asked again and again, and rates beside it.

Strategy
    Each part has its own pace: at least the interval, and `PAUSES` times as long as its last answer took, so that a
    large cluster is asked less often. With 1,000 partitions of three replicas, and 100 groups with a member each,
    three brokers take 1.2 % of a core more, and 1.3 % with ZooKeeper: tests/cluster/test_top_cost.py measures it.
    Parts that hang (a broker that does not answer, ZooKeeper) do not hold up the others.

Rules
    * `look` raises nothing that a cluster can do: its facts are then those of earlier, with the trouble.
    * What could not be asked is not known, and never none.
    * Whatever a cluster says is bounded: so many topics and events are kept.

Event loop only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from klog.admin import group_lag
from klog.admin.health.snapshot import Snapshot, ask_brokers
from klog.admin.health.verdict import DOWN, WELL, PartitionCounts, Verdict, verdict
from klog.admin.metrics import read_metrics
from klog.admin.settings import min_isr
from klog.client.cluster import Cluster
from klog.client.positions import parse_position
from klog.clock import SYSTEM_CLOCK
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import KlogError, Refused, SessionLost
from klog.names import counted
from klog.tools.events import Event, EventFilter, last_addresses, read_events
from klog.tools.top.facts import GroupLine, TopicLine, TopTick, broker_lines, group_lines, partition_lines, topic_lines

PAUSES: Final = 250
PAUSE_MAX_S: Final = 15.0
ANSWER_S: Final = 3.0
"""Of a broker: one that takes longer is silent."""
PATIENCE_S: Final = 1.0
"""How long a look waits for parts, which then come with a later one."""
GROUPS_EVERY_S: Final = 5.0
BROKERS_EVERY_S: Final = 30.0
"""And at once where brokers or topics have come or gone."""
TOPICS_MAX: Final = 5_000
EVENTS_MAX: Final = 200
EVENTS_AGAIN_S: Final = 5.0
TREND_S: Final = 120.0
TREND_POINTS_MAX: Final = 60

_CPU: Final = "klog_event_loop_cpu_seconds_total"
_RATES: Final = {
    "kafka_server_brokertopicmetrics_messagesin_total": "messages_in",
    "kafka_server_brokertopicmetrics_bytesin_total": "bytes_in",
    "kafka_server_brokertopicmetrics_bytesout_total": "bytes_out",
    _CPU: "cpu",
}
"""Counters of brokers, some of topics as well -> the fields of lines that show how fast they grow."""
_NUMBERS: Final = {
    "kafka_server_replicafetchermanager_maxlag": "lag_bytes",
    "process_resident_memory_bytes": "memory",
}
_PATTERNS: Final = (*_RATES, *_NUMBERS)


class Rates:
    """How fast counters grow, by their keys."""

    def __init__(self) -> None:
        self._before: dict[Hashable, tuple[float, float]] = {}
        self._now: dict[Hashable, tuple[float, float]] = {}

    def begin(self) -> None:
        """A look begins: counters that the look before did not see are forgotten."""
        self._before, self._now = self._now, {}

    def of(self, key: Hashable, value: float | None, now_s: float, *, beside: Hashable = None) -> float | None:
        """Per second since the look before; None at the first look, and where the counter has restarted.

        ``beside``: a counter of the same source. Where that was seen before and this one was not, this one was 0.
        """
        if value is None:
            return None
        self._now[key] = now_s, value
        before = self._before.get(key)
        if before is None and beside in self._before:
            before = self._before[beside][0], 0.0
        if before is None or value < before[1] or now_s <= before[0]:
            return None
        return (value - before[1]) / (now_s - before[0])


class Trend:
    """How a number has moved in the last `TREND_S`."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, float]] = deque(maxlen=TREND_POINTS_MAX)

    def add(self, value: float, now_s: float) -> None:
        self._points.append((now_s, value))
        while len(self._points) > 2 and self._points[0][0] < now_s - TREND_S:
            self._points.popleft()

    @property
    def per_second(self) -> float | None:
        """None before there are two points."""
        if len(self._points) < 2 or self._points[-1][0] <= self._points[0][0]:
            return None
        (first_s, first), (last_s, last) = self._points[0], self._points[-1]
        return (last - first) / (last_s - first_s)


class Part:
    """A question that is asked again and again."""

    def __init__(self, ask: Callable[[], Awaitable[None]], every_s: float) -> None:
        self.task: asyncio.Task[None] | None = None
        """While it is asked in the background."""
        self._ask = ask
        self._every_s = every_s
        self._due_s = self._last_s = 0.0
        self._is_hurried = False

    def is_due(self, now_s: float) -> bool:
        return now_s >= self._due_s

    def begin(self) -> None:
        """Ask in the background, if it is due and the last answer is there."""
        if self.task is not None and self.task.done():
            self.task.result()
            self.task = None
        if self.task is None and self.is_due(SYSTEM_CLOCK.monotonic_s()):
            self.task = asyncio.ensure_future(self.ask())

    async def ask(self) -> None:
        """Ask now; what fails is due again at once."""
        self._is_hurried = False
        began_s = SYSTEM_CLOCK.monotonic_s()
        await self._ask()
        now_s = SYSTEM_CLOCK.monotonic_s()
        if not self._is_hurried:
            self.took(now_s - began_s, now_s)

    def took(self, seconds: float, now_s: float) -> None:
        """The answer took so long, and is here now."""
        # The quicker one of two: the first has to open connections, and one that hung says nothing of the next.
        pause_s = min(PAUSES * min(seconds, self._last_s), PAUSE_MAX_S)
        self._last_s = seconds
        # A little early rather than a whole interval late: the ticks are not exact.
        self._due_s = now_s - seconds + max(self._every_s * 0.9, pause_s)

    def hurry(self) -> None:
        """Ask soon, again if it is being asked: what was true has changed."""
        self._is_hurried, self._due_s = True, 0.0


class Gatherer:
    def __init__(
        self,
        cluster: Cluster,
        zookeeper: Callable[[], Awaitable[ZooKeeper]],
        every_s: float,
        home: Path,
    ) -> None:
        """``zookeeper`` opens the session that the lag of groups needs, once. ``home`` has the local clusters."""
        self.snapshot = Snapshot(bootstrap=cluster.bootstrap, no_groups="not asked yet")
        self._cluster = cluster
        self._open_zookeeper = zookeeper
        self._home = home
        self._metadata = Part(self._ask_metadata, every_s)
        self._brokers = Part(self._ask_brokers, max(every_s, BROKERS_EVERY_S))
        groups = Part(self._ask_groups, max(every_s, GROUPS_EVERY_S))
        self._parts = [Part(self._ask_metrics, every_s), self._brokers, groups]
        self._rates = Rates()
        self._numbers: dict[int, dict[str, Any]] = {}
        self._topic_rates: dict[str, dict[str, Any]] = {}
        self._trends: dict[str, Trend] = {}
        self._groups: tuple[GroupLine, ...] = ()
        self.events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self.no_events: str | None = None
        """Why they are not known."""
        self._new_events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self._events_task: asyncio.Task[None] | None = None
        self._trouble: str | None = None

    async def __aenter__(self) -> Gatherer:
        self._events_task = asyncio.ensure_future(self._follow_events())
        return self

    async def __aexit__(self, *exc: object) -> None:
        tasks = [one for one in (self._events_task, *(part.task for part in self._parts)) if one is not None]
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- a look ---------------------------------------------------------------------------------------------------

    async def look(self) -> TopTick:
        try:
            if self._metadata.is_due(SYSTEM_CLOCK.monotonic_s()):
                await self._metadata.ask()
        except KlogError as error:
            self._trouble = error.message
        else:
            self._trouble = None
            for part in self._parts:
                part.begin()
            running = [part.task for part in self._parts if part.task is not None]
            if running:
                await asyncio.wait(running, timeout=PATIENCE_S)
        return self._tick()

    def _tick(self) -> TopTick:
        snapshot = self.snapshot
        snapshot.now_ms = SYSTEM_CLOCK.now_ms()
        found = verdict(snapshot, ())
        new, self._new_events = tuple(self._new_events), deque(maxlen=EVENTS_MAX)
        counts = found.counts or PartitionCounts(0, 0, 0, 0, 0, 0)
        # What else `klog status` may find is not looked for here: what seems well is not called so.
        said = str(found if self._trouble is None else Verdict(DOWN, "no broker answers"))
        if self._trouble is None and found.word == WELL:
            said = f"{counted(counts.partitions, 'partition')} in sync"
        return TopTick(
            time=datetime.now(UTC),
            cluster=self._cluster.bootstrap,
            verdict=said,
            controller=snapshot.metadata.controller_id,
            partitions=counts.partitions,
            under_replicated=counts.under_replicated,
            offline=counts.offline,
            brokers=tuple(broker_lines(snapshot, self._numbers)),
            topics=self._topics(),
            in_trouble=tuple(partition_lines(snapshot.metadata)),
            groups=None if snapshot.no_groups is not None else self._groups,
            events=new,
            trouble=self._trouble,
            no_groups=snapshot.no_groups,
        )

    def _topics(self) -> tuple[TopicLine, ...]:
        """The busiest first."""
        lines = topic_lines(self.snapshot, self._topic_rates)
        lines.sort(key=lambda line: (-(line.bytes_in or 0) - (line.bytes_out or 0), line.topic))
        return tuple(lines[:TOPICS_MAX])

    # --- the parts ------------------------------------------------------------------------------------------------

    async def _ask_metadata(self) -> None:
        snapshot = self.snapshot
        before, was_known, now = snapshot.metadata, snapshot.answers, await self._cluster.metadata(fresh=True)
        snapshot.metadata = now
        if was_known and (before.brokers != now.brokers or before.topics.keys() != now.topics.keys()):
            self._brokers.hurry()

    async def _ask_brokers(self) -> None:
        """How they are, and the settings of topics."""
        fresh = Snapshot(metadata=self.snapshot.metadata)
        try:
            self.snapshot.min_isr = await min_isr(self._cluster, list(self.snapshot.metadata.topics))
            await ask_brokers(fresh, self._cluster, last_addresses, self._home)
        except KlogError:
            return  # a topic that has just gone, or a cluster that the next look tells of
        for name in ("silent", "hung", "hung_addresses", "located", "here", "log_dirs"):
            setattr(self.snapshot, name, getattr(fresh, name))

    async def _ask_metrics(self) -> None:
        try:
            rows = await read_metrics(self._cluster, _PATTERNS, wait_s=ANSWER_S)
        except KlogError:
            return  # a cluster that the next look tells of
        now_s = SYSTEM_CLOCK.monotonic_s()
        self._rates.begin()
        self._topic_rates, self._numbers = {}, {}
        for one in rows:
            assert one.broker is not None
            if one.error is not None:
                if one.error != Refused.code:  # another's broker, which has no such numbers
                    self.snapshot.silent[one.broker] = one.message or one.error
                continue
            self.snapshot.silent.pop(one.broker, None)
            topic, numbers = one.labels.get("topic"), self._numbers.setdefault(one.broker, {})
            if one.name in _NUMBERS:
                numbers[_NUMBERS[one.name]] = int(one.value or 0)
                continue
            # A topic has no counter before its first message.
            beside = None if topic is None else (one.broker, _CPU, None)
            rate = self._rates.of((one.broker, one.name, topic), one.value, now_s, beside=beside)
            if rate is not None:
                sums = numbers if topic is None else self._topic_rates.setdefault(topic, {})
                sums[_RATES[one.name]] = sums.get(_RATES[one.name], 0.0) + rate

    async def _ask_groups(self) -> None:
        session = None
        try:
            session = await self._open_zookeeper()
            rows = await group_lag.lag(self._cluster, session)
        except KlogError as error:
            is_away = session is None or isinstance(error, SessionLost)
            self.snapshot.groups, self.snapshot.no_groups = [], error.message
            self.snapshot.no_zookeeper = error.message if is_away else None
            return
        self.snapshot.groups, self.snapshot.no_groups, self.snapshot.no_zookeeper = rows, None, None
        now_s, trends = SYSTEM_CLOCK.monotonic_s(), self._trends
        self._trends = {}
        for one in group_lag.of_groups(rows):
            trend = self._trends[str(one.group)] = trends.get(str(one.group), Trend())
            if one.lag is not None:
                trend.add(one.lag, now_s)
        self._groups = tuple(group_lines(rows, {name: one.per_second for name, one in self._trends.items()}))

    # --- events ---------------------------------------------------------------------------------------------------

    async def _follow_events(self) -> None:
        since = parse_position(f"@{(datetime.now(UTC) - timedelta(hours=1)).isoformat()}")
        while True:
            self.no_events = None
            try:
                await read_events(self._cluster, EventFilter(), since, self._take_event, follow=True)
            except KlogError as error:  # no such topic, or it has no leader: it is tried again, from the hour's start
                self.no_events = error.message
            await asyncio.sleep(EVENTS_AGAIN_S)

    def _take_event(self, event: Event) -> None:
        if event not in self.events:  # reading that failed begins again
            self.events.append(event)
            self._new_events.append(event)
