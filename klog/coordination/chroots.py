"""Which chroots of a ZooKeeper have a cluster: said where an address leaves the right one out."""

from __future__ import annotations

from typing import Any, Final

from klog.coordination.paths import BROKER_IDS
from klog.errors import KlogError
from klog.names import first_few

LOOKED_AT_MAX: Final = 100
"""Of each folder."""
NAMED_MAX: Final = 3


def where_clusters_are(outside: Any) -> str:
    """A hint with the addresses that have one, of chroots of at most two parts. ``outside``: a `ZooKeeper`
    without a chroot, not started."""
    found = []
    try:
        with outside:
            outside.start(patient=False)
            tops = [f"/{name}" for name in outside.children("/")[:LOOKED_AT_MAX]]
            below = zip(tops, outside.children_many(tops), strict=True)
            chroots = ["", *tops, *(f"{top}/{name}" for top, names in below for name in names[:LOOKED_AT_MAX])]
            there = outside.exists_many([chroot + BROKER_IDS for chroot in chroots])
            found = [chroot for chroot, stat in zip(chroots, there, strict=True) if stat is not None]
    except KlogError:
        pass  # a client that may not read there gets a shorter hint
    if not found:
        return "check the path behind the last server"
    named = first_few((outside.address.servers_text + chroot for chroot in found), NAMED_MAX)
    return f"there is a cluster at {named}"
