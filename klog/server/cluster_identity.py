"""The cluster of a broker: by its ZooKeeper and its log dirs, even if ZooKeeper has lost its data.

Blocking; for threads.
"""

from __future__ import annotations

from klog.coordination import cluster
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import WrongCluster
from klog.storage.log_dir import LogDirs


def create_cluster(zookeeper: ZooKeeper, log_dirs: LogDirs) -> str:
    """Create a cluster if ZooKeeper has none, and return its id.

    Raises WrongCluster if a log dir belongs to a cluster: ZooKeeper has lost it.
    """
    for one in log_dirs.dirs:
        if one.meta.cluster_id is not None:
            raise _forgotten(zookeeper, f"log dir {one.path} belongs to cluster {one.meta.cluster_id}")
    return cluster.ensure_cluster(zookeeper)


def check_cluster(zookeeper: ZooKeeper, cluster_id: str) -> None:
    """Raise WrongCluster if ZooKeeper no longer belongs to this broker's cluster."""
    found = cluster.cluster_id(zookeeper)
    if found is None:
        raise _forgotten(zookeeper, f"this broker belongs to cluster {cluster_id}")
    if found != cluster_id:
        raise WrongCluster(
            f"ZooKeeper {zookeeper.address} now belongs to cluster {found}, this broker to cluster {cluster_id}"
        )


def _forgotten(zookeeper: ZooKeeper, ours: str) -> WrongCluster:
    return WrongCluster(
        f"{ours}, and ZooKeeper {zookeeper.address} knows no cluster",
        hint="is the address right, with its chroot? where ZooKeeper's data are lost: klog zookeeper rebuild",
    )
