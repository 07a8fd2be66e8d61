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
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from klog.config import BrokerConfig
from klog.coordination.acts import AUTO_CREATE
from klog.errors import InvalidReplicaAssignment, InvalidRequest, KlogError
from klog.protocol.apis import ApiKey
from klog.server.config_resources import given_settings, topic_entries
from klog.server.controller.controller import Controller
from klog.server.controller.topic_manager import Admit
from klog.server.dispatch import Answer, Request, error_fields, handles
from klog.server.parts import Parts
from klog.server.throttling import FREE, Mutations, Throttling
from klog.server.zookeeper_admission import Kind, ZooKeeperAdmission

if TYPE_CHECKING:
    from klog.server.image import TopicImage

TOGETHER = 20
"""Topics of a request created at the same time."""
STRICT_FROM = 6
DEFAULT = -1
"""The broker's default number of partitions or replicas, or the number in the assignment."""


@handles(ApiKey.CREATE_TOPICS, 2, 7, of_controller=True)
async def handle(request: Request, parts: Parts) -> Answer:
    quota = mutations(parts.quota_keeper.throttling, request, STRICT_FROM)
    times_named = Counter(topic.name for topic in request.entity.topics)
    share = request.share()

    async def answer(topic: Any) -> dict[str, Any]:
        await share.yield_if_due()
        try:
            parts.controller.require()
            if times_named[topic.name] > 1:
                raise InvalidRequest(f"topic {topic.name!r} is named {times_named[topic.name]} times in one request")
            overrides = given_settings((one.name, one.value) for one in topic.configs)
            admit = admitting(parts.zookeeper_admission, request, quota, overrides)
            made = await _create(parts.controller, topic, overrides, request, admit)
        except KlogError as error:
            failed: dict[str, Any] = {"topic_id": None, "num_partitions": -1, "replication_factor": -1, "configs": []}
            return {"name": topic.name, **error_fields(error), **failed}
        return _made(parts.config, made, validate_only=request.entity.validate_only)

    # Some at a time: while the brokers begin to lead one, the next is written.
    topics, answers = request.entity.topics, []
    for at in range(0, len(topics), TOGETHER):
        answers += await asyncio.gather(*map(answer, topics[at : at + TOGETHER]))
    return {"throttle_time": quota.throttle_ms(), "topics": answers}


def mutations(throttling: Throttling, request: Request, strict_from: int) -> Mutations:
    """The request's changes, counted against the quota of its client; none for a broker's own request."""
    actor = request.actor
    is_strict = request.head.version >= strict_from
    if not request.is_of_client:
        return FREE
    client = actor.client.removeprefix(f"{AUTO_CREATE} for ")
    return throttling.mutations(actor.principal, client, actor.host, is_strict=is_strict)


def admitting(
    zookeeper_admission: ZooKeeperAdmission, request: Request, quota: Mutations, settings: Mapping[str, str] = {}
) -> Admit:
    """Checks that ZooKeeper has room for new partitions and a new topic's settings, and the client's quota for the
    partitions; always true for a broker's own."""

    def admit(partitions: int) -> None:
        if request.is_of_client:
            zookeeper_admission.new(Kind.PARTITIONS, partitions)
            zookeeper_admission.new_settings({}, settings)
        quota.take(partitions)

    return admit


async def _create(
    controller: Controller, asked: Any, overrides: Mapping[str, str], request: Request, admit: Admit
) -> TopicImage:
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
        controller.topics.create,
        asked.name,
        partitions=None if asked.num_partitions == DEFAULT else asked.num_partitions,
        replication_factor=None if asked.replication_factor == DEFAULT else asked.replication_factor,
        assignment=assignment,
        overrides=overrides,
        actor=request.actor,
        admit=admit,
    )
    is_validated_only = bool(request.entity.validate_only)
    if not is_validated_only and controller.deleted_topics.is_replaced(asked.name, request.actor):
        await create(validate_only=True)
        await controller.deleted_topics.free(asked.name, request.actor)
    return await create(validate_only=is_validated_only)


def _made(config: BrokerConfig, topic: TopicImage, *, validate_only: bool) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": None if validate_only else topic.topic_id,
        **error_fields(None),
        "num_partitions": len(topic.partitions),
        "replication_factor": len(topic.partitions[0].replicas),
        "configs": topic_entries(config.of_topic(topic.name), topic.overrides),
    }
