"""Compares this broker's clock with the other brokers', for `Identity.clock_ahead_ms` (rule L7).

A leader with a wrong clock takes correct messages for future ones, or deletes young ones. Of three brokers or more, a
clock is the odd one if it differs from most of the others; of two, neither is: `klog status` shows both. The other
brokers, or a sample of many, are asked when a broker joins, when messages are refused for their times, and now and
then.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from typing import Final

from klog.clock import SYSTEM_CLOCK
from klog.errors import KlogError
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.render.value_texts import clock_text
from klog.secret import Secret
from klog.server.image import BrokerImage, ClusterImage
from klog.server.peer_probe import connect
from klog.server.runtime import Runtime
from klog.storage.retention import CLOCKS_APART_MS_MAX

log = logging.getLogger(__name__)

LOOK_AGAIN_S: Final = 30.0
DOUBTED_S: Final = 5.0
"""The same while the clock is the odd one, and where messages were refused for their times: it may just have been set.
Whoever sends such messages on and on has it compared no oftener."""
NEWS_S: Final = 0.5
"""Interval of checks for a new broker."""
ANSWER_WITHIN_S: Final = 5.0
PEERS_MAX: Final = 8


class PeerClocks:
    """Event loop only."""

    def __init__(self, runtime: Runtime, image: ClusterImage, secret: Secret) -> None:
        self._runtime = runtime
        self._image = image
        self._secret = secret

    async def run(self) -> None:
        """Run until cancelled."""
        known: frozenset[int] = frozenset()
        looked_s = 0.0
        while True:
            now_s, brokers = self._runtime.loop.time(), frozenset(self._image.brokers)
            identity = self._runtime.identity
            again_s = DOUBTED_S if identity.is_clock_doubted or identity.clock_ahead_ms else LOOK_AGAIN_S
            if brokers - known or now_s - looked_s >= again_s:
                identity.is_clock_doubted = False
                await self._look()
                looked_s = now_s
            known = brokers
            await asyncio.sleep(NEWS_S)

    async def _look(self) -> None:
        identity = self._runtime.identity
        others = [one for one in self._image.brokers.values() if one.broker_id != identity.broker_id]
        chosen = random.sample(others, min(len(others), PEERS_MAX))
        asked = await asyncio.gather(*map(self._ahead_of_us_ms, chosen))
        ahead_ms = odd_by_ms([one for one in asked if one is not None])
        before_ms, identity.clock_ahead_ms = identity.clock_ahead_ms, ahead_ms
        if ahead_ms and not before_ms:
            log.error(
                "this broker's clock is %s most other brokers': set it. Messages that it takes for ones of the future"
                " are refused for now, and retention by time pauses",
                clock_text(ahead_ms),
            )
            self._runtime.tell("clock-skew", ahead_ms=ahead_ms)
        elif before_ms and not ahead_ms:
            log.info("this broker's clock agrees with the other brokers' again")

    async def _ahead_of_us_ms(self, there: BrokerImage) -> int | None:
        """How far another broker's clock is ahead of ours; None if it does not answer."""
        try:
            channel = await connect(self._runtime.identity, self._secret, there, timeout_s=ANSWER_WITHIN_S)
            try:
                before_ms = SYSTEM_CLOCK.now_ms()
                answer = await channel.request(codec.request(ApiKey.DESCRIBE_SELF, 0), timeout_s=ANSWER_WITHIN_S)
                return int(answer.now_ms) - (before_ms + SYSTEM_CLOCK.now_ms()) // 2
            finally:
                await channel.close()
        except KlogError:
            return None


def odd_by_ms(others_ms: Sequence[int]) -> int:
    """How far our clock is ahead of most, if it is the odd one; else 0.

    ``others_ms``: how far each other one is ahead of ours. Most: more than half of all, ours included, agree with one
    another and not with ours.
    """
    every_ms = sorted([0, *others_ms])
    middle_ms = every_ms[(len(every_ms) - 1) // 2]
    agreeing = sum(abs(one - middle_ms) <= CLOCKS_APART_MS_MAX for one in every_ms)
    return -middle_ms if abs(middle_ms) > CLOCKS_APART_MS_MAX and 2 * agreeing > len(every_ms) else 0
