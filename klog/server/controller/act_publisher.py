"""Publishes acts: each act under ``/klog/acts``, by whatever program, becomes an event of the kind ``act``.

Acts are written by the controller, by coordinators of groups and by commands that write to ZooKeeper themselves. The
controller watches the node and publishes events in ZooKeeper's order of the acts. When they are in ``klog.events``, the
node gets the last one's transaction (`acts.published`). So after a controller's death the next one publishes what may
be missing: each act at least once, told apart by its id.

It also removes old acts (`acts.forget_oldest`). Its threads are of another purpose than elections, which thousands of
acts must not delay.
"""

from __future__ import annotations

import asyncio
from typing import Final

from klog.coordination import acts
from klog.coordination.acts import Act
from klog.coordination.zookeeper import ZooKeeper
from klog.server.controller.controller_state import ControllerState
from klog.server.executors import Purpose
from klog.server.runtime import Runtime

GATHER_S: Final = 0.2
"""Acts written within this time are read together: each read lists all names."""


class ActPublisher:
    """Event loop only."""

    def __init__(self, runtime: Runtime, state: ControllerState) -> None:
        self._runtime = runtime
        self._state = state
        self._written = asyncio.Event()
        """Acts may have been written."""
        self._told_zxid = 0
        self._told = asyncio.Event()
        """Events have been published since the last mark."""
        self._known: frozenset[str] | None = None
        """The acts that existed at the last look of this term."""
        self._since_forgetting = 0

    def start(self) -> None:
        """The term has begun."""
        self._written.set()
        self._told_zxid = 0
        self._told.clear()
        self._known = None
        self._since_forgetting = 0
        self._state.keep_up(self._written, self._tell_all, "acts are not published yet")
        self._state.keep_up(self._told, self._mark_all, "published acts are not marked yet")

    def _watch(self, _: object) -> None:
        """In kazoo's thread."""
        self._runtime.from_thread(self._written.set)

    async def _tell_all(self) -> None:
        if self._known is None:
            self._told_zxid = await self._runtime.at_zookeeper(Purpose.OTHER, acts.published)
        names, fresh = await self._runtime.at_zookeeper(Purpose.OTHER, self._read, self._known, self._told_zxid)
        self._known = names
        for zxid, act in fresh:
            if zxid > self._told_zxid:
                self._runtime.tell("act", **act.event())
                self._told_zxid = zxid
                self._told.set()
        self._since_forgetting += len(fresh)
        if len(names) > acts.KEPT_MAX or self._since_forgetting >= acts.LOOKED_AT_EVERY:
            await self._runtime.at_zookeeper(Purpose.OTHER, acts.forget_oldest)
            self._since_forgetting = 0
        await asyncio.sleep(GATHER_S)

    def _read(
        self, zookeeper: ZooKeeper, known: frozenset[str] | None, published: int
    ) -> tuple[frozenset[str], list[tuple[int, Act]]]:
        """In a thread: the ids of all acts, and the new ones with their transactions. Reads no act at the beginning of
        a term if all were published."""
        names = acts.list_ids(zookeeper, self._watch)
        if known is None and acts.last_change(zookeeper) <= published:
            return frozenset(names), []
        fresh = acts.read_by_transaction(zookeeper, [name for name in names if known is None or name not in known])
        return frozenset(names), fresh

    async def _mark_all(self) -> None:
        zxid = self._told_zxid
        await self._runtime.events_sent()
        await self._runtime.at_zookeeper(Purpose.OTHER, acts.mark_published, zxid, self._state.fence)
