"""A cluster in a chroot: its id in ``/cluster/id`` and the folders of all registries.

``/cluster/id`` holds ``{"version":"1","id":"<22 characters>"}`` as Kafka's (KIP-78). One multi creates it with the
folders, so a client that finds it finds them too. Only brokers call `ensure_cluster`; clients read.

``/klog/secret`` holds ``{"version":1,"secret":"<43 characters>"}``, by which brokers authenticate each other (rule
R10). Every client that can read ZooKeeper can read it: it protects against clients that reach only brokers.
"""

from __future__ import annotations

import json
import uuid

from klog.coordination import entries, paths
from klog.coordination.zookeeper import Create, ZooKeeper
from klog.errors import NodeExists, Refused, SessionLost, ZooKeeperError
from klog.names import uuid_text
from klog.secret import Secret

RACE_TRIES = 10
LAYOUT_VERSION = 1
_OWN = tuple(path for path in paths.PERSISTENT if path.startswith("/klog/"))
"""klog's own folders."""


def secret(zookeeper: ZooKeeper) -> Secret | None:
    """The secret; None until a broker has created it. Raises ZooKeeperError, without the content, if it does not
    parse."""
    node = zookeeper.find(paths.SECRET)
    if node is None:
        return None
    try:
        return Secret.parse(json.loads(node.data)["secret"])
    except (ValueError, KeyError, TypeError):
        raise ZooKeeperError(
            f"ZooKeeper node {paths.SECRET} holds no cluster's secret",
            hint="stop all brokers and delete it: the first one that starts puts its own copy there",
        ) from None


def ensure_secret(zookeeper: ZooKeeper, candidate: Secret) -> Secret:
    """The cluster's secret: the candidate if there was none. Brokers may race; all get the same."""
    found = secret(zookeeper)
    if found is None:
        zookeeper.ensure_paths(paths.ancestors(paths.SECRET))
        zookeeper.create_missing([paths.SECRET], entries.encode({"version": 1, "secret": candidate.text}))
        found = secret(zookeeper)
    if found is None:
        raise SessionLost(f"no secret could be made at ZooKeeper {zookeeper.address}")
    return found


def cluster_id(zookeeper: ZooKeeper) -> str | None:
    """The cluster's id; None if no broker has ever started. Raises Refused for a cluster of another layout."""
    node = zookeeper.find(paths.CLUSTER_ID)
    if node is None:
        return None
    entry = entries.JsonNode(paths.CLUSTER_ID, node.data)
    version = entry.integer("version", LAYOUT_VERSION)
    if version != LAYOUT_VERSION:
        raise Refused(
            f"ZooKeeper {zookeeper.address} has the layout of version {version} (in {paths.CLUSTER_ID}), "
            f"this klog serves version {LAYOUT_VERSION}",
            hint="use the klog or the Kafka that made it, or another chroot",
        )
    return entry.text("id")


def entered_id(zookeeper: ZooKeeper) -> str | None:
    """`cluster_id`, for a broker that starts: also creates folders that an earlier klog did not know."""
    found = cluster_id(zookeeper)
    if found is not None:
        zookeeper.ensure_paths(_OWN)
    return found


def ensure_cluster(zookeeper: ZooKeeper) -> str:
    """The cluster's id; creates it if absent, in one multi with the folders. Brokers may race."""
    for _ in range(RACE_TRIES):
        found = cluster_id(zookeeper)
        if found is not None:
            return found
        folders = sorted({folder for path in paths.PERSISTENT for folder in (*paths.ancestors(path), path)})
        there = zookeeper.find_many(folders)
        missing = [folder for folder in folders if folder not in there]
        made = entries.encode({"version": str(LAYOUT_VERSION), "id": uuid_text(uuid.uuid4())})
        try:
            zookeeper.multi([*map(Create, missing), Create(paths.CLUSTER_ID, made)])
        except (NodeExists, SessionLost):
            continue  # another broker's id, or our own whose answer was lost: the loop's start reads it
    found = cluster_id(zookeeper)
    if found is None:
        raise SessionLost(f"no cluster could be made at ZooKeeper {zookeeper.address} in {RACE_TRIES} tries")
    return found


def ensure_folders(zookeeper: ZooKeeper) -> None:
    """Create the folders without the id, which `restore_id` writes when all registries of the cluster are restored."""
    zookeeper.ensure_paths(paths.PERSISTENT)


def restore_id(zookeeper: ZooKeeper, known: str) -> None:
    """Write the id that the cluster had. Raises Refused if there is another by now."""
    data = entries.encode({"version": str(LAYOUT_VERSION), "id": known})
    try:
        zookeeper.commit([Create(paths.CLUSTER_ID, data)])
    except NodeExists:
        if cluster_id(zookeeper) != known:
            raise Refused(f"ZooKeeper {zookeeper.address} belongs to another cluster by now") from None
