"""Committed offsets of groups: ``/consumers/<g>/offsets/<t>/<p>``, 0.8's plain number, and a note beside it (rule G2).

The note, ``/klog/commits/<g>/<t>/<p>``, is
``{"version":1,"offset":4,"leader_epoch":3,"metadata":"","timestamp":"ms"}``. It is valid only while both have the same
offset: after a ZooKeeper-era tool has written the number alone, klog ignores the note.

Only the existence of nodes is cached: offsets are always read from ZooKeeper.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from klog.coordination import entries, paths
from klog.coordination.zookeeper import Check, Create, Delete, Operation, SetData, ZNode, ZooKeeper
from klog.errors import PolicyViolation, UnknownTopicOrPartition, ZooKeeperError
from klog.names import TopicPartition

NODES_MAX = 200_000
"""Nodes whose existence is cached, of all groups: some 40 MB."""
LATEST_MS = 10**15
"""A timestamp longer than any that is written."""


_NUMBER = re.compile(rb"[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """`leader_epoch`: -1 if the commit has none; `commit_ms`: 0 if unknown."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_ms: int = 0


def groups(zookeeper: ZooKeeper) -> list[str]:
    """Every group with a folder in 0.8's registry, of either protocol."""
    return sorted(map(paths.group_name, zookeeper.find_children(paths.CONSUMERS)))


def names(zookeeper: ZooKeeper, of: Sequence[str]) -> dict[str, list[TopicPartition]]:
    """For each of these groups the partitions it has committed in, in order; two rounds for all of them."""
    return dict(zip(of, partitions_below(zookeeper, list(map(paths.consumer_offsets, of))), strict=True))


def partitions_below(zookeeper: ZooKeeper, folders: Sequence[str]) -> list[list[TopicPartition]]:
    """For each of these parents of topics the partitions below it, in order; two rounds for all of them."""
    topics = [
        (at, topic, f"{folder}/{topic}")
        for at, (folder, names) in enumerate(zip(folders, zookeeper.children_many(folders), strict=True))
        for topic in names
    ]
    found: list[list[TopicPartition]] = [[] for _ in folders]
    for (at, topic, _), names in zip(topics, zookeeper.children_many([path for _, _, path in topics]), strict=True):
        numbers = (int(one) for one in names if one.isascii() and one.isdigit())
        found[at] += [TopicPartition(topic, number) for number in numbers if number < 2**31]
    return list(map(sorted, found))


def read(
    zookeeper: ZooKeeper, group: str, wanted: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, CommittedOffset]:
    """A group's committed offsets in these partitions, or in all; partitions without one are missing."""
    return read_many(zookeeper, {group: wanted})[group]


def read_many(
    zookeeper: ZooKeeper, wanted: Mapping[str, Iterable[TopicPartition] | None]
) -> dict[str, dict[TopicPartition, CommittedOffset]]:
    """As `read`, for many groups in few rounds."""
    everything = names(zookeeper, [group for group, some in wanted.items() if some is None])
    places = [
        (group, partition)
        for group, some in wanted.items()
        for partition in (everything[group] if some is None else some)
    ]
    nodes = zookeeper.find_many(path for group, partition in places for path in nodes_of(group, partition))
    found: dict[str, dict[TopicPartition, CommittedOffset]] = {group: {} for group in wanted}
    for group, partition in places:
        number_path, note_path = nodes_of(group, partition)
        number = nodes.get(number_path)
        offset = None if number is None else offset_in(number.data)
        if number is not None and offset is not None:
            found[group][partition] = _decode(note_path, offset, number.stat.modified_ms, nodes.get(note_path))
    return found


def nodes_of(group: str, partition: TopicPartition) -> tuple[str, str]:
    """A commit's two nodes: the number, and the note."""
    return paths.consumer_offset(group, *partition), paths.commit_note(group, *partition)


def offset_in(data: bytes) -> int | None:
    """The number in an offset's node; None if it is invalid or does not fit the protocol: any tool may write one.

    A negative one means none: by -1 and -2 clients reset a group to what their settings say without a commit.
    """
    offset = int(data) if _NUMBER.fullmatch(data) else None
    return offset if offset is not None and offset < 2**63 else None


