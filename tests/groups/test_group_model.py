"""A group under everything at once: members that join, sync, hang, die and come back, a registry that is slow, away or
changed by another's hand, coordinators that die. Whatever the order:

    * no two members are given a partition in one generation
    * a generation never goes back, and nothing is told that the registry does not have (`GroupWorld.told`)
    * whoever asks is answered, once, as soon as members and registry do their part or their time is over
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from klog.groups.bounds import GroupLimits
from klog.groups.outcomes import Joined, Refused, Synced
from klog.groups.phases import Phase
from tests.groups.group_world import RANGE, REBALANCE_MS, SESSION_MS, GroupWorld

CLIENTS = 4
PARTITIONS = 5
FENCED_INSTANCE_ID = 82
WANTS = (RANGE, (("range", b"more"),), (("sticky", b"s"), ("range", b"r")))


@dataclass
class Client:
    """What a client knows. `token`: the request that it waits for."""

    instance: str | None
    member_id: str = ""
    generation: int = -1
    token: int | None = None
    lists: tuple[str, ...] = ()
    """Whom it is to share out to, when it leads."""
    is_synced: bool = False
    wants: int = 0
    twice: bool = True
    history: list[str] = field(default_factory=list)


class GroupModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = GroupWorld(instant=False)
        self.owners: dict[tuple[int, int], str] = {}
        """(generation, partition) -> who was told that it is his."""
        self.generation = 0

    @initialize(delay=st.sampled_from([0.0, 3.0]), statics=st.integers(0, CLIENTS))
    def begin(self, delay: float, statics: int) -> None:
        self.world.limits = GroupLimits(initial_delay_s=delay)
        self.world.group.limits = self.world.limits
        self.clients = [Client(f"i{number}" if number < statics else None) for number in range(CLIENTS)]

    # --- members ----------------------------------------------------------------------------------------------------

    @rule(number=st.integers(0, CLIENTS - 1), wants=st.integers(0, len(WANTS) - 1), twice=st.booleans())
    def joins(self, number: int, wants: int, twice: bool) -> None:
        client = self.clients[number]
        if client.token is None:
            client.wants, client.twice = wants, twice
            self._join(client)

    def _join(self, client: Client) -> None:
        client.is_synced, client.lists = False, ()
        client.token = self.world.join(
            client.member_id, instance=client.instance, protocols=WANTS[client.wants], twice=client.twice
        )

    @rule(number=st.integers(0, CLIENTS - 1))
    def syncs(self, number: int) -> None:
        client = self.clients[number]
        if client.token is None and client.generation >= 0 and not client.is_synced:
            self._sync(client)

    def _sync(self, client: Client) -> None:
        shares = dict.fromkeys(client.lists, b"")
        for partition in range(PARTITIONS if client.lists else 0):
            shares[client.lists[partition % len(client.lists)]] += bytes([partition])
        client.token = self.world.sync(client.member_id, client.generation, shares, instance=client.instance)

    @rule(number=st.integers(0, CLIENTS - 1))
    def says_that_it_lives(self, number: int) -> None:
        client = self.clients[number]
        if client.member_id and client.generation >= 0:
            self.world.heartbeat(client.member_id, client.generation, client.instance)

    @rule(number=st.integers(0, CLIENTS - 1))
    def leaves(self, number: int) -> None:
        client = self.clients[number]
        if client.token is None and client.member_id:
            self.world.leave((client.member_id, client.instance))
            client.member_id, client.generation, client.is_synced = "", -1, False

    @rule(number=st.integers(0, CLIENTS - 1))
    def dies_and_begins_anew(self, number: int) -> None:
        """What it waited for goes nowhere; a static one keeps its name."""
        self.clients[number] = Client(self.clients[number].instance)

    # --- the world --------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.world.writing is not None)
    @rule()
    def write_ends(self) -> None:
        self.world.write_ends()

    @precondition(lambda self: self.world.writing is not None)
    @rule()
    def registry_is_away(self) -> None:
        self.world.write_in_doubt()

    @rule(seconds=st.sampled_from([0.5, 3.0, SESSION_MS / 1000, REBALANCE_MS / 1000]))
    def time_passes(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @rule(has_landed=st.booleans())
    def coordinator_dies(self, has_landed: bool) -> None:
        self.world.take_over(has_landed=has_landed)

    @rule()
    def another_hand(self) -> None:
        """Which the coordinator notices with its next write, or when a commit finds it."""
        self.world.forced_rewind()
        if self.world.writing is None:
            self.world.do(self.world.group.replaced(self.world.registry, self.world.now_s))

    # --- what must hold ---------------------------------------------------------------------------------------------

    @invariant()
    def told(self) -> None:
        """Clients hear what they were answered, and each partition has one owner in a generation."""
        assert self.world.registry.generation >= self.generation, "a generation went back"
        self.generation = self.world.registry.generation
        for client in getattr(self, "clients", []):
            if client.token is None or client.token not in self.world.answers:
                continue
            answer, client.token = self.world.answers[client.token], None
            match answer:
                case Joined():
                    assert answer.generation >= client.generation
                    client.member_id, client.generation = answer.member_id, answer.generation
                    client.lists = tuple(one[0] for one in answer.members)
                case Synced():
                    client.is_synced = True
                    for partition in answer.assignment:
                        who = client.instance or client.member_id
                        owner = self.owners.setdefault((client.generation, partition), who)
                        assert owner == who, f"partition {partition} in generation {client.generation}"
                case Refused(error, member_id):
                    client.generation = -1
                    client.is_synced = False
                    known = {one.member_id for one in self.world.group.members} | set(self.world.group.pending)
                    client.member_id = member_id if member_id in known else ""
                    if error.wire == FENCED_INSTANCE_ID:
                        client.member_id = ""

    @invariant()
    def what_members_take_is_counted(self) -> None:
        members = self.world.group.members
        assert members.size_bytes == sum(one.size_bytes for one in members)

    @invariant()
    def phase_is_that_of_its_members(self) -> None:
        group = self.world.group
        if group.phase is Phase.EMPTY:
            assert not group.members
        if group.phase in (Phase.COMPLETING, Phase.STABLE):
            assert group.members
            assert group.members.leader in group.members
            if self.world.writing is None and self.world.registry.version == group.state.version:
                assert {one.member_id for one in group.state.members} == {one.member_id for one in group.members}

    def teardown(self) -> None:
        """The registry is back and time passes: nobody is left without an answer, and all can be one group again."""
        if not hasattr(self, "clients"):
            return
        self.world.instant = True
        if self.world.writing is not None:
            self.world.write_ends()
        self.told()
        for _ in range(20):
            self.world.pass_time(REBALANCE_MS / 1000)
        self.told()
        assert self.world.waiting == set(), f"never answered: {self.world.waiting}, {self.world.group.phase}"
        self._all_come_together()

    def _all_come_together(self) -> None:
        for _ in range(24):
            self.world.pass_time(1.0)
            for client in self.clients:
                if client.token is None and client.generation < 0:
                    self._join(client)
                self.told()
            for client in self.clients:
                if client.token is None and client.generation >= 0 and not client.is_synced:
                    self._sync(client)
                self.told()
            for client in self.clients:
                if client.token is None and client.is_synced:
                    code = self.world.heartbeat(client.member_id, client.generation, client.instance)
                    if code:
                        client.generation = -1
                        client.member_id = client.member_id if code == 27 else ""
        assert self.world.group.phase is Phase.STABLE
        current = [client for client in self.clients if client.is_synced and client.generation == self.generation]
        assert len(current) == CLIENTS, [(one.generation, one.is_synced) for one in self.clients]
        owned = [who for (generation, _), who in self.owners.items() if generation == self.generation]
        assert len(owned) == PARTITIONS


TestGroupModel = GroupModel.TestCase
TestGroupModel.settings = settings(stateful_step_count=40)
