"""Brokers that this one was told of until a moment ago, for clients that must not be told of their end at once.

Metadata names them among the brokers a little longer, as leaders never. librdkafka (2.16) lets go of a broker that an
answer does not list, in that broker's own thread, which also makes the partitions it still holds forget their leader.
Where the same answer names the next leader, that may be the leader they forget: they then stand still until a timer of
a second asks again. Whoever hears of the next leader first, and of the broker's end by a later answer, has no wait.
Event loop only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from klog.server.image import BrokerImage

LINGER_S: Final = 5.0
"""Whoever uses a broker knows by then that it has gone, and has asked who leads in its place."""


class Departed:
    """See the module. ``clock`` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left: dict[int, tuple[BrokerImage, float]] = {}

    def note(self, before: Mapping[int, BrokerImage], now: Mapping[int, BrokerImage]) -> None:
        """The controller has said who lives now."""
        now_s = self._clock()
        self._left = {broker_id: one for broker_id, one in self._left.items() if now_s - one[1] < LINGER_S}
        for broker_id in before.keys() - now.keys():
            self._left[broker_id] = before[broker_id], now_s

    def with_departed(self, alive: Mapping[int, BrokerImage]) -> dict[int, BrokerImage]:
        """Who lives, and whoever left a moment ago and has not come back."""
        now_s = self._clock()
        lingering = {broker_id: one for broker_id, (one, left_s) in self._left.items() if now_s - left_s < LINGER_S}
        return {**lingering, **alive}
