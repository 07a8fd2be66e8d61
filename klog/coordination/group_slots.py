"""The coordinator of each group: ``/klog/group_slots/<n>``, a persistent node for each of 64 slots (rule G1).

``{"version":1,"broker":2,"incarnation":8589934598,"term":5}``: the broker, the czxid of its registration, and a number
that each new holder of the slot raises. Only the controller writes these nodes, fenced by its epoch. Every write of a
coordinator for a group is a multi that checks its slot's version: if two brokers both believe that they hold a slot,
only one can write. The CRC of a group's name gives its slot.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from klog.coordination import entries, paths
from klog.coordination.zookeeper import Check, Create, Operation, SetData, ZNode, ZooKeeper

SLOTS = 64


def slot_of(group: str) -> int:
    """The slot of a group; never changes."""
    return zlib.crc32(group.encode("utf-8", "surrogatepass")) % SLOTS


@dataclass(frozen=True, slots=True)
class SlotHolder:
    """`version` is the node's, -1 if it is not written yet."""

    slot: int
    broker_id: int
    incarnation: int
    term: int
    version: int = -1

    @property
    def fence(self) -> Check:
        """Begins every multi of this holder: fails once the slot has another."""
        return Check(paths.group_slot(self.slot), self.version)


def read_all(zookeeper: ZooKeeper) -> dict[int, SlotHolder]:
    """The holders by slot, without slots that never had one."""
    nodes = zookeeper.find_many(range(SLOTS), paths.group_slot)
    return {slot: _decode(slot, node) for slot, node in nodes.items()}


def write_many(zookeeper: ZooKeeper, holders: Iterable[SlotHolder], fence: Sequence[Check]) -> Mapping[int, SlotHolder]:
    """Replace the holders at their `version` (-1: none yet), in one multi. Returns them with their new versions.

    BadVersion or NodeExists when one was changed meanwhile or the fence fails: nothing is written.
    """
    wanted = list(holders)
    writes: list[Operation] = []
    for one in wanted:
        path = paths.group_slot(one.slot)
        writes.append(Create(path, _encode(one)) if one.version < 0 else SetData(path, _encode(one), one.version))
    zookeeper.commit([*fence, *writes])
    return {one.slot: replace(one, version=one.version + 1) for one in wanted}


def _encode(holder: SlotHolder) -> bytes:
    return entries.encode(
        {"version": 1, "broker": holder.broker_id, "incarnation": holder.incarnation, "term": holder.term}
    )


def _decode(slot: int, node: ZNode) -> SlotHolder:
    entry = entries.JsonNode(paths.group_slot(slot), node.data)
    return SlotHolder(
        slot, entry.integer("broker"), entry.integer("incarnation"), entry.integer("term"), node.stat.version
    )
