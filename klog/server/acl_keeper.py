"""Keeps a broker's ACLs in step with ZooKeeper.

Each broker watches the folders of notices itself, as Kafka's brokers do, and reads the changed ACLs; after a lost
connection it reads everything. The controller is not involved: ACLs are needed without one, too. While ZooKeeper is
away the broker serves committed messages by the ACLs that it read last. No ACL can change in that time, unless this
broker alone is cut off from ZooKeeper: then it applies the change when it is connected again. Until the first read the
authorizer allows only super users.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from klog.coordination import acls
from klog.coordination.acls import AclsRead
from klog.security.authorizer import Authorizer
from klog.security.permissions import Pattern, PatternType
from klog.server.runtime import Runtime
from klog.server.watched_reads import WatchedReads

log = logging.getLogger(__name__)

PAUSE_S: Final = 0.05


class _Read(NamedTuple):
    """The result of a look; ``last``: the numbers of the last notices."""

    acls: AclsRead
    is_all: bool
    last: Mapping[PatternType, int]


class AclKeeper:
    """Event loop only; ZooKeeper is called in threads."""

    def __init__(self, runtime: Runtime, authorizer: Authorizer) -> None:
        self.authorizer = authorizer
        self._runtime = runtime
        self._last: Mapping[PatternType, int] = {}
        """The numbers of the last notices."""
        self._damage: dict[Pattern, str] = {}
        self._reads = WatchedReads(runtime, "ACLs", self._read, self._take, pause_s=PAUSE_S)

    async def start(self) -> None:
        """Start; returns when the ACLs have been read, or cannot be read soon."""
        await self._reads.start()
        if not self.authorizer.is_read:
            log.error("the ACLs have not been read yet: the broker denies what super users do not ask")

    async def look(self) -> None:
        """As `WatchedReads.look`."""
        await self._reads.look()

    def _read(self, everything: bool) -> _Read:
        """In a thread. The notices are listed, and watched, before the ACLs are read."""
        zookeeper = self._runtime.zookeeper
        if everything:
            acls.ensure_folders(zookeeper)
        noticed = acls.notices(zookeeper, {} if everything else self._last, self._reads.fired)
        is_all = everything or noticed.patterns is None
        found = acls.read_all(zookeeper) if is_all else acls.read(zookeeper, noticed.patterns or ())
        if noticed.count > acls.NOTICES_KEPT:
            acls.forget_notices(zookeeper)
        return _Read(found, is_all, noticed.last)

    def _take(self, read: _Read) -> bool:
        found, self._last = read.acls, read.last
        if read.is_all:
            self.authorizer.replace(found.acls, found.damage)
        elif found.acls or found.damage:
            self.authorizer.update(found.acls, found.damage)
        for pattern in found.acls:
            self._damage.pop(pattern, None)
        for pattern, why in found.damage.items():
            if self._damage.get(pattern) != why:  # each is logged once
                self._damage[pattern] = why
                log.error("what the ACLs of %s are about is denied: %s", pattern, why)
        return False
