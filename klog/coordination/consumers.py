"""The consumers of a group in 0.8's registry: the live ones, and the partitions that each owns (paper, section 3.2).

    /consumers/<g>/ids/<id>           (e) {"version":1,"subscription":{"t":2},"pattern":"static","timestamp":"ms"}
    /consumers/<g>/owners/<t>/<p>     (e) the owner: <consumer id>-<number of its thread>

`pattern` is 0.8's: ``static``, ``white_list`` or ``black_list``; a list's subscription names one filter in place of a
topic. Members of the brokers' protocol are here too: their coordinator enters them, with a thread for each topic. The
claims of stream consumers are in `coordination.ownership_fence`.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from klog.clock import SYSTEM_CLOCK, Clock
from klog.coordination import committed, entries, group_states, paths
from klog.coordination.group_states import COORDINATOR, ZOOKEEPER, GroupState
from klog.coordination.zookeeper import Create, Watch, ZNode, ZooKeeper
from klog.errors import BadVersion, GroupIsHeld, NodeExists, NoNode, SessionLost
from klog.names import TopicPartition, first_few

REGISTER_TRIES = 100
"""Each new consumer writes the group's node: of sixteen at once, the last one tries sixteen times."""
MEMBERS_NAMED_MAX = 5

STATIC = "static"
WHITE_LIST = "white_list"
BLACK_LIST = "black_list"


@dataclass(frozen=True, slots=True)
class ConsumerEntry:
    """`subscription`: topic or filter -> number of threads. `session`: owner of the node; 0 before it is written."""

    consumer_id: str
    subscription: Mapping[str, int]
    pattern: str = STATIC
    timestamp_ms: int = 0
    session: int = 0
    is_member: bool = False
    """A member of the brokers' protocol, entered by its coordinator so that ZooKeeper-era tools see it."""


def encode(entry: ConsumerEntry, now_ms: int) -> bytes:
    """0.8's form, with ``"member":true`` at the end for a member of the brokers' protocol.

    ``now_ms``: time of an entry that has none.
    """
    return entries.encode(
        {
            "version": 1,
            "subscription": dict(entry.subscription),
            "pattern": entry.pattern,
            "timestamp": str(entry.timestamp_ms or now_ms),
            **({"member": True} if entry.is_member else {}),
        }
    )


def new_consumer_id(group: str, own: str | None = None, clock: Clock = SYSTEM_CLOCK) -> str:
    """0.8's form, ``<group>_<host>-<ms>-<8 hex digits>``, or ``<group>_<own>-<8 hex digits>``; never the same again.

    0.8 omits the digits after a given name. klog keeps them: a consumer that has lost its session comes back at once
    under another name, and a fence may depend on the entry's version.
    """
    name = own or f"{socket.gethostname()}-{clock.now_ms()}"
    return f"{group}_{name}-{uuid.uuid4().hex[:8]}"


def register(zookeeper: ZooKeeper, group: str, entry: ConsumerEntry) -> GroupState:
    """Enter a stream consumer and take the group for the ZooKeeper protocol. Returns the group's state as written.

    Raises GroupIsHeld while members of the brokers' protocol live, NodeExists when another session has this id. Two
    consumers that take the group at once write the same version of its node, so one of them fails and reads again.
    """
    path, data = paths.consumer_id(group, entry.consumer_id), encode(entry, zookeeper.clock.now_ms())
    zookeeper.ensure_path(paths.consumer_ids(group))
    for _ in range(REGISTER_TRIES):
        there = zookeeper.find(path)
        state = group_states.read(zookeeper, group)
        if there is not None:
            if there.data == data and there.stat.owner_session == zookeeper.session_id:
                return state  # ours, whose answer was lost
            raise NodeExists(f"consumer id {entry.consumer_id!r} of group {group!r} is in use ({path})")
        if state.group_protocol == COORDINATOR and state.members:
            raise GroupIsHeld(_held(state))
        taken = GroupState(group, ZOOKEEPER, state.generation + 1, version=state.version)
        try:
            return group_states.write(zookeeper, taken, [Create(path, data, ephemeral=True)])
        except NoNode:
            zookeeper.ensure_path(paths.consumer_ids(group))
            zookeeper.ensure_path(paths.GROUPS)
        except (BadVersion, NodeExists, SessionLost):
            pass  # the loop's start reads whether it exists
    raise SessionLost(f"{path} could not be made in {REGISTER_TRIES} tries at ZooKeeper {zookeeper.address}")


