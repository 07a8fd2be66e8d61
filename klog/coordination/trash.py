"""The trash: what a deleted topic had in the registries, kept for ``klog.trash.retention.ms``.

``/klog/trash/<topic id>`` is ``{"version":1,"state":"deleting","name":"t","act":"mifz3k2a9x4q","time":ms}``. It is
created in the transaction that marks the topic for deletion. Its state becomes ``whole`` when everything below it has
been copied, with ``"first_epoch":N`` and the number of ``"parts"``; from then on it is not filled again, because what
it was copied from may be half deleted. A whole entry is kept for the retention time, which begins when it became whole.
``restoring`` is written when a restore begins (`klog.coordination.topic_restore`), and ``purged`` when it is done, or
before the parts are removed for good: from then on it cannot be restored.

The parts are nodes below it:

    topic         the topic's node (`klog.coordination.topics`)
    config        the settings that it overrides
    states-<n>    ``{"version":1,"states":{"0":{"isr":[1,2],"leader_epoch":4,"unclean_epoch":-1,"new":false}}}``
    offsets-<n>   ``{"version":1,"group":"g","offsets":{"0":{"offset":4,"leader_epoch":3,"metadata":"","time":ms}}}``

A broker keeps the folders of deleted replicas while an entry of their topic's id exists that is not purged
(`kept_ids`), and removes them when neither an entry nor a topic has the id (`gone_ids`, rule R10).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from klog.coordination import committed, entries, partition_states, paths, topics
from klog.coordination.acts import Actor
from klog.coordination.committed import CommittedOffset
from klog.coordination.partition_states import PartitionState
from klog.coordination.topics import Topic
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
from klog.errors import NoNode, ZooKeeperError

DELETING: Final = "deleting"
WHOLE: Final = "whole"
RESTORING: Final = "restoring"
PURGED: Final = "purged"
PART_BYTES: Final = 128 * 1024
"""Of states, or of a group's offsets, in one node."""
READ_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class Entry:
    """A deleted topic. ``first_epoch``: the first leader epoch that it has not used. ``restored_by``: who restores it
    now. ``version`` and ``modified_ms`` are the node's."""

    topic_id: uuid.UUID
    name: str
    deleted_ms: int
    act: str | None = None
    state: str = DELETING
    first_epoch: int = 0
    parts: int = 0
    restored_by: Actor | None = None
    version: int = -1
    modified_ms: int = 0

    @property
    def path(self) -> str:
        return paths.trashed(entries.uuid_text(self.topic_id))

    def encode(self) -> bytes:
        """The data of its node."""
        fields: dict[str, Any] = {"version": 1, "state": self.state, "name": self.name}
        if self.act is not None:
            fields["act"] = self.act
        fields["time"] = self.deleted_ms
        if self.state != DELETING:
            fields |= {"first_epoch": self.first_epoch, "parts": self.parts}
        if self.restored_by is not None:
            fields |= self.restored_by._asdict()
        return entries.encode(fields)


def _decode(topic_id: uuid.UUID, path: str, node: ZNode) -> Entry:
    entry = entries.Entry(path, node.data)
    act = entry.fields.get("act")
    return Entry(
        topic_id,
        entry.text("name"),
        entry.integer("time"),
        act if isinstance(act, str) else None,
        entry.text("state"),
        entry.integer("first_epoch", 0),
        entry.integer("parts", 0),
        Actor(entry.text("client"), entry.text("host"), entry.text("principal", ""))
        if "client" in entry.fields
        else None,
        node.stat.version,
        node.stat.modified_ms,
    )


# --- Reads ------------------------------------------------------------------------------------------------------------


def find(zookeeper: ZooKeeper, topic_id: uuid.UUID) -> Entry | None:
    """The entry of a topic. ZooKeeperError for a node that is not one."""
    path = paths.trashed(entries.uuid_text(topic_id))
    node = zookeeper.find(path)
    return None if node is None else _decode(topic_id, path, node)


def read_all(zookeeper: ZooKeeper, damage: dict[str, str] | None = None) -> list[Entry]:
    """Every entry, the oldest first. With ``damage``, errors are noted there by path, and the entries left out."""
    found = []
    try:
        names = zookeeper.children(paths.TRASH)
    except NoNode:
        return []
    for at in range(0, len(names), READ_AT_ONCE):
        part = [paths.trashed(name) for name in names[at : at + READ_AT_ONCE]]
        for path, node in zip(part, zookeeper.get_many(part), strict=True):
            if node is None:
                continue
            try:
                found.append(_decode(entries.parse_uuid(path, path.rpartition("/")[2]), path, node))
            except ZooKeeperError as error:
                if damage is None:
                    raise
                damage[path] = error.message
    return sorted(found, key=lambda one: (one.deleted_ms, one.name))


