"""Recently stopped brokers, which Metadata lists a little longer among the brokers, never as leaders.

librdkafka (2.16) drops a broker that an answer does not list, in that broker's own thread, and resets the leader of the
partitions that the broker still holds. If the same answer names the next leader, the thread may reset that one: the
partitions then make no progress until a timer asks again after a second. A client that learns of the next leader first,
and of the broker's end from a later answer, does not wait.

It also records when each broker left, for a broker that becomes controller and did not see it itself. Event loop only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from klog.clock import SYSTEM_CLOCK
from klog.server.image import BrokerImage

LINGER_S: Final = 1.0
"""By then a client of a killed broker has noticed its end, and has asked for the new leaders. Not longer: librdkafka
awaits the answers of a broker that hangs as long as it is listed, and sends nothing to the next leader before."""

KEPT_MAX: Final = 1_000


class FormerBrokers:
    """See the module. ``clock``: seconds; ``now_ms``: wall clock."""

    def __init__(self, clock: Callable[[], float], now_ms: Callable[[], int] = SYSTEM_CLOCK.now_ms) -> None:
        self._clock = clock
        self._now_ms = now_ms
        self._left: dict[int, tuple[BrokerImage, float]] = {}
        self.left_ms: dict[int, int] = {}
        """Broker id -> when it was first missing in a controller's update; the last `KEPT_MAX` that have not
        returned."""

    def note(self, before: Mapping[int, BrokerImage], now: Mapping[int, BrokerImage]) -> None:
        """Compare the live brokers before and after an update of the controller."""
        now_s = self._clock()
        self._left = {broker_id: one for broker_id, one in self._left.items() if now_s - one[1] < LINGER_S}
        for broker_id in now:
            self.left_ms.pop(broker_id, None)
        for broker_id in sorted(before.keys() - now.keys()):
            self._left[broker_id] = before[broker_id], now_s
            self.left_ms[broker_id] = self._now_ms()
        while len(self.left_ms) > KEPT_MAX:
            del self.left_ms[next(iter(self.left_ms))]

    def with_former(self, alive: Mapping[int, BrokerImage]) -> dict[int, BrokerImage]:
        """The live brokers, and those that left recently and have not returned."""
        now_s = self._clock()
        lingering = {broker_id: one for broker_id, (one, left_s) in self._left.items() if now_s - left_s < LINGER_S}
        return {**lingering, **alive}