def unregister(zookeeper: ZooKeeper, group: str, consumer_id: str) -> None:
    """Remove the entry, if it exists."""
    zookeeper.remove(paths.consumer_id(group, consumer_id))


def members(zookeeper: ZooKeeper, group: str, watch: Watch | None = None) -> list[ConsumerEntry]:
    """The consumers of one group, by id; the watch fires when one comes or goes."""
    nodes = zookeeper.find_children(paths.consumer_ids(group), watch)
    return [entry for _, entry in _entries(zookeeper, [(group, node) for node in nodes])]


def _held(state: GroupState) -> str:
    members = (f"{one.client_id or one.member_id} on {one.host}" for one in state.members)
    return (
        f"group {state.group!r} is held by {len(state.members)} members of the brokers' protocol: "
        f"{first_few(members, MEMBERS_NAMED_MAX)}; one group consumes one way at a time"
    )


def live(zookeeper: ZooKeeper, groups: Sequence[str], *, of_members: bool = False) -> dict[str, list[ConsumerEntry]]:
    """The registered consumers of each of these groups, by id; two rounds for all of them.

    Includes members of the brokers' protocol only with `of_members`; their coordinator knows whether they are alive.
    """
    listed = zookeeper.children_many(list(map(paths.consumer_ids, groups)))
    found: dict[str, list[ConsumerEntry]] = {group: [] for group in groups}
    nodes = [(group, node) for group, names in zip(groups, listed, strict=True) for node in names]
    for group, entry in _entries(zookeeper, nodes):
        if of_members or not entry.is_member:
            found[group].append(entry)
    return found


def _entries(zookeeper: ZooKeeper, nodes: Iterable[tuple[str, str]]) -> Iterator[tuple[str, ConsumerEntry]]:
    """Of groups and their consumers' nodes those that have not left since they were listed."""
    for (group, name), node in zookeeper.find_many(nodes, _path).items():
        yield group, _decode(_path((group, name)), paths.group_name(name), node)


def _path(place: tuple[str, str]) -> str:
    group, node = place
    return f"{paths.consumer_ids(group)}/{node}"


def owners(zookeeper: ZooKeeper, groups: Sequence[str]) -> dict[str, dict[TopicPartition, str]]:
    """The thread that owns each partition, for each of these groups; three rounds for all of them."""
    below = committed.partitions_below(zookeeper, list(map(paths.consumer_owners, groups)))
    leaves = [(group, partition) for group, some in zip(groups, below, strict=True) for partition in some]
    nodes = zookeeper.find_many(leaves, lambda leaf: paths.consumer_owner(leaf[0], *leaf[1]))
    result: dict[str, dict[TopicPartition, str]] = {group: {} for group in groups}
    for (group, partition), node in nodes.items():
        result[group][partition] = node.data.decode("utf-8", "replace")
    return result


def _decode(path: str, consumer_id: str, node: ZNode) -> ConsumerEntry:
    entry = entries.JsonNode(path, node.data)
    subscription = entry.fields.get("subscription")
    threads: Iterable[tuple[object, object]] = subscription.items() if isinstance(subscription, dict) else ()
    return ConsumerEntry(
        consumer_id,
        {str(topic): count for topic, count in threads if isinstance(count, int)},
        entry.text("pattern", STATIC),
        entry.integer("timestamp", 0),
        node.stat.owner_session,
        entry.flag("member"),
    )