def ids(zookeeper: ZooKeeper) -> set[uuid.UUID]:
    """The topics that have an entry; without nodes that are not klog's."""
    try:
        names = zookeeper.children(paths.TRASH)
    except NoNode:
        return set()
    found = set()
    for name in names:
        try:
            found.add(entries.parse_uuid(paths.trashed(name), name))
        except ZooKeeperError:
            continue
    return found


def kept_ids(zookeeper: ZooKeeper, topic_ids: Iterable[uuid.UUID]) -> set[uuid.UUID]:
    """Those of these topics whose replicas go to the trash. Before it leaves one out, this syncs the server."""
    wanted = sorted(set(topic_ids))
    found = _kept(zookeeper, wanted)
    if len(found) < len(wanted):
        zookeeper.sync(paths.TRASH)
        found = _kept(zookeeper, wanted)
    return found


def _kept(zookeeper: ZooKeeper, wanted: Sequence[uuid.UUID]) -> set[uuid.UUID]:
    where = [paths.trashed(entries.uuid_text(one)) for one in wanted]
    kept = set()
    for topic_id, path, node in zip(wanted, where, zookeeper.get_many(where), strict=True):
        if node is None:
            continue
        try:
            state = _decode(topic_id, path, node).state
        except ZooKeeperError:  # not klog's: nothing is deleted because of it
            state = DELETING
        if state != PURGED:
            kept.add(topic_id)
    return kept


def gone_ids(zookeeper: ZooKeeper, topic_ids: Iterable[uuid.UUID]) -> set[uuid.UUID]:
    """Those that have neither an entry in the trash nor a topic, by a server that is up to date (rule R10).

    The trash is read before and after the topics: a restore creates the topic before it deletes the entry, and a
    deletion creates the entry before it removes the topic. ZooKeeperError where a topic cannot be read.
    """
    wanted = set(topic_ids)
    if not wanted:
        return set()
    zookeeper.sync(paths.TRASH)
    gone = wanted - _present(zookeeper, wanted)
    if gone:
        there = {topic.topic_id for topic in topics.read_all(zookeeper)}
        listed = topics.names(zookeeper)
        beside = zookeeper.get_many([paths.topic_id(name) for name in listed])
        there |= {
            entries.parse_uuid(paths.topic_id(name), node.data.decode("ascii", "replace"))
            for name, node in zip(listed, beside, strict=True)
            if node is not None
        }
        gone -= there
        gone -= _present(zookeeper, gone)
    return gone


def _present(zookeeper: ZooKeeper, topic_ids: set[uuid.UUID]) -> set[uuid.UUID]:
    wanted = sorted(topic_ids)
    stats = zookeeper.exists_many([paths.trashed(entries.uuid_text(one)) for one in wanted])
    return {one for one, stat in zip(wanted, stats, strict=True) if stat is not None}


@dataclass(frozen=True, slots=True)
class Contents:
    """What an entry has of its topic. ``settings``: the data of their node, None where it had none."""

    topic: Topic
    settings: bytes | None
    states: Mapping[int, PartitionState]
    offsets: Mapping[str, Mapping[int, CommittedOffset]]


