"""Recovery never raises, never serves a batch that does not check, and loses only what is damaged.

Method: a small log of two segments, with plain batches and one that has more records than bytes, cut at every byte and
with every byte flipped. The batches that the damage does not touch must all be there, and a second recovery must find
nothing more to do.
"""

from __future__ import annotations

import pytest

from klog.config.topic import LogConfig
from klog.errors import StorageError
from klog.record.batch import check_crc
from klog.storage.damage_record import DamageRecord
from klog.storage.log import Log, LogEnd
from tests.faulty_filesystem import FaultyFileSystem
from tests.rows import each
from tests.storage.log_cases import (
    FOLDER,
    Stored,
    append,
    batch,
    dense_batch,
    dir_and_log,
    log_in,
    new_disk,
    open_dir,
    open_log,
    read_all,
)

EPOCH_BYTES = range(12, 16)

pytestmark = pytest.mark.usefixtures("quiet")


def small_log() -> tuple[dict[str, bytes], list[Stored]]:
    """The files of a closed log, and its batches."""
    disk = new_disk()
    log = open_log(disk, LogConfig(segment_bytes=400))
    stored = append(log, batch(1, mark=1), batch(2, mark=2))
    stored += append(log, dense_batch(100, mark=3), epoch=2)
    stored += append(log, batch(1, mark=4), epoch=2)
    stored += append(log, batch(1, mark=5), epoch=2)
    stored += append(log, batch(1, mark=6), epoch=5)
    assert len(log.segments) == 2
    assert log.segments[0].size > 300 < log.segments[1].size + 200
    log.close()
    return {path: bytes(inode.data) for path, inode in disk.names.items() if path.endswith(".log")}, stored


FILES, STORED = small_log()
FIRST, LAST = sorted(FILES)
LAST_BASE = int(LAST[-24:-4])


def disk_with(**changed: bytes) -> FaultyFileSystem:
    disk = new_disk()
    for path, data in FILES.items():
        content = changed.get("first" if path == FIRST else "last", data)
        file = disk.open(path, create=True)
        file.write_at(0, content)
        file.sync()
    disk.sync_folder(FOLDER)
    return disk


def recover(disk: FaultyFileSystem) -> Log:
    """Open; then again as after a power loss, where the same must be found with nothing left to do."""
    log = open_log(disk)
    found, damages, end = read_all(log), log.damages, log.end
    again = open_log(disk.crash())
    assert (read_all(again), again.damages, again.end) == (found, damages, end)
    for stored in found:
        check_crc(stored.data, 0, stored.header)
    return again


def touched(path: str, position: int) -> Stored | None:
    """The batch that a byte of a file belongs to; None in a hole."""
    address = position + (0 if path == FIRST else LAST_BASE)
    return next((one for one in STORED if one.address <= address < one.address + len(one.data)), None)


def test_a_whole_log_is_left_as_it_is() -> None:
    disk = disk_with()
    log = recover(disk)
    assert read_all(log) == STORED
    assert log.damages == ()
    assert {path: bytes(inode.data) for path, inode in disk.names.items() if path.endswith(".log")} == FILES


@each("size", range(len(FILES[LAST])))
def test_the_last_segment_cut_at_every_byte_keeps_whole_batches(size: int) -> None:
    log = recover(disk_with(last=FILES[LAST][:size]))
    kept = [one for one in STORED if one.address + len(one.data) <= LAST_BASE + size]
    assert read_all(log) == kept
    assert log.damages == ()
    assert log.end == LogEnd(kept[-1].header.next_address, kept[-1].header.last_offset + 1)
    more = append(log, batch(1, mark=9), epoch=6)
    assert read_all(log) == kept + more


@each("size", range(0, len(FILES[FIRST]), 3))
def test_an_earlier_segment_cut_at_any_byte_keeps_what_is_behind_it(size: int) -> None:
    log = recover(disk_with(first=FILES[FIRST][:size]))
    lost = [one for one in STORED if one.address < LAST_BASE and one.address + len(one.data) > size]
    assert read_all(log) == [one for one in STORED if one not in lost]
    if lost:
        assert [(one.first_address, one.end_address) for one in log.damages] == [(lost[0].address, LAST_BASE)]


