"""A leader in its epoch against all that may happen around it: whoever could be elected has what was committed.

The model is ZooKeeper's state, which may change by our write, whenever that arrives, or by the controller's; and the
followers, which have some of the leader's batches, some of those flushed, lose the others when they die, and all when
their disk is lost. A batch is an index; `at` holds where each one ends.

The invariant is what an election rests on: a member of the ISR that stands in ZooKeeper, whatever the leader knows of
it, has flushed all that was ever committed, if it has run without interruption since (rule R1).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace

from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from klog.config import LogConfig
from klog.errors import StaleBrokerEpoch
from klog.replication.isr import IsrChange
from klog.replication.led_partition import LedPartition
from klog.storage.checkpoints import CheckpointedDir
from klog.storage.log import Log, LogEnd
from tests.faulty_filesystem import FaultyFileSystem
from tests.replication.led import NAME, Waiter, lead, records, state_of

ME, FOLLOWERS = 1, (2, 3)
LAG_S = 10.0
who = strategies.sampled_from(FOLLOWERS)
yes_or_no = strategies.booleans()


class Follower:
    def __init__(self, broker_id: int, has: int) -> None:
        self.broker_id = broker_id
        self.incarnation = broker_id * 10
        self.has = has
        self.flushed = has
        self.fetches = False
        """Whether it has found out where its log and the leader's agree."""