def contents(zookeeper: ZooKeeper, entry: Entry) -> Contents:
    """All of an entry that is whole. ZooKeeperError where a part is missing or cannot be read."""
    names = zookeeper.children(entry.path)
    if len(names) != entry.parts:
        raise ZooKeeperError(f"ZooKeeper node {entry.path} has {len(names)} parts, expected {entry.parts}")
    where = [f"{entry.path}/{name}" for name in names]
    found = dict(zip(names, zookeeper.get_many(where), strict=True))
    topic_node = found.get("topic")
    if topic_node is None:
        raise ZooKeeperError(f"ZooKeeper node {entry.path} lacks its part {'topic'!r}")
    settings = found.get("config")
    states: dict[int, PartitionState] = {}
    offsets: dict[str, dict[int, CommittedOffset]] = {}
    for name, node in found.items():
        if node is None:
            raise ZooKeeperError(f"ZooKeeper node {entry.path} lacks its part {name!r}")
        part = entries.Entry(f"{entry.path}/{name}", node.data) if "-" in name else None
        if part is not None and name.startswith("states-"):
            for number, one in part.entry_map("states").items():
                states[number] = PartitionState(
                    partition_states.NO_LEADER,
                    one.integer("leader_epoch"),
                    one.integers("isr"),
                    0,
                    new=one.flag("new"),
                    unclean_epoch=one.integer("unclean_epoch"),
                )
        elif part is not None and name.startswith("offsets-"):
            of_group = offsets.setdefault(part.text("group"), {})
            for number, one in part.entry_map("offsets").items():
                of_group[number] = CommittedOffset(
                    one.integer("offset"), one.integer("leader_epoch"), one.text("metadata"), one.integer("time")
                )
    topic = topics.decode(entry.name, topic_node, -1)
    return Contents(topic, None if settings is None else settings.data, states, offsets)


def registered(zookeeper: ZooKeeper, topic_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, Topic]:
    """The topics that have these ids, under whatever name, without those that are being deleted; by a server that is
    up to date."""
    wanted = set(topic_ids)
    zookeeper.sync(paths.TOPICS)
    found = {one.topic_id: one for one in topics.read_all(zookeeper, {}) if one.topic_id in wanted}
    marks = zookeeper.get_many([paths.delete_topic(one.name) for one in found.values()])
    return {
        topic_id: topic
        for (topic_id, topic), mark in zip(found.items(), marks, strict=True)
        if topic_id is not None and (mark is None or mark.data == topics.RESTORING)
    }


def is_registered(zookeeper: ZooKeeper, entry: Entry) -> bool:
    """Whether the topic of an entry is still in the registry, under its old name."""
    topic = topics.find(zookeeper, entry.name)
    return topic is not None and topic.topic_id == entry.topic_id


def partition_counts(zookeeper: ZooKeeper, listed: Sequence[Entry]) -> dict[uuid.UUID, int]:
    """How many partitions the topics of these entries have, as far as that is known."""
    copied = zookeeper.get_many([f"{entry.path}/topic" for entry in listed])
    alive = {one.topic_id: one for one in topics.read_many(zookeeper, [entry.name for entry in listed], {})}
    counts = {}
    for entry, node in zip(listed, copied, strict=True):
        if node is not None:
            counts[entry.topic_id] = len(topics.decode(entry.name, node, -1).partitions)
        elif entry.topic_id in alive:
            counts[entry.topic_id] = len(alive[entry.topic_id].partitions)
    return counts


# --- Filling ----------------------------------------------------------------------------------------------------------


def begin(zookeeper: ZooKeeper, entry: Entry) -> Create | SetData:
    """The operation that begins an entry, for the transaction that marks the topic.

    One of an earlier deletion of the same topic, if it exists, is filled again.
    """
    there = zookeeper.exists(entry.path)
    if there is None:
        return Create(entry.path, entry.encode())
    return SetData(entry.path, entry.encode(), there.version)


def fill(zookeeper: ZooKeeper, topic: Topic, first_epoch: int, fence: Sequence[Check]) -> None:
    """Copy what the registries have of a topic below its entry, if it has one that is not whole. May be repeated.

    Nothing may write the topic's states and offsets from then on.
    """
    entry = None if topic.topic_id is None else find(zookeeper, topic.topic_id)
    if entry is None or entry.state != DELETING:
        return
    parts = _parts(zookeeper, topic)
    _remove_parts(zookeeper, entry, fence)  # of a copy that was interrupted
    operations = [Create(f"{entry.path}/{name}", data) for name, data in parts.items()]
    for batch in _batches(zookeeper, operations, fence):
        zookeeper.commit([*fence, *batch], lambda batch=batch: _is_written(zookeeper, batch))  # type: ignore[misc]
    whole = replace(entry, state=WHOLE, first_epoch=first_epoch, parts=len(parts)).encode()
    zookeeper.commit(
        [*fence, SetData(entry.path, whole, entry.version)], lambda: zookeeper.get(entry.path).data == whole
    )


