"""Automatic creation of topics named by clients (``auto.create.topics.enable``).

A client may ask any broker; the controller creates the topic.

Strategy: a token bucket, one token per topic, which fills at ``klog.auto.create.topics.per.second`` and holds `BURST_S`
seconds of that. Without it a client with made-up names would fill ZooKeeper and the disks. A client that starts with a
hundred topics gets them at once. While the bucket is empty the answer is LEADER_NOT_AVAILABLE, and clients ask again.
"""

from __future__ import annotations

import asyncio
import logging

from klog.coordination.acts import AUTO_CREATE, Actor
from klog.errors import KlogError, NotController, TopicAlreadyExists
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.security.rates import TokenBucket, Windows
from klog.server.controller.controller import Controller
from klog.server.controller.controller_election import ControllerElection
from klog.server.dispatch import forwarding_client
from klog.server.runtime import Runtime

log = logging.getLogger(__name__)

WITHIN_MS = 10_000
BURST_S = 10
PUT_OFF_MAX = 1_000
"""Delayed names that are remembered; beyond it the answer is that the topic does not exist."""
PUT_OFF_S = 5.0
SAID_EVERY_S = 10.0


class AutoCreation:
    """Event loop only."""

    def __init__(self, runtime: Runtime, controller: Controller, election: ControllerElection) -> None:
        self._runtime = runtime
        self._controller = controller
        self._election = election
        self._being_made: dict[str, asyncio.Task[None]] = {}
        self._a_second = runtime.config.integer("klog.auto.create.topics.per.second")
        self._bucket = TokenBucket(Windows(BURST_S, 1.0))
        self._put_off: dict[str, float] = {}
        """Name -> when it was delayed, the newest last."""
        self._not_said = 0
        self._said_s = -SAID_EVERY_S

    def begin(self, name: str, actor: Actor) -> asyncio.Task[None] | None:
        """Create a topic with the defaults, unless that is under way; log errors.

        Returns None if the bucket is empty.
        """
        if name not in self._being_made:
            if not self._may_make(name):
                return None
            named = actor._replace(client=f"{AUTO_CREATE} for {actor.client}" if actor.client else AUTO_CREATE)
            self._being_made[name] = self._runtime.spawn(self._make(name, named))
        return self._being_made[name]

    def is_making(self, name: str) -> bool:
        """Whether the topic is being created, or was delayed just now, so that a client should ask again."""
        put_off_s = self._put_off.get(name)
        return name in self._being_made or (put_off_s is not None and self._runtime.loop.time() - put_off_s < PUT_OFF_S)

    def _may_make(self, name: str) -> bool:
        if not self._a_second:
            return True
        now_s = self._runtime.loop.time()
        self._put_off.pop(name, None)
        if not self._bucket.wait_s(self._a_second, now_s):
            self._bucket.take(1, self._a_second, now_s)
            return True
        self._put_off[name] = now_s
        if len(self._put_off) > PUT_OFF_MAX:
            del self._put_off[next(iter(self._put_off))]
        self._not_said += 1
        if now_s - self._said_s >= SAID_EVERY_S:
            log.warning(
                "creation of topic %s is delayed: clients ask for more than %d new topics a second "
                "(klog.auto.create.topics.per.second); %d delays since the last such line",
                *(name, self._a_second, self._not_said),
            )
            self._not_said, self._said_s = 0, now_s
        return False

    async def _make(self, name: str, actor: Actor) -> None:
        try:
            if self._controller.active:
                await self._controller.topics.create(
                    name, partitions=None, replication_factor=None, assignment=None, overrides={}, actor=actor
                )
            else:
                await self._ask(name, actor)
            log.info("topic %s made for a producer that asked for it (auto.create.topics.enable)", name)
        except TopicAlreadyExists:
            pass
        except KlogError as error:
            log.error("topic %s could not be made: %s", name, error.message)
        finally:
            self._being_made.pop(name, None)

    async def _ask(self, name: str, actor: Actor) -> None:
        asked = {"name": name, "num_partitions": -1, "replication_factor": -1, "assignments": [], "configs": []}
        request = codec.request(ApiKey.CREATE_TOPICS, 5, topics=[asked], timeout_ms=WITHIN_MS, validate_only=False)
        client_id = forwarding_client(self._runtime.identity.client_id, actor)
        (answer,) = (await self._election.ask(request, client_id=client_id)).topics
        code = int(answer.error_code)
        if code == TopicAlreadyExists.wire:
            raise TopicAlreadyExists(f"topic {name!r} already exists")
        if code != 0:
            raise NotController(answer.error_message or f"the controller answered error {code}")
