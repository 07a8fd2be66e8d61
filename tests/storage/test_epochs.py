"""Where an epoch ended, with its edges (KIP-101, KIP-320, rule R8)."""

from __future__ import annotations

import pytest

from klog.errors import CorruptBatch, CorruptLog, FencedLeaderEpoch
from klog.storage.epochs import Epochs
from klog.storage.log import LogEnd
from tests.faulty_filesystem import FaultyFileSystem
from tests.rows import each
from tests.storage.log_cases import (
    append,
    batch,
    dir_and_log,
    log_in,
    new_disk,
    open_dir,
    open_log,
    read_all,
)

END = LogEnd(900, 850)


def epochs() -> Epochs:
    made = Epochs()
    for epoch, address, offset in ((2, 100, 100), (5, 300, 260), (6, 300, 260), (9, 700, 690)):
        made.begin(epoch, LogEnd(address, offset))
    return made


@each(
    ("asked", "expected"),
    [
        (0, (0, LogEnd(40, 40))),
        (1, (1, LogEnd(40, 40))),
        (2, (2, LogEnd(300, 260))),
        (3, (2, LogEnd(300, 260))),
        (5, (5, LogEnd(300, 260))),  # wrote nothing
        (6, (6, LogEnd(700, 690))),
        (8, (6, LogEnd(700, 690))),
        (9, (9, END)),
        (10, (-1, LogEnd(-1, -1))),
    ],
)
def test_ends(asked: int, expected: tuple[int, LogEnd]) -> None:
    assert epochs().end(asked, 40, END) == expected


def test_none_known() -> None:
    assert Epochs().end(3, 0, END) == (-1, LogEnd(-1, -1))
    assert Epochs().last == -1


def test_cutting_at_both_ends() -> None:
    made = epochs()
    made.truncate(300)
    assert [start.epoch for start in made.starts] == [2]
    made = epochs()
    made.forget_below(400)
    assert [start.epoch for start in made.starts] == [6, 9]
    made.forget_below(50)
    assert [start.epoch for start in made.starts] == [6, 9]


def test_the_current_epoch_is_known_before_its_first_batch() -> None:
    disk = FaultyFileSystem()
    log_dir, log = dir_and_log(disk)
    append(log, batch(2), epoch=3)
    end = log.end
    log.begin_epoch(7)
    assert log.last_epoch == 7
    assert log.epoch_end(3) == (3, end)
    assert log.epoch_end(7) == (7, end)
    append(log, batch(1), epoch=7)
    assert log.epoch_end(7) == (7, log.end)
    with pytest.raises(FencedLeaderEpoch):
        append(log, batch(1), epoch=6)
    log_dir.close()
    again = log_in(open_dir(disk))
    assert [(start.epoch, start.address) for start in again.epoch_starts] == [(3, 0), (7, end.address)]


def test_a_follower_refuses_what_does_not_follow() -> None:
    leader = open_log(new_disk())
    stored = append(leader, batch(3), epoch=5) + append(leader, batch(3), epoch=5)
    follower = open_log(new_disk())
    with pytest.raises(CorruptLog, match="expected 0"):
        follower.append_at(memoryview(stored[1].data))
    broken = bytearray(stored[0].data)
    broken[-1] ^= 1
    with pytest.raises(CorruptBatch):
        follower.append_at(memoryview(broken))
    assert follower.end == LogEnd(0, 0)
    follower.append_at(memoryview(stored[0].data))
    follower.begin_epoch(6)
    with pytest.raises(CorruptLog, match="epoch 6 to"):
        follower.append_at(memoryview(stored[1].data))
    assert follower.append_at(memoryview(b"")).count == 0
    assert read_all(follower) == stored[:1]
