"""The coordinator of groups: the groups of this broker's slots, and everything that is done for them.

A group is here while this incarnation of the broker holds its slot (rule G1). It is read from ZooKeeper when it is
first asked for, or when its slot is taken over with members in it, who then have a session's time to be heard of; it
goes when the slot goes, and whoever waits is told NOT_COORDINATOR. What happens in a group decides
`klog.server.groups.group`; here its writes are made, its answers given, its deadlines kept.

ZooKeeper away: members that say they live are answered on, nothing changes. What wants a change waits as long as one
try takes and is then told COORDINATOR_NOT_AVAILABLE; a write of unknown outcome is tried until its outcome is known.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from klog.coordination import consumers, group_states, paths
from klog.coordination.committed import OffsetWriter
from klog.coordination.group_slots import SlotHolder, slot_of
from klog.coordination.group_states import COORDINATOR, GroupState
from klog.coordination.session import SessionState
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import (
    CoordinatorNotAvailable,
    GroupIsHeld,
    KlogError,
    NotCoordinator,
    SessionLost,
    ZooKeeperError,
)
from klog.server.groups import bounds
from klog.server.groups.acts import Act, Answer, Joined, Left, Limits, Made, Refused, Result, Synced
from klog.server.groups.commits import Commits
from klog.server.groups.expiry import Expiry
from klog.server.groups.group import Group
from klog.server.groups.held import Held, HeldHeartbeats, may_be_held
from klog.server.groups.machine import Phase
from klog.server.groups.members import NEVER_S, Join
from klog.server.groups.operators import Operators
from klog.server.groups.shown import Shown
from klog.server.groups.writer import GroupChanged, GroupWrite, GroupWriter

if TYPE_CHECKING:
    from klog.net.connection import Connection
    from klog.server.broker import Broker

log = logging.getLogger(__name__)

T = TypeVar("T")

READERS = 4
"""Threads that ask ZooKeeper for groups; more would only wait for its one connection."""
LOOK_EVERY_S = 2.0
"""How long members of a group that was changed by another's hand may go on without knowing it. They can commit nothing
meanwhile."""
IDLE_S = 600.0
"""A group without members that nobody asks for is forgotten; ZooKeeper has it."""
ENCODED_AT_ONCE_BYTES = 256 * 1024
"""On the loop: some milliseconds."""
LOOKED_AT = 20
"""Groups, where one is to make room."""
AGAIN_S = 0.5
"""After a write whose outcome is not known: ZooKeeper has been waited for already, for a session's time-out."""


@dataclass(slots=True, eq=False)
class KeptGroup:
    """A group, the slot it is kept under, and the timer of its next deadline."""

    group: Group
    holder: SlotHolder
    timer: asyncio.TimerHandle | None = None
    armed_s: float = NEVER_S
    used_s: float = 0.0
    """When it was asked for last."""
    held: HeldHeartbeats = field(default_factory=HeldHeartbeats)
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while no write of the group's node is under way."""
    told_generation: int = -1
    """The last generation whose sharing out was told."""
    counted_bytes: int = 0
    """What its members took when that was counted last."""