def _parts(zookeeper: ZooKeeper, topic: Topic) -> dict[str, bytes]:
    parts = {"topic": topics.encode(topic)}
    config = zookeeper.find(paths.topic_config(topic.name))
    if config is not None:
        parts["config"] = config.data
    states = partition_states.read_many(zookeeper, topic.topic_partitions)
    rows: dict[str, Any] = {
        str(name.partition): {
            "isr": list(state.isr),
            "leader_epoch": state.leader_epoch,
            "unclean_epoch": state.unclean_epoch,
            "new": state.new,
        }
        for name, state in states.items()
        if state is not None
    }
    for number, chunk in enumerate(_chunks(rows)):
        parts[f"states-{number}"] = entries.encode({"version": 1, "states": chunk})
    number = 0
    for group, offsets in _offsets(zookeeper, topic).items():
        for chunk in _chunks(offsets):
            parts[f"offsets-{number}"] = entries.encode({"version": 1, "group": group, "offsets": chunk})
            number += 1
    return parts


def _offsets(zookeeper: ZooKeeper, topic: Topic) -> dict[str, dict[str, Any]]:
    groups = committed.groups(zookeeper)
    folders = [f"{paths.consumer_offsets(group)}/{topic.name}" for group in groups]
    wanted = {}
    for group, found in zip(groups, zookeeper.children_many(folders), strict=True):
        numbers = {int(one) for one in found if one.isascii() and one.isdigit()} & topic.partitions.keys()
        if numbers:
            wanted[group] = [one for one in topic.topic_partitions if one.partition in numbers]
    return {
        group: {
            str(name.partition): {
                "offset": one.offset,
                "leader_epoch": one.leader_epoch,
                "metadata": one.metadata,
                "time": one.commit_ms,
            }
            for name, one in offsets.items()
        }
        for group, offsets in committed.read_many(zookeeper, wanted).items()
    }


def _chunks(rows: Mapping[str, Any]) -> list[dict[str, Any]]:
    """In order, of some PART_BYTES each."""
    chunks: list[dict[str, Any]] = []
    size = PART_BYTES
    for key, row in rows.items():
        if size >= PART_BYTES:
            chunks.append({})
            size = 0
        chunks[-1][key] = row
        size += len(key) + len(json.dumps(row))
    return chunks


# --- Purging ----------------------------------------------------------------------------------------------------------


def purge(zookeeper: ZooKeeper, entry: Entry, fence: Sequence[Check], also: Sequence[Operation] = ()) -> None:
    """Remove an entry for good, at its version: BadVersion where it has been changed since. May be repeated.

    ``also``: goes into the transaction that decides it.
    """
    version = entry.version
    if entry.state != PURGED:
        purged = replace(entry, state=PURGED).encode()
        zookeeper.commit(
            [*fence, SetData(entry.path, purged, version), *also], lambda: zookeeper.get(entry.path).data == purged
        )
        version += 1
    # At its version: a topic that was restored may be deleted again meanwhile, and has this entry then.
    try:
        _remove_parts(zookeeper, entry, [*fence, Check(entry.path, version)])
        zookeeper.commit([*fence, Delete(entry.path, version)], lambda: zookeeper.exists(entry.path) is None)
    except NoNode:
        pass


def _remove_parts(zookeeper: ZooKeeper, entry: Entry, fence: Sequence[Check]) -> None:
    doomed = [Delete(f"{entry.path}/{name}") for name in zookeeper.children_many([entry.path])[0]]
    for batch in _batches(zookeeper, doomed, fence):
        zookeeper.commit([*fence, *batch], lambda batch=batch: _is_removed(zookeeper, batch))  # type: ignore[misc]


def _batches(
    zookeeper: ZooKeeper, operations: Sequence[Operation], fence: Sequence[Check]
) -> Iterable[Sequence[Operation]]:
    """Of at most 512 KB each (rule Z3)."""
    chroot = zookeeper.address.chroot
    room = MULTI_BYTES_MAX - sum(size_bytes(check, chroot) for check in fence)
    return batches([[one] for one in operations], lambda one: size_bytes(one, chroot), room)


def _is_written(zookeeper: ZooKeeper, batch: Sequence[Operation]) -> bool:
    found = zookeeper.get_many([one.path for one in batch])
    return all(
        node is not None and isinstance(one, Create) and node.data == one.data
        for node, one in zip(found, batch, strict=True)
    )


def _is_removed(zookeeper: ZooKeeper, batch: Sequence[Operation]) -> bool:
    return not any(zookeeper.get_many([one.path for one in batch]))
