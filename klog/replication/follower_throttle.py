"""Limits a follower's rate of catching up: one rate for many partitions, so that reassignments leave room for
producers.

A request reserves its bytes, and the answer gives back what did not come, so that the rate holds with many requests in
flight. In-sync replicas are not throttled: acknowledgements wait for them. No I/O; the time is an argument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klog.names import TopicPartition

if TYPE_CHECKING:
    from klog.replication.follower import Follower

SLICE_S: Final = 0.25
"""The part of the rate that one request may ask for: less would be many requests, more comes in bursts."""
SLICE_BYTES_MIN: Final = 4096


class Throttle:
    """One per broker."""

    def __init__(self) -> None:
        self._names: frozenset[TopicPartition] = frozenset()
        self._bytes_per_s: float | None = None
        self._free_at_s = 0.0
        """When the rate has made up for the bytes reserved so far."""

    def set(self, names: set[TopicPartition], bytes_per_s: float | None) -> None:
        self._names = frozenset(names) if bytes_per_s is not None else frozenset()
        self._bytes_per_s = bytes_per_s
        self._free_at_s = 0.0

    def _holds(self, follower: Follower) -> bool:
        return bool(self._names) and not follower.is_in_sync and follower.topic_partition in self._names

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
