"""One test for each rule against loss that storage keeps (L1 to L10); each fails when the rule is taken out."""

from __future__ import annotations

import contextlib
import errno
import gc
import logging
import threading
import traceback
import weakref
from pathlib import Path
from uuid import UUID

import pytest

from klog.config.topic import LogConfig
from klog.errors import DiskFull, InvalidProducerEpoch, OffsetOutOfRange, OutOfOrderSequence, StorageError
from klog.names import TopicPartition
from klog.storage.disk import ROOM_BYTES_MIN
from klog.storage.filesystem import OsFileSystem
from klog.storage.flusher import Flusher
from klog.storage.log import Log, LogEnd
from klog.storage.log_dir import LogDirs
from tests.faulty_filesystem import FaultyFileSystem
from tests.rows import each
from tests.storage.log_cases import (
    NAME,
    NEVER,
    TOPIC_ID,
    append,
    batch,
    bytes_of,
    delete_old_segments,
    delete_records,
    dir_and_log,
    log_in,
    new_disk,
    open_dir,
    open_log,
    read_all,
)

SMALL = LogConfig(segment_bytes=100, retention_ms=-1)
"""Every batch of the tests gets a segment of its own."""


# --- L1 ---


def test_l1_after_a_failed_flush_the_log_is_back_at_its_flushed_end(disk: FaultyFileSystem) -> None:
    log_dir, log = dir_and_log(disk)
    kept = append(log, batch(1))
    flushed = log.flush()
    append(log, batch(2))
    disk.fail("sync", "*.log", times=1)
    with pytest.raises(StorageError, match="offline"):
        log.flush()
    assert disk.lost_pages
    assert log.flushed_end == flushed
    assert log.end == flushed
    # The pages are marked clean now: a flush would succeed, but the log takes none of it for granted.
    with pytest.raises(StorageError, match="offline"):
        log.flush()
    with pytest.raises(StorageError, match="offline"):
        append(log, batch(1))
    log_dir.abandon()
    again = log_in(open_dir(disk.kill()))
    assert read_all(again) == kept


def test_l1_the_flushed_end_passes_a_roll_only_with_the_new_name_and_the_old_bytes(disk: FaultyFileSystem) -> None:
    for act, path in (("sync folder", "/data/t-0"), ("sync", f"*/{0:020d}.log")):
        disk = FaultyFileSystem()
        log = log_in(open_dir(disk, SMALL), SMALL)
        append(log, batch(1))
        append(log, batch(1))
        assert len(log.segments) == 2
        disk.fail(act, path)
        with pytest.raises(StorageError):
            log.flush()
        assert log.flushed_end == LogEnd(0, 0)


def test_l1_what_recovery_reports_is_on_the_disk(disk: FaultyFileSystem) -> None:
    log_dir, log = dir_and_log(disk, SMALL)
    stored = append(log, batch(1)) + append(log, batch(1))  # never flushed: the kernel has it, the disk has not
    log_dir.abandon()
    log_dir = open_dir(disk.kill(), SMALL)
    assert log_in(log_dir).flushed_end == log.end
    assert read_all(log_in(open_dir(disk.crash(), SMALL))) == stored


# --- L2 ---


def test_l2_a_hole_is_legal_only_with_its_record(disk: FaultyFileSystem) -> None:
    log_dir, log = dir_and_log(disk, SMALL)
    stored = [one for mark in range(4) for one in append(log, batch(1, mark=mark))]
    log_dir.close()
    gone = log.segments[1]
    disk.remove(gone.path)
    disk.sync_folder("/data/t-0")
    log_dir = open_dir(disk, SMALL)
    log = log_in(log_dir)
    # The checkpoint knew that segment: the hole is found although everything lies below the recovery point.
    assert [(one.first_address, one.end_address) for one in log.damages] == [(gone.base_address, gone.end_address)]
    assert read_all(log) == [stored[0], *stored[2:]]
    log_dir.close()
    log = log_in(open_dir(disk, SMALL))
    assert len(log.damages) == 1
    disk.remove(f"/data/t-0/{log.damages[0].file_name}")
    assert [one.first_address for one in open_log(disk, SMALL, "/data/t-0").damages] == [gone.base_address]


