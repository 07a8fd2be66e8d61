"""How a topic comes back from the trash: under its id, with its settings, states and the offsets of groups.

In steps, from any of which the next controller goes on:

    begin     one transaction: the topic's node, its settings, its id, its epoch; the entry is ``restoring``; the mark
              ``/admin/delete_topics/<t>`` is `topics.RESTORING`. While that is there no controller elects leaders: a
              partition whose state is missing would count as new, and begin with an empty log
    fill      the states and the offsets
    finish    one transaction: the mark goes, the entry is ``purged``, and the act is written

The states have the in-sync replicas of before, and no leader; none of them is known to have run on (rule R1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from klog.coordination import committed, entries, partition_states, paths, topics, trash
from klog.coordination.acts import Act, Actor
from klog.coordination.committed import CommittedOffset, OffsetWriter
from klog.coordination.topics import RESTORING, Topic
from klog.coordination.trash import Contents, Entry
from klog.coordination.zookeeper import (
    MULTI_BYTES_MAX,
    Check,
    Create,
    Delete,
    Operation,
    SetData,
    ZNode,
    ZooKeeper,
    batches,
    size_bytes,
)
from klog.errors import BadVersion, NodeExists, NoNode, TopicAlreadyExists
from klog.names import TopicPartition


def restores(zookeeper: ZooKeeper, listed: Sequence[str]) -> set[str]:
    """Those of these topics that are being restored."""
    nodes = zookeeper.get_many([paths.delete_topic(name) for name in listed])
    return {name for name, node in zip(listed, nodes, strict=True) if node is not None and node.data == RESTORING}


def begin(zookeeper: ZooKeeper, entry: Entry, name: str, actor: Actor, fence: Sequence[Check]) -> None:
    """Register the topic of a whole entry again, as ``name``, marked.

    TopicAlreadyExists where the name is taken; BadVersion where the entry has changed, or the fence fails.
    """
    kept = trash.contents(zookeeper, entry)
    node, mark = paths.topic(name), paths.delete_topic(name)
    there, marked, config, epoch, known_id = zookeeper.get_many(
        [node, mark, paths.topic_config(name), paths.topic_epoch(name), paths.topic_id(name)]
    )
    if there is not None or marked is not None:
        raise TopicAlreadyExists(f"topic {name!r} already exists, or is still being deleted")
    topic = replace(kept.topic, name=name)
    own_epoch = 0 if epoch is None else entries.number(paths.topic_epoch(name), epoch.data)
    settings = entries.encode({"version": 1, "config": {}}) if kept.settings is None else kept.settings
    data = topics.encode(topic)
    writes: list[Operation] = [
        SetData(entry.path, replace(entry, state=trash.RESTORING, restored_by=actor).encode(), entry.version),
        Create(mark, RESTORING),
        _write(paths.topic_config(name), settings, config),
        _write(paths.topic_epoch(name), str(max(own_epoch, entry.first_epoch)).encode(), epoch),
        _write(paths.topic_id(name), entries.uuid_text(entry.topic_id).encode(), known_id),
        Create(node, data),
    ]

    def landed() -> bool:
        found = zookeeper.get_many([mark, node])
        return [one.data for one in found if one is not None] == [RESTORING, data]

    try:
        zookeeper.commit([*fence, *writes], landed)
    except NodeExists:
        raise TopicAlreadyExists(f"topic {name!r} has been created meanwhile") from None


def _write(path: str, data: bytes, there: ZNode | None) -> Create | SetData:
    return Create(path, data) if there is None else SetData(path, data, there.stat.version)


def fill(zookeeper: ZooKeeper, topic: Topic, fence: Sequence[Check], controller_epoch: int) -> Entry:
    """Write the states and the groups' offsets of a topic that is being restored, as far as they are missing.

    Returns the topic's entry. BadVersion where the fence fails.
    """
    assert topic.topic_id is not None
    entry = trash.find(zookeeper, topic.topic_id)
    if entry is None or entry.state != trash.RESTORING:
        raise BadVersion(f"topic {topic.name!r} is being restored, and its entry in the trash is not")
    kept = trash.contents(zookeeper, entry)
    known = partition_states.read_many(zookeeper, topic.topic_partitions)
    missing = {
        name: replace(kept.states[name.partition], controller_epoch=controller_epoch)
        for name, state in known.items()
        if state is None and name.partition in kept.states
    }
    if missing:
        partition_states.create_many(zookeeper, missing, fence)
    if topic.name == entry.name:
        _fill_offsets(zookeeper, topic.name, kept, fence)
    return entry


def _fill_offsets(zookeeper: ZooKeeper, topic: str, kept: Contents, fence: Sequence[Check]) -> None:
    """Where the group has none in this topic."""
    wanted: dict[str, Mapping[TopicPartition, CommittedOffset]] = {
        group: {TopicPartition(topic, number): one for number, one in offsets.items()}
        for group, offsets in kept.offsets.items()
    }
    there = committed.read_many(zookeeper, wanted)
    writer = OffsetWriter(zookeeper)
    chroot = zookeeper.address.chroot
    room = MULTI_BYTES_MAX - sum(size_bytes(check, chroot) for check in fence)
    for group, offsets in wanted.items():
        missing = {name: one for name, one in offsets.items() if name not in there[group]}
        writer.prepare([(group, missing)])
        pairs: list[list[Operation]] = [writer.operations(group, {name: one}) for name, one in missing.items()]
        for batch in batches(pairs, lambda one: size_bytes(one, chroot), room):
            try:
                zookeeper.commit([*fence, *batch], lambda batch=batch: _are_there(zookeeper, batch))  # type: ignore[misc]
            except (NodeExists, NoNode):  # the group has committed meanwhile, or has been removed
                for check in fence:
                    topics.require(zookeeper, check)


def _are_there(zookeeper: ZooKeeper, batch: Sequence[Operation]) -> bool:
    return all(node is not None for node in zookeeper.get_many([one.path for one in batch]))


def finish(zookeeper: ZooKeeper, topic: Topic, entry: Entry, fence: Sequence[Check], act: Act) -> None:
    """The topic is complete: from here on it is like any other. The keeper of the trash removes the entry."""
    mark = paths.delete_topic(topic.name)
    purged = replace(entry, state=trash.PURGED, restored_by=None).encode()
    writes: list[Operation] = [Delete(mark), SetData(entry.path, purged, entry.version), act.write]
    zookeeper.commit([*fence, *writes], lambda: zookeeper.exists(mark) is None)
