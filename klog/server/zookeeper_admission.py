"""Limits what clients can store in ZooKeeper, against its heap (rule P2): a ZooKeeper without memory stops everything.

Strategy
    Every broker asks ZooKeeper every `LOOK_EVERY_S` for the size of its data, and adds what it has admitted since. Data
    that can grow without bound are refused by kind, the least needed first, each at its part of the heap (`Kind`).
    Offsets that have a node, and the brokers' own data, are never refused.

Rules
    * A refusal is POLICY_VIOLATION, with kind, share and limit; the first of a minute is an event.
    * A ZooKeeper that does not tell its size (``mntr`` is not in its whitelist) limits nothing.
    * `klog status` has a finding from half of the first limit on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from enum import Enum
from typing import Final

from klog.coordination.server_size import FULL_SHARE, ServerSize, server_size
from klog.errors import PolicyViolation
from klog.server.event_limits import EventLimit
from klog.server.executors import Purpose
from klog.server.runtime import Runtime

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 5.0
TIMEOUT_S: Final = 2.0
GROUP_BYTES: Final = 2_000
"""Per new group, with its nodes' overhead."""


class Kind(Enum):
    """The least needed first: its part of ZooKeeper's heap, and the bytes of one of it, with the nodes' overhead."""

    METADATA = "metadata of committed offsets", FULL_SHARE
    SCHEMAS = "schemas", FULL_SHARE
    ENTRIES = "entries that show members to 0.8's tools", FULL_SHARE, 500
    GROUPS = "groups", FULL_SHARE + 0.1
    PARTITIONS = "partitions", FULL_SHARE + 0.2, 1_000
    SETTINGS = "settings of topics", FULL_SHARE + 0.2
    OFFSETS = "offsets of further partitions", FULL_SHARE + 0.2, 500
    MEMBERS = "members of groups", FULL_SHARE + 0.3
    RULES = "users, quotas and permissions", FULL_SHARE + 0.3, 2_000

    def __init__(self, words: str, limit: float, bytes_of_one: int = 0) -> None:
        self.words = words
        self.limit = limit
        self.bytes_of_one = bytes_of_one


class ZooKeeperAdmission:
    """`admit`: any thread; the rest: event loop only."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._size = ServerSize()
        self._let_in_bytes = 0
        """Bytes admitted since the last look."""
        self._told = {kind: EventLimit(1) for kind in Kind}

    def start(self) -> None:
        self._runtime.spawn(self._watch())

    def admit(self, kind: Kind, size_bytes: int) -> None:
        """Count bytes before they are written. Raises PolicyViolation."""
        share = self._size.share(self._let_in_bytes + size_bytes)
        if share is None or share < kind.limit:
            self._let_in_bytes += size_bytes
            return
        heap_mib = (self._size.heap_bytes or 0) >> 20
        self._runtime.from_thread(self._tell, kind, share, heap_mib)
        raise PolicyViolation(
            f"ZooKeeper would keep {share:.0%} of what its heap of {heap_mib} MiB has room for, and takes {kind.words} "
            f"up to {kind.limit:.0%}",
            hint="give it a larger heap (klog zookeeper start --heap SIZE), or delete groups, schemas or topics",
        )

    def new(self, kind: Kind, count: int = 1) -> None:
        """Before so many are created. Raises PolicyViolation."""
        self.admit(kind, count * kind.bytes_of_one)

    def new_group(self, name: str) -> None:
        """Before a group gets its nodes. Raises PolicyViolation."""
        self.admit(Kind.GROUPS, len(name.encode()) + GROUP_BYTES)

    def new_settings(self, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        """A topic is about to get other settings of its own. PolicyViolation where they are more."""
        more_bytes = sum(map(len, (*after, *after.values()))) - sum(map(len, (*before, *before.values())))
        if more_bytes > 0:
            self.admit(Kind.SETTINGS, more_bytes)

    def _tell(self, kind: Kind, share: float, heap_mib: int) -> None:
        if self._told[kind].allows(self._runtime.loop.time()):
            log.error(
                "ZooKeeper would keep %.0f %% of its heap of %d MiB: refusing %s", 100 * share, heap_mib, kind.words
            )
            self._runtime.tell(
                "zookeeper-full", refused=kind.words, share=round(share, 2), limit=kind.limit, heap_mib=heap_mib
            )

    async def _watch(self) -> None:
        zookeeper = self._runtime.zookeeper
        servers, context = zookeeper.address.servers, zookeeper.access.context
        while True:
            for host, port in servers:  # each stores the same
                before_bytes = self._let_in_bytes
                with contextlib.suppress(OSError):
                    self._size = await self._runtime.executors.run(
                        Purpose.OTHER, server_size, host, port, TIMEOUT_S, context
                    )
                    self._let_in_bytes -= before_bytes
                    break
            await asyncio.sleep(LOOK_EVERY_S)
