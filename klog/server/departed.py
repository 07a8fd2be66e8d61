"""Brokers that left a moment ago: Metadata lists them a little longer among the brokers, never as leaders.

librdkafka (2.16) drops a broker that an answer does not list, in that broker's own thread, and resets the leader of the
partitions that the broker still holds. If the same answer names the next leader, the thread may reset that one: the
partitions then make no progress until a timer asks again after a second. A client that learns of the next leader first,
and of the broker's end from a later answer, does not wait.
Event loop only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from klog.server.image import BrokerImage

LINGER_S: Final = 5.0
"""By then a client of the broker has noticed its end, and has asked for the new leaders."""


class Departed:
    """See the module. ``clock`` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left: dict[int, tuple[BrokerImage, float]] = {}

    def note(self, before: Mapping[int, BrokerImage], now: Mapping[int, BrokerImage]) -> None:
        """Compare the live brokers before and after an update of the controller."""
        now_s = self._clock()
        self._left = {broker_id: one for broker_id, one in self._left.items() if now_s - one[1] < LINGER_S}
        for broker_id in before.keys() - now.keys():
            self._left[broker_id] = before[broker_id], now_s

    def with_departed(self, alive: Mapping[int, BrokerImage]) -> dict[int, BrokerImage]:
        """The live brokers, and those that left a moment ago and have not returned."""
        now_s = self._clock()
        lingering = {broker_id: one for broker_id, (one, left_s) in self._left.items() if now_s - left_s < LINGER_S}
        return {**lingering, **alive}
