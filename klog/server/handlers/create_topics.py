"""CreateTopics: v2-7.

Behaviour
    The controller creates each topic alone: each one succeeds or fails by itself. An answer without error means that
    the topic exists and has leaders, so the request's timeout is not used. Partitions and replicas are numbers (-1: the
    broker's default) or an assignment of brokers, not both. A topic that a request names twice is refused, both times.
    A topic of the name whose deletion waits is purged first, where a client of Kafka's deletes and creates.

Version notes
    v4 allows -1 for the broker's defaults (KIP-464). v5 answers with partitions, replicas and settings (KIP-525) and
    is flexible. v7 answers with the topic's id. From v6 on a topic that is beyond the client's quota is refused with
    THROTTLING_QUOTA_EXCEEDED (KIP-599); before, it is created, and the client must wait after it.

Not here: policies, which are Java classes.
"""

from __future__ import annotations

import asyncio
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from klog.coordination.acts import AUTO_CREATE
from klog.errors import InvalidReplicaAssignment, InvalidRequest, KlogError
from klog.protocol.apis import ApiKey
from klog.server.config_resources import given_settings, topic_entries
from klog.server.controller.topic_manager import Admit
from klog.server.dispatch import Answer, Request, error_fields, handles
from klog.server.image import TopicImage
from klog.server.parts import Parts
from klog.server.throttling import FREE, Mutations
from klog.server.zookeeper_admission import Kind

TOGETHER = 20
"""Topics of a request created at the same time."""
STRICT_FROM = 6
DEFAULT = -1
"""The broker's default number of partitions or replicas, or the number in the assignment."""
_NOT_MADE: Final[Mapping[str, Any]] = {"topic_id": None, "num_partitions": -1, "replication_factor": -1, "configs": []}


@handles(ApiKey.CREATE_TOPICS, 2, 7, of_controller=True)
async def handle(request: Request, parts: Parts) -> Answer:
    quota, check = mutations(request, parts, STRICT_FROM), once(request.entity.topics)
    share = request.share()

    async def answer(topic: Any) -> dict[str, Any]:
        await share.yield_if_due()
        try:
            parts.controller.require()
            check(topic.name)
            made = await _create(topic, request, parts, quota)
        except KlogError as error:
            return {"name": topic.name, **error_fields(error), **_NOT_MADE}
        return {
            "name": made.name,
            "topic_id": None if request.entity.validate_only else made.topic_id,
            **error_fields(None),
            "num_partitions": len(made.partitions),
            "replication_factor": len(made.partitions[0].replicas),
            "configs": topic_entries(parts.config.of_topic(made.name), made.overrides),
        }

    # Some at a time: while the brokers begin to lead one, the next is written.
    topics, answers = request.entity.topics, []
    for at in range(0, len(topics), TOGETHER):
        answers += await asyncio.gather(*map(answer, topics[at : at + TOGETHER]))
    return {"throttle_time": quota.throttle_ms(), "topics": answers}


def once(topics: Iterable[Any]) -> Callable[[str], None]:
    """Raises InvalidRequest for a topic that the request names more than once."""
    times_named = Counter(topic.name for topic in topics)

    def check(name: str) -> None:
        if times_named[name] > 1:
            raise InvalidRequest(f"topic {name!r} is named {times_named[name]} times in one request")

    return check


def mutations(request: Request, parts: Parts, strict_from: int) -> Mutations:
    """The request's changes, counted against the quota of its client; none for a broker's own request."""
    if not request.is_of_client:
        return FREE
    actor = request.actor
    client = actor.client.removeprefix(f"{AUTO_CREATE} for ")
    is_strict = request.head.version >= strict_from
    return parts.quota_keeper.throttling.mutations(actor.principal, client, actor.host, is_strict=is_strict)


def admitting(request: Request, parts: Parts, quota: Mutations, settings: Mapping[str, str] = {}) -> Admit:
    """Checks that ZooKeeper has room for new partitions and a new topic's settings, and the client's quota for the
    partitions; always true for a broker's own."""

    def admit(partitions: int) -> None:
        if request.is_of_client:
            parts.zookeeper_admission.new(Kind.PARTITIONS, partitions)
            parts.zookeeper_admission.new_settings({}, settings)
        quota.take(partitions)

    return admit


async def _create(asked: Any, request: Request, parts: Parts, quota: Mutations) -> TopicImage:
    overrides = given_settings((one.name, one.value) for one in asked.configs)
    assignment: dict[int, list[int]] | None = None
    if asked.assignments:
        if asked.num_partitions != DEFAULT or asked.replication_factor != DEFAULT:
            raise InvalidRequest(
                f"topic {asked.name!r}: with an assignment of replicas both the number of partitions and of replicas "
                f"must be {DEFAULT}, got {asked.num_partitions} and {asked.replication_factor}"
            )
        assignment = {one.partition_index: list(one.broker_ids) for one in asked.assignments}
        if len(assignment) < len(asked.assignments):
            raise InvalidReplicaAssignment(f"topic {asked.name!r}: a partition has more than one assignment")
    create = functools.partial(
        parts.controller.topics.create,
        asked.name,
        partitions=None if asked.num_partitions == DEFAULT else asked.num_partitions,
        replication_factor=None if asked.replication_factor == DEFAULT else asked.replication_factor,
        assignment=assignment,
        overrides=overrides,
        actor=request.actor,
        admit=admitting(request, parts, quota, overrides),
    )
    is_validated_only = bool(request.entity.validate_only)
    deleted_topics = parts.controller.deleted_topics
    if not is_validated_only and deleted_topics.is_replaced(asked.name, request.actor):
        await create(validate_only=True)
        await deleted_topics.free(asked.name, request.actor)
    return await create(validate_only=is_validated_only)
