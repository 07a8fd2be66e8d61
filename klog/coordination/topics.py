"""The topic registry: topics with assignment, UUID and settings (deletion: `topic_deletion`).

``/brokers/topics/<t>`` is 0.8's ``{"version":1,"partitions":{"0":[1,2]}}`` with ``"topic_id"`` behind it (rule L10, a
UUID in Kafka's form); a topic created by a ZooKeeper-era tool has none until `give_id`. While partitions are
reassigned, ``partitions`` has their new and old replicas together, the target first. Kafka 2.4's
``"adding_replicas":{"0":[3]}`` and ``"removing_replicas":{"0":[1]}`` list the replicas to add and to remove. klog's own
``"reassigned":{"0":{"origin":[1,2],"throttle":N}}`` has the replicas that a cancel restores, and the copy's limit in
bytes per second.

``"deleted_for_ms":N,"deleted_by":"mifz3k2a9x4q","is_name_kept":true`` marks a delayed deletion, due so long after the
node's last write. The topic keeps everything, and its partitions have no leader. One write sets the mark, and one
removes it. When the time is over, or a client purges the topic, it is deleted (`topic_deletion`).

``/config/topics/<t>`` is ``{"version":1,"config":{}}``. Each change writes ``/config/changes/config_change_N`` with the
topic's name.

``/klog/topic_epochs/<t>`` is a plain number that outlives the topic: the first leader epoch that no topic of this name
has used. Deletion raises it above all epochs of the topic before it removes the topic's node, so a client that
remembers the old topic's epochs never takes the new topic's epochs for older. Every creation of a topic of the name
raises the node's version, so it is also the fence for every write about a topic (rule Z1): the versions of the nodes
under ``/brokers`` and ``/config`` start at 0 again with each topic of the name.

``/klog/topic_ids/<t>`` is the UUID again. A ZooKeeper-era tool that adds partitions writes the topic's node without it,
and a broker never serves a log under another UUID than its topic's.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from klog.config.topic import KEEP_EVERYTHING, usable_settings
from klog.coordination import config_notices, entries, paths
from klog.coordination.zookeeper import Check, Create, Operation, SetData, Watch, ZNode, ZooKeeper, put
from klog.errors import (
    BadVersion,
    InvalidPartitions,
    NodeExists,
    NoNode,
    TopicAlreadyExists,
    ZooKeeperError,
)
from klog.names import TopicPartition, is_topic_name, uuid_text

Assignment = Mapping[int, Sequence[int]]
"""Partition -> broker ids, the preferred leader first."""

RACE_TRIES = 10
NUMBER_MAX = 2**31 - 1

ADDING = "adding_replicas"
REMOVING = "removing_replicas"
REASSIGNED = "reassigned"
DELETED_FOR = "deleted_for_ms"
DELETED_BY = "deleted_by"
NAME_KEPT = "is_name_kept"


@dataclass(frozen=True, slots=True)
class Deletion:
    """The mark of a delayed deletion. ``act``: the deletion's. ``is_name_kept``: creating a topic of the name is
    refused; else it purges this one. ``since_ms``: by ZooKeeper's clock."""

    retention_ms: int
    act: str
    is_name_kept: bool
    since_ms: int = field(default=-1, compare=False)

    @property
    def until_ms(self) -> int:
        return self.since_ms + self.retention_ms


