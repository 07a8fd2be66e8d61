"""Metadata: v0-9 for all clients, v10-12 for klog's own tools.

Behaviour
    Brokers at the addresses advertised for the listener by which the request came (a broker without that listener is
    left out, and leads nothing for its clients), the controller, the cluster id (v2), and for each topic its partitions
    with leader, leader epoch (v7), replicas and in-sync replicas. No topics asked for: all (v0: an empty list; later:
    null). A topic that a request names twice is answered once, as Kafka does.
    A missing topic is created if the broker allows it (auto.create.topics.enable), the request allows it (from v4 on)
    and the client is not a consumer: stock consumers say so since v4; before that every client counts as a producer.
    The answer waits a second at most until the topic exists, and is LEADER_NOT_AVAILABLE if that takes longer. A broker
    that starts waits until the controller has described the cluster; otherwise it would call every topic unknown.
    The answer does not name a leader that refuses connections. Clients often ask when their leader has just died,
    before the controller has elected another, and a client that tries the dead broker loses a second or more. The
    answer waits for the election, `DOUBT_PATIENCE_S` at most. If there is no other leader by then, or more than
    `DOUBTS_MAX` answers wait already, the partition is LEADER_NOT_AVAILABLE, and clients ask again soon. Waiting
    requests hold no thread; the broker handles later requests of the same connection meanwhile, and answers them in
    their order.
    An answer about topics by name also lists brokers that left a moment ago, though not as leaders (`former_brokers.py`
    says why). An answer about all topics, or none, lists the live brokers.

Version notes
    v8 asks for the permitted operations: all, unless `klog.server.access` says otherwise. From v11 on not for the
    cluster's.
    v9 says the same in fewer bytes, too few for librdkafka: `codec.PADDED_METADATA`.
    v10 and on carry topic ids. Stock clients would then use ids in Fetch and other requests, which klog does not
    support yet. An export needs the ids to distinguish a topic from a later one of the same name. Asking by id is not
    supported. These versions list no broker that has left: klog's tools learn from them which brokers live.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Collection
from typing import Any

from klog.coordination.acts import Actor
from klog.coordination.partition_states import NO_LEADER
from klog.errors import InvalidTopic, KlogError, LeaderNotAvailable, MalformedRequest, UnknownTopicOrPartition
from klog.names import INTERNAL_TOPICS, check_new_topic_name, check_topic_name
from klog.protocol.apis import ApiKey
from klog.security.permissions import ALL_OPERATIONS, ResourceType
from klog.server.dispatch import Answer, Request, handles
from klog.server.image import TopicImage
from klog.server.parts import Parts

STOCK_MAX = 9
"""The last version offered to stock clients; later ones are klog's own."""
IMAGE_PATIENCE_S = 5.0
"""How long an answer waits on a starting broker for the controller's first update."""
DOUBT_PATIENCE_S = 0.5
"""How long an answer waits for another leader instead of one that refuses connections."""
DOUBTS_MAX = 1_000
"""Answers that may wait for that at the same time."""
LOOK_AGAIN_S = 0.1
"""A broker that refused connections may listen again without an update from the controller."""
CREATION_PATIENCE_S = 1.0
"""How long an answer waits for a topic that is being created: after LEADER_NOT_AVAILABLE clients wait longer."""