def test_l2_an_epoch_lower_than_the_one_before_is_damage() -> None:
    disk = new_disk()
    log = open_log(disk)
    stored = append(log, batch(1), epoch=3) + append(log, batch(1), epoch=5) + append(log, batch(1), epoch=5)
    log.close()
    path = log.segments[0].path
    disk.names[path].data[stored[1].address + 15] = 4  # of 3, 5, 5 made 3, 4, 5: nothing wrong to be seen
    assert len(read_all(open_log(disk.kill()))) == 3
    disk.names[path].data[stored[1].address + 15] = 2  # 3, 2, 5: damage
    log = open_log(disk)
    assert [one.address for one in read_all(log)] == [stored[0].address, stored[2].address]
    assert [one.first_address for one in log.damages] == [stored[1].address]


def test_l2_a_lower_epoch_behind_other_damage_is_damage_too() -> None:
    disk = new_disk()
    log = open_log(disk)
    stored = [append(log, batch(1), epoch=epoch)[0] for epoch in (3, 5, 5, 5, 5)]
    log.close()
    data = disk.names[log.segments[0].path].data
    data[stored[2].address + 70] ^= 1
    data[stored[3].address + 15] = 4
    log = open_log(disk)
    assert read_all(log) == [stored[0], stored[1], stored[4]]


# --- L3 ---


def acts(disk: FaultyFileSystem, since: int, *kinds: str) -> list[tuple[str, str]]:
    return [(act, path.rpartition("/")[2]) for act, path in disk.trace[since:] if act in kinds]


def test_l3_truncation_removes_the_newest_first_and_flushes_the_folder(disk: FaultyFileSystem) -> None:
    log = log_in(open_dir(disk, SMALL), SMALL)
    stored = [one for mark in range(4) for one in append(log, batch(1, mark=mark))]
    names = [segment.path.rpartition("/")[2] for segment in log.segments]
    since = len(disk.trace)
    log.truncate(stored[1].address)
    assert acts(disk, since, "remove", "sync folder") == [
        ("remove", names[3]),
        ("remove", names[2]),
        ("sync folder", "t-0"),
    ]
    assert [name for _, name in acts(disk, since, "truncate", "sync")] == [names[1], names[1]]


def test_l3_no_checkpoint_speaks_of_what_was_truncated(disk: FaultyFileSystem) -> None:
    log_dir, log = dir_and_log(disk, SMALL)
    stored = [one for mark in range(4) for one in append(log, batch(1, mark=mark))]
    log_dir.checkpoint()
    log.truncate(stored[1].address)
    more = append(log, batch(2, mark=8)) + append(log, batch(1, mark=9))
    path = log.segments[-1].path
    log_dir.abandon()
    disk.names[path].data[-1] ^= 1  # torn, above the new content's flushed part and below the old recovery point
    log = log_in(open_dir(disk.kill(), SMALL))
    assert read_all(log) == [stored[0], *more[:-1]]


def test_l3_retention_removes_the_oldest_first(disk: FaultyFileSystem) -> None:
    log = log_in(open_dir(disk, SMALL), SMALL)
    stored = [one for mark in range(4) for one in append(log, batch(1, mark=mark))]
    names = [segment.path.rpartition("/")[2] for segment in log.segments]
    since = len(disk.trace)
    delete_records(log, stored[3].address)
    assert acts(disk, since, "remove") == [("remove", name) for name in names[:3]]
    assert disk.trace[-1] == ("sync folder", "/data/t-0")


# --- L4 ---