@dataclass(frozen=True, slots=True)
class Topic:
    """`version`: of the topic's node; `fence_version`: of its epoch node (-1: it does not exist)."""

    name: str
    topic_id: uuid.UUID | None
    partitions: dict[int, tuple[int, ...]]
    version: int
    fence_version: int
    adding: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Replicas of reassigned partitions that are still copying the log."""
    removing: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Replicas of reassigned partitions to remove when the others are in sync."""
    origins: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Replicas of reassigned partitions before; missing if another tool began the reassignment."""
    throttles: dict[int, int] = field(default_factory=dict)
    """Bytes per second that a broker may copy for a reassigned partition; missing without a limit."""
    deletion: Deletion | None = None
    created_zxid: int = field(default=-1, compare=False)
    """The czxid of the topic's node: a later topic of the same name has another. -1: not known."""

    @property
    def fence(self) -> list[Check]:
        """For every multi about this topic: fails once the topic is deleted, even if the name was created again."""
        return [Check(paths.topic_epoch(self.name), self.fence_version)] if self.fence_version >= 0 else []

    @property
    def topic_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, partition) for partition in self.partitions]


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic's overridden settings by name; `version` -1 if nothing was ever set."""

    settings: dict[str, str]
    version: int = -1


# --- Reads ------------------------------------------------------------------------------------------------------------


def names(zookeeper: ZooKeeper, watch: Watch | None = None) -> list[str]:
    """All topics, sorted; the watch fires when one comes or goes."""
    return zookeeper.find_children(paths.TOPICS, watch)


def find(zookeeper: ZooKeeper, name: str, watch: Watch | None = None) -> Topic | None:
    """The topic, or None; the watch fires when its partitions change, or it is removed."""
    # Read the fence first: a version that is too old fails the fenced write, one that is too new would fence nothing.
    fence = zookeeper.exists(paths.topic_epoch(name))
    node = zookeeper.find(paths.topic(name), watch)
    return None if node is None else decode(name, node, -1 if fence is None else fence.version)


Damage = dict[str, str]
"""Path -> the error in the node's data. Functions that get one add errors to it instead of raising them."""


def read_all(zookeeper: ZooKeeper, damage: Damage | None = None) -> list[Topic]:
    """Every topic, by name. Raises ZooKeeperError for an invalid node, unless there is `damage`."""
    return read_many(zookeeper, names(zookeeper), damage)


def read_many(zookeeper: ZooKeeper, listed: Sequence[str], damage: Damage | None = None) -> list[Topic]:
    """As `read_all`, for these names; missing topics are skipped."""
    nodes = zookeeper.find_many([*map(paths.topic_epoch, listed), *map(paths.topic, listed)])
    decoded = []
    for name in dict.fromkeys(listed):
        node, fence = nodes.get(paths.topic(name)), nodes.get(paths.topic_epoch(name))
        if node is None:
            continue
        try:
            decoded.append(decode(name, node, -1 if fence is None else fence.stat.version))
        except ZooKeeperError as error:
            if damage is None:
                raise
            damage[paths.topic(name)] = error.message
    return decoded


def first_leader_epochs(zookeeper: ZooKeeper, listed: Sequence[str]) -> dict[str, int]:
    """The first leader epoch of each topic's partitions (rule L10); 0 for a name never deleted."""
    nodes = zookeeper.find_many(listed, paths.topic_epoch)
    written = {name: entries.number(paths.topic_epoch(name), node.data) for name, node in nodes.items()}
    return dict.fromkeys(listed, 0) | written


def configs(zookeeper: ZooKeeper, listed: Sequence[str], damage: Damage | None = None) -> dict[str, TopicConfig]:
    """The overridden settings of each topic; none for a topic without a node. Raises ZooKeeperError for an invalid
    node.

    With `damage`, invalid settings are noted there and skipped, and retention with them (`usable_settings`).
    """
    found = {name: TopicConfig({}) for name in listed}
    for name, node in zookeeper.find_many(listed, paths.topic_config).items():
        path = paths.topic_config(name)
        try:
            settings = entries.JsonNode(path, node.data).text_map("config")
            wrong: list[str] = []
        except ZooKeeperError as error:
            if damage is None:
                raise
            settings, wrong = dict(KEEP_EVERYTHING), [f"{error.message}: nothing is deleted by retention until it is"]
        if damage is not None and not wrong:
            settings, wrong = usable_settings(settings)
        if damage is not None and wrong:
            damage[path] = "; ".join(wrong)
        found[name] = TopicConfig(settings, node.stat.version)
    return found