@handles(ApiKey.METADATA, 0, 12, advertised_max_version=STOCK_MAX)
class MetadataHandler:
    """See the module. Event loop only."""

    def __init__(self, parts: Parts) -> None:
        self.doubts = 0
        """Answers that wait for another leader instead of one that refuses connections."""
        self._config = parts.config
        self._loop = parts.runtime.loop
        self._image = parts.image
        self._probes = parts.probes
        self._former_brokers = parts.former_brokers
        self._auto_creation = parts.auto_creation

    def __call__(self, request: Request) -> Answer | Awaitable[Answer]:
        if not self._image.known.is_set():
            return self._answer_when_known(request)
        asked = request.entity.topics
        is_all = asked is None or (request.head.version == 0 and not asked)
        names = None if is_all else _names(request)
        if names and None in names:
            raise MalformedRequest("Metadata asks for a topic by its id alone, which is not served")
        may_create = getattr(request.entity, "allow_auto_topic_creation", True)
        if names and may_create and self._config["auto.create.topics.enable"]:
            missing, actor = [name for name in names if name not in self._image.topics], request.actor
            being_created = [made for name in missing if (made := self._create(name, actor))]
            if being_created:
                return self._answer_when_created(request, names, being_created)
        return self._answer_with_leaders(request, names)

    async def _answer_when_known(self, request: Request) -> Answer:
        """As `__call__`, once the cluster is known; a topic asked for by name is LEADER_NOT_AVAILABLE until then."""
        try:
            async with asyncio.timeout(IMAGE_PATIENCE_S):
                await self._image.known.wait()
        except TimeoutError:
            return self._answer(request, _names(request))
        answer = self(request)
        return answer if isinstance(answer, dict) else await answer

    def _create(self, name: str, actor: Actor) -> asyncio.Task[None] | None:
        """Start creating a topic; None for an invalid name, and while clients ask for too many."""
        try:
            return self._auto_creation.begin(check_new_topic_name(name), actor)
        except InvalidTopic:
            return None

    async def _answer_when_created(
        self, request: Request, names: list[str], being_created: list[asyncio.Task[None]]
    ) -> Answer:
        await asyncio.wait(being_created, timeout=CREATION_PATIENCE_S)
        answer = self._answer_with_leaders(request, names)
        return answer if isinstance(answer, dict) else await answer

    def _answer_with_leaders(self, request: Request, names: list[str] | None) -> Answer | Awaitable[Answer]:
        """The answer, once it names no leader that refuses connections; at once if that is known."""
        leaders = self._leaders(names)
        refusing = self._probes.known(self._image.brokers, leaders)
        if refusing is not None and (not refusing or self.doubts >= DOUBTS_MAX):
            return self._answer(request, names, refusing)
        return self._wait_for_leaders(request, names)

    async def _wait_for_leaders(self, request: Request, names: list[str] | None) -> Answer:
        until_s = self._loop.time() + DOUBT_PATIENCE_S
        self.doubts += 1
        try:
            while True:
                news = self._image.news
                refusing = await self._probes.refusing(self._image.brokers, self._leaders(names))
                now_s = self._loop.time()
                if news.is_set() and now_s < until_s:
                    continue
                if not refusing or now_s >= until_s or self.doubts > DOUBTS_MAX:
                    return self._answer(request, names, refusing)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(min(until_s, now_s + LOOK_AGAIN_S)):
                        await news.wait()
        finally:
            self.doubts -= 1

    def _leaders(self, names: list[str] | None) -> set[int]:
        """All brokers that the answer would name as leaders."""
        topics = self._image.topics
        asked = topics.values() if names is None else [topics[name] for name in names if name in topics]
        leaders = {one.leader for topic in asked for one in topic.partitions.values()}
        leaders.discard(NO_LEADER)
        return leaders

    def _answer(self, request: Request, names: list[str] | None, refusing: Collection[int] = ()) -> Answer:
        """The answer by the controller's last update, without leaders that refuse connections."""
        image = self._image
        lists_former = bool(names) and request.head.version <= STOCK_MAX
        brokers = self._former_brokers.with_former(image.brokers) if lists_former else image.brokers
        addresses = {broker_id: one.address_of(request.listener) for broker_id, one in brokers.items()}
        unreachable = {broker_id for broker_id, address in addresses.items() if address is None}
        if unreachable:
            refusing = {*refusing, *unreachable}
        if names is None:
            topics = [_topic(topic, refusing) for _, topic in sorted(image.topics.items())]
        else:
            topics = [self._named(name, refusing) for name in names]
        answer: Answer = {
            "brokers": [
                {"node_id": broker_id, "host": address[0], "port": address[1], "rack": brokers[broker_id].rack}
                for broker_id, address in sorted(addresses.items())
                if address is not None
            ],
            "cluster_id": image.cluster_id,
            "controller_id": image.controller_id,
            "topics": topics,
        }
        if _asks(request, "cluster"):
            answer["cluster_authorized_operations"] = ALL_OPERATIONS[ResourceType.CLUSTER]
        if _asks(request, "topic"):
            for topic in topics:
                if not topic["error_code"]:
                    topic["topic_authorized_operations"] = ALL_OPERATIONS[ResourceType.TOPIC]
        return answer

    def _named(self, name: str, refusing: Collection[int]) -> dict[str, Any]:
        topic = self._image.topics.get(name)
        if topic is not None:
            return _topic(topic, refusing)
        error: KlogError = UnknownTopicOrPartition.of_topics(name)
        try:
            check_topic_name(name)
            if not self._image.known.is_set():
                error = LeaderNotAvailable(
                    "this broker is starting, and waits for the controller's description of the cluster"
                )
            elif self._auto_creation.is_making(name):
                error = LeaderNotAvailable(f"topic {name!r} is being created")
        except InvalidTopic as problem:
            error = problem.bare()
        return {"error_code": error.wire, "name": name, "topic_id": None, "is_internal": False, "partitions": []}


def _asks(request: Request, of_what: str) -> bool:
    return bool(getattr(request.entity, f"include_{of_what}_authorized_operations", False))


def _names(request: Request) -> list[str]:
    """Each name once, even if the request repeats it: a topic's answer is thousands of times as large as its name."""
    return list(dict.fromkeys(one.name for one in request.entity.topics or ()))


def _topic(topic: TopicImage, refusing: Collection[int]) -> dict[str, Any]:
    return {
        "error_code": 0,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.name in INTERNAL_TOPICS,
        "partitions": [
            {
                "error_code": 0 if one.leader >= 0 and one.leader not in refusing else LeaderNotAvailable.wire,
                "partition_index": index,
                "leader_id": one.leader if one.leader not in refusing else NO_LEADER,
                "leader_epoch": one.leader_epoch,
                "replica_nodes": one.replicas,
                "isr_nodes": one.isr,
                "offline_replicas": one.offline,
            }
            for index, one in sorted(topic.partitions.items())
        ],
    }