def test_l4_the_start_shown_is_the_last_removed_record_and_one(disk: FaultyFileSystem) -> None:
    config = LogConfig(segment_bytes=100, retention_ms=5_000)
    log_dir, log = dir_and_log(disk, config)
    first, second = append(log, batch(1, first_ms=1_000))[0], append(log, batch(1, first_ms=9_000))[0]
    log.flush()
    assert delete_old_segments(log, 10_000) == 1
    position = first.header.last_offset + 1  # where a group stands that has read all of the removed segment
    assert log.start_offset == position < second.address == log.start_address
    assert read_all(log, offset=position) == [second]
    with pytest.raises(OffsetOutOfRange):
        log.read(position - 1, 100, log.end.address)
    log_dir.abandon()
    again = log_in(open_dir(disk.crash(), config))
    assert again.start_offset == position
    assert again.count(position, again.end.offset) == 1


def test_l4_the_start_is_durable_before_it_is_used(disk: FaultyFileSystem) -> None:
    log = log_in(open_dir(disk, SMALL), SMALL)
    stored = append(log, batch(1)) + append(log, batch(1))
    disk.fail("rename", "*/log-start-offset-checkpoint", errno.EIO)
    assert delete_records(log, stored[1].address) == 0
    assert disk.exists(log.segments[0].path)


def test_l4_an_emptied_log_shows_its_start_as_its_end(disk: FaultyFileSystem) -> None:
    config = LogConfig(retention_ms=5_000)
    log = log_in(open_dir(disk, config), config)
    stored = append(log, batch(3, first_ms=1_000))
    assert delete_old_segments(log, 20_000) == 1
    shown = stored[0].header.last_offset + 1
    for one in (log, log_in(open_dir(disk.crash(), config))):
        assert one.start_offset == one.end.offset == shown
        assert one.end.address == stored[0].header.next_address
        assert one.read(shown, 100, one.end.address) == []
        assert one.count(0, one.end.address) == 0
    assert delete_old_segments(log, 10**12) == 0, "an empty one stays"
    assert append(log, batch(1))[0].address == stored[0].header.next_address


# --- L5 ---


def test_l5_a_full_disk_gets_its_room_back_when_the_log_is_removed(disk: FaultyFileSystem) -> None:
    """A file lives as long as somebody has it open: an error that was raised must not."""
    log_dir, log = dir_and_log(disk)
    append(log, batch(1))
    disk.capacity = sum(len(inode.data) for inode in set(disk.names.values()))
    file = weakref.ref(log.segments[-1].file)
    gc.disable()
    try:
        with contextlib.suppress(DiskFull):
            append(log, batch(1))
        assert log_dir.is_full
        log_dir.remove(log.topic_partition)
        assert file() is None
    finally:
        gc.enable()


def test_an_error_that_is_kept_does_not_grow(disk: FaultyFileSystem) -> None:
    log_dir, log = dir_and_log(disk)
    log_dir.fail(StorageError("broken"))
    for _ in range(50):
        with contextlib.suppress(StorageError):
            append(log, batch(1))
    assert log_dir.failure is not None
    assert len(traceback.extract_tb(log_dir.failure.__traceback__)) < 10


def test_l5_a_full_disk_cuts_the_part_and_appends_resume_by_themselves(disk: FaultyFileSystem) -> None:
    config = LogConfig(segment_bytes=20_000, retention_bytes=30_000, retention_ms=-1)
    log_dir, log = dir_and_log(disk, config)
    other = log_in(log_dir, config, TopicPartition("u", 0))
    stored = []
    used = 4 * ROOM_BYTES_MIN - (disk.room() or 0)
    disk.capacity = sum(len(inode.data) for inode in set(disk.names.values())) + 100_000
    assert used
    with pytest.raises(DiskFull):
        while True:
            stored += append(log, batch(1, value_bytes=1_500))
    size = disk.names[log.segments[-1].path].data
    assert len(size) == log.segments[-1].size
    with pytest.raises(DiskFull):
        append(other, batch(1))
    # Reads and retention go on.
    assert read_all(log) == stored
    log.flush()
    assert delete_old_segments(log, 2_000) >= 1
    stored = [one for one in stored if one.address >= log.start_address]
    assert read_all(log) == stored
    with pytest.raises(DiskFull):
        append(log, batch(1))  # still hardly any room
    disk.capacity += 2 * ROOM_BYTES_MIN
    stored += append(log, batch(1, mark=5))
    append(other, batch(1))
    assert read_all(log) == stored
    assert log_dir.failure is None


