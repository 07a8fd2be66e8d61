"""Where two logs part: KIP-101's and KIP-279's cases by example, and any history under Hypothesis.

A log is a list of epochs here, one a batch of one address: what is decided rests on nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.replication.divergence import Diverged, StartsElsewhere, disagreement, truncation_address
from klog.storage.epochs import NO_EPOCH, Epochs, EpochStart
from klog.storage.log_end import LogEnd
from tests.rows import each


@dataclass
class ListLog:
    """Batches of one address each: (epoch, value). ``first`` is the address of the first one."""

    batches: list[tuple[int, int]] = field(default_factory=list)
    first: int = 0
    begun: int = -1
    """The epoch that leads without a batch yet."""
    hole: tuple[int, int] = (-1, -1)

    @property
    def start_address(self) -> int:
        return self.first

    @property
    def start_offset(self) -> int:
        return self.first

    @property
    def end(self) -> LogEnd:
        return LogEnd(self.first + len(self.batches), self.first + len(self.batches))

    @property
    def epoch_starts(self) -> tuple[EpochStart, ...]:
        epochs = Epochs()
        for at, (epoch, _) in enumerate(self.batches, self.first):
            epochs.begin(epoch, LogEnd(at, at))
        if self.begun >= 0:
            epochs.begin(self.begun, self.end)
        return epochs.starts

    def epoch_end(self, leader_epoch: int) -> tuple[int, LogEnd]:
        return Epochs(self.epoch_starts).end(leader_epoch, self.start_offset, self.end)

    def floor(self, address: int) -> LogEnd:
        address = min(address, self.end.address)
        if self.hole[0] <= address <= self.hole[1]:
            address = self.hole[0]
        return LogEnd(address, address)

    def is_in_hole(self, address: int) -> bool:
        return self.hole[0] >= 0 and self.hole[0] <= address <= self.hole[1]

    @property
    def last_epoch(self) -> int:
        return self.batches[-1][0] if self.batches else NO_EPOCH


def log(*epochs: int, first: int = 0, begun: int = -1) -> ListLog:
    return ListLog([(epoch, 0) for epoch in epochs], first, begun)


def settle(leader: ListLog, follower: ListLog) -> list[int]:
    """What a follower does until both agree; where it cut, in order."""
    cuts = []
    while (found := disagreement(leader, follower.last_epoch, follower.end.address)) is not None:
        if isinstance(found, StartsElsewhere):
            follower.batches, follower.first = [], found.address
            cuts.append(found.address)
        else:
            own = [one for one in follower.epoch_starts if one.address < follower.end.address]
            at = truncation_address(own, follower.first, follower.end.address, found)
            assert at < follower.end.address, "each round cuts something"
            del follower.batches[at - follower.first :]
            cuts.append(at)
    return cuts


@each(
    ("leader", "follower", "cuts"),
    [
        pytest.param(log(1, 1, 1), log(1, 1, 1), [], id="the same"),
        pytest.param(log(1, 1, 1), log(1, 1), [], id="behind"),
        pytest.param(log(1, 1), log(1, 1, 1), [2], id="ahead in the same epoch"),
        pytest.param(log(1, 1, begun=2), log(1, 1, 1), [2], id="ahead, and the new leader has written nothing"),
        pytest.param(log(1, 1, 2, 2), log(1, 1, 1), [2], id="KIP-101, scenario 1: a tail that the leader never had"),
        pytest.param(log(1, 2), log(1, 1), [1], id="KIP-101, scenario 2: the same address, other bytes"),
        pytest.param(log(1, 1, 3), log(1, 1, 2, 2), [2], id="an epoch that the leader never saw"),
        pytest.param(log(1, 1, 1, 3), log(1, 2, 2, 2), [1], id="KIP-279: its own epoch ended before the leader's did"),
        pytest.param(
            log(0, 0, 2, 4), log(0, 1, 1, 3), [3, 1], id="KIP-279: fast leader fail-over, epochs that take turns"
        ),
        pytest.param(log(0, 0, 0, 2, 4), log(0, 0, 1, 1, 3), [4, 2], id="the lower of both ends"),
        pytest.param(log(0, 2, 5), log(0, 2, 2, 4), [2], id="two epochs in common"),
        pytest.param(log(0, 3, 5), log(0, 1, 3, 4), [2, 1], id="the same epoch at another address: two rounds"),
        pytest.param(log(5, 5, first=10), log(1, 1), [10], id="below the leader's start"),
        pytest.param(log(5, 5, first=10), log(*[1] * 15), [10], id="older than all the leader has"),
        pytest.param(log(5, 5, first=10), log(), [10], id="an empty log, and a leader that starts later"),
        pytest.param(log(5, 5), log(), [], id="an empty log"),
        pytest.param(log(begun=4), log(first=7), [0], id="an empty log that begins where the leader has nothing"),
        pytest.param(log(begun=4), log(2, 3), [0], id="a leader without a batch (rule R1 keeps it from leading)"),
        pytest.param(log(1, 1, begun=3), log(1, 1, 5), [2], id="an epoch above all of the leader's"),
    ],
)
def test_cases(leader: ListLog, follower: ListLog, cuts: list[int]) -> None:
    leader, follower = ListLog(**vars(leader)), ListLog(list(follower.batches), follower.first)
    assert settle(leader, follower) == cuts
    kept = follower.end.address - leader.first
    assert follower.batches == leader.batches[max(kept - len(follower.batches), 0) : kept]


def test_an_epoch_in_which_nothing_was_written_is_known_by_its_leader() -> None:
    """Rule R8: asked for epoch 3, a leader that began it and wrote nothing says where it begins, not epoch 1's end."""
    leader = log(1, 1, begun=3)
    assert leader.epoch_end(3) == (3, LogEnd(2, 2))
    assert disagreement(leader, 1, 2) is None