class Coordinator:
    """Event loop only."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.zookeeper = broker.zookeeper
        config = broker.config
        self.limits = Limits(
            config.integer("group.min.session.timeout.ms"),
            config.integer("group.max.session.timeout.ms"),
            config.integer("group.initial.rebalance.delay.ms") / 1000,
            config.integer("group.max.size"),
        )
        self.wait_s = config.integer("offsets.commit.timeout.ms") / 1000
        self._readers = ThreadPoolExecutor(READERS, "groups-read")
        self._writers = ThreadPoolExecutor(1, "groups-write")
        offsets = OffsetWriter(broker.zookeeper)
        self.writer = GroupWriter(broker.zookeeper, self._writers, offsets)
        self.commits = Commits(self, offsets)
        self.operators = Operators(self)
        self.shown = Shown(self)
        self._groups: dict[str, KeptGroup] = {}
        """Those that were asked for last stand last."""
        self._size_bytes = 0
        """What the members of all of them take."""
        self._joining_bytes = 0
        self._loading: dict[str, asyncio.Task[KeptGroup | KlogError]] = {}
        self._held: dict[int, SlotHolder] = {}
        """The slots that are ours, as far as we were told."""
        self._looking = broker.spawn(self._keep_looking())
        self._expiring = broker.spawn(Expiry(self, offsets).run())
        self._connected = asyncio.Event()
        self.session_changed(broker.zookeeper.state or SessionState.SUSPENDED)

    # --- slots --------------------------------------------------------------------------------------------------------

    def slots_changed(self) -> None:
        """The controller has said anew who holds which slot."""
        now = {slot: holder for slot, holder in self.broker.image.group_slots.items() if self._is_ours(holder)}
        gained = {slot for slot, holder in now.items() if self._held.get(slot) != holder}
        self._held = now
        for name, kept in list(self._groups.items()):
            if now.get(kept.holder.slot) != kept.holder:
                self._let_go(name)
        if gained:
            self.broker.spawn(self._take_over(gained))

    def _is_ours(self, holder: SlotHolder) -> bool:
        broker = self.broker
        return holder.broker_id == broker.broker_id and holder.incarnation == broker.incarnation

    def holder(self, group: str) -> SlotHolder:
        """Our hold of the group's slot. Raises NotCoordinator."""
        bounds.check_group(group)
        found = self._held.get(slot_of(group))
        if found is None or not self._is_ours(found):
            raise NotCoordinator(f"broker {self.broker.broker_id} does not coordinate group {group!r}")
        return found

    async def _take_over(self, slots: set[int]) -> None:
        """Keep the groups that have members: their sessions run, and their entries in 0.8's registry are to be ours."""
        while True:
            try:
                states = await self.ask_zookeeper(_with_members, self.zookeeper, slots)
                break
            except KlogError as error:
                log.warning("the groups of %d slots are not read yet: %s", len(slots), error.message)
                await self.broker.pause(AGAIN_S)
                slots = slots & self.slots
                if not slots:
                    return
        for state in states:
            if state.group not in self._groups and state.group not in self._loading:
                try:
                    self.shown.show(self._keep(state, self.holder(state.group)))
                except NotCoordinator:
                    continue
        if states:
            log.info("%d groups with members were taken over", len(states))

    def session_changed(self, state: SessionState) -> None:
        """The session with ZooKeeper; when it has expired, other brokers may hold our slots."""
        if state is SessionState.CONNECTED:
            self._connected.set()
        else:
            self._connected.clear()
        if state is SessionState.EXPIRED:
            self._let_all_go()

    def _let_all_go(self) -> None:
        self._held = {}
        for name in list(self._groups):
            self._let_go(name)

    def close(self) -> None:
        """Answer everybody that waits, and begin nothing more."""
        self._looking.cancel()
        self._expiring.cancel()
        self._let_all_go()
        self.writer.close()
        self._readers.shutdown(wait=False, cancel_futures=True)
        self._writers.shutdown(wait=False)

    # --- groups -------------------------------------------------------------------------------------------------------

    async def kept(self, name: str) -> KeptGroup:
        """The group, read if it is asked for first. Raises NotCoordinator, CoordinatorNotAvailable."""
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

    async def _load(self, name: str, holder: SlotHolder) -> KeptGroup | KlogError:
        """What is raised in a task stays in it, with its frames; so why not is a value."""
        try:
            state = await self.ask_zookeeper(group_states.read, self.zookeeper, name)
            if self.holder(name) != holder:
                raise NotCoordinator(f"the slot of group {name!r} has changed hands")
            if name not in self._groups:
                kept = self._keep(state, holder)
                if state.members:
                    self.shown.show(kept)
            return self._groups[name]
        except KlogError as error:
            return error.bare()
        finally:
            del self._loading[name]

    def _keep(self, state: GroupState, holder: SlotHolder) -> KeptGroup:
        kept = KeptGroup(Group(state, self.limits, self.now_s), holder, used_s=self.now_s)
        kept.settled.set()
        self._groups[state.group] = kept
        self._arm(kept)
        self._count(kept)
        if len(self._groups) > bounds.IDLE_GROUPS_MAX:
            self._make_room()
        return kept

    def _make_room(self) -> None:
        """Let one of the groups go in which nobody lives, of those that nobody has asked for in the longest time."""
        for name in list(islice(self._groups, LOOKED_AT)):
            if self._groups[name].group.may_be_forgotten(self.now_s):
                self._let_go(name)
                return
            self._groups[name] = self._groups.pop(name)

    @contextmanager
    def _taking(self, join: Join) -> Iterator[None]:
        """While a join is under way it counts beside what its group has of its member. CoordinatorNotAvailable."""
        taken_bytes = self._size_bytes + self._joining_bytes
        if taken_bytes + join.size_bytes > bounds.BROKER_BYTES_MAX:
            raise CoordinatorNotAvailable(
                f"the members of all groups of this broker have sent {taken_bytes} bytes; at most "
                f"{bounds.BROKER_BYTES_MAX} are kept"
            )
        self._joining_bytes += join.size_bytes
        try:
            yield
        finally:
            self._joining_bytes -= join.size_bytes

    def _count(self, kept: KeptGroup) -> None:
        now_bytes = kept.group.members.size_bytes
        self._size_bytes += now_bytes - kept.counted_bytes
        kept.counted_bytes = now_bytes

    def _let_go(self, name: str) -> None:
        """The group is not ours any more."""
        kept = self._groups.pop(name)
        if kept.timer is not None:
            kept.timer.cancel()
        gone = NotCoordinator(f"another broker coordinates group {name!r} now")
        self._answer(kept.group.resign(gone))
        self._count(kept)
        kept.held.tell_all(gone)
        kept.settled.set()

    def find(self, name: str) -> KeptGroup | None:
        """The group if it is known here."""
        return self._groups.get(name)

    def forget(self, kept: KeptGroup) -> None:
        """Nobody is in it and nobody needs it: it is read again when it is asked for."""
        if kept.group.is_idle and self.is_kept(kept):
            self._let_go(kept.group.name)

    @property
    def slots(self) -> set[int]:
        """Those that are ours. Any thread."""
        return set(self._held)

    @property
    def here(self) -> list[Group]:
        """The groups that are known here. Any thread."""
        return [kept.group for kept in list(self._groups.values())]

    def is_kept(self, kept: KeptGroup) -> bool:
        """Whether the group is still ours."""
        return self._groups.get(kept.group.name) is kept

    @property
    def now_s(self) -> float:
        return self.broker.loop.time()

    # --- requests -----------------------------------------------------------------------------------------------------

    async def join(self, name: str, join: Join) -> Joined | Refused:
        """A JoinGroup request; the answer comes when the group's next generation begins."""
        try:
            bounds.check_member(join.member_id, join.instance_id)
            bounds.check_protocols(join.protocol_type, ((one, len(metadata)) for one, metadata in join.protocols))
            with self._taking(join):
                kept = await self.kept(name)
                if kept.group.phase is Phase.EMPTY:
                    await self.check_way(kept)
                result = await self._wait(kept, lambda to: kept.group.join(join, to, self.now_s))
        except KlogError as error:
            return Refused(error.bare(), join.member_id)
        assert isinstance(result, Joined | Refused)
        return result

    async def sync(
        self,
        name: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol: tuple[str | None, str | None],
        assignments: Mapping[str, bytes],
    ) -> Synced | Refused:
        """A SyncGroup request; the answer comes when the leader's has."""
        try:
            bounds.check_member(member_id, instance_id)
            bounds.check_assignments(assignments)
            kept = await self.kept(name)
        except KlogError as error:
            return Refused(error.bare(), member_id)
        group = kept.group
        result = await self._wait(
            kept, lambda to: group.sync(member_id, instance_id, generation, protocol, assignments, to, self.now_s)
        )
        assert isinstance(result, Synced | Refused)
        return result

    async def leave(self, name: str, leaving: Iterable[tuple[str, str | None]]) -> Left | Refused:
        """A LeaveGroup request."""
        try:
            for member in leaving:
                bounds.check_member(*member)
            kept = await self.kept(name)
        except KlogError as error:
            return Refused(error.bare())
        result = await self._wait(kept, lambda to: kept.group.leave(leaving, to, self.now_s))
        assert isinstance(result, Left | Refused)
        return result

    def heartbeat(
        self, name: str, member_id: str, instance_id: str | None, generation: int, connection: Connection | None
    ) -> KlogError | Awaitable[KlogError | None] | None:
        """A Heartbeat request: what the member is told, now or, if nothing happens before, some time later."""
        try:
            self.holder(name)
            bounds.check_member(member_id, instance_id)
        except KlogError as error:
            return error.bare()
        kept = self._groups.get(name)
        if kept is None:
            return self._first_heartbeat(name, member_id, instance_id, generation)
        refused = kept.group.heartbeat(member_id, instance_id, generation, self.now_s)
        if refused is not None or connection is None or not may_be_held(connection):
            return refused
        session_s = kept.group.members[member_id].session_timeout_s
        return kept.held.hold(Held(member_id, instance_id, generation), connection, session_s)

    async def _first_heartbeat(
        self, name: str, member_id: str, instance_id: str | None, generation: int
    ) -> KlogError | None:
        """Of a group that has to be read."""
        try:
            kept = await self.kept(name)
        except KlogError as error:
            return error.bare()
        return kept.group.heartbeat(member_id, instance_id, generation, self.now_s)

    async def make_node(self, kept: KeptGroup) -> None:
        """Have a node for the group. Raises what it is refused with."""
        result = await self._wait(kept, lambda to: kept.group.make_node(to, self.now_s))
        if isinstance(result, Refused):
            raise result.error.bare()
        assert isinstance(result, Made)

    def replaced(self, kept: KeptGroup, state: GroupState) -> None:
        """Somebody else has written the group's node."""
        group = kept.group
        if group.members:
            log.warning(
                "group %r was changed by another's hand (version %d, expected %d): %d members are to join again",
                *(group.name, state.version, group.state.version, len(group.members)),
            )
        self.act(kept, group.replaced(state, self.now_s))
        self.shown.show(kept)

    async def look_again(self, kept: KeptGroup) -> None:
        """A write has found another version of the group's node than it knew: our own next one, or another's."""
        await kept.settled.wait()
        known = kept.group.state.version
        state = await self.ask_zookeeper(group_states.read, self.zookeeper, kept.group.name)
        is_ours = kept.group.is_writing or kept.group.state.version != known or state.version == known
        if self.is_kept(kept) and not is_ours:
            self.replaced(kept, state)

    async def _keep_looking(self) -> None:
        """Notice groups that an operator has written (a forced rewind), though nothing is to be written for them."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            known = {
                name: kept.group.state.version
                for name, kept in self._groups.items()
                if kept.group.members and not kept.group.is_writing
            }
            if not known:
                continue
            try:
                found = await self.ask_zookeeper(_versions, self.zookeeper, list(known))
                for name, version in known.items():
                    kept_now = self._groups.get(name)
                    if kept_now is not None and found[name] != version == kept_now.group.state.version:
                        await self.look_again(kept_now)
            except KlogError as error:
                log.debug("whether groups were changed by another's hand is not known: %s", error.message)

    async def check_way(self, kept: KeptGroup) -> None:
        """Raises GroupIsHeld while consumers that coordinate through ZooKeeper live in a group without members."""
        state = kept.group.state
        live = (await self.ask_zookeeper(consumers.live, self.zookeeper, [state.group]))[state.group]
        if live:
            named = ", ".join(one.consumer_id for one in live[:5]) + (" ..." if len(live) > 5 else "")
            log.warning("group %r is held by consumers that coordinate through ZooKeeper: %s", state.group, named)
            raise GroupIsHeld(
                f"group {state.group!r} is held by consumers that coordinate through ZooKeeper: {named}",
                hint="stop them, or use another group",
            )

    # --- doing what was decided ---------------------------------------------------------------------------------------

    async def _wait(self, kept: KeptGroup, event: Callable[[asyncio.Future[Result]], list[Act]]) -> Result:
        if not self.is_kept(kept):
            return Refused(NotCoordinator(f"another broker coordinates group {kept.group.name!r} now"))
        answer: asyncio.Future[Result] = self.broker.loop.create_future()
        self.act(kept, event(answer))
        return await answer

    def act(self, kept: KeptGroup, acts: list[Act]) -> None:
        """Do what a group has decided."""
        for act in self._answer(acts):
            kept.settled.clear()
            self.broker.spawn(self._write(kept, act))
        if not kept.group.is_writing:
            kept.settled.set()
        if kept.held:
            kept.held.group_has_changed(kept.group)
        self._arm(kept)
        self._count(kept)

    def _answer(self, acts: list[Act]) -> list[GroupState]:
        """Give the answers; what is left is to be written."""
        states = []
        for act in acts:
            if not isinstance(act, Answer):
                states.append(act.state)
            elif not act.to.done():  # whoever asked may have gone
                act.to.set_result(act.what)
        return states

    async def _write(self, kept: KeptGroup, state: GroupState) -> None:
        """Until it stands or cannot."""
        group = kept.group
        try:
            if group.members.size_bytes > ENCODED_AT_ONCE_BYTES:
                operation = await self.broker.loop.run_in_executor(self._readers, lambda: state.operation)
            else:
                operation = state.operation
        except ZooKeeperError as error:
            log.error("group %r cannot be written: %s", group.name, error.message)
            self.act(kept, group.write_failed(error.bare(), self.now_s))
            return
        sent: GroupWrite | None = None
        while self.is_kept(kept):
            in_doubt = () if sent is None else sent.in_doubt
            sent = GroupWrite(kept.holder, group.name, state.version, lambda: (operation,), in_doubt=in_doubt)
            try:
                await self.writer.write(sent)
            except NotCoordinator:
                self._lost(kept)
            except GroupChanged as changed:
                if self.is_kept(kept):
                    self.replaced(kept, changed.state)
            except SessionLost as error:
                log.warning("whether group %r is written is not known yet: %s", group.name, error.message)
                if self.is_kept(kept):
                    self.act(kept, group.write_in_doubt(self.now_s))
                await asyncio.sleep(AGAIN_S)
                continue
            except KlogError as error:
                log.error("group %r cannot be written: %s", group.name, error.message)
                if self.is_kept(kept):
                    self.act(kept, group.write_failed(error.bare(), self.now_s))
            else:
                if self.is_kept(kept):
                    self._say(kept, state)
                    self.act(kept, group.written(self.now_s))
                    self.shown.show(kept)
            return

    def _lost(self, kept: KeptGroup) -> None:
        """ZooKeeper says that the slot is another's: the controller's word will follow."""
        self._held.pop(kept.holder.slot, None)
        for name, one in list(self._groups.items()):
            if one.holder == kept.holder:
                self._let_go(name)

    def _say(self, kept: KeptGroup, state: GroupState) -> None:
        if state.way != COORDINATOR:
            return
        if state.is_assigned and state.generation > kept.told_generation:
            kept.told_generation = state.generation
            members = [one.member_id for one in state.members]
            self.broker.tell(
                "rebalance", group=state.group, generation=state.generation, protocol=state.protocol, members=members
            )
        if not state.is_assigned:
            log.info(
                "group %r: generation %d with %d members%s",
                *(state.group, state.generation, len(state.members)),
                f" ({state.protocol}), {state.leader} leads" if state.members else "",
            )

    def _arm(self, kept: KeptGroup) -> None:
        """Be called at the group's next deadline. One that has moved away is looked at when the timer fires."""
        deadline_s = kept.group.deadline_s
        if kept.group.is_idle:
            deadline_s = self.now_s + IDLE_S
        if deadline_s >= kept.armed_s:
            return
        if kept.timer is not None:
            kept.timer.cancel()
        kept.armed_s = deadline_s
        kept.timer = self.broker.loop.call_at(deadline_s, self._tick, kept)

    def _tick(self, kept: KeptGroup) -> None:
        kept.timer, kept.armed_s = None, NEVER_S
        if not self.is_kept(kept):
            return
        if kept.group.is_idle and self.now_s - kept.used_s >= IDLE_S:
            self._let_go(kept.group.name)
            return
        before = {member.member_id for member in kept.group.members}
        acts = kept.group.tick(self.now_s)
        if gone := before - {member.member_id for member in kept.group.members}:
            log.info("group %r: given up, for they were not heard of in time: %s", kept.group.name, sorted(gone))
        self.act(kept, acts)

    # --- ZooKeeper ----------------------------------------------------------------------------------------------------

    async def ask_zookeeper(self, function: Callable[..., T], *arguments: Any) -> T:
        """Read in a thread. CoordinatorNotAvailable when ZooKeeper does not answer within `wait_s`.

        While the connection is lost no thread is made to wait: the few there are would be all taken.
        """
        try:
            async with asyncio.timeout(self.wait_s):
                await self._connected.wait()
                return await self.broker.loop.run_in_executor(self._readers, lambda: function(*arguments))
        except TimeoutError:
            raise CoordinatorNotAvailable("ZooKeeper does not answer in time") from None
        except SessionLost as error:
            raise CoordinatorNotAvailable(error.message) from error


def _with_members(zookeeper: ZooKeeper, slots: set[int]) -> list[GroupState]:
    """The groups of these slots that members of the protocol live in."""
    names = [name for name in group_states.names(zookeeper) if slot_of(name) in slots]
    try:
        found = group_states.read_many(zookeeper, names)
    except SessionLost:
        raise
    except ZooKeeperError:  # one of them is not to be read: the others' members are not to suffer for it
        found = {}
        for name in names:
            try:
                found[name] = group_states.read(zookeeper, name)
            except SessionLost:
                raise
            except ZooKeeperError as error:
                log.error("group %r cannot be coordinated: %s", name, error.message)
    return [state for state in found.values() if state.way == COORDINATOR and state.members]


def _versions(zookeeper: ZooKeeper, names: list[str]) -> dict[str, int]:
    """Of the groups' nodes; -1 without one."""
    nodes = zookeeper.get_many([paths.group(name) for name in names])
    return {name: -1 if node is None else node.stat.version for name, node in zip(names, nodes, strict=True)}
