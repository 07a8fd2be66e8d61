"""The verbs of a topic: make, list, change, delete."""

from __future__ import annotations

import asyncio
import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from klog.admin.partitions import PartitionRow, rows_of
from klog.admin.settings import alter_topic_settings, describe_broker_settings, describe_settings, own_settings
from klog.client import leader_requests
from klog.client.answers import check, error_in
from klog.client.cluster import Cluster
from klog.client.metadata import TopicNode
from klog.client.positions import NEWEST
from klog.config import TOPIC_SETTINGS
from klog.config.topic import unknown_setting_hint
from klog.errors import (
    InvalidConfig,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    KlogError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
    UsageError,
)
from klog.metrics import Count
from klog.names import check_topic_name, counted, regular_expression
from klog.protocol.apis import ApiKey
from klog.render.columns import MayFail
from klog.render.values import moment
from klog.replication.placement import check_factor, factor_hint


@dataclass(frozen=True, slots=True)
class TopicSummary(MayFail):
    """One topic. ``messages`` and ``bytes`` are None where the broker is not klog, or is still counting, or where a
    partition has no leader; where a leader does not answer, too, and then ``error`` is a code and ``message`` says why.
    ``last_written`` is the largest timestamp of its messages; None where it has none, or a leader does not tell.
    """

    topic: str
    partitions: int
    replication_factor: int = field(metadata={"rank": 1})
    messages: int | None
    bytes: int | None
    under_replicated: int
    last_written: datetime | str | None = field(default=None, metadata={"rank": 2})
    settings: str | None = field(default=None, metadata={"wide": True})
    """With ``overrides``: the topic's own settings, ``retention.ms=60000 ...``."""


@dataclass(frozen=True, slots=True)
class TopicCreated:
    """``created`` is False where the topic was there and that was not an error (``if_not_exists``)."""

    topic: str
    partitions: int
    replication_factor: int
    created: bool


@dataclass(frozen=True, slots=True)
class TopicAltered:
    """``messages`` are those that stay where they are, while keys go to other partitions from then on."""

    topic: str
    partitions_before: int
    partitions: int
    messages: int | None


@dataclass(frozen=True, slots=True)
class TopicDeletion(MayFail):
    """What goes, or went, with a topic; a failed row carries ``error`` (a code) and ``message``."""

    topic: str
    partitions: int | None
    messages: int | None
    bytes: int | None


@dataclass(frozen=True, slots=True)
class TopicSetting:
    """One setting as it holds for a topic. ``source``: topic, broker, cluster, start, default."""

    topic: str
    name: str
    value: str | None
    source: str
    default: str | None
    effect: str | None = field(default=None, metadata={"wide": True})
    doc: str | None = field(default=None, metadata={"wide": True})


async def list_topics(
    cluster: Cluster,
    pattern: str | None = None,
    *,
    regex: bool = False,
    internal: bool = False,
    overrides: bool = False,
) -> list[TopicSummary]:
    """All topics by name, or those that match: a shell pattern, or with ``regex`` an anchored regular expression.

    ``internal``: the cluster's own topics, too. One whose whole name is the pattern is always listed. ``overrides``:
    only topics with settings of their own.
    """
    matches = name_matcher(pattern, regex)
    topics = [
        topic
        for topic in (await cluster.metadata()).topics.values()
        if matches(topic.name) and (internal or not topic.is_internal or topic.name == pattern)
    ]
    own: dict[str, dict[str, str]] = {}
    if overrides:
        own = await own_settings(cluster, [topic.name for topic in topics])
        topics = [topic for topic in topics if own[topic.name]]
    found, newest = await asyncio.gather(_by_topic(cluster, topics), _newest_ms(cluster, topics))
    return [
        TopicSummary(
            topic.name,
            len(topic.partitions),
            topic.replication_factor,
            _sum(row.messages for row in found[topic.name]),
            _sum(row.bytes for row in found[topic.name]),
            sum(one.is_under_replicated for one in topic.partitions.values()),
            moment(newest[topic.name]) if topic.name in newest else None,
            " ".join(f"{name}={value}" for name, value in own[topic.name].items()) if overrides else None,
        ).failed_with(found[topic.name])
        for topic in topics
    ]


async def _by_topic(cluster: Cluster, topics: Sequence[TopicNode]) -> dict[str, list[PartitionRow]]:
    found: dict[str, list[PartitionRow]] = {topic.name: [] for topic in topics}
    for row in await rows_of(cluster, topics):
        found[row.topic].append(row)
    return found


async def _newest_ms(cluster: Cluster, topics: Sequence[TopicNode]) -> dict[str, int]:
    """Topic -> the largest timestamp of its messages in ms, of those that have any and whose leaders tell."""
    asked = {name: NEWEST for topic in topics for name in topic.names()}
    answers = await cluster.to_leaders(asked, leader_requests.list_offsets)
    newest: dict[str, int] = {}
    for one, answer in answers.items():
        if isinstance(answer, leader_requests.FoundOffset) and answer.timestamp_ms is not None:
            newest[one.topic] = max(newest.get(one.topic, 0), answer.timestamp_ms)
    return newest


