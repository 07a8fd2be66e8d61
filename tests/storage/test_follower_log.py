"""What a follower's log can besides appending: places where a log may end, holes of the leader, a new beginning, and
cut bytes that are kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.config.topic import LogConfig
from klog.errors import CorruptLog, OffsetOutOfRange, StorageError
from klog.storage.log import Log, LogEnd
from tests.faulty_filesystem import FaultyFileSystem, Stopped
from tests.rows import each
from tests.storage.log_cases import (
    FOLDER,
    Stored,
    append,
    batch,
    bytes_of,
    delete_records,
    dense_batch,
    dir_and_log,
    log_in,
    new_disk,
    open_dir,
    open_log,
    read_all,
    split,
)

SMALL = LogConfig(segment_bytes=400)


def filled(log: Log, batches: int = 8, epoch: int = 1) -> list[Stored]:
    return [one for mark in range(batches) for one in append(log, batch(1 + mark % 3, mark=mark), epoch=epoch)]


def copy_from(leader: Log, follower: Log, max_bytes: int = 300) -> None:
    """What fetching does, without the network."""
    while follower.end.address < leader.end.address:
        first, ranges = leader.read_from(follower.end.address, max_bytes)
        if first > follower.end.address:
            follower.skip_to(first, "the leader's")
        follower.append_at(memoryview(bytearray(bytes_of(ranges))))


# --- places -----------------------------------------------------------------------------------------------------------


@given(shapes=st.lists(st.tuples(st.booleans(), st.integers(1, 6)), min_size=1, max_size=60))
def test_floor_is_the_last_batch_start_or_end(shapes: list[tuple[bool, int]]) -> None:
    log = open_log(new_disk(), LogConfig(segment_bytes=900))
    places = [LogEnd(0, 0)]
    for dense, count in shapes:
        (stored,) = append(log, dense_batch(80 + 20 * count) if dense else batch(count))
        places.append(LogEnd(stored.header.next_address, stored.header.last_offset + 1))
    for place, behind in zip(places, [*places[1:], None], strict=True):
        assert log.floor(place.address) == place
        if behind is not None:
            assert log.floor(behind.address - 1) == place
            assert log.floor((place.address + behind.address) // 2) == place
    assert log.floor(1 << 60) == log.end
    assert not any(log.is_in_hole(place.address) for place in places)


def test_floor_walks_where_nothing_is_remembered() -> None:
    disk = new_disk()
    stored = filled(open_log(disk), 600)
    again = open_log(disk.kill())
    for one in stored[::37]:
        assert again.floor(one.address).address == one.address
        assert again.floor(one.address + 1).address == one.address
    with pytest.raises(OffsetOutOfRange):
        again.floor(-1)


@given(max_bytes=st.integers(1, 1500), dense=st.booleans())
def test_read_from_gives_every_batch_once_whatever_start_is_shown(max_bytes: int, dense: bool) -> None:
    log = open_log(new_disk(), SMALL)
    stored = filled(log)
    if dense:
        stored += append(log, dense_batch(200)) + append(log, batch(2))
    stored += append(log, batch(3), batch(3))
    delete_records(log, stored[-1].address)
    kept = [one for one in stored if one.address >= log.start_address]
    assert log.start_offset > log.start_address
    found, at = [], log.start_address
    while at < log.end.address:
        first, ranges = log.read_from(at, max_bytes)
        got = split(bytes_of(ranges))
        assert first == at == got[0].address
        assert len(got) == 1 or sum(len(one.data) for one in got) <= max_bytes
        found += got
        at = got[-1].header.next_address
    assert found == kept
    assert log.read_from(at, max_bytes) == (at, [])
    with pytest.raises(OffsetOutOfRange):
        log.read_from(log.start_address - 1, max_bytes)


def test_an_epoch_without_a_batch_is_no_last_epoch_of_a_follower() -> None:
    log = open_log(new_disk())
    assert log.last_batch_epoch == -1
    filled(log, 2, epoch=3)
    log.begin_epoch(7)
    assert (log.last_epoch, log.last_batch_epoch) == (7, 3)
    log.forget_empty_epochs()
    assert log.last_epoch == 3
    assert log.begin_epoch(4) is None  # 7 was never written in, and stands in nobody's way


def test_an_epoch_above_the_leaders_is_refused() -> None:
    leader, follower = open_log(new_disk()), open_log(new_disk())
    (stored,) = append(leader, batch(), epoch=9)
    with pytest.raises(CorruptLog, match="epoch -1 to 8"):
        follower.append_at(memoryview(bytearray(stored.data)), 8)
    assert follower.append_at(memoryview(bytearray(stored.data)), 9).count == 1


# --- holes ------------------------------------------------------------------------------------------------------------


def holed() -> tuple[FaultyFileSystem, Log, list[Stored]]:
    """A leader's log of which recovery has lost a stretch in the middle; what is left of it."""
    disk = new_disk()
    stored = filled(open_log(disk), 9)
    path = next(path for path in disk.names if path.endswith(".log"))
    disk.names[path].data[stored[3].address + 70] ^= 1
    disk.names[path].data[stored[4].address + 70] ^= 1
    disk = disk.kill()
    log = open_log(disk)
    assert log.holes == [(stored[3].address, stored[5].address)]
    return disk, log, [*stored[:3], *stored[5:]]


