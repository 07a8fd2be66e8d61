"""Kafka's nodes for settings of users and client ids: a user's credentials and quotas share one node.

    /config/users/alice               {"version":1,"config":{"SCRAM-SHA-256":"salt=..","producer_byte_rate":"1048576"}}
    /config/users/alice/clients/app   {"version":1,"config":{"producer_byte_rate":"1024"}}
    /config/clients/app               the same

Each writer replaces its own keys of ``config``, at the version that it read, and keeps the others. A node without data
was created for the nodes below it, by Kafka or klog.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from klog.coordination import entries
from klog.coordination.zookeeper import Delete, Operation, ZNode, put
from klog.errors import ZooKeeperError

RACE_TRIES: Final = 50
"""Of a writer, while others write the same node."""


def settings_of(path: str, node: ZNode | None) -> dict[str, object]:
    """The settings in a node. Raises ZooKeeperError without the content if they cannot be read."""
    if node is None or not node.data:
        return {}
    try:
        found = entries.JsonNode(path, node.data).fields.get("config", {})
    except ZooKeeperError:
        found = None
    if not isinstance(found, dict):
        raise ZooKeeperError(f"ZooKeeper node {path} has {len(node.data)} bytes that are not settings in JSON")
    return dict(found)


def write_settings(path: str, node: ZNode | None, settings: Mapping[str, object]) -> Operation:
    """The operation that replaces the node. Without settings it deletes the node, unless there are nodes below it."""
    if node is not None and not settings and not node.stat.children:
        return Delete(path, node.stat.version)
    return put(path, entries.encode({"version": 1, "config": settings}), node)