@each("path", [FIRST, LAST])
def test_a_flipped_byte_costs_one_batch_at_most(path: str) -> None:
    for position in range(len(FILES[path])):
        data = bytearray(FILES[path])
        data[position] ^= (0x01, 0x80, 0xFF)[position % 3]
        log = recover(disk_with(**{"first" if path == FIRST else "last": bytes(data)}))
        hit = touched(path, position)
        found = read_all(log)
        rest = [one for one in STORED if one is not hit]
        if found == STORED:
            assert hit is None, f"byte {position} of {path} was not missed"
            continue
        in_epoch = hit is not None and (position + (0 if path == FIRST else LAST_BASE)) - hit.address in EPOCH_BYTES
        if in_epoch and len(found) == len(STORED):
            # No checksum covers the epoch; what is not below the one before passes for one.
            assert hit is not None
            others = [one for one in found if one.address != hit.address]
            assert others == rest
            continue
        assert found == rest, f"byte {position} of {path}"
        if hit is not STORED[-1]:
            assert hit is not None
            assert [(one.first_address, one.end_address) for one in log.damages] == [
                (hit.address, hit.header.next_address)
            ]


def test_what_was_skipped_is_kept_beside_the_log() -> None:
    data = bytearray(FILES[FIRST])
    data[STORED[1].address + 70] ^= 0xFF
    disk = disk_with(first=bytes(data))
    log = open_log(disk)
    (damage,) = log.damages
    kept = disk.read(f"{FOLDER}/{damage.file_name}")
    assert kept is not None
    assert DamageRecord.parse(kept) == damage
    assert kept.split(b"\n", 1)[1] == bytes(data[damage.first_address : damage.end_address])
    assert len(log.segments) == 3
    # A fetch into the hole goes on behind it.
    assert read_all(log, offset=damage.first_address + 3) == STORED[2:]
    assert log.count(0, log.end.offset) == sum(one.header.count for one in STORED) - STORED[1].header.count


def test_zeros_behind_the_end_are_cut() -> None:
    """A file whose size reached the disk before its bytes did."""
    log = recover(disk_with(last=FILES[LAST] + bytes(5_000)))
    assert read_all(log) == STORED


def test_a_batch_of_another_address_is_none() -> None:
    """Bytes of the log copied to another place: right in themselves, wrong there."""
    moved = FILES[LAST] + STORED[1].data
    log = recover(disk_with(last=moved))
    assert read_all(log) == STORED


def test_damage_larger_than_what_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("klog.storage.checking.CHECK_BYTES", 100)
    data = bytearray(FILES[FIRST])
    data[STORED[1].address : STORED[1].address + 60] = bytes(60)
    log = recover(disk_with(first=bytes(data)))
    assert read_all(log) == [STORED[0], *STORED[2:]]


def test_the_next_batch_is_found_across_a_change_of_the_upper_address_bytes() -> None:
    """The search compares six bytes by bytes.find in windows of 64 KiB: batches at both sides of their borders."""
    disk = new_disk()
    log = open_log(disk)
    stored = []
    while log.end.address < 3 << 16:
        stored += append(log, batch(40, value_bytes=100, mark=len(stored)))
    log.close()
    path = f"{FOLDER}/{0:020d}.log"
    for hit in stored[1:-1:3]:
        after = disk.crash()
        after.names[path].data[hit.address + 100] ^= 1
        found = open_log(after)
        assert [one.address for one in read_all(found)] == [one.address for one in stored if one is not hit]


def test_leftovers_of_other_kinds_do_not_matter() -> None:
    disk = disk_with()
    for name in ("00000000000000000000.index", "123.log", "x.log", "leader-epoch-checkpoint", f"{9:020d}.log.tmp"):
        disk.open(f"{FOLDER}/{name}", create=True).write_at(0, b"?")
    log = recover(disk)
    assert read_all(log) == STORED
    assert not disk.exists(f"{FOLDER}/{9:020d}.log.tmp")


def test_only_what_lies_past_the_recovery_point_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FaultyFileSystem()
    config = LogConfig(segment_bytes=1_000)
    log_dir, log = dir_and_log(disk, config)
    stored = [one for mark in range(50) for one in append(log, batch(1, mark=mark))]
    log_dir.checkpoint()
    stored += append(log, batch(1, mark=51))
    log.flush()
    log_dir.abandon()
    log = log_in(open_dir(disk.kill(), config))
    assert log.recovered_bytes == len(stored[-1].data)
    assert log.count(0, log.end.offset) == 51
    assert read_all(log) == stored