def test_a_follower_leaves_the_leaders_hole() -> None:
    _, leader, kept = holed()
    disk = new_disk()
    follower = open_log(disk)
    copy_from(leader, follower)
    assert read_all(follower) == read_all(leader) == kept
    assert follower.holes == leader.holes
    assert follower.end == leader.end
    follower.flush()
    again = open_log(disk.crash())
    assert read_all(again) == kept
    assert again.holes == leader.holes
    assert again.floor(kept[3].address - 1).address == kept[2].header.next_address
    assert again.is_in_hole(kept[3].address)
    assert again.is_in_hole(kept[2].header.next_address)
    assert not again.is_in_hole(kept[2].address)


def test_a_hole_is_recorded_before_there_is_one() -> None:
    """Rule L2: power loss at each step leaves a log that recovers without finding damage of its own."""
    steps = 1
    while True:
        disk = new_disk()
        log = open_log(disk)
        stored = filled(log, 3)
        log.flush()
        begin = disk.steps
        disk.stop_at(begin + steps)
        try:
            log.skip_to(log.end.address + 500, "the leader's")
            behind = bytearray(batch(2))
            # As a follower gets it: stamped by the leader, with the address behind the hole.
            behind[:8] = log.end.address.to_bytes(8, "big")
            behind[12:16] = (1).to_bytes(4, "big")
            log.append_at(memoryview(behind))
            log.flush()
        except Stopped:
            for seed in (None, 1, 2, 3):
                again = open_log(disk.crash(seed))
                assert read_all(again)[:3] == stored
                assert all("leader" in one.reason for one in again.damages)
                again.abandon()
            steps += 1
            continue
        assert steps > 4
        return


def test_a_hole_that_is_cut_off_is_no_longer_legal() -> None:
    disk, log, kept = holed()
    log.truncate(kept[1].address)
    assert log.damages == ()
    assert not [path for path in disk.names if path.endswith(".damaged")]


def test_a_hole_below_a_cut_stays() -> None:
    disk, log, kept = holed()
    log.truncate(kept[4].address)
    assert len(log.damages) == 1
    assert [path for path in disk.names if path.endswith(".damaged")]
    assert read_all(log) == kept[:4]


# --- beginning anew ---------------------------------------------------------------------------------------------------