def test_an_end_in_a_hole_of_the_leader_is_as_good_as_its_edges() -> None:
    leader = log(1, 1, 1, 1, 1, 1)
    leader.hole = (2, 4)
    for end in (2, 3, 4):
        assert disagreement(leader, 1, end) is None


def test_an_end_that_is_no_place_of_the_leaders_log_is_cut_to_one_that_is() -> None:
    class Coarse(ListLog):
        def floor(self, address: int) -> LogEnd:
            return LogEnd(address - address % 3, address - address % 3)

    leader = Coarse([(1, 0)] * 9)
    assert disagreement(leader, 1, 5) == Diverged(1, LogEnd(3, 3))
    assert disagreement(leader, 1, 6) is None


def common_to(replicas: list[ListLog]) -> int:
    """How many batches all have."""
    count = 0
    for row in zip(*(one.batches for one in replicas), strict=False):
        if len(set(row)) > 1:
            break
        count += 1
    return count


@given(data=st.data())
def test_any_history_converges_and_keeps_all_that_both_have(data: st.DataObject) -> None:
    """Three replicas; in each epoch one of those that can be reached leads, writes, and some of the others fetch.

    As long as a leader has what was fetched by all (clean elections), nothing that all three had is ever cut.
    """
    replicas = [ListLog() for _ in range(3)]
    value = 0
    for epoch in range(data.draw(st.integers(1, 8))):
        common = common_to(replicas)
        leader = data.draw(st.integers(0, 2))
        lead = replicas[leader]
        lead.begun = epoch
        for _ in range(data.draw(st.integers(0, 4))):
            value += 1
            lead.batches.append((epoch, value))
            for number, follower in enumerate(replicas):
                if number != leader and data.draw(st.booleans()):
                    settle(lead, follower)
                    own = len(follower.batches)
                    assert follower.batches == lead.batches[:own], "what was kept is the leader's"
                    take = data.draw(st.integers(0, 3))
                    follower.batches += lead.batches[own : own + take]
        for one in replicas:
            one.begun = -1
            assert one.batches[:common] == lead.batches[:common]
    lead = replicas[0]
    lead.begun = 100
    for follower in replicas[1:]:
        settle(lead, follower)
        follower.batches += lead.batches[len(follower.batches) :]
        assert follower.batches == lead.batches