class LeaderAndItsFollowers(RuleBasedStateMachine):
    @initialize(
        before=strategies.integers(0, 4),
        committed=strategies.integers(0, 4),
        known=strategies.integers(0, 4),
        behind=strategies.integers(0, 4),
        isr=strategies.sampled_from([(1,), (1, 2), (1, 3), (1, 2, 3)]),
    )
    def elect(self, before: int, committed: int, known: int, behind: int, isr: tuple[int, ...]) -> None:
        """What was committed before is on all members, but how far that goes the new leader need not know (R8)."""
        committed = min(committed, before)
        disk = FaultyFileSystem()
        disk.make_folder("/t")
        self.log = Log.open(CheckpointedDir(disk, "/t"), "/t", NAME, LogConfig())
        self.at = [0]
        for _ in range(before):
            self.at.append(self.log.append(records(), 2).end.address)
        self.log.flush()
        self.log.begin_epoch(3)
        self.followers = {one: Follower(one, committed if one in isr else min(behind, before)) for one in FOLLOWERS}
        self.committed = committed
        self.state = state_of(isr, tuple(self.incarnation(one) for one in isr), 5)
        self.in_flight: list[IsrChange] = []
        self.is_noticed = False
        self.alive = {one: self.incarnation(one) for one in (1, 2, 3)}
        self.waiting: list[tuple[int, Waiter]] = []
        self.now_s = 0.0
        known_end = self.end_of(min(known, committed))
        self.partition = lead(
            self.log, self.state, incarnation=self.incarnation(ME), high_watermark=known_end, want_isr=self.notice
        )
        self.seen = self.partition.high_watermark.address

    def notice(self, partition: LedPartition) -> None:
        self.is_noticed = True

    def incarnation(self, broker_id: int) -> int:
        return 10 if broker_id == ME else self.followers[broker_id].incarnation

    def end_of(self, index: int) -> LogEnd:
        return LogEnd(self.at[index], self.at[index])

    def index_of(self, address: int) -> int:
        return bisect_right(self.at, address) - 1

    # --- the leader -----------------------------------------------------------------------------------------------

    @rule(flushes=yes_or_no)
    def append(self, flushes: bool) -> None:
        end = self.partition.append(records()).end.address
        self.at.append(end)
        waiter = Waiter()
        if not self.partition.when_committed(end, waiter):
            self.waiting.append((len(self.at) - 1, waiter))
        if flushes:
            self.flush()

    @rule()
    def flush(self) -> None:
        self.partition.flushed(self.log.flush())

    @rule(later_s=strategies.sampled_from([1.0, 11.0]))
    def beat(self, later_s: float) -> None:
        self.now_s += later_s
        self.partition.mark(self.now_s, LAG_S)
        self.propose()

    def propose(self) -> None:
        self.is_noticed = False
        change = self.partition.propose_isr(self.now_s, self.alive, LAG_S)
        if change is not None:
            self.in_flight.append(change)

    # --- the followers --------------------------------------------------------------------------------------------

    @rule(
        broker_id=who,
        more=strategies.sampled_from([0, 1, 99]),
        flushes=yes_or_no,
        says=yes_or_no,
    )
    def fetch(self, broker_id: int, more: int, flushes: bool, says: bool) -> None:
        follower = self.followers[broker_id]
        follower.fetches = True
        follower.has = min(follower.has + more, len(self.at) - 1)
        if flushes:
            follower.flushed = follower.has
        if says:
            self.report(broker_id)

    @rule(broker_id=who)
    def report(self, broker_id: int) -> None:
        follower = self.followers[broker_id]
        if follower.fetches:
            self.partition.check_replica(3, broker_id, follower.incarnation)
            flushed = self.end_of(follower.flushed)
            self.partition.replica_fetched(broker_id, follower.incarnation, self.at[follower.has], flushed, self.now_s)
            if self.is_noticed:
                self.propose()

    @rule(broker_id=who, loses_disk=yes_or_no, is_noticed=yes_or_no)
    def die_and_return(self, broker_id: int, loses_disk: bool, is_noticed: bool) -> None:
        follower = self.followers[broker_id]
        follower.incarnation += 1
        follower.fetches = False
        follower.flushed = 0 if loses_disk else follower.flushed
        follower.has = follower.flushed
        if is_noticed:  # the controller's word on who lives arrives
            self.alive[broker_id] = follower.incarnation

    @rule(broker_id=who)
    def a_late_report_of_an_earlier_incarnation(self, broker_id: int) -> None:
        known, now = self.partition.position(broker_id), self.followers[broker_id].incarnation
        if known is not None and known.incarnation == now:
            try:
                self.partition.check_replica(3, broker_id, now - 1)
            except StaleBrokerEpoch:
                return
            raise AssertionError("it may say anything")

    # --- ZooKeeper ------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.in_flight)
    @rule()
    def arrive(self) -> None:
        """A write reaches ZooKeeper, where only the one at the right version is taken; the answer is another matter."""
        change = self.in_flight[-1]
        if change.state_version == self.state.version:
            self.state = replace(
                self.state, isr=change.isr, incarnations=change.incarnations, version=change.state_version + 1
            )

    @precondition(lambda self: self.partition.change is not None)
    @rule()
    def find_out(self) -> None:
        """What the writer does when it has an answer, or reads again."""
        change = self.partition.change
        assert change is not None
        if self.state.version == change.state_version:
            return  # not there yet: nothing is known
        written = (change.isr, change.incarnations, change.state_version + 1)
        if (self.state.isr, self.state.incarnations, self.state.version) == written:
            self.partition.isr_written(change, change.state_version + 1)
        else:
            self.partition.adopt((1, 2, 3), self.state)

    @rule(broker_id=who)
    def the_controller_puts_out(self, broker_id: int) -> None:
        """Under our epoch, for it takes the broker for dead (rule R5); we hear of it later, or find out."""
        if broker_id in self.state.isr:
            left = [(one, known) for one, known in self._members() if one != broker_id]
            self.state = replace(
                self.state,
                isr=tuple(one for one, _ in left),
                incarnations=tuple(known for _, known in left),
                version=self.state.version + 1,
            )

    @rule()
    def hear_of_the_state(self) -> None:
        self.partition.adopt((1, 2, 3), self.state)

    def _members(self) -> list[tuple[int, int]]:
        return list(zip(self.state.isr, self.state.incarnations, strict=True))

    # --- what must hold -------------------------------------------------------------------------------------------

    @invariant()
    def who_may_be_elected_has_what_was_committed(self) -> None:
        self.committed = max(self.committed, self.index_of(self.partition.high_watermark.address))
        for broker_id, known in self._members():
            if broker_id == ME:
                assert self.index_of(self.log.flushed_end.address) >= self.committed
            elif known == self.incarnation(broker_id):
                flushed = self.followers[broker_id].flushed
                assert flushed >= self.committed, f"{broker_id} has {flushed} of {self.committed}"

    @invariant()
    def what_is_acknowledged_is_committed(self) -> None:
        high = self.partition.high_watermark.address
        assert high >= self.seen
        self.seen = high
        for index, waiter in self.waiting:
            assert waiter.told == ([None] if self.at[index] <= high else [])


LeaderAndItsFollowers.TestCase.settings = settings(
    max_examples=max(60, settings.default.max_examples), stateful_step_count=40
)
TestLeaderAndItsFollowers = LeaderAndItsFollowers.TestCase
