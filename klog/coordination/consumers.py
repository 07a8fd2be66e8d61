"""The consumers of a group in 0.8's registry: who lives, and who reads what (paper, section 3.2).

    /consumers/<g>/ids/<id>           (e) {"version":1,"subscription":{"t":2},"pattern":"static","timestamp":"ms"}
    /consumers/<g>/owners/<t>/<p>     (e) the owner: <consumer id>-<number of its thread>

`pattern` is 0.8's: ``static``, ``white_list`` or ``black_list``; a list's subscription names one filter in place of a
topic. Members of the brokers' protocol stand here too, with a thread for each topic, put there by their coordinator.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from klog.coordination import entries, paths
from klog.coordination.zookeeper import ZNode, ZooKeeper
from klog.names import TopicPartition

STATIC = "static"
WHITE_LIST = "white_list"
BLACK_LIST = "black_list"


@dataclass(frozen=True, slots=True)
class ConsumerEntry:
    """`subscription`: topic, or filter, to its number of threads. `session` holds the node; 0 in one to be written."""

    consumer_id: str
    subscription: Mapping[str, int]
    pattern: str = STATIC
    timestamp_ms: int = 0
    session: int = 0


def encode(entry: ConsumerEntry) -> bytes:
    """As 0.8 writes it."""
    return entries.encode(
        {
            "version": 1,
            "subscription": dict(entry.subscription),
            "pattern": entry.pattern,
            "timestamp": str(entry.timestamp_ms or time.time_ns() // 1_000_000),
        }
    )


def live(zookeeper: ZooKeeper, groups: Sequence[str]) -> dict[str, list[ConsumerEntry]]:
    """The consumers of each of these groups that have an entry, by id; two rounds for all of them."""
    folders = [paths.consumer_ids(group) for group in groups]
    where = [
        (group, node, f"{folder}/{node}")
        for group, folder, nodes in zip(groups, folders, zookeeper.children_many(folders), strict=True)
        for node in nodes
    ]
    found: dict[str, list[ConsumerEntry]] = {group: [] for group in groups}
    for (group, name, path), node in zip(where, zookeeper.get_many([path for _, _, path in where]), strict=True):
        if node is not None:  # it has left between the two reads
            found[group].append(_decode(path, paths.group_name(name), node))
    return found


def owners(zookeeper: ZooKeeper, groups: Sequence[str]) -> dict[str, dict[TopicPartition, str]]:
    """Which thread owns which partition, for each of these groups; three rounds for all of them."""
    folders = [paths.consumer_owners(group) for group in groups]
    topics = [
        (group, topic, f"{folder}/{topic}")
        for group, folder, found in zip(groups, folders, zookeeper.children_many(folders), strict=True)
        for topic in found
    ]
    numbers = zookeeper.children_many([folder for _, _, folder in topics])
    leaves = [
        (group, TopicPartition(topic, int(one)), f"{folder}/{one}")
        for (group, topic, folder), found in zip(topics, numbers, strict=True)
        for one in found
        if one.isascii() and one.isdigit()
    ]
    result: dict[str, dict[TopicPartition, str]] = {group: {} for group in groups}
    for (group, partition, _), node in zip(leaves, zookeeper.get_many([path for _, _, path in leaves]), strict=True):
        if node is not None:
            result[group][partition] = node.data.decode("utf-8", "replace")
    return result


def _decode(path: str, consumer_id: str, node: ZNode) -> ConsumerEntry:
    entry = entries.Entry(path, node.data)
    subscription = entry.fields.get("subscription")
    threads: Iterable[tuple[object, object]] = subscription.items() if isinstance(subscription, dict) else ()
    return ConsumerEntry(
        consumer_id,
        {str(topic): count for topic, count in threads if isinstance(count, int)},
        entry.text("pattern", STATIC),
        entry.integer("timestamp", 0),
        node.stat.owner_session,
    )
