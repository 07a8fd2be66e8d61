"""Metadata: v0-9 for everybody, v10-12 for klog's own tools.

Behaviour
    Brokers at their advertised addresses, the controller, the cluster id (v2), and for each topic its partitions with
    leader, leader epoch (v7), replicas and in-sync replicas. No topics asked for: all (v0: an empty list; later: null).
    A topic that is named twice is answered once, as Kafka does.
    A missing topic is made if the broker allows it (auto.create.topics.enable), the request allows it (v4 on) and it
    is not a consumer that asks: stock consumers say so since v4; before that everybody is taken for a producer. The
    answer waits a second at most until it is there, and is LEADER_NOT_AVAILABLE where that takes longer. A broker that
    starts waits until the controller has told it what there is: it would call every topic unknown.
    A leader that refuses connections is not named: clients ask when their leader has just died, sooner than the
    controller has elected another, and one that is sent to the dead waits a second and more. The answer waits for the
    outcome, `DOUBT_PATIENCE_S` at most; where there is none by then, or more than `DOUBTS_MAX` wait already, such a
    partition is LEADER_NOT_AVAILABLE, upon which clients ask again soon. Requests that wait hold no thread; what was
    asked after them over the same connection is handled, and answered in its turn.
    Whoever asks for topics by name is told of brokers that left a moment ago too, though not as leaders (`departed.py`
    says why). All topics, or none: the brokers that live.

Version notes
    v8 asks for the operations one may do: all, as there are no access lists. From v11 on not for the cluster's.
    v10 and on carry topic ids. Stock clients would take them for Fetch and the like, where klog has none yet; an export
    needs them to tell a topic from one that was made again under its name. Asking by id is not served. No broker that
    has left is in them: klog's tools tell by them who lives.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Collection
from typing import TYPE_CHECKING, Any

from klog.coordination.partition_states import NO_LEADER
from klog.errors import InvalidTopic, KlogError, LeaderNotAvailable, MalformedRequest, UnknownTopicOrPartition
from klog.names import INTERNAL_TOPICS, check_topic_name
from klog.protocol.apis import ApiKey
from klog.server import operations
from klog.server.dispatch import Request, handles

STOCK_MAX = 9
"""The last version that stock clients are offered; later ones are klog's own."""
IMAGE_PATIENCE_S = 5.0
"""How long an answer waits for the controller's first word to a broker that starts."""
DOUBT_PATIENCE_S = 0.5
"""How long an answer waits for another leader in place of one that refuses connections."""
DOUBTS_MAX = 1_000
"""Answers that may wait for that at a time."""
LOOK_AGAIN_S = 0.1
"""What refused may have begun to listen again, without the controller's saying anything."""
CREATION_PATIENCE_S = 1.0
"""How long an answer waits for a topic that is being made: a client told LEADER_NOT_AVAILABLE waits longer itself."""

if TYPE_CHECKING:
    from klog.server.broker import Broker
    from klog.server.image import TopicImage


@handles(ApiKey.METADATA, 0, 12, advertised_max_version=STOCK_MAX)
def handle(broker: Broker, request: Request) -> dict[str, Any] | Awaitable[dict[str, Any]]:
    answer = _answer_in_time(broker, request)
    if not (_asks(request, "topic") or _asks(request, "cluster")):
        return answer
    return _with_operations(answer, request) if isinstance(answer, dict) else _with_operations_later(answer, request)


def _asks(request: Request, of_what: str) -> bool:
    return bool(getattr(request.entity, f"include_{of_what}_authorized_operations", False))


def _with_operations(answer: dict[str, Any], request: Request) -> dict[str, Any]:
    if _asks(request, "cluster"):
        answer["cluster_authorized_operations"] = operations.CLUSTER
    if _asks(request, "topic"):
        for topic in answer["topics"]:
            if not topic["error_code"]:
                topic["topic_authorized_operations"] = operations.TOPIC
    return answer


async def _with_operations_later(answer: Awaitable[dict[str, Any]], request: Request) -> dict[str, Any]:
    return _with_operations(await answer, request)


def _answer_in_time(broker: Broker, request: Request) -> dict[str, Any] | Awaitable[dict[str, Any]]:
    if not broker.has_image.is_set():
        return _answer_when_told(broker, request)
    asked = request.entity.topics
    is_all = asked is None or (request.head.version == 0 and not asked)
    names = None if is_all else _names(request)
    if names and None in names:
        raise MalformedRequest("Metadata asks for a topic by its id alone, which is not served")
    lists_departed = bool(names) and request.head.version <= STOCK_MAX
    may_create = getattr(request.entity, "allow_auto_topic_creation", True)
    if names and may_create and broker.config["auto.create.topics.enable"]:
        being_made = [made for name in names if name not in broker.image.topics if (made := _make(broker, name))]
        if being_made:
            return _answer_when_made(broker, names, being_made, lists_departed)
    return _answer_when_led(broker, names, lists_departed)


