"""How fast this broker fetches replicas that a reassignment adds to it, as the controller says in UpdateMetadata.

The rate is part of each reassignment in ZooKeeper (`klog.coordination.topics`) and comes with UpdateMetadata, so it
ends with the reassignment, however that ends: no command and no setting needs to be undone afterwards. Reassignments
with different rates share the lowest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klog.names import TopicPartition

Limit = Callable[[set[TopicPartition], "float | None"], None]
"""(partitions, bytes per second for all of them together; None: no limit)"""


class ReassignmentThrottle:
    """Event loop only."""

    def __init__(self, broker_id: int, limit: Limit) -> None:
        self._broker_id = broker_id
        self._limit = limit
        self._rates: dict[TopicPartition, int] = {}

    def take(self, update: Any) -> None:
        """Apply an UpdateMetadata request."""
        before = dict(self._rates)
        if update.is_full:
            self._rates.clear()
        for topic in update.topics:
            if topic.is_deleted:
                for name in [name for name in self._rates if name.topic == topic.name]:
                    del self._rates[name]
                continue
            for one in topic.partitions:
                name = TopicPartition(topic.name, one.partition_index)
                if one.throttle > 0 and self._broker_id in one.adding:
                    self._rates[name] = one.throttle
                else:
                    self._rates.pop(name, None)
        if self._rates != before:
            self._limit(set(self._rates), min(self._rates.values(), default=None))
