"""The group coordinator: answers requests about the groups of this broker's slots.

coordinator              JoinGroup, SyncGroup, LeaveGroup, Heartbeat
commits                  commits of offsets
group_admin              list, describe and delete groups
expiry                   expired offsets of groups without members
group_cache              the groups themselves: read, written, timed
group                    the decisions of one group, without I/O
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

from klog.coordination.committed import OffsetWriter
from klog.coordination.group_slots import slot_of
from klog.coordination.group_writer import GroupWriter
from klog.errors import CoordinatorNotAvailable, KlogError
from klog.groups import bounds
from klog.groups.bounds import GroupLimits
from klog.groups.members import Caller, Join, Leave, Sync
from klog.groups.outcomes import Joined, Left, Refused, Synced
from klog.groups.phases import Phase
from klog.net.connection import Connection
from klog.server.groups.cached_group import may_be_delayed
from klog.server.groups.commits import Commits, GroupPartition
from klog.server.groups.expiry import Expiry
from klog.server.groups.group_admin import GroupAdmin
from klog.server.groups.group_cache import GroupCache
from klog.server.image import ClusterImage
from klog.server.offset_history import UNKNOWN, OffsetHistory
from klog.server.runtime import Runtime
from klog.server.zookeeper_admission import Kind, ZooKeeperAdmission


class Coordinator:
    """Event loop only."""

    def __init__(self, runtime: Runtime, image: ClusterImage, admission: ZooKeeperAdmission) -> None:
        config = runtime.config
        limits = GroupLimits(
            config.integer("group.min.session.timeout.ms"),
            config.integer("group.max.session.timeout.ms"),
            config.integer("group.initial.rebalance.delay.ms") / 1000,
            config.integer("group.max.size"),
        )
        offsets = OffsetWriter(runtime.zookeeper, partial(admission.new, Kind.OFFSETS))
        self._writing = ThreadPoolExecutor(1, "groups-write")
        self._writer = GroupWriter(runtime.zookeeper, self._writing, offsets, admission.new_group)
        self.cache = GroupCache(runtime, image, limits, self._writer, admission)
        self._joining_bytes = 0
        self.committed = OffsetHistory[GroupPartition](keeps_idle=False, clock=runtime.zookeeper.clock)
        """Recent commits of the groups of this broker's slots."""
        self.commits = Commits(self.cache, offsets, self.committed)
        self.group_admin = GroupAdmin(self.cache, self.commits)
        self._expiring = runtime.spawn(Expiry(self.cache).run())

    def close(self) -> None:
        """Answer all waiting requests, and start nothing more."""
        self._expiring.cancel()
        self.cache.close()
        self._writer.close()
        self._writing.shutdown(wait=False)

    def note_lost_slots(self) -> None:
        """Commits of groups in slots that this broker has lost are no longer known here."""
        slots = self.cache.slots
        for name in [one for one in self.committed.known if slot_of(one.group) not in slots]:
            self.committed.note(name, UNKNOWN)

    # --- requests -----------------------------------------------------------------------------------------------------

    async def join(self, name: str, join: Join) -> Joined | Refused:
        """Handle JoinGroup; answered when the group's next generation begins."""
        cache = self.cache
        try:
            bounds.check_member(join.member_id, join.instance_id)
            bounds.check_protocols(join.protocol_type, ((one, len(metadata)) for one, metadata in join.protocols))
            with self._counted(join):
                cached = await cache.load(name)
                if cached.group.phase is Phase.EMPTY:
                    await cache.check_joins(cached)
                result = await cache.submit(cached, join)
        except KlogError as error:
            return Refused(error.bare(), join.member_id)
        assert isinstance(result, Joined | Refused)
        return result

    @contextmanager
    def _counted(self, join: Join) -> Iterator[None]:
        """Count a waiting join beside the group's members. Raises CoordinatorNotAvailable."""
        taken_bytes = self.cache.size_bytes + self._joining_bytes
        if taken_bytes + join.size_bytes > bounds.BROKER_BYTES_MAX:
            raise CoordinatorNotAvailable(
                f"the members of all groups of this broker take {taken_bytes} of {bounds.BROKER_BYTES_MAX} bytes: "
                "no room for another"
            )
        self._joining_bytes += join.size_bytes
        try:
            yield
        finally:
            self._joining_bytes -= join.size_bytes

    async def sync(self, name: str, sync: Sync) -> Synced:
        """Handle SyncGroup; answered when the leader's has arrived and is written. Raises KlogError."""
        cache = self.cache
        bounds.check_member(sync.caller.member_id, sync.caller.instance_id)
        bounds.check_assignments(sync.assignments)
        cached = await cache.load(name)
        result = await cache.granted(cached, sync)
        assert isinstance(result, Synced)
        return result

    async def leave(
        self, name: str, leaving: Iterable[tuple[str, str | None]], reasons: Mapping[str, str] | None = None
    ) -> Left:
        """Handle LeaveGroup; ``reasons``: member id -> the client's reason. Raises KlogError."""
        cache = self.cache
        for member in leaving:
            bounds.check_member(*member)
        cached = await cache.load(name)
        for member_id, _ in leaving:
            if member_id in cached.group.members:
                cached.changes.left(member_id, (reasons or {}).get(member_id))
        result = await cache.granted(cached, Leave(tuple(leaving)))
        assert isinstance(result, Left)
        return result

    def heartbeat(
        self, name: str, caller: Caller, connection: Connection | None
    ) -> KlogError | Awaitable[KlogError | None] | None:
        """Handle Heartbeat: the answer, at once or, unless something changes, after a delay."""
        try:
            self.cache.holder(name)
            bounds.check_member(caller.member_id, caller.instance_id)
        except KlogError as error:
            return error.bare()
        cached = self.cache.find(name)
        if cached is None:
            return self._first_heartbeat(name, caller)
        refused = cached.group.heartbeat(caller, self.cache.now_s)
        if refused is not None or connection is None or not may_be_delayed(connection):
            return refused
        session_s = cached.group.members[caller.member_id].session_timeout_s
        return cached.delayed.delay(caller, connection, session_s)

    async def _first_heartbeat(self, name: str, caller: Caller) -> KlogError | None:
        """For a group that is not in memory."""
        try:
            cached = await self.cache.load(name)
        except KlogError as error:
            return error.bare()
        return cached.group.heartbeat(caller, self.cache.now_s)
