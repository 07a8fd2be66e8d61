"""The facts of `klog top`, gathered again and again by one connection.

Strategy
    Each part has its own pace: at least the interval, and `PAUSES` times as long as its last answer took, so that a
    large cluster is asked less often. With 1,000 partitions of three replicas, and 100 groups with a member each,
    three brokers take 1.2 % of a core more, and 1.3 % with ZooKeeper: tests/cluster/test_top_cost.py measures it.
    Parts that hang (a broker that does not answer, ZooKeeper) do not hold up the others.

Rules
    * `look` raises nothing that a cluster can do: its facts are then those of earlier, with the trouble.
    * Whatever a cluster says is bounded: so many topics, groups and events are kept.

Event loop only.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from klog.admin import group_lag
from klog.admin.health.verdict import PartitionCounts, count_partitions
from klog.admin.metrics import MetricRow, read_metrics
from klog.client.positions import parse_position
from klog.clock import SYSTEM_CLOCK, Clock
from klog.errors import KlogError
from klog.tools.events import Event, EventFilter, read_events, row
from klog.tools.top.facts import BrokerLine, GroupLine, PartitionLine, TopicLine, TopTick, listed
from klog.tools.top.rates import Rates, Trend

if TYPE_CHECKING:
    from klog.admin.group_lag import LagRow
    from klog.client.cluster import Cluster
    from klog.client.metadata import Metadata
    from klog.coordination.zookeeper import ZooKeeper

PAUSES: Final = 250
PAUSE_MAX_S: Final = 15.0
ANSWER_S: Final = 3.0
"""Of a broker: one that takes longer is silent."""
PATIENCE_S: Final = 1.0
"""How long a look waits for the lag of groups, which then comes with a later one."""
GROUPS_EVERY_S: Final = 5.0
DISKS_EVERY_S: Final = 10.0
TOPICS_MAX: Final = 5_000
EVENTS_MAX: Final = 200
EVENTS_AGAIN_S: Final = 5.0

_IN = "kafka_server_brokertopicmetrics_messagesin_total"
_BYTES_IN = "kafka_server_brokertopicmetrics_bytesin_total"
_BYTES_OUT = "kafka_server_brokertopicmetrics_bytesout_total"
_LEADERS = "kafka_server_replicamanager_leadercount"
_REPLICAS = "kafka_server_replicamanager_partitioncount"
_LAG = "kafka_server_replicafetchermanager_maxlag"
_CPU = "klog_event_loop_cpu_seconds_total"
_MEMORY = "process_resident_memory_bytes"
_OF_TOPICS = (_IN, _BYTES_IN, _BYTES_OUT)
_PATTERNS = (*_OF_TOPICS, _LEADERS, _REPLICAS, _LAG, _CPU, _MEMORY)

NO_PARTITIONS: Final = PartitionCounts(0, 0, 0, 0)

Disk = tuple[int, int]
"""Free bytes, and all."""


class Pace:
    """When a part is asked again."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._due_s = 0.0
        self._last_s = 0.0

    def is_due(self, now_s: float) -> bool:
        return now_s >= self._due_s

    def took(self, seconds: float, now_s: float) -> None:
        """The answer took so long, and is here now."""
        # The quicker one of two: the first has to open connections, and one that hung says nothing of the next.
        pause_s = min(PAUSES * min(seconds, self._last_s), PAUSE_MAX_S)
        self._last_s = seconds
        # A little early rather than a whole interval late: the ticks are not exact.
        self._due_s = now_s - seconds + max(self._every_s * 0.9, pause_s)