def _names(request: Request) -> list[str]:
    """Each once, however often it is named: an answer about a topic is thousands of times as large as its name."""
    return list(dict.fromkeys(one.name for one in request.entity.topics or ()))


async def _answer_when_told(broker: Broker, request: Request) -> dict[str, Any]:
    """As `handle`, once the cluster is known; a topic asked for by name is LEADER_NOT_AVAILABLE until then."""
    try:
        async with asyncio.timeout(IMAGE_PATIENCE_S):
            await broker.has_image.wait()
    except TimeoutError:
        return _answer(broker, _names(request))
    answer = _answer_in_time(broker, request)
    return answer if isinstance(answer, dict) else await answer


def _make(broker: Broker, name: str) -> asyncio.Task[None] | None:
    """Begin to make a topic; None for a name that none can have, and where too many are asked for just now."""
    try:
        return broker.auto_creation.begin(check_topic_name(name))
    except InvalidTopic:
        return None


async def _answer_when_made(
    broker: Broker, names: list[str], being_made: list[asyncio.Task[None]], lists_departed: bool
) -> dict[str, Any]:
    await asyncio.wait(being_made, timeout=CREATION_PATIENCE_S)
    answer = _answer_when_led(broker, names, lists_departed)
    return answer if isinstance(answer, dict) else await answer


def _answer_when_led(
    broker: Broker, names: list[str] | None, lists_departed: bool = False
) -> dict[str, Any] | Awaitable[dict[str, Any]]:
    """The answer, once it names no leader that refuses connections; at once where that is known."""
    leaders = _leaders(broker, names)
    refusing = broker.knocks.known(broker.image.brokers, leaders)
    if refusing is not None and (not refusing or broker.doubts >= DOUBTS_MAX):
        return _answer(broker, names, refusing, lists_departed)
    return _wait_for_leaders(broker, names, lists_departed)


async def _wait_for_leaders(broker: Broker, names: list[str] | None, lists_departed: bool) -> dict[str, Any]:
    until_s = broker.loop.time() + DOUBT_PATIENCE_S
    broker.doubts += 1
    try:
        while True:
            news = broker.image.news
            refusing = await broker.knocks.refusing(broker.image.brokers, _leaders(broker, names))
            now_s = broker.loop.time()
            if news.is_set() and now_s < until_s:
                continue
            if not refusing or now_s >= until_s or broker.doubts > DOUBTS_MAX:
                return _answer(broker, names, refusing, lists_departed)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(min(until_s, now_s + LOOK_AGAIN_S)):
                    await news.wait()
    finally:
        broker.doubts -= 1


def _leaders(broker: Broker, names: list[str] | None) -> set[int]:
    """Everybody that the answer would name as a leader."""
    topics = broker.image.topics
    asked = topics.values() if names is None else [topics[name] for name in names if name in topics]
    leaders = {one.leader for topic in asked for one in topic.partitions.values()}
    leaders.discard(NO_LEADER)
    return leaders


def _answer(
    broker: Broker, names: list[str] | None, refusing: Collection[int] = (), lists_departed: bool = False
) -> dict[str, Any]:
    """As the controller has said last, but for leaders that refuse connections."""
    image = broker.image
    brokers = broker.departed.with_departed(image.brokers) if lists_departed else image.brokers
    if names is None:
        topics = [_topic(topic, refusing) for _, topic in sorted(image.topics.items())]
    else:
        topics = [_named(broker, name, refusing) for name in names]
    return {
        "brokers": [
            {"node_id": one.broker_id, "host": one.host, "port": one.port, "rack": one.rack}
            for _, one in sorted(brokers.items())
        ],
        "cluster_id": image.cluster_id,
        "controller_id": image.controller_id,
        "topics": topics,
    }


def _named(broker: Broker, name: str, refusing: Collection[int]) -> dict[str, Any]:
    topic = broker.image.topics.get(name)
    if topic is not None:
        return _topic(topic, refusing)
    error: KlogError = UnknownTopicOrPartition(f"there is no topic {name!r}")
    try:
        check_topic_name(name)
        if not broker.has_image.is_set():
            error = LeaderNotAvailable("this broker starts, and has not been told yet which topics there are")
        elif broker.auto_creation.is_making(name):
            error = LeaderNotAvailable(f"topic {name!r} is being made")
    except InvalidTopic as problem:
        error = problem.bare()
    return {"error_code": error.wire, "name": name, "topic_id": None, "is_internal": False, "partitions": []}


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
