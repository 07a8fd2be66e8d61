"""Makes the controller's requests from its context. Pure.

A broker never gets leadership under an epoch in which an earlier incarnation of it was elected: requests omit such a
partition until a new election (rule R1).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from klog.names import TopicPartition
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.protocol.interbroker import (
    DELETED_TOPIC_EPOCH,
    LeaderAndIsrPartition,
    MetadataBroker,
    MetadataPartition,
    MetadataTopic,
)
from klog.server.controller.context import Context

_LED: Any = LeaderAndIsrPartition
_DESCRIBED: Any = MetadataPartition
"""Called directly, with plain integers: `codec.build` takes as long again, and there are thousands."""


class Stop(NamedTuple):
    """Stop one replica; ``delete``: and delete its log."""

    topic_id: UUID | None
    leader_epoch: int
    delete: bool


def leader_and_isr(
    context: Context, head: Mapping[str, Any], broker_id: int, names: Iterable[TopicPartition], *, is_full: bool
) -> Any | None:
    """For the broker's replicas among ``names``; None without any."""
    topics: dict[str, list[Any]] = defaultdict(list)
    for name in names:
        state = context.states.get(name)
        if state is None or name.topic in context.deleting or not context.knows(name):
            continue
        if broker_id not in context.replicas(name):
            continue
        if state.leader == broker_id and not state.ran_on(broker_id, context.brokers[broker_id].incarnation):
            continue
        if broker_id in context.leaving and state.leader != broker_id:
            continue  # it gets StopReplica instead
        topics[name.topic].append(
            _LED(
                partition_index=name.partition,
                controller_epoch=state.controller_epoch,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                isr=state.isr,
                incarnations=state.incarnations,
                state_version=state.version,
                replicas=context.replicas(name),
                is_new=state.new,
                unclean_epoch=state.unclean_epoch,
            )
        )
    if not topics and not is_full:
        return None
    return codec.request(
        ApiKey.LEADER_AND_ISR,
        0,
        **head,
        is_full=is_full,
        topics=[
            {
                "name": topic,
                "topic_id": context.topics[topic].topic_id,
                "fence_version": context.topics[topic].fence_version,
                "partitions": partitions,
            }
            for topic, partitions in topics.items()
        ],
    )


def stop_replica(head: Mapping[str, Any], stops: Mapping[TopicPartition, Stop]) -> Any:
    """For these replicas of one broker."""
    topics: dict[tuple[str, Any], list[dict[str, Any]]] = defaultdict(list)
    for name, stop in stops.items():
        topics[name.topic, stop.topic_id].append(
            {"partition_index": name.partition, "leader_epoch": stop.leader_epoch, "delete": stop.delete}
        )
    return codec.request(
        ApiKey.STOP_REPLICA,
        0,
        **head,
        topics=[
            {"name": topic, "topic_id": topic_id, "partitions": partitions}
            for (topic, topic_id), partitions in topics.items()
        ],
    )


def deletion(context: Context, topic: str) -> Stop:
    """Of a replica of a topic that is being deleted."""
    return Stop(context.topics[topic].topic_id, DELETED_TOPIC_EPOCH, delete=True)


def deletions(context: Context, broker_id: int) -> dict[TopicPartition, Stop]:
    """The broker's replicas that are left of topics that are being deleted."""
    return {
        name: deletion(context, topic)
        for topic, left in context.deleting.items()
        for name in sorted(name for name, one in left if one == broker_id)
    }


def metadata_brokers(context: Context) -> list[Any]:
    """All live brokers, for UpdateMetadata."""
    found = []
    for broker_id, one in sorted(context.live.items()):
        host, port = one.broker.inter_address
        values = {
            "broker_id": broker_id,
            "host": one.broker.host,
            "port": one.broker.port,
            "rack": one.broker.rack or None,
            "incarnation": one.incarnation,
            "inter_host": host,
            "inter_port": port,
            "endpoints": [
                {"listener": there.listener, "host": there.host, "port": there.port} for there in one.broker.endpoints
            ],
        }
        found.append(codec.build(MetadataBroker, values))
    return found


def metadata_topic(context: Context, topic: str, numbers: Collection[int] | None) -> Any:
    """A topic's metadata, of these partitions; None for all."""
    known = context.topics[topic]
    partitions = []
    for number in known.partitions if numbers is None else numbers:
        name = TopicPartition(topic, number)
        if number not in known.partitions:
            continue
        state = context.states.get(name)
        partitions.append(
            _DESCRIBED(
                partition_index=number,
                leader=-1 if state is None else state.leader,
                leader_epoch=-1 if state is None else state.leader_epoch,
                isr=() if state is None else state.isr,
                replicas=known.partitions[number],
                offline=context.offline_replicas(name),
                adding=known.adding.get(number, ()),
                removing=known.removing.get(number, ()),
                throttle=known.throttles.get(number, 0),
            )
        )
    values = {
        "name": topic,
        "topic_id": known.topic_id,
        "is_deleted": False,
        "settings": [{"name": key, "value": value} for key, value in context.overrides.get(topic, {}).items()],
        "partitions": partitions,
    }
    return codec.build(MetadataTopic, values)


def deleted_topic(topic: str, topic_id: UUID | None) -> Any:
    """The metadata of a topic that is gone."""
    return codec.build(
        MetadataTopic, {"name": topic, "topic_id": topic_id, "is_deleted": True, "settings": [], "partitions": []}
    )