def being_deleted(zookeeper: ZooKeeper, watch: Watch | None = None) -> list[str]:
    """Topics whose deletion has been requested and is not done."""
    return zookeeper.find_children(paths.DELETE_TOPICS, watch)


def deleted(zookeeper: ZooKeeper, damage: Damage | None = None) -> dict[str, tuple[Topic, Deletion]]:
    """Topics with a delayed deletion, and its mark, the oldest first; errors in nodes as for `read_all`."""
    marked = {one.name: (one, one.deletion) for one in read_all(zookeeper, damage) if one.deletion is not None}
    for name in being_deleted(zookeeper) if marked else ():
        marked.pop(name, None)
    return dict(sorted(marked.items(), key=lambda item: item[1][1].since_ms))


def find_deleted(zookeeper: ZooKeeper, name: str) -> tuple[Topic, Deletion] | None:
    """One of `deleted`, or None."""
    topic = find(zookeeper, name)
    if topic is None or topic.deletion is None or zookeeper.exists(paths.delete_topic(name)) is not None:
        return None
    return topic, topic.deletion


def still_held(
    zookeeper: ZooKeeper, broker_id: int, replicas: Mapping[TopicPartition, uuid.UUID]
) -> set[TopicPartition]:
    """The replicas of a broker, out of partition -> topic id, that the registry still assigns to it (rule R10).

    Those are the ones whose topic is registered under that id, is not marked for deletion, and has the broker in the
    partition's assignment. Before it reports one, this syncs the ZooKeeper server, which may lag behind, and reads
    again.
    """
    held = _still_held(zookeeper, broker_id, replicas)
    if held:
        zookeeper.sync(paths.TOPICS)
        held = _still_held(zookeeper, broker_id, replicas)
    return held


def _still_held(
    zookeeper: ZooKeeper, broker_id: int, replicas: Mapping[TopicPartition, uuid.UUID]
) -> set[TopicPartition]:
    listed = sorted({name.topic for name in replicas})
    nodes = zookeeper.find_many([*map(paths.topic, listed), *map(paths.delete_topic, listed)])
    there = {
        name: decode(name, nodes[paths.topic(name)], -1)
        for name in listed
        if paths.topic(name) in nodes and paths.delete_topic(name) not in nodes
    }
    return {
        name
        for name, topic_id in replicas.items()
        if name.topic in there
        and there[name.topic].topic_id in (None, topic_id)
        and broker_id in there[name.topic].partitions.get(name.partition, ())
    }


# --- Writes -----------------------------------------------------------------------------------------------------------


def create(
    zookeeper: ZooKeeper,
    name: str,
    assignment: Assignment,
    settings: Mapping[str, str],
    fence: Sequence[Check],
    also: Sequence[Operation] = (),
) -> Topic:
    """Create a topic under a new UUID; its partitions have no state yet.

    Raises TopicAlreadyExists, also while an earlier topic of the name is being deleted; BadVersion if the fence fails.
    """
    partitions = {number: tuple(ids) for number, ids in sorted(assignment.items())}
    config, epoch = paths.topic_config(name), paths.topic_epoch(name)
    for _ in range(RACE_TRIES):
        there, marked, config_node, epoch_node, id_node = zookeeper.get_many(
            [paths.topic(name), paths.delete_topic(name), config, epoch, paths.topic_id(name)]
        )
        if there is not None or marked is not None:
            raise TopicAlreadyExists(
                f"topic {name!r} " + ("already exists" if marked is None else "is still being deleted")
            )
        fence_version = 0 if epoch_node is None else epoch_node.stat.version + 1
        topic = Topic(name, uuid.uuid4(), partitions, 0, fence_version)
        made = Create(paths.topic(name), encode(topic))
        operations: list[Operation] = [
            *fence,
            # Settings may have been left by a ZooKeeper-era tool's deletion.
            put(config, entries.encode({"version": 1, "config": dict(settings)}), config_node),
            put(epoch, b"0" if epoch_node is None else epoch_node.data, epoch_node),
            _remember(topic, id_node is not None),
            made,
            *also,
        ]
        try:
            zookeeper.commit(operations, [made])  # its UUID is ours
        except (NodeExists, BadVersion, NoNode):
            for check in fence:
                require(zookeeper, check)
            continue
        return topic
    raise TopicAlreadyExists(f"topic {name!r}: others create and delete the same name")