def test_l5_retention_can_keep_its_start_on_a_disk_without_a_byte_left(disk: FaultyFileSystem) -> None:
    log = log_in(open_dir(disk, SMALL), SMALL)
    stored = append(log, batch(1)) + append(log, batch(1))
    log.flush()
    disk.capacity = sum(len(inode.data) for inode in set(disk.names.values()))
    assert delete_records(log, stored[1].address) == stored[1].address


def test_l5_another_io_error_takes_the_dir_offline_and_no_other() -> None:
    disk = FaultyFileSystem()
    dirs = LogDirs(disk, ("/a", "/b"))
    dirs.load(lambda name: LogConfig())
    logs = [dirs.log_or_create(TopicPartition("t", number), TOPIC_ID, LogConfig()) for number in range(4)]
    assert sorted(log.log_dir.path for log in logs) == ["/a", "/a", "/b", "/b"]
    for log in logs:
        append(log, batch(1))
        log.flush()
    disk.fail("write", "/a/*", errno.EIO, times=1)
    bad, sibling = (log for log in logs if log.log_dir.path == "/a")
    with pytest.raises(StorageError, match="/a is offline"):
        append(bad, batch(1))
    # The disk would answer again: every later call is refused all the same.
    for log in (bad, sibling):
        for act in (
            lambda log=log: append(log, batch(1)),
            lambda log=log: log.read(0, 100, 1_000),
            lambda log=log: log.flush(),
            lambda log=log: log.truncate(0),
            lambda log=log: delete_records(log, 1),
            lambda log=log: log.count(0, 1),
        ):
            with pytest.raises(StorageError, match="/a is offline"):
                act()
    for log in logs:
        if log.log_dir.path == "/b":
            append(log, batch(1))
            log.flush()
            assert len(read_all(log)) == 2
    new = dirs.log_or_create(TopicPartition("t", 9), TOPIC_ID, LogConfig())
    assert new.log_dir.path == "/b"


# --- L6 ---


def test_l6_a_repeated_batch_is_answered_with_the_end_of_the_first(disk: FaultyFileSystem) -> None:
    log = log_in(open_dir(disk))
    results = [log.append(memoryview(batch(2, producer_id=4, sequence=2 * at)), 1) for at in range(6)]
    end = log.end
    for at in range(1, 6):  # the last five are remembered
        again = log.append(memoryview(batch(2, producer_id=4, sequence=2 * at)), 1)
        assert again == results[at]._replace(duplicate=True)
        assert again.end == results[at].end  # an acknowledgement waits for this, not for the log's end
    assert log.end == end
    with pytest.raises(OutOfOrderSequence):
        log.append(memoryview(batch(2, producer_id=4, sequence=0)), 1)
    with pytest.raises(OutOfOrderSequence):
        log.append(memoryview(batch(2, producer_id=4, sequence=14)), 1)
    with pytest.raises(OutOfOrderSequence):
        log.append(memoryview(batch(2, producer_id=4, epoch=1, sequence=3)), 1)
    log.append(memoryview(batch(2, producer_id=4, epoch=1, sequence=0)), 1)
    with pytest.raises(InvalidProducerEpoch):
        log.append(memoryview(batch(2, producer_id=4, sequence=12)), 1)


