"""A group's state, which outlives its coordinator: ``/klog/groups/<group>``, one persistent node per group (rule G2).

``{"version":1,"way":"coordinator","generation":7,"protocol_type":"consumer","protocol":"range","leader":"<member id>",
"members":[{"id":..,"instance":..,"client":..,"host":..,"session_timeout_ms":..,"rebalance_timeout_ms":..,
"metadata":"<base64>","assignment":"<base64>"}],"is_assigned":true,"timestamp":"ms"}``; behind a byte ``z`` and
compressed by zlib where it is large.

`way` (in Python `GroupState.group_protocol`) says who may use the group: members of the brokers' protocol, consumers
that coordinate through ZooKeeper, or, if it is empty, the first that comes. Every write names the version that it
replaces, even when a stream consumer registers and changes nothing: if two clients take a group by different protocols
at once, one of them fails and reads again.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from klog.clock import SYSTEM_CLOCK
from klog.coordination import entries, paths
from klog.coordination.zookeeper import Check, Create, Operation, SetData, ZNode, ZooKeeper
from klog.errors import ZooKeeperError

GroupProtocol = Literal["", "coordinator", "zookeeper"]
FREE: GroupProtocol = ""
COORDINATOR: GroupProtocol = "coordinator"
ZOOKEEPER: GroupProtocol = "zookeeper"

COMPRESSED_FROM_BYTES = 32 * 1024
UNPACKED_BYTES_MAX = 64 * 1024 * 1024
"""Members' metadata and assignments have at most half of it; klog counts while it decompresses."""
NODE_BYTES_MAX = 400 * 1024
"""Below the limit of a multi (rule Z3), with room for its checks."""


@dataclass(frozen=True, slots=True)
class MemberState:
    """`metadata` is the member's for the chosen protocol; only static members have an `instance_id`."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    metadata: bytes = b""
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class GroupState:
    """`version` is the node's, -1 in a state that is not written yet.

    `is_assigned`: the generation's leader has sent the assignment; without it the members must join again.
    """

    group: str
    group_protocol: GroupProtocol = FREE
    generation: int = 0
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: tuple[MemberState, ...] = ()
    is_assigned: bool = False
    version: int = -1
    modified_ms: int = 0
    node_bytes: int = field(default=0, compare=False)
    """Size of the node that it was read from."""

    @property
    def fence(self) -> Check:
        """Fails a multi once the group is written again."""
        return Check(paths.group(self.group), self.version)

    @property
    def operation(self) -> Create | SetData:
        """The operation that replaces the state at its `version` (-1: creates it)."""
        path, data = paths.group(self.group), _encode(self, SYSTEM_CLOCK.now_ms())
        return Create(path, data) if self.version < 0 else SetData(path, data, self.version)

    @property
    def written(self) -> GroupState:
        """This state after its `operation` has succeeded."""
        return replace(self, version=self.version + 1)


def names(zookeeper: ZooKeeper) -> list[str]:
    """Every group with a node here; groups with only offsets are in `committed.groups`."""
    return sorted(map(paths.group_name, zookeeper.find_children(paths.GROUPS)))


def read(zookeeper: ZooKeeper, group: str) -> GroupState:
    """The group's state; a free one at version -1 if there is none."""
    return read_many(zookeeper, [group])[group]


def read_many(zookeeper: ZooKeeper, groups: Iterable[str]) -> dict[str, GroupState]:
    """As `read`, all in one round."""
    wanted = list(groups)
    found = zookeeper.find_many(wanted, paths.group)
    return {group: _decode(group, found[group]) if group in found else GroupState(group) for group in wanted}


def write(zookeeper: ZooKeeper, state: GroupState, also: Sequence[Operation] = ()) -> GroupState:
    """Replace the state at its `version`, after `also` in the same multi. Returns it with its new version.

    Raises BadVersion or NodeExists if it was changed meanwhile, NoNode if it is gone, or the error of `also`.
    """
    operation = state.operation
    zookeeper.commit([*also, operation], [operation])
    return state.written


def _encode(state: GroupState, now_ms: int) -> bytes:
    members = [
        {
            "id": one.member_id,
            **({} if one.instance_id is None else {"instance": one.instance_id}),
            "client": one.client_id,
            "host": one.host,
            "session_timeout_ms": one.session_timeout_ms,
            "rebalance_timeout_ms": one.rebalance_timeout_ms,
            "metadata": base64.b64encode(one.metadata).decode("ascii"),
            "assignment": base64.b64encode(one.assignment).decode("ascii"),
        }
        for one in state.members
    ]
    data = entries.encode(
        {
            "version": 1,
            "way": state.group_protocol,
            "generation": state.generation,
            "protocol_type": state.protocol_type,
            "protocol": state.protocol,
            "leader": state.leader,
            "members": members,
            "is_assigned": state.is_assigned,
            "timestamp": str(now_ms),
        }
    )
    if len(data) > COMPRESSED_FROM_BYTES:
        data = b"z" + zlib.compress(data, 6)
    if len(data) > NODE_BYTES_MAX:
        raise ZooKeeperError(
            f"group {state.group!r} with {len(state.members)} members takes {len(data)} bytes; at most {NODE_BYTES_MAX}"
        )
    return data


def unpacked(path: str, data: bytes) -> bytes:
    """The JSON of a group's node."""
    if data[:1] == b"z":
        try:
            inflater = zlib.decompressobj()
            data = inflater.decompress(data[1:], UNPACKED_BYTES_MAX)
        except zlib.error as error:
            raise ZooKeeperError(f"ZooKeeper node {path} cannot be decompressed: {error}") from None
        if not inflater.eof:
            what = f"more than {UNPACKED_BYTES_MAX} bytes" if inflater.unconsumed_tail else "a part of what was written"
            raise ZooKeeperError(f"ZooKeeper node {path} is {what} when it is decompressed")
    return data


def _decode(group: str, node: ZNode) -> GroupState:
    path = paths.group(group)
    entry = entries.JsonNode(path, unpacked(path, node.data))
    group_protocol = entry.text("way", FREE)
    if group_protocol not in (FREE, COORDINATOR, ZOOKEEPER):
        raise ZooKeeperError(
            f"ZooKeeper node {path} has the way {group_protocol!r}, expected {COORDINATOR!r} or {ZOOKEEPER!r}"
        )
    return GroupState(
        group,
        group_protocol,
        entry.integer("generation", 0),
        entry.text("protocol_type", ""),
        entry.text("protocol", ""),
        entry.text("leader", ""),
        tuple(_member(one) for one in entry.entry_list("members")),
        entry.flag("is_assigned"),
        node.stat.version,
        node.stat.modified_ms,
        len(node.data),
    )


def _member(entry: entries.JsonNode) -> MemberState:
    return MemberState(
        entry.text("id"),
        entry.text("instance") if "instance" in entry.fields else None,
        entry.text("client", ""),
        entry.text("host", ""),
        entry.integer("session_timeout_ms"),
        entry.integer("rebalance_timeout_ms"),
        _bytes(entry, "metadata"),
        _bytes(entry, "assignment"),
    )


def _bytes(entry: entries.JsonNode, key: str) -> bytes:
    try:
        return base64.b64decode(entry.text(key, ""), validate=True)
    except binascii.Error:
        raise ZooKeeperError(f"ZooKeeper node {entry.path} holds no base64 under {key!r}") from None