def add_partitions(zookeeper: ZooKeeper, topic: Topic, added: Assignment, fence: Sequence[Operation]) -> Topic:
    """Add partitions to the topic. Raises BadVersion if it was changed since it was read, or the fence fails."""
    if not added or sorted(added) != list(range(len(topic.partitions), len(topic.partitions) + len(added))):
        raise InvalidPartitions(
            f"topic {topic.name!r} has partitions 0 to {len(topic.partitions) - 1}; {sorted(added)} do not follow them"
        )
    grown = replace(topic, partitions={**topic.partitions, **{number: tuple(ids) for number, ids in added.items()}})
    return replace_assignment(zookeeper, grown, fence)


def give_id(zookeeper: ZooKeeper, topic: Topic, fence: Sequence[Check]) -> Topic:
    """Give a UUID and a fence to a topic created by a ZooKeeper-era tool.

    One that has had leaders had a UUID, which a tool has dropped: it gets the same again.
    """
    if topic.fence_version < 0:
        zookeeper.create_missing([paths.topic_epoch(topic.name)], b"0")
        topic = replace(topic, fence_version=0)
    if topic.topic_id is not None:
        return topic
    path = paths.topic_id(topic.name)
    known, led = zookeeper.get_many([path, paths.partitions(topic.name)])
    topic_id = uuid.uuid4() if known is None or led is None else entries.parse_uuid(path, known.data.decode("latin-1"))
    named = replace(topic, topic_id=topic_id)
    return replace_assignment(zookeeper, named, [*fence, _remember(named, known is not None)])


def remember_ids(zookeeper: ZooKeeper, listed: Sequence[Topic], fence: Sequence[Check]) -> None:
    """Write the UUIDs beside the topics, if missing. Raises BadVersion if the fence fails."""
    nodes = zookeeper.find_many((topic.name for topic in listed), paths.topic_id)
    wanted = {topic.name: _remember(topic, topic.name in nodes) for topic in listed if topic.topic_id is not None}
    missing = [[one] for name, one in wanted.items() if name not in nodes or nodes[name].data != one.data]
    zookeeper.commit_each(missing, fence)


def _remember(topic: Topic, is_known: bool) -> Create | SetData:
    assert topic.topic_id is not None
    path, data = paths.topic_id(topic.name), uuid_text(topic.topic_id).encode()
    return SetData(path, data) if is_known else Create(path, data)


def replace_assignment(zookeeper: ZooKeeper, topic: Topic, fence: Sequence[Operation]) -> Topic:
    """Write the topic as given: replicas, and which are being added and removed, of any of its partitions.

    Raises BadVersion if it was changed since it was read, or the fence fails.
    """
    write = SetData(paths.topic(topic.name), encode(topic), topic.version)
    zookeeper.commit([*fence, *topic.fence, write], [write])
    return replace(topic, version=topic.version + 1)


def set_config(zookeeper: ZooKeeper, topic: Topic, config: TopicConfig, fence: Sequence[Operation] = ()) -> TopicConfig:
    """Replace a topic's overridden settings, at `config.version` (-1: it must have none), and write a notice.

    Raises BadVersion or NodeExists if they were changed since they were read, or the topic was replaced.
    """
    path = paths.topic_config(topic.name)
    data = entries.encode({"version": 1, "config": config.settings})
    write = Create(path, data) if config.version < 0 else SetData(path, data, config.version)
    zookeeper.commit([*fence, *topic.fence, write, config_notices.of_topic(topic.name)], [write])
    return TopicConfig(dict(config.settings), config.version + 1)