def test_l6_an_id_without_state_may_start_anywhere_and_retention_forgets_nothing(disk: FaultyFileSystem) -> None:
    log_dir, log = dir_and_log(disk, SMALL)
    first = log.append(memoryview(batch(1, producer_id=4, sequence=77)), 1)
    end = log.append(memoryview(batch(1)), 1).end
    delete_records(log, end.offset - 1)
    for again in range(2):
        assert log.append(memoryview(batch(1, producer_id=4, sequence=77)), 1) == first._replace(duplicate=True)
        with pytest.raises(OutOfOrderSequence):
            log.append(memoryview(batch(1, producer_id=4, sequence=500)), 1)
        if not again:
            log_dir.close()
            log = log_in(open_dir(disk, SMALL), SMALL)
    assert not log.append(memoryview(batch(1, producer_id=4, sequence=78)), 1).duplicate


@each("way", ["kill", "power", "clean", "no checkpoint"])
def test_l6_sequences_survive_a_restart(disk: FaultyFileSystem, way: str) -> None:
    log_dir, log = dir_and_log(disk)
    results = []
    for at in range(8):
        results.append(log.append(memoryview(batch(1, producer_id=4, sequence=at)), 1))
        if at == 4:
            log_dir.checkpoint()
    log.flush()
    if way == "clean":
        log_dir.close()
    else:
        log_dir.abandon()
        disk = disk.crash() if way == "power" else disk.kill()
    if way == "no checkpoint":
        disk.remove("/data/log-summary-checkpoint")
        disk.remove("/data/recovery-point-offset-checkpoint")
    log = log_in(open_dir(disk))
    assert log.append(memoryview(batch(1, producer_id=4, sequence=5)), 1) == results[5]._replace(duplicate=True)
    with pytest.raises(OutOfOrderSequence):
        log.append(memoryview(batch(1, producer_id=4, sequence=9)), 1)
    assert not log.append(memoryview(batch(1, producer_id=4, sequence=8)), 1).duplicate


# --- L7 ---


def test_l7_a_jump_of_the_wall_clock_deletes_nothing(disk: FaultyFileSystem, caplog: pytest.LogCaptureFixture) -> None:
    wall, monotonic = [1_000_000], [50]
    config = LogConfig(segment_bytes=100, retention_ms=60_000, retention_bytes=400)
    dirs = LogDirs(disk, ("/data",), clock_ms=lambda: wall[0], monotonic_ms=lambda: monotonic[0])
    dirs.load(lambda name: config)
    log = dirs.log_or_create(NAME, TOPIC_ID, config)
    stored = [one for at in range(3) for one in append(log, batch(1, first_ms=wall[0] + at))]

    def run() -> int:
        return dirs.plan_retention(lambda log: log.end.address).run()

    wall[0] += 7 * 86_400_000
    monotonic[0] += 300_000
    with caplog.at_level(logging.WARNING):
        assert run() == 0
    assert any(record.levelno == logging.WARNING and "retention" in record.getMessage() for record in caplog.records)
    assert run() == 0  # nor in the next run, when nothing has jumped since
    assert read_all(log) == stored
    for _ in range(4):
        append(log, batch(1, first_ms=wall[0]))
    assert run() > 0  # by size it goes on
    wall[0] -= 7 * 86_400_000
    wall[0] += 300_000
    assert run() > 0  # set right again
    assert log.start_offset > stored[-1].address


# --- L8 ---


def test_l8_a_cold_read_says_so_and_can_be_warmed(tmp_path: Path) -> None:
    file_system = OsFileSystem()
    (tmp_path / "log").mkdir()
    log = open_log(file_system, folder=str(tmp_path / "log"))
    for _ in range(40):
        append(log, batch(1, value_bytes=50_000))
    log.flush()
    ranges = log.read(0, 1 << 30, log.end.address)
    assert log.is_resident(ranges)
    file, position, size = ranges[0]
    file.forget(position, size)
    if log.is_resident(ranges):
        pytest.skip("this file system keeps its pages, or cannot say whether it has them")
    log.warm(ranges)
    assert log.is_resident(ranges)


# --- L9 ---


