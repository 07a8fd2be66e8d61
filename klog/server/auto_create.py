"""Topics that are made because somebody asked about them (``auto.create.topics.enable``): any broker may be asked, the
controller makes them."""

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


class AutoCreation:
    """Event loop only."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._being_made: dict[str, asyncio.Task[None]] = {}

    def begin(self, name: str) -> asyncio.Task[None]:
        """Make a topic with the defaults, if that is not under way; what goes wrong is logged."""
        if name not in self._being_made:
            self._being_made[name] = self._broker.spawn(self._make(name))
        return self._being_made[name]

    def is_making(self, name: str) -> bool:
        return name in self._being_made

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