async def create_topic(
    cluster: Cluster,
    name: str,
    *,
    partitions: int | None = None,
    replication_factor: int | None = None,
    settings: Mapping[str, str] | None = None,
    assignment: Sequence[Sequence[int]] | None = None,
    start_broker: int | None = None,
    like: str | None = None,
    if_not_exists: bool = False,
    validate_only: bool = False,
    led: Count | None = None,
) -> TopicCreated:
    """Make a topic and wait until each partition has a leader, which ``led`` counts. ``validate_only``: the same
    answer, or the same error, and no topic.

    ``like``: a topic whose partitions, replication factor and own settings the new one gets where they are not given.

    ``assignment`` names the replicas of each partition, the preferred leader first; ``start_broker`` puts replica j of
    partition i on the (i + j)-th broker behind that one, without chance. Otherwise the cluster decides, and what is not
    given is its default. Raises InvalidTopic, InvalidReplicationFactor, TopicAlreadyExists, InvalidConfig and so on.
    """
    check_topic_name(name)
    if assignment and (partitions is not None or replication_factor is not None or start_broker is not None):
        raise UsageError("--assignment excludes -p, --replication-factor and --start-broker")
    if like is not None:
        model = await cluster.topic(like)
        if assignment is None:
            partitions = partitions or len(model.partitions)
            replication_factor = replication_factor or model.replication_factor
        settings = {**(await own_settings(cluster, [like]))[like], **(settings or {})}
    brokers = [one.broker_id for one in await cluster.brokers()]
    if replication_factor is not None:
        check_factor(replication_factor, brokers)
    if start_broker is not None:
        default = await _defaults(cluster, start_broker) if start_broker in brokers else {}
        assignment = rotate(
            brokers,
            partitions or default.get("num.partitions", 1),
            replication_factor or default.get("default.replication.factor", 1),
            start_broker,
        )
    answer = await cluster.to_controller(
        ApiKey.CREATE_TOPICS,
        7,
        4,
        topics=[
            {
                "name": name,
                "num_partitions": -1 if assignment or partitions is None else partitions,
                "replication_factor": -1 if assignment or replication_factor is None else replication_factor,
                "assignments": [
                    {"partition_index": index, "broker_ids": list(replicas)}
                    for index, replicas in enumerate(assignment or ())
                ],
                "configs": [{"name": key, "value": value} for key, value in (settings or {}).items()],
            }
        ],
        validate_only=validate_only,
    )
    error = error_in(answer.topics[0], f"cannot create topic {name!r}")
    if error is None and validate_only:
        if assignment:
            partitions, replication_factor = len(assignment), len(assignment[0])
        return await _validated(cluster, answer.topics[0], partitions, replication_factor)
    if error is not None and not (isinstance(error, TopicAlreadyExists) and if_not_exists):
        is_there = name in (await cluster.metadata([name], fresh=True)).topics
        error.hint = _creation_hint(error, name, settings or {}, brokers, is_there=is_there)
        raise error
    try:
        topic = await until_led(cluster, name, led=led)
    except UnknownTopicOrPartition as unknown:  # it has the name of a deleted topic
        raise error or unknown from None
    return TopicCreated(name, len(topic.partitions), topic.replication_factor, created=error is None)


async def _validated(
    cluster: Cluster, answer: Any, partitions: int | None, replication_factor: int | None
) -> TopicCreated:
    """The topic as it would be. Brokers before Kafka 2.4 do not say it: then by what was given, and their settings."""
    said = int(getattr(answer, "num_partitions", -1)), int(getattr(answer, "replication_factor", -1))
    if min(said) < 1:
        default = await _defaults(cluster, (await cluster.brokers())[0].broker_id)
        said = (
            partitions or default.get("num.partitions", 1),
            replication_factor or default.get("default.replication.factor", 1),
        )
    return TopicCreated(str(answer.name), *said, created=True)


def _creation_hint(
    error: KlogError, name: str, settings: Mapping[str, str], brokers: Sequence[int], *, is_there: bool
) -> str | None:
    if isinstance(error, TopicAlreadyExists):  # a deleted topic that keeps its name is not there: the message says it
        return f"`klog topic describe {name}` shows it; --if-not-exists accepts it" if is_there else None
    if isinstance(error, InvalidReplicationFactor):
        return factor_hint(brokers)
    if isinstance(error, InvalidReplicaAssignment):
        return f"live brokers: {', '.join(map(str, sorted(brokers)))}"
    return unknown_setting_hint(settings) if isinstance(error, InvalidConfig) else None


async def _defaults(cluster: Cluster, broker_id: int) -> dict[str, int]:
    """What a broker makes new topics with."""
    names = ["num.partitions", "default.replication.factor"]
    found = await describe_broker_settings(cluster, broker_id, names=names)
    return {one.name: int(one.value) for one in found if one.value is not None}


