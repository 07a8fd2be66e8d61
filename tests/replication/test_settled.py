"""A partition that is looked at only while it needs a look, beside one that is looked at each time: no difference.

Both get the same appends, flushes, reports, deaths and changes of the ISR. What a look decides must be the same in
both, the reasons' figures aside: how long a follower is behind is counted from the first mark that it has not reached,
and the one that is looked at less has kept that longer.
"""

from __future__ import annotations

import random
from typing import Any

from klog.config import LogConfig
from klog.replication.isr import IsrChange
from klog.storage.checkpoints import CheckpointedDir
from klog.storage.log import Log, LogEnd
from tests.chance import seed_of
from tests.faulty_filesystem import FaultyFileSystem
from tests.replication.led import NAME, lead, records, state_of

ME = 1
LAG_S, BEAT_S = 10.0, 2.5
INCARNATIONS = {1: 10, 2: 20, 3: 30}
Looked = tuple[bool, bool, bool, tuple[int, ...], tuple[int, ...]]
"""Own flush overdue, cut off, deserted, the ISR that is under way and its incarnations."""
SEQUENCES, EVENTS = 400, 40


def draw(chance: random.Random) -> tuple[Any, ...]:
    """Something that happens, with its arguments: quiet times and complete followers most often."""
    who, yes_or_no = chance.choice([2, 3]), chance.random() < 0.5
    return chance.choice(
        [
            *[("beats", times, True) for times in (1, 2, 6, 12)],
            ("beats", 2, False),
            *[("all fetch",)] * 3,
            ("append", yes_or_no),
            ("flush",),
            ("fetch", who, chance.choice(["nothing", "some", "all"])),
            ("restart", who, yes_or_no),
            ("learn",),
            ("written",),
            ("changed", chance.choice([(1,), (1, 2), (1, 3), (1, 2, 3)])),
            ("assigned", chance.choice([(1, 2), (1, 3), (1, 2, 3)])),
        ]
    )


class Side:
    """The leader's side of one of the two."""

    def __init__(self, *, always: bool) -> None:
        disk = FaultyFileSystem()
        disk.make_folder("/t")
        self.log = Log.open(CheckpointedDir(disk, "/t"), "/t", NAME, LogConfig(min_insync_replicas=2))
        self.log.append(records(), 2)
        self.log.flush()
        self.log.begin_epoch(3)
        self.always = always
        self.looks = 0
        self.now_s = 0.0
        self.positions = {2: START, 3: START}
        self.incarnations = dict(INCARNATIONS)
        self.alive = dict(INCARNATIONS)
        """As the controller has said last."""
        state = state_of((1, 2, 3), (10, 20, 30), 5)
        self.partition = lead(self.log, state, incarnation=10, high_watermark=START)

    def beat(self, *, proposes: bool) -> Looked | None:
        """One beat, as `klog.server.replicas.isr_monitor.IsrMonitor` makes it; None without a look.

        It proposes nothing while another broker may lead in a moment.
        """
        self.now_s += BEAT_S
        partition = self.partition
        if not (self.always or partition.needs_look):
            return None
        self.looks += 1
        partition.mark(self.now_s, LAG_S)
        is_overdue = partition.own_flush_is_overdue(self.now_s, LAG_S)
        is_cut_off = partition.is_cut_off(self.now_s, self.alive, LAG_S)
        if proposes:
            partition.propose_isr(self.now_s, self.alive, LAG_S, 3)
        change = partition.change or NOTHING
        is_deserted = partition.is_deserted(self.now_s, LAG_S / 2)
        partition.settle()
        return is_overdue, is_cut_off, is_deserted, change.isr, change.incarnations

    def append(self, flushes: bool) -> None:
        self.partition.append(records())
        if flushes:
            self.flush()

    def flush(self) -> None:
        self.partition.flushed(self.log.flush())

    def fetch(self, broker_id: int, how_much: str) -> None:
        """The follower reports that it has nothing new, all without its flush, or all of it."""
        end = self.log.end
        flushed = end if how_much == "all" else self.positions[broker_id]
        self.positions[broker_id] = flushed
        has = flushed.address if how_much == "nothing" else end.address
        self.partition.replica_fetched(broker_id, self.incarnations[broker_id], has, flushed, self.now_s)

    def restart(self, broker_id: int, loses_disk: bool) -> None:
        self.incarnations[broker_id] += 1
        if loses_disk:
            self.positions[broker_id] = START

    def learn(self) -> None:
        """Which brokers live. The monitor looks at once where one may join."""
        self.alive = dict(self.incarnations)

    def written(self) -> None:
        change = self.partition.change
        if change is not None:
            self.partition.isr_written(change, change.state_version + 1)

    def changed(self, isr: tuple[int, ...]) -> None:
        """By another writer, as each member is registered now."""
        partition = self.partition
        named = tuple(self.incarnations[one] for one in isr)
        partition.adopt(partition.replicas, state_of(isr, named, partition.state_version + 1))

    def assigned(self, replicas: tuple[int, ...]) -> None:
        self.partition.adopt(replicas, self.partition.state)


START = LogEnd(0, 0)
NOTHING = IsrChange((), (), -1, "")
SETTLED: Looked = (False, False, False, (), ())


def apply(side: Side, what: str, *given: Any) -> list[Looked | None]:
    """What the beats among it have found."""
    match what:
        case "beats":
            times, proposes = given
            return [side.beat(proposes=proposes) for _ in range(times)]
        case "all fetch":
            side.fetch(2, "all")
            side.fetch(3, "all")
        case _:
            getattr(side, what)(*given)
    return []


def test_a_partition_that_needs_no_look_would_not_be_changed_by_one() -> None:
    chance = random.Random(seed_of("settled"))
    skipped = 0
    for _ in range(SEQUENCES):
        always, seldom = Side(always=True), Side(always=False)
        told: list[tuple[Any, ...]] = []
        for _ in range(EVENTS):
            told.append(draw(chance))
            for one, other in zip(apply(always, *told[-1]), apply(seldom, *told[-1]), strict=True):
                assert one == (SETTLED if other is None else other), told
            assert always.partition.replicas == seldom.partition.replicas, told
            assert always.partition.state == seldom.partition.state, told
            assert always.partition.high_watermark == seldom.partition.high_watermark, told
        skipped += always.looks - seldom.looks
    assert skipped > SEQUENCES  # else the two were the same


def test_a_partition_in_which_nothing_happens_is_looked_at_once() -> None:
    side = Side(always=False)
    side.fetch(2, "all")
    side.fetch(3, "all")
    for _ in range(5):
        side.beat(proposes=True)
    assert side.looks == 1
    side.append(flushes=True)
    side.fetch(2, "all")
    for _ in range(5):
        side.beat(proposes=True)
    assert side.looks == 6  # 3 has not what was appended
    side.fetch(3, "all")
    for _ in range(5):
        side.beat(proposes=True)
    assert side.looks == 7


def test_a_partition_without_followers_needs_no_look() -> None:
    disk = FaultyFileSystem()
    disk.make_folder("/t")
    log = Log.open(CheckpointedDir(disk, "/t"), "/t", NAME, LogConfig())
    partition = lead(log, state_of((ME,)), replicas=(ME,))
    assert not partition.needs_look
    partition.append(records())
    assert not partition.needs_look
