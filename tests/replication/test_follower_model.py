"""Logs of a partition under any history: leaders of epochs, fetches that stop anywhere, power cuts, holes, retention.

Method: three real logs on disks that forget what was not flushed. Hypothesis picks who leads under which epoch, what
is appended, how far the others fetch, what is flushed, who loses power. At the end everybody follows one leader, and
must have its bytes at its addresses.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from klog.config.topic import LogConfig
from klog.replication.divergence import StartsElsewhere, disagreement, truncation_address
from klog.storage.log import Log
from tests.faulty_filesystem import FaultyFileSystem
from tests.replication.side import content
from tests.storage.log_cases import append, batch, bytes_of, delete_records, dense_batch, log_in, open_dir

REPLICAS = st.integers(0, 2)


class Histories(RuleBasedStateMachine):
    @initialize(segment_bytes=st.sampled_from([300, 900, 100_000]))
    def begin(self, segment_bytes: int) -> None:
        self.config = LogConfig(segment_bytes=segment_bytes)
        self.disks = [FaultyFileSystem() for _ in range(3)]
        self.dirs = [open_dir(disk, self.config) for disk in self.disks]
        self.logs = [log_in(one, self.config) for one in self.dirs]
        self.epoch = 0
        self.leader = 0
        self.mark = 0
        self.logs[0].begin_epoch(0)

    @rule(leader=REPLICAS)
    def elect(self, leader: int) -> None:
        """Anybody may be elected: the worst that unclean elections can do."""
        self.logs[self.leader].forget_empty_epochs()
        self.epoch += 1
        self.leader = leader
        self.logs[leader].begin_epoch(self.epoch)

    @rule(counts=st.lists(st.integers(1, 5), min_size=1, max_size=3), dense=st.booleans())
    def produce(self, counts: list[int], dense: bool) -> None:
        self.mark += 1
        made = [dense_batch(90 + count, mark=self.mark) if dense else batch(count, mark=self.mark) for count in counts]
        append(self.logs[self.leader], *made, epoch=self.epoch)

    @rule(follower=REPLICAS, times=st.integers(0, 3), max_bytes=st.integers(1, 600))
    def fetch(self, follower: int, times: int, max_bytes: int) -> None:
        if follower != self.leader:
            lead, log = self.logs[self.leader], self.logs[follower]
            log.forget_empty_epochs()
            settle(lead, log)
            for _ in range(times):
                pull(lead, log, max_bytes, self.epoch)

    @rule(replica=REPLICAS)
    def flush(self, replica: int) -> None:
        self.logs[replica].flush()

    @rule(replica=REPLICAS)
    def checkpoint(self, replica: int) -> None:
        self.dirs[replica].checkpoint()

    @rule(replica=REPLICAS, seed=st.none() | st.integers(0, 5), kill=st.booleans())
    def lose_power(self, replica: int, seed: int | None, kill: bool) -> None:
        self.dirs[replica].abandon()
        disk = self.disks[replica]
        self.disks[replica] = disk.kill() if kill else disk.crash(seed)
        self.dirs[replica] = open_dir(self.disks[replica], self.config)
        self.logs[replica] = log_in(self.dirs[replica], self.config)
        if replica == self.leader:  # rule R1: a new incarnation leads under a new epoch
            self.elect(replica)

    @rule(replica=REPLICAS, part=st.floats(0, 1))
    def delete(self, replica: int, part: float) -> None:
        """Retention, at each replica by itself."""
        log = self.logs[replica]
        wanted = int(log.start_offset + (log.end.offset - log.start_offset) * part)
        delete_records(log, wanted)

    def teardown(self) -> None:
        if not hasattr(self, "logs"):
            return
        lead = self.logs[self.leader]
        for number, log in enumerate(self.logs):
            if number == self.leader:
                continue
            log.forget_empty_epochs()
            settle(lead, log)
            while log.end.address < lead.end.address:
                pull(lead, log, 500, self.epoch)
            assert log.end.address == lead.end.address
            start = max(log.start_address, lead.start_address)
            # What the leader has lost it cannot judge: a follower keeps what it has there, which may be the last copy.
            mine = {
                address: data
                for address, data in from_address(log, start).items()
                if not any(first <= address < end for first, end in lead.holes)
            }
            # What a follower's disk has lost is refilled from its leader (rule L2): `test_refill`.
            theirs = {
                address: data
                for address, data in from_address(lead, start).items()
                if not any(first <= address < end for first, end in log.holes)
            }
            assert mine == theirs
            log.flush()
            again = log_in(open_dir(self.disks[number].crash(), self.config), self.config)
            assert from_address(again, 0) == from_address(log, 0)
            assert again.end.address == log.end.address


def from_address(log: Log, start: int) -> dict[int, bytes]:
    """Every batch from there on, whatever start is shown."""
    return {address: data for address, data in content(log).items() if address >= start}


def settle(leader: Log, follower: Log) -> None:
    """Cut until the leader agrees, as a follower does."""
    for _ in range(100):
        found = disagreement(leader, follower.last_batch_epoch, follower.end.address)
        if found is None:
            return
        before = (follower.end.address, follower.start_address)
        if isinstance(found, StartsElsewhere):
            follower.restart(found.address, found.offset)
            assert (follower.end.address, follower.start_address) != before or follower.last_epoch == -1
        else:
            cut = truncation_address(follower.epoch_starts, follower.start_address, follower.end.address, found)
            follower.truncate(follower.floor(cut).address)
            assert follower.end.address < before[0], "each round cuts something"
    raise AssertionError("they never agree")


def pull(leader: Log, follower: Log, max_bytes: int, epoch: int) -> None:
    first, ranges = leader.read_from(follower.end.address, max_bytes)
    if ranges:
        if first > follower.end.address:
            follower.skip_to(first, "the leader's")
        follower.append_at(memoryview(bytearray(bytes_of(ranges))), epoch)


def test_a_follower_that_lost_a_segment_and_kept_the_next() -> None:
    history = Histories()
    history.begin(segment_bytes=300)
    history.produce(counts=[1], dense=False)
    history.delete(part=0.0, replica=0)
    history.produce(counts=[1, 1, 1], dense=False)
    history.lose_power(kill=False, replica=1, seed=None)
    history.fetch(follower=1, max_bytes=264, times=2)
    history.lose_power(kill=False, replica=1, seed=1)
    assert history.logs[1].holes
    history.teardown()


TestHistories = Histories.TestCase
