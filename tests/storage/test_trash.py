"""The trash of a log dir: nothing of a log is lost on its way there, whatever the disk does."""

from __future__ import annotations

import errno
from uuid import UUID

import pytest

from klog.errors import DiskFull
from klog.names import TOPIC_NAME_CHARS_MAX, TopicPartition
from klog.storage import trash
from klog.storage.log import Log
from klog.storage.log_dir import LogDir, LogDirs
from klog.storage.partition_folder import FILE_NAME_CHARS_MAX
from tests.faulty_filesystem import FaultyFileSystem, Stopped
from tests.rows import each
from tests.storage.log_cases import NAME, NEVER, TOPIC_ID, Stored, append, batch, log_in, open_dir, read_all


def filled(log_dir: LogDir) -> Log:
    log = log_in(log_dir, NEVER)
    for number in range(5):
        append(log, batch(3, producer_id=8, sequence=3 * number))
    return log


def the_folder(log_dir: LogDir) -> str:
    (folder,) = log_dir.trash.waiting
    return f"{log_dir.path}/{folder}"


def test_a_trashed_log_is_flushed_and_keeps_what_the_checkpoints_knew() -> None:
    disk = FaultyFileSystem()
    log_dir = open_dir(disk)
    log = filled(log_dir)
    log.delete_records(400)
    log.nothing_lost = True
    end, start, size, summary = log.end, log.start_offset, log.size_bytes, log.summary()
    log_dir.checkpoint()
    log_dir.trash.take(NAME, 500)
    assert (log_dir.logs, log_dir.topic_ids) == ({}, {})
    assert (log_dir.checkpoints.start(NAME), log_dir.checkpoints.recovery_point(NAME)) == (None, 0)
    new = log_in(log_dir)  # the name is free
    assert (new.end.address, new.start_offset) == (0, 0)

    disk = disk.crash()  # a log that is never flushed was flushed for this
    log_dir = open_dir(disk)
    ((folder, waiting),) = log_dir.trash.waiting.items()
    assert folder.startswith("t-0.") and folder.endswith("-trash")
    assert (waiting.name, waiting.topic_id, waiting.start_offset) == (NAME, TOPIC_ID, start)
    assert (waiting.end_address, waiting.high_watermark, waiting.nothing_lost) == (end.address, 500, True)
    assert (waiting.size_bytes, waiting.messages, waiting.summary) == (size, 6, None)
    known = trash.read(disk, the_folder(log_dir))
    assert known is not None
    assert known.summary == summary
    assert known.recovery_point == end.address


def test_a_folder_whose_metadata_does_not_check_stays_and_is_not_served() -> None:
    disk = FaultyFileSystem()
    log_dir = open_dir(disk)
    filled(log_dir)
    log_dir.trash.take(NAME, 0)
    path = f"{the_folder(log_dir)}/{trash.METADATA}"
    good = bytes(disk.names[path].data)
    log_dir.close()
    for rubbish in (b"", b"\xff\xfe", good.replace(b"start", b"stort"), b"00000000\n{}\n", b"x" * 100):
        disk.names[path].data[:] = rubbish
        log_dir = open_dir(disk)
        assert (log_dir.trash.waiting, log_dir.logs) == ({}, {})
        log_dir.close()
        assert path in disk.names
    disk.names[path].data[:] = good
    log_dir = open_dir(disk)
    assert len(log_dir.trash.waiting) == 1


def test_a_full_disk_leaves_the_log_as_it_was() -> None:
    disk = FaultyFileSystem()
    log_dir = open_dir(disk)
    log = filled(log_dir)
    end = log.end
    log_dir.give_reserve()
    disk.fail("create", f"*/{trash.METADATA}.tmp", errno.ENOSPC)
    with pytest.raises(DiskFull):
        log_dir.trash.take(NAME, 300)
    assert log_dir.failure is None
    there = log_dir.logs[NAME]
    assert (there.end, there.committed_at_open, log_dir.trash.waiting) == (end, 300, {})
    disk.heal()
    log_dir.trash.take(NAME, 300)
    assert len(log_dir.trash.waiting) == 1


def test_power_that_goes_in_any_step_loses_nothing() -> None:
    """The log is there whole afterwards: served as before, or in the trash."""
    ways = set()
    for step in range(1, 60):
        disk = FaultyFileSystem()
        log_dir = open_dir(disk)
        log = filled(log_dir)
        log.flush()
        end = log.end
        disk.stop_at(disk.steps + step)
        try:
            log_dir.trash.take(NAME, 300)
            is_done = True
        except Stopped:
            is_done = False
        disk = disk.crash()
        log_dir = open_dir(disk)
        served, waiting = log_dir.logs.get(NAME), list(log_dir.trash.waiting.values())
        ways.add((served is not None, len(waiting)))
        if served is not None:
            assert (served.end, waiting) == (end, [])
        else:
            assert [(one.end_address, one.high_watermark) for one in waiting] == [(end.address, 300)]
        if is_done:
            assert served is None
            break
    assert ways == {(True, 0), (False, 1)}


def test_what_is_discarded_is_gone_and_long_names_fit() -> None:
    disk = FaultyFileSystem()
    log_dir = open_dir(disk)
    name = TopicPartition("n" * TOPIC_NAME_CHARS_MAX, 99_999)
    append(log_in(log_dir, name=name), batch(1))
    log_dir.trash.take(name, 0)
    ((folder, waiting),) = log_dir.trash.waiting.items()
    assert (waiting.name, len(folder)) == (name, FILE_NAME_CHARS_MAX)
    log_dir.trash.discard(folder)
    log_dir.trash.discard(folder)
    assert not [path for path in disk.names if "nnn" in path]
    assert log_dir.trash.waiting == {}


