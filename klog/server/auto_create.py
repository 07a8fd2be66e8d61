"""Topics that are made because somebody asked about them (``auto.create.topics.enable``): any broker may be asked, the
controller makes them.

Strategy: a bucket of tokens, one a topic, which fills at ``klog.auto.create.topics.per.second`` and holds `BURST_S`
seconds of that. A client that asks about names of its own making would fill ZooKeeper and the disks with topics; one
that starts with a hundred has them at once. Who asks when it is empty is told LEADER_NOT_AVAILABLE, and asks again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from klog.errors import KlogError, NotController, TopicAlreadyExists
from klog.protocol import codec
from klog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from klog.server.broker import Broker

log = logging.getLogger(__name__)

WITHIN_MS = 10_000
BURST_S = 10
PUT_OFF_MAX = 1_000
"""Names that are known to be asked for again; of more than these a client hears that there is no such topic."""
PUT_OFF_S = 5.0
SAID_EVERY_S = 10.0


class AutoCreation:
    """Event loop only."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._being_made: dict[str, asyncio.Task[None]] = {}
        self._a_second = broker.config.integer("klog.auto.create.topics.per.second")
        self._tokens = float(self._a_second * BURST_S)
        self._filled_s = broker.loop.time()
        self._put_off: dict[str, float] = {}
        """Name -> when it was put off, the last one last."""
        self._not_said = 0
        self._said_s = -SAID_EVERY_S

    def begin(self, name: str) -> asyncio.Task[None] | None:
        """Make a topic with the defaults, if that is not under way; what goes wrong is logged. None: not now."""
        if name not in self._being_made:
            if not self._may_make(name):
                return None
            self._being_made[name] = self._broker.spawn(self._make(name))
        return self._being_made[name]

    def is_making(self, name: str) -> bool:
        """Whether who asks for it will find it soon."""
        put_off_s = self._put_off.get(name)
        return name in self._being_made or (put_off_s is not None and self._broker.loop.time() - put_off_s < PUT_OFF_S)

    def _may_make(self, name: str) -> bool:
        if not self._a_second:
            return True
        now_s = self._broker.loop.time()
        self._tokens = min(self._tokens + (now_s - self._filled_s) * self._a_second, self._a_second * BURST_S)
        self._filled_s = now_s
        self._put_off.pop(name, None)
        if self._tokens >= 1:
            self._tokens -= 1
            return True
        self._put_off[name] = now_s
        if len(self._put_off) > PUT_OFF_MAX:
            del self._put_off[next(iter(self._put_off))]
        self._not_said += 1
        if now_s - self._said_s >= SAID_EVERY_S:
            log.warning(
                "topic %s is not made yet, for clients ask for more than %d topics a second "
                "(klog.auto.create.topics.per.second); so it was %d times since this was said last",
                *(name, self._a_second, self._not_said),
            )
            self._not_said, self._said_s = 0, now_s
        return False

    async def _make(self, name: str) -> None:
        try:
            if self._broker.controller.active:
                await self._broker.controller.topics.create(
                    name, partitions=None, replication_factor=None, assignment=None, overrides={}
                )
            else:
                await self._ask(name)
            log.info("topic %s made for a producer that asked for it (auto.create.topics.enable)", name)
        except TopicAlreadyExists:
            pass
        except KlogError as error:
            log.error("topic %s could not be made: %s", name, error.message)
        finally:
            self._being_made.pop(name, None)

    async def _ask(self, name: str) -> None:
        asked = {"name": name, "num_partitions": -1, "replication_factor": -1, "assignments": [], "configs": []}
        request = codec.request(ApiKey.CREATE_TOPICS, 5, topics=[asked], timeout_ms=WITHIN_MS, validate_only=False)
        (answer,) = (await self._broker.office.ask(request)).topics
        code = int(answer.error_code)
        if code == TopicAlreadyExists.wire:
            raise TopicAlreadyExists(f"topic {name!r} already exists")
        if code != 0:
            raise NotController(answer.error_message or f"the controller answered error {code}")
