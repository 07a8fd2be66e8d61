"""Lag of groups in the partitions that this broker leads: in messages, bytes and time, for metrics.

Strategy
    ZooKeeper has the committed offsets, and a leader can count what is behind them: no other broker is asked. A reading
    is kept for ten times as long as it took, so that no scraper keeps ZooKeeper or the disks busy.

Limits
    `GROUPS_MAX` groups, the first by name, and `LAGS_MAX` partitions in all; one reading may take `COUNTING_S` to look
    into logs. `GroupLags.is_cut` tells where that was not enough.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final, NamedTuple

from klog.clock import SYSTEM_CLOCK, Clock
from klog.coordination import committed, paths
from klog.coordination.session import SessionState
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import KlogError
from klog.names import TopicPartition
from klog.replication.led_partition import LedPartition
from klog.storage.lookup_budget import LookupBudget

GROUPS_MAX: Final = 1_000
LAGS_MAX: Final = 4_000
COUNTING_S: Final = 2.0
KEPT_TIMES: Final = 10


class GroupLag(NamedTuple):
    """The lag of a group in a partition. ``messages`` None: not counted yet; ``ms`` None: the message has no time."""

    group: str
    partition: TopicPartition
    messages: int | None
    bytes: int
    ms: int | None


class GroupLags:
    """The latest reading. Any thread."""

    def __init__(
        self, zookeeper: ZooKeeper, led: Mapping[TopicPartition, LedPartition], clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._zookeeper = zookeeper
        self._led = led
        self._clock = clock
        self._lock = threading.Lock()
        self._lags: list[GroupLag] = []
        self._is_cut = False
        self._until_s = 0.0

    def read(self) -> list[GroupLag]:
        """The current lags; empty while ZooKeeper is away."""
        with self._lock:
            began_s = self._clock.monotonic_s()
            if began_s >= self._until_s:
                self._lags, self._is_cut = [], False
                if self._zookeeper.state is SessionState.CONNECTED:
                    try:
                        self._read()
                    except KlogError:
                        pass  # the session was lost meanwhile
                now_s = self._clock.monotonic_s()
                self._until_s = now_s + KEPT_TIMES * (now_s - began_s)
            return self._lags

    @property
    def is_cut(self) -> bool:
        """Whether the latest reading omits groups or partitions."""
        self.read()
        return self._is_cut

    def _read(self) -> None:
        led: dict[str, dict[TopicPartition, LedPartition]] = {}
        for name, partition in list(self._led.items()):
            led.setdefault(name.topic, {})[name] = partition
        groups = committed.groups(self._zookeeper)
        topics = self._zookeeper.children_many([paths.consumer_offsets(group) for group in groups[:GROUPS_MAX]])
        places = [
            (group, name, partition)
            for group, some in zip(groups, topics, strict=False)
            for topic in some
            for name, partition in led.get(topic, {}).items()
        ]
        self._is_cut = len(groups) > GROUPS_MAX or len(places) > LAGS_MAX
        del places[LAGS_MAX:]
        nodes = self._zookeeper.get_many([paths.consumer_offset(group, *name) for group, name, _ in places])
        budget = LookupBudget(seconds=COUNTING_S)
        for (group, name, partition), node in zip(places, nodes, strict=True):
            offset = None if node is None else committed.offset_in(node.data)
            if offset is None:
                continue
            try:
                budget.spend()
                self._lags.append(GroupLag(group, name, *self._behind(partition, offset, budget)))
            except KlogError:
                self._is_cut = True

    def _behind(self, partition: LedPartition, offset: int, budget: LookupBudget) -> tuple[int | None, int, int | None]:
        log, high = partition.log, partition.high_watermark
        begin = max(offset, log.start_offset)
        if begin >= high.offset:
            return 0, 0, 0
        time_ms = log.time_of(begin, budget)
        waiting_ms = None if time_ms is None or time_ms < 0 else max(0, self._clock.now_ms() - time_ms)
        return log.count(begin, high.offset), high.address - max(begin, log.start_address), waiting_ms
