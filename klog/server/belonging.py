"""Which cluster a broker belongs to: the one of its log dirs, and no ZooKeeper that has forgotten it changes that.

Blocking; for threads.
"""

from __future__ import annotations

from klog.coordination import cluster
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import WrongCluster
from klog.storage.log_dir import LogDirs


def found_cluster(zookeeper: ZooKeeper, log_dirs: LogDirs) -> str:
    """The id of a new cluster, where ZooKeeper knew none. WrongCluster where a log dir is of one: it was forgotten."""
    for one in log_dirs.dirs:
        if one.meta.cluster_id is not None:
            raise _forgotten(zookeeper, f"log dir {one.path} belongs to cluster {one.meta.cluster_id}")
    return cluster.ensure_cluster(zookeeper)


def check_cluster(zookeeper: ZooKeeper, cluster_id: str) -> None:
    """WrongCluster where ZooKeeper is not that of this broker's cluster any more."""
    found = cluster.cluster_id(zookeeper)
    if found is None:
        raise _forgotten(zookeeper, f"this broker is of cluster {cluster_id}")
    if found != cluster_id:
        raise WrongCluster(
            f"ZooKeeper {zookeeper.address} is that of cluster {found} by now, this broker is of cluster {cluster_id}"
        )


def _forgotten(zookeeper: ZooKeeper, ours: str) -> WrongCluster:
    return WrongCluster(
        f"{ours}, and ZooKeeper {zookeeper.address} knows no cluster",
        hint="is the address right, with its chroot? where ZooKeeper's data are lost: klog registry rebuild",
    )
