"""The groups of this broker's slots, in memory: read, written, timed, and dropped with their slot.

A group is cached while this incarnation of the broker holds its slot (rule G1). It is read from ZooKeeper at the first
request for it, or when this broker gets the slot of a group with members, who then have one session time-out to send a
heartbeat. It is dropped with the slot, and all waiting requests are answered NOT_COORDINATOR. `klog.groups.group`
decides; this module makes its writes, gives its answers and keeps its deadlines.

Without ZooKeeper, heartbeats are answered and nothing changes. A request that needs a change waits for one try and is
then answered COORDINATOR_NOT_AVAILABLE; a write of unknown outcome is repeated until its outcome is known.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Concatenate, ParamSpec, TypeVar

from klog.coordination import consumers, group_states, paths
from klog.coordination.group_slots import SlotHolder, slot_of
from klog.coordination.group_states import COORDINATOR, GroupState
from klog.coordination.group_writer import GroupChanged, GroupWrite, GroupWriter
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import (
    CoordinatorNotAvailable,
    GroupIsHeld,
    KlogError,
    NotCoordinator,
    PolicyViolation,
    SessionLost,
    ZooKeeperError,
)
from klog.groups import bounds
from klog.groups.bounds import GroupLimits
from klog.groups.group import Group
from klog.groups.members import NEVER_S, Asked
from klog.groups.outcomes import Answer, Outcome, Refused, Result
from klog.names import counted
from klog.server.executors import Purpose
from klog.server.groups.cached_group import CachedGroup
from klog.server.groups.zk_projection import ZkProjection
from klog.server.image import ClusterImage
from klog.server.runtime import Runtime
from klog.server.zookeeper_admission import Kind, ZooKeeperAdmission

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

LOOK_EVERY_S = 2.0
"""The time until members learn that an operator has changed their group. They cannot commit meanwhile."""
IDLE_S = 600.0
"""A group without members is dropped after that long without requests; ZooKeeper has it."""
ENCODED_AT_ONCE_BYTES = 256 * 1024
"""Encoded on the loop in some milliseconds; more takes a thread."""
LOOKED_AT = 20
"""Groups looked at to make room for one."""
AGAIN_S = 0.5
"""Pause after a write of unknown outcome, which has already waited for one session time-out of ZooKeeper."""


class GroupCache:
    """Event loop only."""

    def __init__(
        self,
        runtime: Runtime,
        image: ClusterImage,
        limits: GroupLimits,
        writer: GroupWriter,
        admission: ZooKeeperAdmission,
    ) -> None:
        self.runtime = runtime
        self.image = image
        self.writer = writer
        self.admission = admission
        self.wait_s = runtime.config.integer("offsets.commit.timeout.ms") / 1000
        """How long a request waits for ZooKeeper."""
        self._limits = limits
        self._projection = ZkProjection(runtime, self.call, self.has, partial(admission.new, Kind.ENTRIES))
        self._groups: dict[str, CachedGroup] = {}
        """The most recently used last."""
        self.size_bytes = 0
        """Of the members of all groups."""
        self._loading: dict[str, asyncio.Task[CachedGroup | KlogError]] = {}
        self._slots: dict[int, SlotHolder] = {}
        """The slots of this broker, from the controller's last request."""
        self._looking = runtime.spawn(self._keep_looking())

    async def call(self, function: Callable[Concatenate[ZooKeeper, P], T], *arguments: P.args, **named: P.kwargs) -> T:
        """``function(zookeeper, ...)`` in a thread. Raises CoordinatorNotAvailable without an answer within `wait_s`.

        It waits for a connection without a thread, since there are few.
        """
        runtime = self.runtime
        try:
            async with asyncio.timeout(self.wait_s):
                await runtime.connected.wait()
                return await runtime.at_zookeeper(Purpose.GROUPS, function, *arguments, **named)
        except TimeoutError:
            raise CoordinatorNotAvailable("ZooKeeper does not answer in time") from None
        except SessionLost as error:
            raise CoordinatorNotAvailable(error.message) from error

    # --- slots --------------------------------------------------------------------------------------------------------

    def slots_changed(self) -> None:
        """The controller has sent the holders of the slots."""
        now = {slot: holder for slot, holder in self.image.group_slots.items() if self._is_ours(holder)}
        gained = {slot for slot, holder in now.items() if self._slots.get(slot) != holder}
        self._slots = now
        for name, cached in list(self._groups.items()):
            if now.get(cached.holder.slot) != cached.holder:
                self._drop(name)
        if gained:
            self.runtime.spawn(self._take_over(gained))

    def _is_ours(self, holder: SlotHolder) -> bool:
        identity = self.runtime.identity
        return holder.broker_id == identity.broker_id and holder.incarnation == identity.incarnation

    def holder(self, group: str) -> SlotHolder:
        """This broker's hold of the group's slot. Raises NotCoordinator."""
        bounds.check_group(group)
        found = self._slots.get(slot_of(group))
        if found is None or not self._is_ours(found):
            raise NotCoordinator(f"broker {self.runtime.broker_id} does not coordinate group {group!r}")
        return found

    async def _take_over(self, slots: set[int]) -> None:
        """Cache the groups with members: their sessions run, and this broker takes over their entries in 0.8's
        registry."""
        while True:
            try:
                states = await self.call(_with_members, slots)
                break
            except KlogError as error:
                log.warning("the groups of %d slots are not read yet, trying again: %s", len(slots), error.message)
                await self.runtime.pause(AGAIN_S)
                slots = slots & self.slots
                if not slots:
                    return
        for state in states:
            if state.group not in self._groups and state.group not in self._loading:
                try:
                    self._projection.show(self._add(state, self.holder(state.group)))
                except NotCoordinator:
                    continue
        if states:
            log.info("took over %s", counted(len(states), "group with members", "groups with members"))

    def drop_all(self) -> None:
        """This broker has lost its slots: its session has expired, or it stops."""
        self._slots = {}
        for name in list(self._groups):
            self._drop(name)

    def close(self) -> None:
        """Answer all waiting requests, and start nothing more."""
        self._looking.cancel()
        self.drop_all()

    # --- groups -------------------------------------------------------------------------------------------------------

    async def load(self, name: str) -> CachedGroup:
        """The group, read from ZooKeeper at the first request. Raises NotCoordinator, CoordinatorNotAvailable."""
        holder = self.holder(name)
        found = self._groups.get(name)
        if found is not None:
            found.used_s = self.now_s
            self._groups[name] = self._groups.pop(name)
            return found
        loading = self._loading.get(name)
        if loading is None:
            loading = self._loading[name] = asyncio.ensure_future(self._load(name, holder))
            loading.add_done_callback(lambda task: task.cancelled() or task.exception())
        loaded = await asyncio.shield(loading)
        if isinstance(loaded, KlogError):
            raise loaded.bare()
        return loaded

    async def _load(self, name: str, holder: SlotHolder) -> CachedGroup | KlogError:
        """Returns errors instead of raising them: a task that raises keeps the error with all its frames."""
        try:
            state = await self.call(group_states.read, name)
            if self.holder(name) != holder:
                raise NotCoordinator(f"the slot of group {name!r} has changed hands")
            if name not in self._groups:
                cached = self._add(state, holder)
                if state.members:
                    self._projection.show(cached)
            return self._groups[name]
        except KlogError as error:
            return error.bare()
        finally:
            del self._loading[name]

    def _add(self, state: GroupState, holder: SlotHolder) -> CachedGroup:
        cached = CachedGroup(Group(state, self._limits, self.now_s), holder, state.node_bytes, used_s=self.now_s)
        cached.settled.set()
        self._groups[state.group] = cached
        self._arm(cached)
        self._count(cached)
        if len(self._groups) > bounds.IDLE_GROUPS_MAX:
            self._make_room()
        return cached

    def _make_room(self) -> None:
        """Drop a group without members, one of the least recently used."""
        for name in list(islice(self._groups, LOOKED_AT)):
            if self._groups[name].group.may_be_forgotten(self.now_s):
                self._drop(name)
                return
            self._groups[name] = self._groups.pop(name)

    def _count(self, cached: CachedGroup) -> None:
        now_bytes = cached.group.members.size_bytes
        self.size_bytes += now_bytes - cached.counted_bytes
        cached.counted_bytes = now_bytes

    def _drop(self, name: str) -> None:
        cached = self._groups.pop(name)
        if cached.timer is not None:
            cached.timer.cancel()
        gone = NotCoordinator(f"another broker coordinates group {name!r} now")
        self._answer(cached.group.resign(gone))
        self._count(cached)
        cached.delayed.release_all(gone)
        cached.settled.set()

    def find(self, name: str) -> CachedGroup | None:
        """The group if it is cached, or None."""
        return self._groups.get(name)

    def forget(self, cached: CachedGroup) -> None:
        """Drop a group without members or waiting requests: the next request for it reads it again."""
        if cached.group.is_idle and self.has(cached):
            self._drop(cached.group.name)

    def has(self, cached: CachedGroup) -> bool:
        """Whether this is still the group under its name, and this broker coordinates it."""
        return self._groups.get(cached.group.name) is cached

    @property
    def slots(self) -> set[int]:
        """The slots of this broker. Any thread."""
        return set(self._slots)

    @property
    def groups(self) -> list[Group]:
        """The cached groups. Any thread."""
        return [cached.group for cached in list(self._groups.values())]

    @property
    def now_s(self) -> float:
        """The event loop's time."""
        return self.runtime.loop.time()

    # --- events of a group --------------------------------------------------------------------------------------------

    async def submit(self, cached: CachedGroup, asked: Asked) -> Result:
        """Ask the group, and wait for the answer."""
        if not self.has(cached):
            return Refused(NotCoordinator(f"another broker coordinates group {cached.group.name!r} now"))
        answer: asyncio.Future[Result] = self.runtime.loop.create_future()
        self._carry_out(cached, cached.group.ask(asked, answer, self.now_s))
        return await answer

    async def granted(self, cached: CachedGroup, asked: Asked) -> Result:
        """As `submit`; raises the error of a refusal."""
        result = await self.submit(cached, asked)
        if isinstance(result, Refused):
            raise result.error.bare()
        return result

    async def refresh(self, cached: CachedGroup) -> None:
        """Read the group's node, after a write has found an unexpected version: our own later write's, or an
        operator's."""
        await cached.settled.wait()
        known = cached.group.state.version
        state = await self.call(group_states.read, cached.group.name)
        is_ours = cached.group.is_writing or cached.group.state.version != known or state.version == known
        if self.has(cached) and not is_ours:
            self._replaced(cached, state)

    def _replaced(self, cached: CachedGroup, state: GroupState) -> None:
        group = cached.group
        if group.members:
            log.warning(
                "group %r was changed outside its coordinator (version %d, expected %d): %d members must join again",
                *(group.name, state.version, group.state.version, len(group.members)),
            )
        self._carry_out(cached, group.replaced(state, self.now_s))
        self._projection.show(cached)

    async def _keep_looking(self) -> None:
        """Find groups that an operator has changed (a forced rewind), even when the coordinator writes nothing."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            known = {
                name: cached.group.state.version
                for name, cached in self._groups.items()
                if cached.group.members and not cached.group.is_writing
            }
            if not known:
                continue
            try:
                found = await self.call(_versions, list(known))
                for name, version in known.items():
                    cached_now = self._groups.get(name)
                    if cached_now is not None and found[name] != version == cached_now.group.state.version:
                        await self.refresh(cached_now)
            except KlogError as error:
                log.debug("cannot read whether groups were changed outside their coordinator: %s", error.message)

    async def check_without_streams(self, cached: CachedGroup) -> None:
        """Raises GroupIsHeld while consumers that coordinate through ZooKeeper use this group without members."""
        state = cached.group.state
        live = (await self.call(consumers.live, [state.group]))[state.group]
        if live:
            named = ", ".join(one.consumer_id for one in live[:5]) + (" ..." if len(live) > 5 else "")
            log.warning("group %r is held by consumers that coordinate through ZooKeeper: %s", state.group, named)
            raise GroupIsHeld(
                f"group {state.group!r} is held by consumers that coordinate through ZooKeeper: {named}",
                hint="stop them, or use another group",
            )

    async def check_joins(self, cached: CachedGroup) -> None:
        """As `check_without_streams`, once for all who join meanwhile. A consumer that comes after the look has begun
        is found by their generation's write: it has changed the version of the group's node."""
        if cached.looking is None:
            cached.looking = asyncio.ensure_future(self._look(cached))
        error = await asyncio.shield(cached.looking)
        if error is not None:
            raise error.bare()

    async def _look(self, cached: CachedGroup) -> KlogError | None:
        try:
            await self.check_without_streams(cached)
        except KlogError as error:
            return error.bare()
        finally:
            cached.looking = None
        return None

    # --- outcomes -----------------------------------------------------------------------------------------------------

    def _carry_out(self, cached: CachedGroup, outcomes: list[Outcome]) -> None:
        for state in self._answer(outcomes):
            cached.settled.clear()
            self.runtime.spawn(self._write(cached, state))
        if not cached.group.is_writing:
            cached.settled.set()
        if cached.delayed:
            cached.delayed.group_has_changed(cached.group)
        self._arm(cached)
        self._count(cached)

    def _answer(self, outcomes: list[Outcome]) -> list[GroupState]:
        """Give the answers; returns the states to write."""
        states = []
        for one in outcomes:
            if not isinstance(one, Answer):
                states.append(one.state)
            elif not one.to.done():  # the client may have gone
                one.to.set_result(one.what)
        return states

    async def _write(self, cached: CachedGroup, state: GroupState) -> None:
        """Write until the outcome is known."""
        group = cached.group
        try:
            if group.members.size_bytes > ENCODED_AT_ONCE_BYTES:
                operation = await self.runtime.executors.run(Purpose.GROUPS, lambda: state.operation)
            else:
                operation = state.operation
            grown_bytes = len(operation.data) - cached.node_bytes
            if grown_bytes > 0:
                self.admission.admit(Kind.MEMBERS, grown_bytes)
                cached.node_bytes += grown_bytes
        except (ZooKeeperError, PolicyViolation) as error:
            self._write_failed(cached, error)
            return
        sent: GroupWrite | None = None
        while self.has(cached):
            in_doubt = () if sent is None else sent.in_doubt
            sent = GroupWrite(cached.holder, group.name, state.version, lambda: (operation,), in_doubt=in_doubt)
            try:
                await self.writer.write(sent)
            except NotCoordinator:
                self._lose_slot(cached)
            except GroupChanged as changed:
                if self.has(cached):
                    self._replaced(cached, changed.state)
            except SessionLost as error:
                log.warning("whether group %r is written is not known yet: %s", group.name, error.message)
                if self.has(cached):
                    self._carry_out(cached, group.write_in_doubt(self.now_s))
                await asyncio.sleep(AGAIN_S)
                continue
            except KlogError as error:
                self._write_failed(cached, error)
            else:
                if self.has(cached):
                    self._report(cached, state)
                    self._carry_out(cached, group.written(self.now_s))
                    self._projection.show(cached)
            return

    def _write_failed(self, cached: CachedGroup, error: KlogError) -> None:
        if not isinstance(error, PolicyViolation):  # which `ZooKeeperAdmission` logs, rarely
            log.error("group %r cannot be written: %s", cached.group.name, error.message)
        if self.has(cached):
            self._carry_out(cached, cached.group.write_failed(error.bare(), self.now_s))

    def _lose_slot(self, cached: CachedGroup) -> None:
        """In ZooKeeper another broker holds the slot: the controller's request about it will follow."""
        self._slots.pop(cached.holder.slot, None)
        for name, one in list(self._groups.items()):
            if one.holder == cached.holder:
                self._drop(name)

    def _report(self, cached: CachedGroup, state: GroupState) -> None:
        if state.group_protocol != COORDINATOR:
            return
        before = cached.group.state
        if state.generation > before.generation:
            cached.changes.compare(before.members, state.members)
            if before.members and not state.members:
                facts = cached.changes.take()
                self.runtime.tell("group-empty", group=state.group, generation=state.generation, **facts)
        if state.is_assigned and state.generation > cached.reported_generation:
            cached.reported_generation = state.generation
            members = [one.member_id for one in state.members]
            self.runtime.tell(
                "rebalance",
                group=state.group,
                generation=state.generation,
                protocol=state.protocol,
                members=members,
                **cached.changes.take(),
            )
        if not state.is_assigned:
            log.info(
                "group %r: generation %d with %s%s",
                *(state.group, state.generation, counted(len(state.members), "member")),
                f" ({state.protocol}), leader {state.leader}" if state.members else "",
            )

    # --- deadlines ----------------------------------------------------------------------------------------------------

    def _arm(self, cached: CachedGroup) -> None:
        """Set a timer for the group's next deadline. A deadline that moved back is noticed when the timer fires."""
        deadline_s = cached.group.deadline_s
        if cached.group.is_idle:
            deadline_s = self.now_s + IDLE_S
        if deadline_s >= cached.armed_s:
            return
        if cached.timer is not None:
            cached.timer.cancel()
        cached.armed_s = deadline_s
        cached.timer = self.runtime.loop.call_at(deadline_s, self._tick, cached)

    def _tick(self, cached: CachedGroup) -> None:
        cached.timer, cached.armed_s = None, NEVER_S
        if not self.has(cached):
            return
        if cached.group.is_idle and self.now_s - cached.used_s >= IDLE_S:
            self._drop(cached.group.name)
            return
        before = {member.member_id: member for member in cached.group.members}
        now_s = self.now_s
        outcomes = cached.group.tick(now_s)
        if gone := before.keys() - {member.member_id for member in cached.group.members}:
            log.info("group %r: removed members that sent no heartbeat in time: %s", cached.group.name, sorted(gone))
            cached.changes.gone((before[one] for one in gone), now_s)
        self._carry_out(cached, outcomes)


def _with_members(zookeeper: ZooKeeper, slots: set[int]) -> list[GroupState]:
    """The groups of these slots that have members of the brokers' protocol."""
    names = [name for name in group_states.names(zookeeper) if slot_of(name) in slots]
    try:
        found = group_states.read_many(zookeeper, names)
    except SessionLost:
        raise
    except ZooKeeperError:  # one of them cannot be read, which must not harm the members of the others
        found = {}
        for name in names:
            try:
                found[name] = group_states.read(zookeeper, name)
            except SessionLost:
                raise
            except ZooKeeperError as error:
                log.error("group %r cannot be coordinated: %s", name, error.message)
    return [state for state in found.values() if state.group_protocol == COORDINATOR and state.members]


def _versions(zookeeper: ZooKeeper, names: list[str]) -> dict[str, int]:
    """The versions of the groups' nodes; -1 without one."""
    nodes = zookeeper.get_many([paths.group(name) for name in names])
    return {name: -1 if node is None else node.stat.version for name, node in zip(names, nodes, strict=True)}
