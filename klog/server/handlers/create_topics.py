"""CreateTopics: v2-7.

Behaviour
    The controller creates each topic alone: each one succeeds or fails by itself. An answer without error means that
    the topic exists and has leaders, so the request's timeout is not used. Partitions and replicas are numbers (-1: the
    broker's default) or an assignment of brokers, not both. A topic that a request names twice is refused, both times.

Version notes
    v4 allows -1 for the broker's defaults (KIP-464). v5 answers with partitions, replicas and settings (KIP-525) and
    is flexible. v7 answers with the topic's id.

Not here: request quotas (v6's THROTTLING_QUOTA_EXCEEDED is never answered); policies, which are Java classes.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from klog.config import BrokerConfig
from klog.coordination.acts import Actor
from klog.errors import InvalidReplicaAssignment, InvalidRequest, KlogError
from klog.protocol.apis import ApiKey
from klog.server.config_resources import given_settings, topic_entries
from klog.server.controller.controller import Controller
from klog.server.dispatch import Request, handles

if TYPE_CHECKING:
    from klog.server.image import TopicImage

DEFAULT = -1
"""The broker's default number of partitions or replicas, or the number in the assignment."""


@handles(ApiKey.CREATE_TOPICS, 2, 7, of_controller=True)
async def handle(request: Request, *, config: BrokerConfig, controller: Controller) -> dict[str, Any]:
    times_named = Counter(topic.name for topic in request.entity.topics)
    answers = []
    share = request.share()
    for topic in request.entity.topics:
        await share.breathe()
        try:
            controller.require()
            if times_named[topic.name] > 1:
                raise InvalidRequest(f"topic {topic.name!r} is named {times_named[topic.name]} times in one request")
            made = await _create(controller, topic, request.actor, validate_only=request.entity.validate_only)
        except KlogError as error:
            answers.append(_refused(topic.name, error))
        else:
            answers.append(_made(config, made, validate_only=request.entity.validate_only))
    return {"topics": answers}


async def _create(controller: Controller, asked: Any, actor: Actor, *, validate_only: bool) -> TopicImage:
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
    return await controller.topics.create(
        asked.name,
        partitions=None if asked.num_partitions == DEFAULT else asked.num_partitions,
        replication_factor=None if asked.replication_factor == DEFAULT else asked.replication_factor,
        assignment=assignment,
        overrides=given_settings((one.name, one.value) for one in asked.configs),
        actor=actor,
        validate_only=validate_only,
    )


def _made(config: BrokerConfig, topic: TopicImage, *, validate_only: bool) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": None if validate_only else topic.topic_id,
        "error_code": 0,
        "error_message": None,
        "num_partitions": len(topic.partitions),
        "replication_factor": len(topic.partitions[0].replicas),
        "configs": topic_entries(config.of_topic(topic.name), topic.overrides),
    }


def _refused(name: str, error: KlogError) -> dict[str, Any]:
    return {
        "name": name,
        "topic_id": None,
        "error_code": error.wire,
        "error_message": error.message,
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": [],
    }