@each(("address", "start"), [(5000, 4900), (5000, 5000), (5000, 5100), (0, 0), (400, 300)])
def test_a_log_begins_anew(address: int, start: int) -> None:
    disk = FaultyFileSystem()
    log_dir, log = dir_and_log(disk, SMALL)
    filled(log)
    log.flush()
    log_dir.checkpoint()
    log.restart(address, start)
    shown = min(start, address)
    for one in (log, log_in(open_dir(disk.crash(), SMALL), SMALL)):
        assert (one.start_address, one.start_offset) == (address, shown)
        assert one.end == LogEnd(address, shown)
        assert one.last_epoch == -1
        assert one.size_bytes == 0
        assert len(one.segments) == 1
    stored = append(log, batch(3), epoch=4)
    assert stored[0].address == address
    log.flush()
    log_dir.checkpoint()
    again = log_in(open_dir(disk.crash(), SMALL), SMALL)
    assert read_all(again, offset=address) == stored
    assert again.last_epoch == 4


def test_power_loss_at_every_step_of_a_new_beginning() -> None:
    """What is found then is a part of what was, or nothing; and the same can be done again."""
    step = 0
    while True:
        step += 1
        disk = FaultyFileSystem()
        log_dir, log = dir_and_log(disk, SMALL)
        stored = filled(log)
        log.flush()
        log_dir.checkpoint()
        disk.stop_at(disk.steps + step)
        try:
            log.restart(5000, 4900)
        except Stopped:
            for seed in (None, 1, 2, 3):
                again = log_in(open_dir(disk.crash(seed), SMALL), SMALL)
                found = read_all(again)
                assert all(one in stored for one in found)
                assert not again.damages
                again.restart(5000, 4900)
                assert again.end == LogEnd(5000, 4900)
            continue
        assert step > 5
        return


def test_flushes_that_were_under_way_say_nothing_of_the_new_log() -> None:
    log = open_log(new_disk())
    filled(log)
    mark = log.begin_flush()
    log.restart(9000, 9000)
    assert log.finish_flush(mark) == LogEnd(9000, 9000)


def test_a_disk_that_fails_takes_the_dir_offline() -> None:
    disk = new_disk()
    log = open_log(disk)
    filled(log)
    disk.fail("sync folder")
    with pytest.raises(StorageError):
        log.restart(9000, 9000)
    with pytest.raises(StorageError):
        append(log, batch())


# --- what is cut and kept ---------------------------------------------------------------------------------------------


def lost_files(disk: FaultyFileSystem) -> dict[str, bytes]:
    return {path: bytes(node.data) for path, node in disk.names.items() if path.endswith(".lost")}


def test_what_is_cut_is_kept_where_that_is_asked() -> None:
    disk = new_disk()
    log = open_log(disk, SMALL)
    stored = filled(log)
    at = stored[2].address
    names = log.truncate(at, keep_truncated=True)
    assert read_all(log) == stored[:2]
    kept = lost_files(disk.crash())
    assert sorted(kept) == sorted(f"{FOLDER}/{name}" for name in names)
    found = [one for path in sorted(kept) for one in split(kept[path])]
    assert found == stored[2:]
    assert names[0] == f"{at:020d}.lost"


def test_nothing_is_kept_otherwise() -> None:
    disk = new_disk()
    log = open_log(disk, SMALL)
    stored = filled(log)
    assert log.truncate(stored[2].address) == []
    assert log.truncate(log.end.address, keep_truncated=True) == []
    assert lost_files(disk) == {}


def test_the_same_address_may_be_lost_twice() -> None:
    disk = new_disk()
    log = open_log(disk)
    for mark in (1, 2, 3):
        append(log, batch(mark=mark))
        log.truncate(0, keep_truncated=True)
    assert sorted(path.rpartition("/")[2] for path in lost_files(disk)) == sorted(
        ["00000000000000000000.lost", "00000000000000000000-2.lost", "00000000000000000000-3.lost"]
    )
    assert len(set(lost_files(disk).values())) == 3


def test_a_new_beginning_keeps_everything_where_that_is_asked() -> None:
    disk = new_disk()
    log = open_log(disk, SMALL)
    stored = filled(log)
    log.restart(0, 0, keep_truncated=True)
    kept = lost_files(disk)
    assert [one for path in sorted(kept) for one in split(kept[path])] == stored
    again = open_log(disk.crash(), SMALL)
    assert again.end == LogEnd(0, 0)