@each(("partitions", "expected"), [(40, 1), (3, 0)])
def test_l9_many_dirty_files_share_one_flush(disk: FaultyFileSystem, partitions: int, expected: int) -> None:
    log_dir = open_dir(disk)
    logs = [log_in(log_dir, None, TopicPartition("t", number)) for number in range(partitions)]
    since = len(disk.trace)
    outcomes: list[tuple[Log, LogEnd | StorageError]] = []
    first_is_waiting, done = threading.Event(), threading.Event()

    def heard(log: Log, outcome: LogEnd | StorageError) -> None:
        outcomes.append((log, outcome))
        if len(outcomes) == 1:
            first_is_waiting.wait(10)  # meanwhile all others ask: they share what follows
        if len(outcomes) == partitions:
            done.set()

    flusher = Flusher(lambda function, *arguments: function(*arguments), heard, disk)
    for log in logs:
        append(log, batch(1))
        flusher.want(log)
    first_is_waiting.set()
    assert done.wait(10)
    flusher.stop()
    shared = [act for act, _ in disk.trace[since:] if act == "sync everything"]
    assert len(shared) in ((1, 2) if expected else (0,))
    assert {log.topic_partition for log, _ in outcomes} == {log.topic_partition for log in logs}
    assert all(outcome == log.end == log.durable_end for log, outcome in outcomes)


# --- L10 ---


def test_l10_a_folder_of_another_topic_is_set_aside_and_never_served(disk: FaultyFileSystem) -> None:
    dirs = LogDirs(disk, ("/data",))
    dirs.load(lambda name: LogConfig())
    old = dirs.log_or_create(NAME, TOPIC_ID, LogConfig())
    stored = append(old, batch(1))
    old.flush()
    dirs.close()
    dirs = LogDirs(disk, ("/data",))
    dirs.load(lambda name: LogConfig())
    assert dirs.topic_id(NAME) == TOPIC_ID
    new = dirs.log_or_create(NAME, UUID(int=8), LogConfig())
    assert read_all(new) == []
    assert new.end == LogEnd(0, 0)
    (aside,) = dirs.dirs[0].quarantined
    # Its bytes are still there for whoever wants them, and no start serves them.
    kept = open_log(disk, folder=f"/data/{aside}")
    assert read_all(kept) == stored
    dirs.close()
    dirs = LogDirs(disk.crash(), ("/data",))
    dirs.load(lambda name: LogConfig())
    assert [log.topic_partition for log in dirs.logs()] == [NAME]
    assert dirs.topic_id(NAME) == UUID(int=8)
    assert read_all(dirs.logs()[0]) == []


def test_l10_a_folder_without_an_id_is_set_aside(disk: FaultyFileSystem) -> None:
    log_dir = open_dir(disk)
    log_in(log_dir)
    log_dir.close()
    disk.remove("/data/t-0/partition.metadata")
    log_dir = open_dir(disk)
    assert log_dir.logs == {}
    assert len(log_dir.quarantined) == 1


def test_l10_a_deleted_partition_does_not_come_back_by_halves(disk: FaultyFileSystem) -> None:
    log_dir, log = dir_and_log(disk, SMALL)
    for _ in range(3):
        append(log, batch(1))
    log_dir.checkpoint()
    folder = log_dir.remove(NAME)
    with pytest.raises(StorageError, match="closed"):
        append(log, batch(1))
    after = disk.crash()
    assert after.exists(folder)
    log_dir = open_dir(after)
    assert log_dir.logs == {}
    assert not after.exists(folder)
    assert log_in(log_dir).end == LogEnd(0, 0)


def test_never_flushing_is_what_the_rule_says(disk: FaultyFileSystem) -> None:
    """D4: with Kafka's own default the page cache is safe enough, and the flushed end is the end."""
    log = log_in(open_dir(disk, NEVER), NEVER)
    append(log, batch(1))
    assert log.flushed_end == log.end
    assert log.durable_end == LogEnd(0, 0)
    log.reconfigure(LogConfig())
    assert log.flushed_end == LogEnd(0, 0)
    assert bytes_of(log.read(0, 100, log.end.address))
