"""The rules of `klog check zookeeper`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from klog.admin.findings import CRITICAL, WARNING, Finding
from klog.coordination.server_settings import heap_needed_bytes

if TYPE_CHECKING:
    from klog.admin.check_facts import Facts

HEAP_SHARE_MAX: Final = 0.6
HEAP_SHARE_CRITICAL: Final = 0.8
"""Of ZooKeeper's heap, taken by what it keeps: what is left is for requests, and for collecting."""
SHOWN_MAX: Final = 3
"""Nodes named in a row; more are counted."""


def of_zookeeper(facts: Facts) -> Iterator[Finding]:
    """Servers that are down or have too little room, and nodes that everybody may change."""
    yield from _servers(facts)
    yield from _open_nodes(facts)


def _servers(facts: Facts) -> Iterator[Finding]:
    down = [one for one in facts.servers if one.mode is None or one.mode == "read-only"]
    has_quorum = 2 * len(down) < len(facts.servers)
    for one in down:
        found = one.reason or "read-only: it has lost the other servers"
        # Without the folder it had, `klog zookeeper start` would begin an empty one.
        do = f"start it again at {one.address}: `klog up`, or `klog zookeeper start --dir DIR --port PORT`"
        severity = WARNING if has_quorum else CRITICAL
        yield Finding(severity, f"zookeeper {one.address}", found, "serving", do, "zookeeper-down")
    for one in facts.servers:
        if one.nodes is None or one.data_bytes is None or not one.heap_bytes:
            continue
        share = heap_needed_bytes(one.nodes, one.data_bytes) / one.heap_bytes
        if share >= HEAP_SHARE_MAX:
            found = f"{one.nodes:,} nodes take some {share:.0%} of its heap of {one.heap_bytes >> 20:,} MiB"
            do = "a larger heap (`klog zookeeper start --heap SIZE`, `klog up --zookeeper-heap SIZE`), or fewer groups"
            severity = CRITICAL if share >= HEAP_SHARE_CRITICAL else WARNING
            expected = f"less than {HEAP_SHARE_MAX:.0%}"
            yield Finding(severity, f"zookeeper {one.address}", found, expected, do, "zookeeper-heap")


def _open_nodes(facts: Facts) -> Iterator[Finding]:
    """A cluster whose users log in, while everybody who reaches ZooKeeper may change credentials and permissions."""
    if not facts.has_users or not facts.open_nodes:
        return
    shown = ", ".join(facts.open_nodes[:SHOWN_MAX])
    more = len(facts.open_nodes) - SHOWN_MAX
    yield Finding(
        WARNING,
        "zookeeper",
        f"everybody who reaches it may change {shown}{f' and {more} more' if more > 0 else ''}",
        "nodes that the cluster's owner alone may change, since its users log in",
        "`klog security zookeeper`; docs/security.md has what brokers need before",
        "zookeeper-open",
    )
