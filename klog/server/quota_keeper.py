"""Keeps a broker's quotas in step with ZooKeeper.

Each broker watches Kafka's folder of notices itself, and reads the entities that they name; after a lost connection it
reads everything. While ZooKeeper is away the last known quotas apply. Until the first read nothing is limited: a broker
that cannot read quotas serves, and logs that.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from klog.coordination import config_notices, quotas
from klog.coordination.quotas import QuotasRead
from klog.net.arrivals import Arrivals
from klog.security.quotas import Entity, QuotaTable, Values
from klog.server.dispatch import Dispatcher
from klog.server.runtime import Runtime
from klog.server.throttling import Throttling
from klog.server.watched_reads import WatchedReads

log = logging.getLogger(__name__)

PAUSE_S: Final = 0.2
"""Changes of topics leave notices in the same folder: one look sees all in between."""


class _Read(NamedTuple):
    """The result of a look."""

    notices: config_notices.Notices
    quotas: QuotasRead
    is_all: bool


class QuotaKeeper:
    """Event loop only; ZooKeeper is called in threads."""

    def __init__(self, runtime: Runtime) -> None:
        self.throttling = Throttling(runtime.config, runtime.loop.time, runtime.measures.throttled, runtime.tell_facts)
        self._runtime = runtime
        self._dispatcher: Dispatcher | None = None
        self._arrivals: Arrivals | None = None
        self._table = QuotaTable()
        self._damage: dict[str, str] = {}
        self._last = -1
        """The number of the last notice."""
        self._is_read = False
        self._reads = WatchedReads(runtime, "quotas", self._read, self._take, pause_s=PAUSE_S)

    @property
    def quotas(self) -> Mapping[Entity, Values]:
        """The quotas as last read."""
        return self._table.quotas

    async def start(self, dispatcher: Dispatcher, arrivals: Arrivals) -> None:
        """Apply quotas to clients and addresses; returns when they have been read, or cannot be read soon."""
        self._dispatcher, self._arrivals = dispatcher, arrivals
        await self._reads.start()
        if not self._is_read:
            log.error("the quotas have not been read yet: no client is limited")

    async def look(self) -> None:
        """As `WatchedReads.look`."""
        await self._reads.look()

    def _read(self, is_all: bool) -> _Read:
        """In a thread. The notices are listed, and watched, before the quotas are read."""
        zookeeper, fired = self._runtime.zookeeper, self._reads.fired
        if is_all:
            return _Read(config_notices.last(zookeeper, fired), quotas.read_all(zookeeper), is_all)
        notices = config_notices.read(zookeeper, self._last, fired)
        return _Read(notices, quotas.read(zookeeper, quotas.noticed(notices)), is_all)

    def _take(self, read: _Read) -> bool:
        found, self._last = read.quotas, read.notices.last
        self._is_read = True
        for path, why in found.damage.items():
            if self._damage.get(path) != why:
                log.error("a quota is not applied: %s", why)
        if read.is_all:
            self._table, self._damage = QuotaTable(found.quotas), {}
        elif found.quotas:
            self._table.change(found.quotas)
            for entity in found.quotas:
                self._damage.pop(quotas.path_of(entity), None)
        self._damage |= found.damage
        self.throttling.table = self._table
        if self._dispatcher is not None:  # without quotas requests are not metered
            self._dispatcher.metering = self.throttling if self._table.limits_requests else None
        if self._arrivals is not None:
            self.throttling.limit_addresses(self._arrivals)
        return not read.notices.is_all
