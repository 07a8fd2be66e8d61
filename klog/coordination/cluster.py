"""What makes a chroot a cluster: its id in ``/cluster/id`` and the folders that every registry lives in.

``/cluster/id`` holds ``{"version":"1","id":"<22 characters>"}`` as Kafka's (KIP-78). It is made last, so whoever finds
it finds the folders too. Only brokers call `ensure_cluster`; clients read.
"""

from __future__ import annotations

import uuid

from klog.coordination import entries, paths
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import NodeExists


def cluster_id(zookeeper: ZooKeeper) -> str | None:
    """None where no broker has ever started."""
    node = zookeeper.find(paths.CLUSTER_ID)
    return None if node is None else entries.Entry(paths.CLUSTER_ID, node.data).text("id")


def ensure_cluster(zookeeper: ZooKeeper) -> str:
    """The id of the cluster, which is made where there is none; brokers may race, one id wins."""
    found = cluster_id(zookeeper)
    if found is not None:
        return found
    for path in paths.PERSISTENT:
        zookeeper.ensure_path(path)
    made = entries.uuid_text(uuid.uuid4())
    try:
        zookeeper.create(paths.CLUSTER_ID, entries.encode({"version": "1", "id": made}))
    except NodeExists:
        pass
    found = cluster_id(zookeeper)
    assert found is not None, "nobody removes a cluster's id"
    return found
