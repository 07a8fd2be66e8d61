"""Ends the time of deleted topics in the trash, and continues deletions that a disk or a broker has refused.

An entry is purged when it has been whole for ``klog.trash.retention.ms``, by ZooKeeper's clock alone: the time of the
entry and the time of now come from it. While that clock disagrees with the time that has passed here (rule L7),
nothing is purged. The brokers then delete the folders (`klog.server.replicas.trash_emptier`).
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Sequence

from klog.coordination import paths, trash
from klog.coordination.acts import Actor, new_act
from klog.coordination.trash import Entry
from klog.coordination.zookeeper import Operation
from klog.errors import KlogError, NoNode, UnknownTopicId
from klog.server.controller.controller_state import ControllerState
from klog.server.replicas.trash_emptier import look_every_s
from klog.server.runtime import Runtime
from klog.storage.retention import RetentionClock

log = logging.getLogger(__name__)


class TrashKeeper:
    """Event loop only; ZooKeeper is called in threads."""

    def __init__(
        self,
        runtime: Runtime,
        state: ControllerState,
        resume_deletions: Callable[[], Awaitable[None]],
        resume_restores: Callable[[], Awaitable[None]],
    ) -> None:
        self._runtime = runtime
        self._zookeeper = runtime.zookeeper
        self._state = state
        self._resume_deletions = resume_deletions
        self._resume_restores = resume_restores
        self._retention_ms = runtime.config.integer("klog.trash.retention.ms")
        self._trusted: RetentionClock | None = None
        self._task: asyncio.Task[None] | None = None
        self._complaints: set[str] = set()

    def start(self) -> None:
        """The term has begun."""
        self._trusted = None
        self._task = self._runtime.spawn(self._run())

    def stop(self) -> None:
        """The term is over."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(look_every_s(self._retention_ms))
            try:
                if self._state.context.deleting:
                    await self._resume_deletions()
                if self._state.context.restoring:
                    await self._resume_restores()
                for entry in await self._state.run(self._due):
                    await self._purge(entry, "its time is over")
            except KlogError as error:
                if not self._state.active:
                    return
                log.warning("the trash is not emptied yet: %s", error.message)

    def _due(self) -> list[Entry]:
        """In a thread: the entries whose time is over."""
        damage: dict[str, str] = {}
        found = trash.read_all(self._zookeeper, damage)
        for path, what in damage.items():
            if path not in self._complaints:
                self._complaints.add(path)
                log.error("ignored: %s", what)
        if not found:
            return []
        now_ms = self._zookeeper.set(paths.TRASH, b"").modified_ms  # by ZooKeeper's clock, as the entries' times
        monotonic_ms = int(self._zookeeper.clock.monotonic_s() * 1000)
        if self._trusted is None:
            self._trusted = RetentionClock(now_ms, monotonic_ms)
            return []
        doubt = self._trusted.doubt(now_ms, monotonic_ms)
        if doubt is not None:
            log.error("the trash is not emptied: %s", doubt)
            return []
        return [entry for entry in found if self._is_due(entry, now_ms)]

    def _is_due(self, entry: Entry, now_ms: int) -> bool:
        if entry.state == trash.PURGED:
            return True
        if now_ms - entry.modified_ms <= self._retention_ms:
            return False
        # One that was never filled, by a controller that knows no trash, has nothing to restore.
        is_left = entry.state == trash.DELETING and not trash.is_registered(self._zookeeper, entry)
        return entry.state == trash.WHOLE or is_left

    async def purge(self, topic_id: uuid.UUID, *, actor: Actor) -> None:
        """Remove a deleted topic from the trash now, as a client asks. UnknownTopicId where it is not there."""
        state = self._state
        entry = await state.run(trash.find, self._zookeeper, topic_id)
        if entry is None or entry.state not in (trash.WHOLE, trash.DELETING):
            raise UnknownTopicId(f"the topic with the id {topic_id} is not in the trash, or is being restored")
        act = new_act(
            "topic-purge", actor, topic=entry.name, before={"trash": str(topic_id), "deleted_by": entry.act}, after={}
        )
        await self._purge(entry, "as a client asked", (act.write,))

    async def _purge(self, entry: Entry, why: str, also: Sequence[Operation] = ()) -> None:
        state = self._state
        async with state.lock:
            state.require()
            try:
                await state.run(trash.purge, self._zookeeper, entry, state.fence, also)
            except NoNode:
                return
        log.info(
            "topic %s, deleted before, is removed from the trash for good (topic id %s)", entry.name, entry.topic_id
        )
        self._runtime.tell("topic-purged", topic=entry.name, topic_id=str(entry.topic_id), reason=why)
