"""Notices of changed settings, as Kafka's brokers read them: ``/config/changes/config_change_N``.

0.8 writes the name of a topic in quotes, Kafka 0.9 and later one of

    {"version":1,"entity_type":"topics","entity_name":"orders"}
    {"version":2,"entity_path":"users/alice/clients/app"}
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field

from klog.coordination import entries, paths
from klog.coordination.zookeeper import Create, Delete, Watch, ZooKeeper
from klog.errors import KlogError, NoNode, ZooKeeperError

log = logging.getLogger(__name__)

KEPT_MS = 15 * 60 * 1000
"""By then every broker has seen it, or reads everything."""
KEPT_MAX = 5_000
"""Every change of settings lists them; a client that changes settings all the time makes 60,000 in 15 minutes."""
READ_AT_ONCE = 1000
"""Notices per read; the rest is read the next time."""
DELETED_AT_ONCE = 100
_NOTICE = "config_change_"


@dataclass(frozen=True, slots=True)
class Notices:
    """``entities``: changed entities, in the order of their first change: ``topics/orders``, ``users/alice``.

    ``last``: the highest number read; ``is_all``: whether there were no more; ``damage``: path -> why.
    """

    entities: list[str] = field(default_factory=list)
    last: int = -1
    is_all: bool = True
    damage: dict[str, str] = field(default_factory=dict)

    @property
    def topics(self) -> list[str]:
        """The topics among them."""
        return [name for kind, _, name in (one.partition("/") for one in self.entities) if kind == "topics"]


def read(zookeeper: ZooKeeper, after: int, watch: Watch | None = None) -> Notices:
    """The notices with numbers above ``after``, `READ_AT_ONCE` at most. The watch fires at the next one."""
    listed = numbered(zookeeper, paths.CONFIG_CHANGES, _NOTICE, watch)
    if not listed or listed[-1][0] < after:
        after = -1  # the folder was created again, and counts from 0
    new = [one for one in listed if one[0] > after]
    chosen = new[:READ_AT_ONCE]
    damage: dict[str, str] = {}
    changed: dict[str, None] = {}
    for path, node in zookeeper.find_many(path for _, path in chosen).items():
        try:
            changed[_noticed(path, node.data)] = None
        except ZooKeeperError as error:
            damage[path] = error.message
    return Notices(list(changed), chosen[-1][0] if chosen else after, len(chosen) == len(new), damage)


def last(zookeeper: ZooKeeper, watch: Watch) -> Notices:
    """The number of the last notice, without entities: for callers that read everything anyway."""
    listed = numbered(zookeeper, paths.CONFIG_CHANGES, _NOTICE, watch)
    return Notices(last=listed[-1][0] if listed else -1)


def numbered(zookeeper: ZooKeeper, folder: str, prefix: str, watch: Watch | None) -> list[tuple[int, str]]:
    """The notices in a folder, by number, with their paths; a missing folder is created for a watch."""
    names = zookeeper.find_children(folder, watch, make=watch is not None)
    numbers = ((one.removeprefix(prefix), f"{folder}/{one}") for one in names)
    return sorted((int(number), path) for number, path in numbers if number.isdecimal())


def _noticed(path: str, data: bytes) -> str:
    try:
        plain = json.loads(data)
    except (ValueError, RecursionError):
        plain = None
    if isinstance(plain, str):
        return f"topics/{plain}"
    entry = entries.JsonNode(path, data)
    if "entity_path" in entry.fields:
        return entry.text("entity_path")
    return f"{entry.text('entity_type')}/{entry.text('entity_name')}"


def of_topic(name: str) -> Create:
    """The operation that writes a topic's notice, in 0.8's form."""
    return Create(f"{paths.CONFIG_CHANGES}/{_NOTICE}", f'"{name}"'.encode(), sequence=True)


def of_entity(entity_path: str) -> Create:
    """The operation for an entity that 0.8 does not know."""
    data = entries.encode({"version": 2, "entity_path": entity_path})
    return Create(f"{paths.CONFIG_CHANGES}/{_NOTICE}", data, sequence=True)


def forget(zookeeper: ZooKeeper, folder: str = paths.CONFIG_CHANGES) -> None:
    """Remove notices older than 15 minutes, as Kafka does, and the oldest beyond `KEPT_MAX`; up to `READ_AT_ONCE` per
    call. Logs what prevents it: the next change removes the rest."""
    limit_ms = zookeeper.clock.now_ms() - KEPT_MS
    try:
        names = zookeeper.children(folder)
        oldest = [f"{folder}/{name}" for name in names[:READ_AT_ONCE]]
        old = [
            Delete(path)
            for number, (path, node) in enumerate(zip(oldest, zookeeper.get_many(oldest), strict=True))
            if node is not None and (number < len(names) - KEPT_MAX or node.stat.created_ms < limit_ms)
        ]
        for at in range(0, len(old), DELETED_AT_ONCE):
            zookeeper.multi(old[at : at + DELETED_AT_ONCE])
    except NoNode:
        pass  # another client removes them, too
    except KlogError as error:
        log.warning("old notices of changed settings are not deleted yet: %s", error.message)
