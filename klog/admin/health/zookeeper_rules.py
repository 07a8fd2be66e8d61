"""The rules about ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from klog.admin.health.findings import CRITICAL, WARNING, Finding
from klog.admin.health.snapshot import Snapshot
from klog.coordination.server_size import FULL_SHARE
from klog.names import first_few

HEAP_SHARE_MAX: Final = FULL_SHARE / 2
"""Of ZooKeeper's heap, taken by what it keeps. At `FULL_SHARE` brokers refuse what makes it grow."""
SHOWN_MAX: Final = 3
"""Nodes named in a row; more are counted."""


def of_zookeeper(snapshot: Snapshot) -> Iterator[Finding]:
    """Servers that are down or have too little room, and nodes that everybody may change."""
    yield from _servers(snapshot)
    yield from _lost_registries(snapshot)
    yield from _open_nodes(snapshot)


def _servers(snapshot: Snapshot) -> Iterator[Finding]:
    down = [one for one in snapshot.servers if one.mode is None or one.mode == "read-only"]
    has_quorum = 2 * len(down) < len(snapshot.servers)
    for one in down:
        found = one.reason or "read-only: it has lost the other servers"
        # Without the folder it had, `klog zookeeper start` would begin an empty one.
        do = f"start it again at {one.address}: `klog zookeeper start --dir DIR --port PORT`, on the folder that it had"
        if snapshot.local_start is not None:
            do = f"start it again: `{snapshot.local_start}`"
        severity = WARNING if has_quorum else CRITICAL
        yield Finding(severity, f"zookeeper {one.address}", found, "serving", do, "zookeeper-down")
    for one in snapshot.servers:
        share = one.size.share()
        if share is not None and share >= HEAP_SHARE_MAX:
            heap_mib = (one.size.heap_bytes or 0) >> 20
            found = f"{one.size.nodes:,} nodes take some {share:.0%} of its heap of {heap_mib:,} MiB"
            do = (
                "a larger heap (`klog zookeeper start --heap SIZE`, `klog up --zookeeper-heap SIZE`), or less in it: "
                "groups that nobody uses, old schemas, deleted topics"
            )
            severity = CRITICAL if share >= FULL_SHARE else WARNING
            expected = f"less than {HEAP_SHARE_MAX:.0%}; at {FULL_SHARE:.0%} brokers refuse metadata and schemas"
            yield Finding(severity, f"zookeeper {one.address}", found, expected, do, "zookeeper-heap")


def _lost_registries(snapshot: Snapshot) -> Iterator[Finding]:
    """It serves, and does not know the cluster that the brokers belong to."""
    if snapshot.other_cluster is None:
        return
    found = f"has cluster {snapshot.other_cluster}" if snapshot.other_cluster else "has lost its data"
    do = "`klog zookeeper rebuild` restores them from the brokers' disks"
    if snapshot.own_zookeeper is not None:
        found = found if snapshot.other_cluster else "has no cluster there"
        do = f"give the brokers' own: `klog status -z {snapshot.own_zookeeper}`"
    elif snapshot.other_cluster:
        do = "give the address of the brokers' own ZooKeeper, with its chroot"
    expected = f"cluster {snapshot.metadata.cluster_id}, which the brokers belong to"
    yield Finding(CRITICAL, "zookeeper", found, expected, do, "zookeeper-empty")


def _open_nodes(snapshot: Snapshot) -> Iterator[Finding]:
    """A cluster whose users log in, while everybody who reaches ZooKeeper may change credentials and permissions."""
    if not snapshot.has_users or not snapshot.open_nodes:
        return
    yield Finding(
        WARNING,
        "zookeeper",
        f"everybody who reaches it may change {first_few(snapshot.open_nodes, SHOWN_MAX)}",
        "nodes that the cluster's owner alone may change, since its users log in",
        "`klog security zookeeper`; docs/security.md has what brokers need before",
        "zookeeper-open",
    )