def test_the_trash_of_two_topics_of_one_name() -> None:
    disk = FaultyFileSystem()
    log_dir = open_dir(disk)
    for topic_id in (UUID(int=1), UUID(int=2)):
        append(log_dir.create({NAME: (topic_id, NEVER)})[NAME], batch(1))
        log_dir.trash.take(NAME, 0)
    assert {one.topic_id for one in open_dir(disk.crash()).trash.waiting.values()} == {UUID(int=1), UUID(int=2)}


# --- Back from there ---


def trashed(disk: FaultyFileSystem) -> tuple[LogDir, list[Stored]]:
    """A log dir whose one log, with a start of its own, is in the trash; and what consumers got from it."""
    log_dir = open_dir(disk)
    log = filled(log_dir)
    log.delete_records(300)
    log.nothing_lost = True
    had = read_all(log)
    log_dir.trash.take(NAME, 500)
    return log_dir, had


def restore(log_dir: LogDir, name: TopicPartition = NAME) -> Log:
    folder = log_dir.trash.find(TOPIC_ID, name.partition)
    assert folder is not None
    log = log_dir.trash.restore(folder, name, NEVER)
    assert log is not None
    return log


def check_restored(log_dir: LogDir, had: list[Stored], name: TopicPartition = NAME) -> None:
    log = log_dir.logs[name]
    assert read_all(log) == had
    assert (log.start_offset, log.end.address) == (300, 710)
    assert (log.committed_at_open, log.nothing_lost) == (500, True)
    assert log_dir.topic_ids[name] == TOPIC_ID
    assert log_dir.checkpoints.high_watermarks()[name] == 500
    assert not [path for path in log_dir.file_system.names if trash.METADATA in path]  # type: ignore[attr-defined]
    again = log.append(memoryview(batch(3, producer_id=8, sequence=12)), 1)
    assert (again.duplicate, again.base_offset) == (True, 568)  # the producer's state is back, too


def test_a_restored_log_is_as_it_was() -> None:
    disk = FaultyFileSystem()
    log_dir, had = trashed(disk)
    log = restore(log_dir)
    assert log.recovered_bytes == 0  # nothing had to be checked again
    check_restored(log_dir, had)
    assert log_dir.trash.waiting == {}
    log_dir.checkpoints.keep_high_watermarks({})  # by a writer that does not know it yet
    assert log_dir.checkpoints.high_watermarks()[NAME] == 500


def test_a_restored_log_may_have_another_name() -> None:
    disk = FaultyFileSystem()
    log_dir, had = trashed(disk)
    other = TopicPartition("other", 0)
    restore(log_dir, other)
    check_restored(log_dir, had, other)
    log_dir.close()
    log_dir = open_dir(disk.crash())
    assert read_all(log_dir.logs[other]) == had


@each("is_power_cut", [True, False])
def test_a_restore_that_is_cut_off_in_any_step_is_finished_by_the_next_start(is_power_cut: bool) -> None:
    ways = set()
    for step in range(1, 100):
        disk = FaultyFileSystem()
        log_dir, had = trashed(disk)
        disk.stop_at(disk.steps + step)
        try:
            restore(log_dir)
            is_done = True
        except Stopped:
            is_done = False
        disk = disk.crash() if is_power_cut else disk.kill()
        log_dir = open_dir(disk)
        is_back = NAME in log_dir.logs
        ways.add(is_back)
        if is_done:
            log = log_dir.logs[NAME]  # a start without a clean stop: as after any crash
            assert (read_all(log), log.start_offset, log.committed_at_open) == (had, 300, 500)
            break
        if not is_back:
            restore(log_dir)
        log = log_dir.logs[NAME]
        assert (read_all(log), log.start_offset, log.committed_at_open) == (had, 300, 500)
    assert ways == {True, False}


def test_a_full_disk_leaves_a_log_in_the_trash() -> None:
    disk = FaultyFileSystem()
    log_dir, had = trashed(disk)
    log_dir.give_reserve()
    disk.fail("create", "*-checkpoint.tmp", errno.ENOSPC)
    with pytest.raises(DiskFull):
        restore(log_dir)
    assert log_dir.failure is None
    assert (log_dir.logs, len(log_dir.trash.waiting)) == ({}, 1)
    disk.heal()
    restore(log_dir)
    check_restored(log_dir, had)


def test_a_log_dir_brings_back_what_is_asked_for_and_nothing_twice() -> None:
    disk = FaultyFileSystem()
    dirs = LogDirs(disk, ("/a", "/b"))
    dirs.load(lambda name: NEVER)
    log = dirs.log_or_create(NAME, TOPIC_ID, NEVER)
    append(log, batch(1))
    assert dirs.to_trash(NAME, 0)
    assert not dirs.to_trash(NAME, 0)
    assert dirs.restore(NAME, UUID(int=99), NEVER) is None
    other = dirs.log_or_create(NAME, UUID(int=99), NEVER)  # another topic's, which gives way
    append(other, batch(1), batch(1))
    back = dirs.restore(NAME, TOPIC_ID, NEVER)
    assert back is not None
    assert (back.end.address, dirs.topic_id(NAME)) == (log.end.address, TOPIC_ID)
    assert [one for one in disk.names if one.endswith("-aside")]
    assert dirs.restore(NAME, TOPIC_ID, NEVER) is None