class OffsetWriter:
    """Makes the operations of commits. It caches which nodes exist, so a commit needs no reads.

    Threads, one at a time. `operations` go into one multi, after the committer's fences. If that multi fails with
    NoNode or NodeExists, a node was deleted or created meanwhile: call `forget`, and make the operations again.
    """

    def __init__(self, zookeeper: ZooKeeper, admit: Callable[[int], None] = lambda count: None) -> None:
        """``admit`` raises PolicyViolation if that many more nodes are not allowed."""
        self._zookeeper = zookeeper
        self._admit = admit
        self._nodes: dict[str, dict[str, bool]] = {}
        """Group -> its nodes, folders too, and whether they exist; of the others the folders do. The groups are in the
        order of their last writes."""
        self._count = 0
        """Of all nodes."""
        self._topic_versions: dict[str, int] = {}
        """Topic -> version of the node beside it, read before the topic was marked for deletion."""

    def prepare(self, wanted: Iterable[tuple[str, Iterable[TopicPartition]]]) -> None:
        """Read which nodes of these groups' partitions exist, and create the folders above them. A group that may not
        have more nodes is skipped: `operations` refuses it."""
        unknown: dict[str, str] = {}
        for group, partitions in wanted:
            nodes = self._nodes[group] = self._nodes.pop(group, {})
            for partition in partitions:
                unknown |= {path: group for path in nodes_of(group, partition) if path not in nodes}
        if not unknown:
            return
        there = self._zookeeper.find_many(unknown)
        missing: dict[str, list[str]] = {}
        for path, group in unknown.items():
            if path in there:
                self._note(group, path, exists=True)
            else:
                missing.setdefault(group, []).append(path)
        for group, absent in list(missing.items()):
            try:
                self._admit(len(absent))
            except PolicyViolation:
                del missing[group]
        folders = {path.rpartition("/")[0]: group for group, absent in missing.items() for path in absent}
        self._zookeeper.ensure_paths([folder for folder, group in folders.items() if folder not in self._nodes[group]])
        for folder, group in folders.items():
            self._note(group, folder, exists=True)
        for group, absent in missing.items():
            for path in absent:
                self._note(group, path, exists=False)
        while self._count > NODES_MAX and len(self._nodes) > 1:  # the last group is about to be written
            self._count -= len(self._nodes.pop(next(iter(self._nodes))))

    def _note(self, group: str, path: str, *, exists: bool) -> None:
        self._count += path not in self._nodes[group]
        self._nodes[group][path] = exists

    def operations(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> list[Operation]:
        """Two writes per partition; creates missing folders first. Raises PolicyViolation."""
        self.prepare([(group, offsets)])
        nodes = self._nodes[group]
        made: list[Operation] = []
        now_ms = self._zookeeper.clock.now_ms()
        for partition, committed in offsets.items():
            number = str(committed.offset).encode()
            note = _encode(committed, committed.commit_ms or now_ms)
            for path, data in zip(nodes_of(group, partition), (number, note), strict=True):
                made.append(SetData(path, data) if nodes.get(path) else Create(path, data))
        refused = sum(one.path not in nodes for one in made)
        if refused:
            self._admit(refused)
        return made

    def size_bytes(self, group: str, partition: TopicPartition, committed: CommittedOffset) -> int:
        """The maximum bytes of a partition's two writes in a multi. Pure."""
        contents = str(committed.offset).encode(), _encode(committed, LATEST_MS)
        writes = map(Create, nodes_of(group, partition), contents)
        return sum(map(self._zookeeper.size_bytes, writes))

    def topic_fences(self, topics: Iterable[str]) -> list[Check]:
        """Checks that fail a commit once one of these topics is being deleted, so that none comes after its offsets are
        removed.

        A deletion marks the topic, raises the version of the node beside it, and removes the offsets. Here the version
        is read before the mark (rule L10). Raises UnknownTopicOrPartition for a marked topic.
        """
        wanted = dict.fromkeys(topics)
        unknown = [topic for topic in wanted if topic not in self._topic_versions]
        if unknown:
            beside = self._zookeeper.find_many(unknown, paths.topic_epoch)
            marked = self._zookeeper.find_many(unknown, paths.delete_topic)
            if marked:
                raise UnknownTopicOrPartition(f"topic {next(iter(marked))!r} is being deleted")
            # Some are missing if another tool created the topic: it does not know this node.
            self._topic_versions |= {topic: node.stat.version for topic, node in beside.items()}
        versions = ((topic, self._topic_versions.get(topic)) for topic in wanted)
        return [Check(paths.topic_epoch(topic), version) for topic, version in versions if version is not None]

    def landed(self, group: str, operations: Iterable[Operation]) -> None:
        """Note that these operations of the group succeeded: what they create exists, and of a group from which they
        delete nothing is known."""
        nodes = self._nodes.get(group, {})
        for one in operations:
            if isinstance(one, Delete):
                self.forget(group)
            elif isinstance(one, Create) and one.path in nodes:
                nodes[one.path] = True

    def forget(self, group: str) -> None:
        """Drop what is cached of a group's nodes: it may be wrong."""
        self._count -= len(self._nodes.pop(group, ()))
        self._topic_versions.clear()


def ends(zookeeper: ZooKeeper, group: str, gone: Iterable[TopicPartition]) -> list[Delete]:
    """The operations that remove a group's committed offsets in these partitions, as far as they exist now."""
    where = [path for partition in gone for path in nodes_of(group, partition)]
    return list(map(Delete, zookeeper.find_many(where)))


def forget_topic(zookeeper: ZooKeeper, topic: str) -> None:
    """Remove every group's offsets, owners and claims of a topic that is being deleted (rule L10)."""
    roots = [(paths.CONSUMERS, "/offsets"), (paths.CONSUMERS, "/owners"), (paths.COMMITS, ""), (paths.CLAIMS, "")]
    for root, below in roots:
        folders = [f"{root}/{node}{below}/{topic}" for node in zookeeper.find_children(root)]
        for folder, found in zip(folders, zookeeper.children_many(folders), strict=True):
            for path in (*(f"{folder}/{one}" for one in found), folder):
                zookeeper.remove(path)


def _encode(committed: CommittedOffset, commit_ms: int) -> bytes:
    return entries.encode(
        {
            "version": 1,
            "offset": committed.offset,
            "leader_epoch": committed.leader_epoch,
            "metadata": committed.metadata,
            "timestamp": str(commit_ms),
        }
    )


def _decode(path: str, offset: int, modified_ms: int, note: ZNode | None) -> CommittedOffset:
    if note is None:
        return CommittedOffset(offset, commit_ms=modified_ms)
    try:
        entry = entries.JsonNode(path, note.data)
        if entry.integer("offset") != offset:
            return CommittedOffset(offset, commit_ms=modified_ms)
        return CommittedOffset(
            offset, entry.integer("leader_epoch", -1), entry.text("metadata", ""), entry.integer("timestamp", 0)
        )
    except ZooKeeperError:  # harmless: the number is the commit
        return CommittedOffset(offset, commit_ms=modified_ms)