class Gatherer:
    """See the module."""

    def __init__(
        self,
        cluster: Cluster,
        zookeeper: Callable[[], Awaitable[ZooKeeper]],
        every_s: float,
        clock: Clock = SYSTEM_CLOCK,
        *,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """``zookeeper`` opens the session that the lag of groups needs, once. ``patience_s``: how long a look waits
        for it."""
        self._patience_s = patience_s
        self._cluster = cluster
        self._open_zookeeper = zookeeper
        self._clock = clock
        self._metadata: Metadata | None = None
        self._metadata_pace = Pace(every_s)
        self._metrics: dict[int, list[MetricRow]] = {}
        self._metrics_pace = Pace(every_s)
        self._rates = Rates()
        self._brokers: tuple[BrokerLine, ...] = ()
        self._topic_rates: dict[str, dict[str, float]] = {}
        self._disks: dict[int, Disk] = {}
        self._disks_pace = Pace(max(every_s, DISKS_EVERY_S))
        self._lag: list[LagRow] = []
        self._trends: dict[str, Trend] = {}
        self._groups: tuple[GroupLine, ...] = ()
        self._groups_pace = Pace(max(every_s, GROUPS_EVERY_S))
        self._groups_task: asyncio.Task[None] | None = None
        self.groups_trouble: str | None = None
        self.events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self._new_events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self._seen: deque[str] = deque(maxlen=2 * EVENTS_MAX)
        self._events_task: asyncio.Task[None] | None = None
        self.trouble_since: datetime | None = None
        self._trouble: str | None = None

    def start(self) -> None:
        """Begin to follow the events."""
        self._events_task = asyncio.ensure_future(self._follow_events())

    async def close(self) -> None:
        """End what goes on in the background."""
        tasks = [one for one in (self._events_task, self._groups_task) if one is not None]
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- a look ---------------------------------------------------------------------------------------------------

    async def look(self) -> TopTick:
        """The cluster now."""
        try:
            await self._read_metadata()
            await asyncio.gather(self._read_brokers(), self._read_disks(), self._read_groups())
        except KlogError as error:
            self._trouble = error.message
            self.trouble_since = self.trouble_since or datetime.now(UTC)
        else:
            self._trouble = self.trouble_since = None
        return self._tick()

    def _tick(self) -> TopTick:
        topics = self._metadata.topics.values() if self._metadata is not None else ()
        partitions = [(topic.name, one) for topic in topics for one in topic.partitions.values()]
        in_trouble = [
            PartitionLine(name, one.partition, one.leader, one.replicas, one.isr, _trouble(one))
            for name, one in partitions
            if one.leader is None or one.is_under_replicated
        ]
        in_trouble.sort(key=lambda one: (one.leader is not None, len(one.isr), one.topic, one.partition))
        new, self._new_events = tuple(self._new_events), deque(maxlen=EVENTS_MAX)
        counts = NO_PARTITIONS if self._metadata is None else count_partitions(self._metadata)
        return TopTick(
            time=datetime.now(UTC),
            cluster=self._cluster.bootstrap,
            controller=self._metadata.controller_id if self._metadata is not None else None,
            partitions=counts.partitions,
            under_replicated=counts.under_replicated,
            offline=counts.offline,
            brokers=self._brokers,
            topics=self._topics(),
            in_trouble=tuple(in_trouble),
            groups=self._groups,
            events=new,
            trouble=self._trouble,
        )

    async def _read_metadata(self) -> None:
        began_s = self._clock.monotonic_s()
        if not self._metadata_pace.is_due(began_s) and self._trouble is None:
            return
        self._metadata = await self._cluster.metadata(fresh=True)
        now_s = self._clock.monotonic_s()
        self._metadata_pace.took(now_s - began_s, now_s)

    async def _read_brokers(self) -> None:
        assert self._metadata is not None
        began_s = self._clock.monotonic_s()
        if not self._metrics_pace.is_due(began_s):
            return
        live = list(self._metadata.brokers)
        read = await asyncio.gather(*(self._of_broker(one) for one in live))
        now_s = self._clock.monotonic_s()
        self._metrics_pace.took(now_s - began_s, now_s)
        self._rates.begin()
        self._topic_rates = {}
        lines = [self._broker_line(one, rows, now_s) for one, rows in zip(live, read, strict=True)]
        for topic in self._metadata.topics.values():
            for one in topic.partitions.values():
                lines += [
                    BrokerLine(broker, None, "dead")
                    for broker in one.replicas
                    if all(line.broker != broker for line in lines)
                ]
        self._brokers = tuple(sorted(lines, key=lambda line: line.broker))

    async def _of_broker(self, broker: int) -> list[MetricRow] | None:
        """None: it does not answer."""
        try:
            rows = await read_metrics(self._cluster, _PATTERNS, broker=broker, wait_s=ANSWER_S)
        except KlogError:
            return None
        return None if any(row.error for row in rows) else rows

    def _broker_line(self, broker: int, rows: list[MetricRow] | None, now_s: float) -> BrokerLine:
        assert self._metadata is not None
        address = self._metadata.brokers[broker].address
        if rows is None:
            return BrokerLine(broker, address, "silent")
        whole: dict[str, float] = {}
        for one in rows:
            topic = one.labels.get("topic")
            if topic is None:
                whole[one.name] = one.value or 0.0
            elif (rate := self._topic_rate(broker, one, topic, now_s)) is not None:
                sums = self._topic_rates.setdefault(topic, {})
                sums[one.name] = sums.get(one.name, 0.0) + rate
        in_, bytes_in, bytes_out, cpu = (
            self._rates.of((broker, name, None), whole.get(name), now_s) for name in (*_OF_TOPICS, _CPU)
        )
        free, total = self._disks.get(broker, (None, None))
        return BrokerLine(
            broker,
            address,
            "controller" if broker == self._metadata.controller_id else "up",
            in_,
            bytes_in,
            bytes_out,
            _whole(whole.get(_LEADERS)),
            _whole(whole.get(_REPLICAS)),
            _whole(whole.get(_LAG)),
            free,
            total,
            _whole(whole.get(_MEMORY)),
            cpu,
        )

    def _topic_rate(self, broker: int, one: MetricRow, topic: str, now_s: float) -> float | None:
        """A topic has no counter before its first message."""
        return self._rates.of((broker, one.name, topic), one.value, now_s, beside=(broker, _CPU, None))

    def _topics(self) -> tuple[TopicLine, ...]:
        """The busiest first."""
        topics = self._metadata.topics.values() if self._metadata is not None else ()
        lines = []
        for topic in topics:
            rates = self._topic_rates.get(topic.name, {})
            parts = topic.partitions.values()
            lines.append(
                TopicLine(
                    topic.name,
                    len(topic.partitions),
                    sum(one.is_under_replicated for one in parts),
                    sum(one.leader is None for one in parts),
                    rates.get(_IN),
                    rates.get(_BYTES_IN),
                    rates.get(_BYTES_OUT),
                )
            )
        lines.sort(key=lambda line: (-(line.bytes_in or 0) - (line.bytes_out or 0), line.topic))
        return tuple(lines[:TOPICS_MAX])

    # --- disks ----------------------------------------------------------------------------------------------------

    async def _read_disks(self) -> None:
        assert self._metadata is not None
        began_s = self._clock.monotonic_s()
        if not self._disks_pace.is_due(began_s):
            return
        live = list(self._metadata.brokers)
        found = await asyncio.gather(*(self._disk(one) for one in live))
        self._disks = {broker: disk for broker, disk in zip(live, found, strict=True) if disk is not None}
        now_s = self._clock.monotonic_s()
        self._disks_pace.took(now_s - began_s, now_s)

    async def _disk(self, broker: int) -> Disk | None:
        """Of the log dir with the least room."""
        from klog.protocol.apis import ApiKey

        try:
            answer = await self._cluster.to_broker(broker, ApiKey.DESCRIBE_LOG_DIRS, 4, 4, wait_s=ANSWER_S, topics=[])
        except KlogError:
            return None
        dirs = [(int(one.usable_bytes), int(one.total_bytes)) for one in answer.results if one.usable_bytes >= 0]
        return min(dirs, default=None)

    # --- groups ---------------------------------------------------------------------------------------------------

    async def _read_groups(self) -> None:
        now_s = self._clock.monotonic_s()
        if self._groups_task is None and self._groups_pace.is_due(now_s):
            self._groups_task = asyncio.ensure_future(self._measure_groups(now_s))
        if self._groups_task is not None:
            await asyncio.wait((self._groups_task,), timeout=self._patience_s)
            if self._groups_task.done():
                self._groups_task = None

    async def _measure_groups(self, began_s: float) -> None:
        try:
            self._lag = await group_lag.lag(self._cluster, await self._open_zookeeper())
        except KlogError as error:
            self.groups_trouble = error.message
        else:
            self.groups_trouble = None
            self._groups = self._group_lines()
        now_s = self._clock.monotonic_s()
        self._groups_pace.took(now_s - began_s, now_s)

    def _group_lines(self) -> tuple[GroupLine, ...]:
        """The furthest behind first."""
        now_s = self._clock.monotonic_s()
        partitions: dict[str | None, int] = {}
        for one in self._lag:
            partitions[one.group] = partitions.get(one.group, 0) + 1
        sums = [one for one in group_lag.totals(self._lag) if one.group is not None and one.topic is None]
        self._trends = {str(one.group): self._trends.get(str(one.group), Trend()) for one in sums}
        lines = []
        for one in sums:
            trend = self._trends[str(one.group)]
            if one.lag is not None:
                trend.add(one.lag, now_s)
            lines.append(
                GroupLine(str(one.group), one.lag, one.lag_bytes, one.lag_ms, trend.per_second, partitions[one.group])
            )
        lines.sort(key=lambda line: (-(line.lag if line.lag is not None else -1), line.group))
        return tuple(lines)

    # --- events ---------------------------------------------------------------------------------------------------

    async def _follow_events(self) -> None:
        since = datetime.now(UTC) - timedelta(hours=1)
        while True:
            try:
                await read_events(
                    self._cluster,
                    EventFilter(),
                    parse_position(f"@{since.isoformat()}"),
                    self._take_event,
                    follow=True,
                    note=lambda _: None,
                )
            except KlogError:
                pass  # no such topic, or it has no leader: it is tried again, from the beginning of the hour
            await asyncio.sleep(EVENTS_AGAIN_S)

    def _take_event(self, event: Event) -> None:
        text = json.dumps(event, sort_keys=True)
        if text not in self._seen:
            self._seen.append(text)
            self.events.append(event)
            self._new_events.append(event)

    # --- one subject ----------------------------------------------------------------------------------------------

    async def metrics_of(self, broker: int) -> list[str]:
        """A broker's metrics as lines."""
        rows = await read_metrics(self._cluster, broker=broker, wait_s=ANSWER_S)
        lines = []
        for one in rows:
            labels = ",".join(f"{name}={value}" for name, value in one.labels.items())
            value = one.message if one.value is None else f"{one.value:,.3f}".rstrip("0").rstrip(".")
            lines.append(f"{one.name}{{{labels}}} {value}" if labels else f"{one.name} {value}")
        return lines

    def partitions_of(self, topic: str) -> list[str]:
        """A topic's partitions as lines."""
        found = self._metadata.topics.get(topic) if self._metadata is not None else None
        if found is None:
            return ["the topic does not exist"]
        return [
            f"{topic}-{one.partition}  leader {'none' if one.leader is None else one.leader}  "
            f"replicas {listed(one.replicas)}  in-sync {listed(one.isr)}  {_trouble(one)}".rstrip()
            for one in found.partitions.values()
        ]

    @property
    def lag(self) -> Sequence[LagRow]:
        """Of every group in every partition, as of the last look that had it."""
        return self._lag

    def lag_of(self, group: str) -> list[str]:
        """A group's partitions as lines, the furthest behind first."""
        rows = group_lag.in_order([one for one in self._lag if one.group == group], "lag")
        return [
            f"{one.topic}-{one.partition}  lag {_known(one.lag)}  bytes {_known(one.lag_bytes)}  "
            f"ms {_known(one.lag_ms)}  at {_known(one.current_offset)} of {_known(one.log_end_offset)}  "
            f"owner {one.owner or '-'}"
            for one in rows
        ]

    def events_of(self, subject: Mapping[str, Any]) -> list[str]:
        """The latest events of a partition, as lines."""
        found = []
        for event in reversed(self.events):
            if all(event.get(name) == value for name, value in subject.items()):
                told = row(event)
                when = f"{told.time:%H:%M:%S}" if told.time is not None else "?"
                found.append(f"{when}  {told.kind}  {told.what}" + (f" ({told.reason})" if told.reason else ""))
        return found


def _trouble(partition: Any) -> str:
    if partition.leader is None:
        return "no leader"
    missing = [one for one in partition.replicas if one not in partition.isr]
    return f"not in sync: {listed(missing)}" if missing else ""


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _known(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
