"""Leaders' requests to hand leadership over: ``/klog/handovers/<broker id>`` (e), which the controller watches.

A leader that no follower reaches may not reach the controller either. It does reach ZooKeeper, or it would no longer
lead. The entry is ``{"version":1,"incarnation":N,"partitions":[{"topic":"t","partition":0,"leader_epoch":7}]}``. With
the epochs, a request that is found late, or twice, is about a past leadership and changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from klog.coordination import entries, paths
from klog.coordination.brokers import Registration
from klog.coordination.zookeeper import MULTI_BYTES_MAX, Check, Create, Delete, Operation, Watch, ZooKeeper
from klog.errors import BadVersion, NoNode, ZooKeeperError
from klog.names import TopicPartition

log = logging.getLogger(__name__)

ENTRY_BYTES_MAX = MULTI_BYTES_MAX - 4096
"""Rule Z3, with room for the rest of the request."""


@dataclass(frozen=True, slots=True)
class Handover:
    """One incarnation's request; `epochs`: partition -> the leader epoch in which it leads."""

    broker_id: int
    incarnation: int
    epochs: Mapping[TopicPartition, int]


def ask(zookeeper: ZooKeeper, registration: Registration, epochs: Mapping[TopicPartition, int]) -> None:
    """Ask for other leaders; replaces an earlier request. One entry holds some 6,000 partitions, the first of these.

    Sent once: after BadVersion, NodeExists, NoNode or SessionLost the caller must ask again, if it still applies.
    """
    path = paths.handover(registration.broker.broker_id)
    listed = [
        {"topic": name.topic, "partition": name.partition, "leader_epoch": epoch}
        for name, epoch in sorted(epochs.items())
    ]
    longest = max((len(entries.encode(one)) + 1 for one in listed), default=1)
    listed = listed[: ENTRY_BYTES_MAX // longest]
    entry = entries.encode({"version": 1, "incarnation": registration.incarnation, "partitions": listed})
    # Created again each time: the watch is on the folder, and an earlier session's entry is replaced (rule Z1).
    old: list[Operation] = [Delete(path)] if zookeeper.exists(path) is not None else []
    zookeeper.multi([registration.fence, *old, Create(path, entry, ephemeral=True)])


def asked(zookeeper: ZooKeeper, watch: Watch | None = None) -> list[Handover]:
    """Every request; the watch fires at the next one."""
    names = zookeeper.find_children(paths.HANDOVERS, watch, make=True)
    found: list[Handover] = []
    for broker_id, node in zookeeper.find_many((int(name) for name in names if name.isdigit()), paths.handover).items():
        try:
            entry = entries.JsonNode(paths.handover(broker_id), node.data)
            epochs = {
                TopicPartition(one.text("topic"), one.integer("partition")): one.integer("leader_epoch")
                for one in entry.entry_list("partitions")
            }
            found.append(Handover(broker_id, entry.integer("incarnation"), epochs))
        except ZooKeeperError as error:
            log.error("left out: %s", error.message)
    return found


def done(zookeeper: ZooKeeper, one: Handover, fence: Sequence[Check]) -> None:
    """Remove the entry. Raises BadVersion if the fence fails.

    A request that has replaced it meanwhile may be removed with it: a leader that still needs it asks again.
    """
    path = paths.handover(one.broker_id)
    try:
        zookeeper.multi([*fence, Delete(path)])
    except NoNode:
        return
    except BadVersion:
        if zookeeper.exists(path) is not None:
            raise
