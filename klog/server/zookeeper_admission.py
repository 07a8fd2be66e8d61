"""What clients can make ZooKeeper keep is bounded against its heap (rule P2): a ZooKeeper without memory stops all.

Strategy
    Every broker asks ZooKeeper every `LOOK_EVERY_S` how much it keeps, and adds what it has let in since. What can grow
    without bound is refused by kind, what is least needed first, each at its share of the heap (`LIMITS`). Offsets that
    have a node, and all that brokers write for themselves, always have room.

Rules
    * A refusal is POLICY_VIOLATION, and names the kind, the share and the limit; the first of a minute is an event.
    * A ZooKeeper that does not tell its size (``mntr`` is not in its whitelist) bounds nothing.
    * `klog status` has a finding from half of the first limit on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
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
"""Of a new group, with its nodes' overhead."""
PARTITION_BYTES: Final = 1_000
"""Of a new partition, likewise."""
OFFSET_BYTES: Final = 500
"""Of a node that a committed offset has, or an entry of a member."""
RULE_BYTES: Final = 2_000
"""Of a user, a quota or a permission."""


class Kind(Enum):
    METADATA = "metadata of committed offsets"
    SCHEMAS = "schemas"
    ENTRIES = "entries that show members to 0.8's tools"
    GROUPS = "groups"
    PARTITIONS = "partitions"
    OFFSETS = "offsets of further partitions"
    MEMBERS = "members of groups"
    RULES = "users, quotas and permissions"


LIMITS: Final = {
    Kind.METADATA: FULL_SHARE,
    Kind.SCHEMAS: FULL_SHARE,
    Kind.ENTRIES: FULL_SHARE,
    Kind.GROUPS: FULL_SHARE + 0.1,
    Kind.PARTITIONS: FULL_SHARE + 0.2,
    Kind.OFFSETS: FULL_SHARE + 0.2,
    Kind.MEMBERS: FULL_SHARE + 0.3,
    Kind.RULES: FULL_SHARE + 0.3,
}
"""Of ZooKeeper's heap."""


class ZooKeeperAdmission:
    """`admit`: any thread; the rest: event loop only."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._size = ServerSize()
        self._let_in_bytes = 0
        """Since the last look: what it has not seen."""
        self._told = {kind: EventLimit(1) for kind in Kind}

    def start(self) -> None:
        self._runtime.spawn(self._watch())

    def admit(self, kind: Kind, size_bytes: int) -> None:
        """Count what is about to be written. PolicyViolation where ZooKeeper keeps too much for that."""
        share, limit = self._size.share(self._let_in_bytes + size_bytes), LIMITS[kind]
        if share is None or share < limit:
            self._let_in_bytes += size_bytes
            return
        heap_mib = (self._size.heap_bytes or 0) >> 20
        self._runtime.from_thread(self._tell, kind, share, heap_mib)
        raise PolicyViolation(
            f"ZooKeeper would keep {share:.0%} of what its heap of {heap_mib} MiB has room for, and takes {kind.value} "
            f"up to {limit:.0%}",
            hint="give it a larger heap (klog zookeeper start --heap SIZE), or delete groups, schemas or topics",
        )

    def new_group(self, name: str) -> None:
        """A group is about to get its nodes. PolicyViolation."""
        self.admit(Kind.GROUPS, len(name.encode()) + GROUP_BYTES)

    def new_partitions(self, count: int) -> None:
        """A client has so many made. PolicyViolation."""
        self.admit(Kind.PARTITIONS, count * PARTITION_BYTES)

    def new_offsets(self, count: int) -> None:
        """Committed offsets are about to get so many nodes. PolicyViolation."""
        self.admit(Kind.OFFSETS, count * OFFSET_BYTES)

    def new_entries(self, count: int) -> None:
        """So many entries of members are about to be made. PolicyViolation."""
        self.admit(Kind.ENTRIES, count * OFFSET_BYTES)

    def new_rules(self, count: int) -> None:
        """So many users, quotas or permissions are about to be added. PolicyViolation."""
        self.admit(Kind.RULES, count * RULE_BYTES)

    def grow_group(self, size_bytes: int) -> None:
        """What a group's node keeps of its members is about to grow by so much. PolicyViolation."""
        self.admit(Kind.MEMBERS, size_bytes)

    def _tell(self, kind: Kind, share: float, heap_mib: int) -> None:
        if self._told[kind].allows(self._runtime.loop.time()):
            log.error(
                "ZooKeeper would keep %.0f %% of its heap of %d MiB: refusing %s", 100 * share, heap_mib, kind.value
            )
            self._runtime.tell(
                "zookeeper-full", refused=kind.value, share=round(share, 2), limit=LIMITS[kind], heap_mib=heap_mib
            )

    async def _watch(self) -> None:
        zookeeper = self._runtime.zookeeper
        servers, context = zookeeper.address.servers, zookeeper.access.context
        while True:
            for host, port in servers:  # each keeps the same
                before_bytes = self._let_in_bytes
                with contextlib.suppress(OSError):
                    self._size = await self._runtime.executors.run(
                        Purpose.OTHER, server_size, host, port, TIMEOUT_S, context
                    )
                    self._let_in_bytes -= before_bytes
                    break
            await asyncio.sleep(LOOK_EVERY_S)
