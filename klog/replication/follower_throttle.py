"""Limits a follower's rate of catching up: one rate for many partitions, so that reassignments leave room for
producers.

The rate is part of each reassignment in ZooKeeper (`klog.coordination.topics`) and comes with UpdateMetadata, so it
ends with the reassignment, however that ends: no command and no setting needs to be undone afterwards. Reassignments
with different rates share the lowest.

A request reserves its bytes, and the answer gives back what did not come, so that the rate holds with many requests in
flight. In-sync replicas are not throttled: acknowledgements wait for them. No I/O; the time is an argument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from klog.names import TopicPartition

if TYPE_CHECKING:
    from klog.replication.follower import Follower

SLICE_S: Final = 0.25
"""The part of the rate that one request may ask for: less would be many requests, more comes in bursts."""
SLICE_BYTES_MIN: Final = 4096


class Throttle:
    """One per broker."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self.rates: dict[TopicPartition, int] = {}
        """Of the replicas that a reassignment adds to this broker, in bytes per second."""
        self._bytes_per_s: int | None = None
        self._free_at_s = 0.0
        """When the rate has made up for the bytes reserved so far."""

    def take(self, update: Any) -> bool:
        """Apply an UpdateMetadata request; returns whether it has changed a rate."""
        before = dict(self.rates)
        if update.is_full:
            self.rates.clear()
        for topic in update.topics:
            if topic.is_deleted:
                for name in [name for name in self.rates if name.topic == topic.name]:
                    del self.rates[name]
                continue
            for one in topic.partitions:
                name = TopicPartition(topic.name, one.partition_index)
                if one.throttle > 0 and self._broker_id in one.adding:
                    self.rates[name] = one.throttle
                else:
                    self.rates.pop(name, None)
        if self.rates == before:
            return False
        self._bytes_per_s = min(self.rates.values(), default=None)
        self._free_at_s = 0.0
        return True

    def _holds(self, follower: Follower) -> bool:
        return bool(self.rates) and not follower.is_in_sync and follower.topic_partition in self.rates

    def wait_s(self, follower: Follower, now_s: float) -> float:
        """Seconds until this partition may be fetched again; 0 for now."""
        return max(self._free_at_s - now_s, 0.0) if self._holds(follower) else 0.0

    def reserve(self, follower: Follower, bytes_max: int, now_s: float) -> int:
        """Reserve bytes for a request; returns how many to ask for."""
        follower.reserved_bytes = 0
        if self._bytes_per_s is None or not self._holds(follower):
            return bytes_max
        size = min(bytes_max, max(int(self._bytes_per_s * SLICE_S), SLICE_BYTES_MIN))
        follower.reserved_bytes = size
        self._free_at_s = max(self._free_at_s, now_s) + size / self._bytes_per_s
        return size

    def received(self, follower: Follower, size: int) -> None:
        """An answer of ``size`` bytes has come."""
        reserved, follower.reserved_bytes = follower.reserved_bytes, 0
        if reserved and self._bytes_per_s is not None:
            self._free_at_s += (size - reserved) / self._bytes_per_s
