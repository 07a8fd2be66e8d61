"""Deletes topics from the registry: the mark ``/admin/delete_topics/<t>``, and the removal once no broker serves them.

A delayed deletion has another mark, in the topic's node (`klog.coordination.topics.Deletion`).
"""

from __future__ import annotations

from collections.abc import Sequence

from klog.coordination import committed, entries, partition_states, paths, topics
from klog.coordination.topics import RACE_TRIES, Topic
from klog.coordination.zookeeper import Check, Delete, Operation, ZooKeeper, put
from klog.errors import BadVersion, NodeExists, NoNode, UnknownTopicOrPartition

BEGUN = b'{"version":1,"begun":true}'
"""klog's data of a begun deletion's mark, which 0.8's tools leave empty."""


def mark_for_deletion(zookeeper: ZooKeeper, name: str, fence: Sequence[Operation] = ()) -> None:
    """Mark the topic for deletion; may be repeated. Raises UnknownTopicOrPartition."""
    path = paths.delete_topic(name)
    for _ in range(RACE_TRIES):
        if zookeeper.exists(paths.topic(name)) is None:
            raise UnknownTopicOrPartition.of_topics(name)
        mark = zookeeper.find(path)
        if mark is not None and mark.data == BEGUN:
            return
        write = put(path, BEGUN, mark)
        try:
            zookeeper.commit([*fence, write], [write])
            return
        except (NodeExists, NoNode, BadVersion):
            for check in fence:
                if isinstance(check, Check):
                    topics.require(zookeeper, check)
    raise BadVersion(f"topic {name!r}: others write the mark of its deletion")


def take_on_deletion(zookeeper: ZooKeeper, name: str, fence: Sequence[Check]) -> None:
    """Note in the mark that the deletion has begun. Any later controller continues it, whatever the settings then.

    Raises BadVersion if the fence fails, NoNode if the mark is gone.
    """
    zookeeper.get(paths.delete_topic(name))
    mark_for_deletion(zookeeper, name, fence)


def unmark(zookeeper: ZooKeeper, name: str, fence: Sequence[Check]) -> None:
    """Remove the mark of a deletion that is not to be. Raises BadVersion if the fence fails."""
    try:
        zookeeper.commit([*fence, Delete(paths.delete_topic(name))])
    except NoNode:
        pass


def deletions_begun(zookeeper: ZooKeeper, listed: Sequence[str]) -> set[str]:
    """The topics among these whose deletion a controller has begun."""
    return {name for name, node in zookeeper.find_many(listed, paths.delete_topic).items() if node.data == BEGUN}


def finish_deletion(zookeeper: ZooKeeper, name: str, fence: Sequence[Check]) -> None:
    """Remove a topic from the registry, once no broker serves it. May be interrupted anywhere and repeated.

    The epoch is raised first: from then on every write fenced by the topic fails, such as ISR changes of its leaders
    and commits of groups (rule Z1). Then the groups' offsets, owners and claims are removed (rule L10). The topic's
    node and the mark go last, in one multi: until then the name is taken.
    """
    topic = topics.find(zookeeper, name)
    if topic is not None:
        _raise_first_epoch(zookeeper, topic, fence)
    committed.forget_topic(zookeeper, name)
    folders = [f"{paths.partitions(name)}/{child}" for child in zookeeper.children_many([paths.partitions(name)])[0]]
    groups = [
        [*(Delete(f"{folder}/{child}") for child in children), Delete(folder)]
        for folder, children in zip(folders, zookeeper.children_many(folders), strict=True)
    ]
    zookeeper.commit_each(groups, fence)
    last = [paths.partitions(name), paths.topic_config(name), paths.topic_id(name)]
    last += [paths.topic(name), paths.delete_topic(name)]
    present = list(map(Delete, zookeeper.find_many(last)))
    if present:
        zookeeper.commit([*fence, *present])


def _raise_first_epoch(zookeeper: ZooKeeper, topic: Topic, fence: Sequence[Check]) -> None:
    """Raise it above all used epochs; written even if it already is, because others check the node's version."""
    states = partition_states.read_many(zookeeper, topic.topic_partitions)
    used = max((state.leader_epoch for state in states.values() if state is not None), default=-1)
    path = paths.topic_epoch(topic.name)
    node = zookeeper.find(path)
    first_epoch = used + 1 if node is None else max(used + 1, entries.number(path, node.data))
    zookeeper.commit([*fence, put(path, str(first_epoch).encode(), node)])