def test_a_summary_that_disagrees_with_the_files_is_rejected_and_rebuilt() -> None:
    disk = FaultyFileSystem()
    config = LogConfig(segment_bytes=300)
    log_dir, log = dir_and_log(disk, config)
    stored = [one for mark in range(20) for one in append(log, batch(2, mark=mark, first_ms=1000 * mark))]
    stored += append(log, batch(1, producer_id=9, sequence=0))
    stored += append(log, batch(1, mark=77), epoch=4)
    log_dir.close()
    path = "/data/log-summary-checkpoint"
    text = disk.read(path)
    assert text is not None
    disk.replace(path, text.replace(b",2,", b",3,"))  # a count that is wrong: the line's CRC tells
    log = log_in(open_dir(disk, config))
    assert log.needs_rebuild
    assert log.count(0, log.end.offset) is None
    assert log.nth(30, 0) is None
    assert read_all(log) == stored
    rebuilt = log.rebuild()
    assert log.needs_rebuild and log.summary() is None  # its producers and epochs are not known before they are adopted
    log.adopt(rebuilt)
    assert not log.needs_rebuild and log.summary() is not None
    assert log.count(0, log.end.offset) == 42
    assert log.nth(2, 0) == stored[1].address
    assert log.epoch_end(1) == (1, LogEnd(stored[-1].address, stored[-2].address + 1))
    repeated = log.append(memoryview(batch(1, producer_id=9, sequence=0)), 4)
    assert repeated.duplicate


def test_an_epoch_of_segments_that_are_still_to_be_read_is_not_known() -> None:
    """A consumer that was told the log's start for it would read everything again (rule R8)."""
    disk = FaultyFileSystem()
    config = LogConfig(segment_bytes=300)
    log_dir, log = dir_and_log(disk, config)
    for epoch in (1, 3):
        for mark in range(20):
            append(log, batch(2, mark=mark), epoch=epoch)
    _, end_of_first = log.epoch_end(1)
    log_dir.close()
    disk.remove("/data/log-summary-checkpoint")
    log = log_in(open_dir(disk, config))
    log.begin_epoch(6)
    assert [log.knows_epoch(one) for one in (1, 3, 6)] == [False, True, True]
    log.adopt(log.rebuild())
    epoch, end = log.epoch_end(1)
    assert (log.knows_epoch(1), epoch, end.address) == (True, 1, end_of_first.address)


def test_a_flush_that_fails_in_recovery_is_an_error() -> None:
    disk = disk_with(last=FILES[LAST] + b"torn")
    disk.fail("sync", LAST)
    with pytest.raises(StorageError):
        open_log(disk)


def old_damage(disk: FaultyFileSystem, *, remove_last: bool) -> list[Stored]:
    """A closed segment below the recovery point that rotted, and a checkpoint whose summary does not check."""
    config = LogConfig(segment_bytes=300)
    log_dir, log = dir_and_log(disk, config)
    stored = [one for mark in range(8) for one in append(log, batch(2, mark=mark))]
    log.roll_if_due(10**15)
    log_dir.close()
    text = disk.read("/data/log-summary-checkpoint")
    assert text is not None
    disk.replace("/data/log-summary-checkpoint", text.replace(b"t 0 ", b"t 0 f"))
    segment = log.segments[-2] if remove_last else log.segments[1]
    disk.names[segment.path].data[len(stored[0].data)] ^= 0xFF
    first = next(at for at, one in enumerate(stored) if one.address == segment.base_address)
    del stored[first + 1]
    return stored


def test_damage_below_the_recovery_point_that_the_end_rests_on() -> None:
    """The last segment is empty, so the end shown is in the one before it: which does not check."""
    disk = FaultyFileSystem()
    stored = old_damage(disk, remove_last=True)
    log = log_in(open_dir(disk))
    assert read_all(log) == stored
    assert log.end.offset == stored[-1].header.last_offset + 1


def test_damage_that_the_count_comes_across_is_a_hole_after_the_next_start() -> None:
    disk = FaultyFileSystem()
    stored = old_damage(disk, remove_last=False)
    log_dir, log = dir_and_log(disk)
    assert log.needs_rebuild
    with pytest.raises(StorageError):
        log.rebuild()
    assert log.count(0, log.end.offset) is None
    assert log_dir.failure is None
    log_dir.close()
    log = log_in(open_dir(disk))
    assert read_all(log) == stored
    assert log.count(0, log.end.offset) == 2 * len(stored)


def test_a_full_disk_at_the_start_is_served_from() -> None:
    disk = FaultyFileSystem()
    log_dir = open_dir(disk)
    stored = append(log_in(log_dir), batch(3))
    log_dir.abandon()
    disk = disk.kill()
    disk.capacity = sum(len(inode.data) for inode in set(disk.names.values()))
    disk.remove("/data/.reserve")
    disk.capacity -= 256 * 1024
    log_dir = open_dir(disk)
    assert read_all(log_in(log_dir)) == stored
    assert log_dir.failure is None