def rotate(brokers: Sequence[int], partitions: int, replicas: int, start: int) -> list[list[int]]:
    """The plain placement: replica j of partition i is on broker (start + i + j) mod n of the sorted brokers."""
    ordered = sorted(brokers)
    if start not in ordered:
        raise InvalidReplicaAssignment(f"no live broker {start}; live brokers: {', '.join(map(str, ordered))}")
    check_factor(replicas, ordered)
    first = ordered.index(start)
    return [[ordered[(first + i + j) % len(ordered)] for j in range(replicas)] for i in range(partitions)]


async def preview_alter(cluster: Cluster, name: str, partitions: int) -> TopicAltered:
    """What `alter_topic` would do; UsageError where it would take partitions away or add none."""
    topic = await cluster.topic(name, fresh=True, suggest=True)
    before = len(topic.partitions)
    if partitions <= before:
        raise UsageError(
            f"topic {name!r} has {counted(before, 'partition')}; the number can only grow, got {partitions}"
        )
    return TopicAltered(name, before, partitions, _sum(row.messages for row in await rows_of(cluster, [topic])))


async def alter_topic(cluster: Cluster, name: str, partitions: int, *, led: Count | None = None) -> TopicAltered:
    """Give a topic more partitions and wait until each has a leader, which ``led`` counts."""
    altered = await preview_alter(cluster, name, partitions)
    answer = await cluster.to_controller(
        ApiKey.CREATE_PARTITIONS,
        3,
        topics=[{"name": name, "count": partitions, "assignments": None}],
        validate_only=False,
    )
    check(answer.results[0], f"cannot add partitions to topic {name!r}")
    await until_led(cluster, name, partitions, led=led)
    return altered


async def topic_settings(cluster: Cluster, name: str) -> list[TopicSetting]:
    """Every setting of a topic as it holds."""
    await cluster.topic(name)
    known = TOPIC_SETTINGS if cluster.is_klog else {}
    return [
        TopicSetting(name, one.name, one.value, one.source, *one.in_klog(known.get(one.name)))
        for one in (await describe_settings(cluster, [name]))[name]
    ]


async def set_topic_settings(
    cluster: Cluster, name: str, given: Mapping[str, str], deleted: Sequence[str] = ()
) -> list[TopicSetting]:
    """Set and delete settings of a topic in one step; all of them as they hold then. InvalidConfig for wrong ones."""
    await cluster.topic(name)
    await alter_topic_settings(cluster, name, given, deleted)
    return await topic_settings(cluster, name)


async def preview_deletion(cluster: Cluster, names: Sequence[str], *, if_exists: bool = False) -> list[TopicDeletion]:
    """What deleting these would remove; nothing is changed. Missing ones are failed rows, or left out."""
    metadata = await cluster.metadata(names, fresh=True)
    wanted = list(dict.fromkeys(names))
    found = await _by_topic(cluster, [metadata.topics[name] for name in wanted if name in metadata.topics])
    rows = []
    for name in wanted:
        topic = metadata.topics.get(name)
        if topic is not None:
            messages, size = _sum(row.messages for row in found[name]), _sum(row.bytes for row in found[name])
            rows.append(TopicDeletion(name, len(topic.partitions), messages, size))
        elif not if_exists:
            near = await cluster.near(name)
            meant = f"; did you mean {' or '.join(near)}?" if near else ""
            missing = UnknownTopicOrPartition(f"topic {name!r} does not exist{meant}")
            rows.append(TopicDeletion(name, None, None, None).failed_by(missing))
    return rows


async def delete_topics(cluster: Cluster, preview: Sequence[TopicDeletion]) -> list[TopicDeletion]:
    """Delete the topics of a preview that exist; the same rows, with what failed."""
    names = [row.topic for row in preview if row.error is None]
    if not names:
        return list(preview)
    answer = await cluster.to_controller(
        ApiKey.DELETE_TOPICS,
        5,  # from 6 on topics are named by name or id, with nothing gained here
        1,
        topic_names=names,
    )
    failures = {str(one.name): error for one in answer.responses if (error := error_in(one)) is not None}
    return [row.failed_by(failures.get(row.topic)) for row in preview]


async def until_led(cluster: Cluster, name: str, partitions: int = 1, *, led: Count | None = None) -> TopicNode:
    """The topic, once it has so many partitions and each a leader, or as it is when the time-out has passed.

    ``led`` counts those that have one.
    """
    led = led or Count()
    deadline = asyncio.get_running_loop().time() + cluster.timeout_s
    pause_s = 0.01  # metadata reaches a broker within milliseconds of the controller's answer
    while True:
        late = asyncio.get_running_loop().time() + pause_s > deadline
        try:
            topic = await cluster.topic(name, fresh=True)
            led.done = sum(one.leader is not None for one in topic.partitions.values())
            led.total = max(partitions, len(topic.partitions))
            if late or led.done == led.total:
                return topic
        except UnknownTopicOrPartition:
            if late:
                raise
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, 0.2)


def name_matcher(pattern: str | None, regex: bool) -> Any:
    """Whether a name matches, as file names do or as a regular expression for all of it; UsageError for a bad one."""
    if pattern is None:
        return lambda name: True
    return regular_expression(pattern if regex else fnmatch.translate(pattern), "the pattern").fullmatch


def _sum(values: Any) -> int | None:
    """The sum, or None where any part is not known: half a count would be a wrong one."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total
