"""What makes a chroot a cluster: its id in ``/cluster/id`` and the folders that every registry lives in.

``/cluster/id`` holds ``{"version":"1","id":"<22 characters>"}`` as Kafka's (KIP-78). It is made with the folders, so
whoever finds it finds them too. Only brokers call `ensure_cluster`; clients read.
"""

from __future__ import annotations

import uuid

from klog.coordination import entries, paths
from klog.coordination.zookeeper import Create, ZooKeeper
from klog.errors import NodeExists, SessionLost

RACE_TRIES = 10


def cluster_id(zookeeper: ZooKeeper) -> str | None:
    """None where no broker has ever started."""
    node = zookeeper.find(paths.CLUSTER_ID)
    return None if node is None else entries.Entry(paths.CLUSTER_ID, node.data).text("id")


def ensure_cluster(zookeeper: ZooKeeper) -> str:
    """The id of the cluster, which is made where there is none, folders and all in one multi; brokers may race."""
    for _ in range(RACE_TRIES):
        found = cluster_id(zookeeper)
        if found is not None:
            return found
        folders = sorted({folder for path in paths.PERSISTENT for folder in (*paths.ancestors(path), path)})
        nodes = zookeeper.get_many(folders)
        missing = [folder for folder, node in zip(folders, nodes, strict=True) if node is None]
        made = entries.encode({"version": "1", "id": entries.uuid_text(uuid.uuid4())})
        try:
            zookeeper.multi([*map(Create, missing), Create(paths.CLUSTER_ID, made)])
        except (NodeExists, SessionLost):
            continue  # another's id, or our own whose answer was lost: the loop's start reads which
    found = cluster_id(zookeeper)
    if found is None:
        raise SessionLost(f"no cluster could be made at ZooKeeper {zookeeper.address} in {RACE_TRIES} tries")
    return found