def require(zookeeper: ZooKeeper, check: Check) -> None:
    """Raise BadVersion unless the check holds now."""
    stat = zookeeper.exists(check.path)
    if stat is None or stat.version != check.version:
        raise BadVersion(f"{check.path} is at version {stat.version if stat else None}, expected {check.version}")


def encode(topic: Topic) -> bytes:
    """The data of a topic's node."""
    fields: dict[str, object] = {
        "version": 1,
        "partitions": {str(number): list(ids) for number, ids in topic.partitions.items()},
    }
    if topic.topic_id is not None:
        fields["topic_id"] = uuid_text(topic.topic_id)
    for key, replicas in ((ADDING, topic.adding), (REMOVING, topic.removing)):
        if replicas:
            fields[key] = {str(number): list(ids) for number, ids in sorted(replicas.items())}
    reassigned = {
        str(number): {
            **({"origin": list(topic.origins[number])} if number in topic.origins else {}),
            **({"throttle": topic.throttles[number]} if number in topic.throttles else {}),
        }
        for number in sorted(topic.origins.keys() | topic.throttles.keys())
    }
    if reassigned:
        fields[REASSIGNED] = reassigned
    if topic.deletion is not None:
        fields[DELETED_FOR] = topic.deletion.retention_ms
        fields[DELETED_BY] = topic.deletion.act
        fields[NAME_KEPT] = topic.deletion.is_name_kept
    return entries.encode(fields)


def decode(name: str, node: ZNode, fence_version: int) -> Topic:
    """Parse a topic's node. Raises ZooKeeperError."""
    path = paths.topic(name)
    if not is_topic_name(name):
        raise ZooKeeperError(f"ZooKeeper node {path!r} is under a name that no topic can have")
    entry = entries.JsonNode(path, node.data)
    text = entry.text("topic_id", "")
    reassigned = entry.entry_map(REASSIGNED)
    return Topic(
        name=name,
        topic_id=entries.parse_uuid(path, text) if text else None,
        partitions=_assignment(path, entry),
        version=node.stat.version,
        fence_version=fence_version,
        adding=_some(entry, ADDING),
        removing=_some(entry, REMOVING),
        origins={number: one.integers("origin") for number, one in reassigned.items() if "origin" in one.fields},
        throttles={number: one.integer("throttle") for number, one in reassigned.items() if "throttle" in one.fields},
        deletion=Deletion(
            entry.integer(DELETED_FOR), entry.text(DELETED_BY), entry.flag(NAME_KEPT), node.stat.modified_ms
        )
        if DELETED_FOR in entry.fields
        else None,
        created_zxid=node.stat.created_zxid,
    )


def _assignment(path: str, entry: entries.JsonNode) -> dict[int, tuple[int, ...]]:
    """Partition -> brokers, at least one each, dead or alive."""
    partitions = entry.integer_lists("partitions")
    if not partitions or max(partitions) > NUMBER_MAX:
        raise ZooKeeperError(f"ZooKeeper node {path} has partitions {_shown(partitions)}, expected some, from 0 on")
    for number, ids in partitions.items():
        if not ids or len(set(ids)) != len(ids) or min(ids) < 0 or max(ids) > NUMBER_MAX:
            raise ZooKeeperError(
                f"ZooKeeper node {path} assigns partition {number} to {_shown(ids)}, expected brokers, each once"
            )
    return partitions


def _shown(values: Iterable[int]) -> str:
    return str(list(values))[: entries.SHOWN_CHARS_MAX]


def _some(entry: entries.JsonNode, key: str) -> dict[int, tuple[int, ...]]:
    """The partitions whose list is not empty: a tool may write empty lists for all."""
    found = entry.integer_lists(key) if key in entry.fields else {}
    return {number: ids for number, ids in found.items() if ids}
