"""The power goes at every step that touches the disk; what was flushed is there afterwards.

Method: one scenario over a log dir on a disk in memory: create, append, flush, roll, checkpoint, retention,
DeleteRecords, truncation, a clean restart. It is run once to count its steps, then once for each step with the world
stopped there. After each stop the disk is what a power loss leaves, the worst (only what was flushed) and some seeds of
what lies between, or what a kill leaves, followed by a power loss. Recovery must not raise, and must find everything
that was acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from klog.config.topic import LogConfig
from klog.storage.log import Log
from klog.storage.log_dir import LogDir
from tests.faulty_filesystem import FaultyFileSystem, Stopped
from tests.rows import each
from tests.storage.log_cases import (
    Stored,
    append,
    batch,
    delete_old_segments,
    delete_records,
    dense_batch,
    dir_and_log,
    log_in,
    open_dir,
    read_all,
)

CONFIG = LogConfig(segment_bytes=400, retention_bytes=500, retention_ms=-1)

pytestmark = pytest.mark.usefixtures("quiet")


@dataclass
class Story:
    """What was done so far, and what must therefore be true after a crash."""

    appended: list[Stored] = field(default_factory=list)
    flushed_to: int = 0
    cut_at: int | None = None
    starts: tuple[int, ...] = (0,)
    """The start shown: one value, or the old and the new while it is being moved."""

    def flush(self, log: Log) -> None:
        end = log.flush()
        self.flushed_to = end.address

    def truncate(self, log: Log, address: int) -> None:
        self.cut_at = self.flushed_to = address
        log.truncate(address)
        self.appended = [one for one in self.appended if one.address < address]
        self.cut_at = None

    def moving(self, log: Log, start: int) -> None:
        self.starts = (log.start_offset, start)


def scenario(disk: FaultyFileSystem, story: Story) -> LogDir:
    log_dir, log = dir_and_log(disk, CONFIG)
    for mark in range(4):
        story.appended += append(log, batch(1, mark=mark))
        story.flush(log)
    story.appended += append(log, dense_batch(90, mark=10), epoch=2)
    story.appended += append(log, batch(3, mark=11), epoch=2)  # rolls
    story.appended += append(log, batch(1, producer_id=5, sequence=0), epoch=2)
    story.flush(log)
    log_dir.checkpoint()
    story.appended += append(log, batch(3, mark=12), epoch=2)
    story.appended += append(log, batch(3, mark=13), epoch=3)
    story.appended += append(log, batch(3, mark=14), epoch=3)
    story.flush(log)
    log_dir.checkpoint()
    story.truncate(log, story.appended[-3].address)
    story.appended += append(log, batch(2, mark=15), epoch=4)
    story.flush(log)
    story.moving(log, story.appended[2].address)
    delete_records(log, story.appended[2].address)
    story.starts = (log.start_offset,)
    story.appended += append(log, batch(5, mark=16), batch(5, mark=17), epoch=4)
    story.flush(log)
    deletion = log.plan_deletion(0)
    assert deletion is not None
    story.moving(log, deletion.start_offset)
    assert delete_old_segments(log, 0) > 0
    story.starts = (log.start_offset,)
    log_dir.close()
    log_dir, log = dir_and_log(disk, CONFIG)
    story.appended += append(log, batch(1, mark=18), epoch=5)
    story.flush(log)
    return log_dir


def steps() -> int:
    disk = FaultyFileSystem()
    scenario(disk, Story())
    return disk.steps


STEPS = steps()


def check(disk: FaultyFileSystem, story: Story) -> None:
    log_dir, log = dir_and_log(disk, CONFIG)
    found = {one.address: one.data for one in read_all(log)}
    limit = min(story.flushed_to, story.cut_at if story.cut_at is not None else story.flushed_to)
    # Right after DeleteRecords the start is its offset; a crash while it moves leaves the old or the new one.
    assert log.start_offset in story.starts or log.start_offset >= log.end.offset
    assert log.start_offset >= story.starts[0]
    due = [one for one in story.appended if one.address < limit and one.header.last_offset >= story.starts[-1]]
    assert {one.address for one in due} <= found.keys()
    for one in story.appended:
        if one.address in found and one.address < limit:
            assert found[one.address] == one.data
    assert log.end.address >= limit
    assert log.flushed_end == log.end
    # It goes on from there, and nothing acknowledged now is lost either.
    more = append(log, batch(1, mark=99), epoch=9)
    log.flush()
    log_dir.abandon()
    again = log_in(open_dir(disk.crash(), CONFIG))
    assert read_all(again)[-1:] == more
    assert {one.address for one in due} <= {one.address for one in read_all(again)}


def stopped_at(step: int) -> tuple[FaultyFileSystem, Story]:
    disk, story = FaultyFileSystem(), Story()
    disk.stop_at(step)
    with pytest.raises(Stopped):
        scenario(disk, story)
    return disk, story


@each("step", range(1, STEPS + 1))
def test_power_loss_at_every_step(step: int) -> None:
    for seed in (None, step):
        disk, story = stopped_at(step)
        check(disk.crash(seed), story)


@each("step", range(1, STEPS + 1))
def test_kill_at_every_step_and_power_loss_after_the_restart(step: int) -> None:
    disk, story = stopped_at(step)
    after = disk.kill()
    open_dir(after, CONFIG).abandon()
    # Rule L1: what recovery reported is on the disk, although the killed process had not flushed it.
    end = log_in(open_dir(after.kill(), CONFIG)).end
    log_dir = open_dir(after.crash(), CONFIG)
    if log_dir.logs:
        assert log_in(log_dir).end == end
    log_dir.abandon()
    check(after.crash(), story)


def test_recovery_itself_may_be_cut_off_anywhere() -> None:
    """A segment damaged in the middle gives recovery most to do: stopped at each of its steps, then run again."""

    def damaged() -> tuple[FaultyFileSystem, list[Stored]]:
        disk = FaultyFileSystem()
        log_dir, log = dir_and_log(disk)
        stored = [one for mark in range(6) for one in append(log, batch(2, mark=mark))]
        log.flush()
        log_dir.abandon()
        disk = disk.crash()
        path = next(path for path in disk.names if path.endswith(".log"))
        disk.names[path].data[stored[1].address + 80] ^= 1
        disk.names[path].data[stored[3].address + 80] ^= 1
        disk.names[path].data += b"torn"
        disk.names[path].durable = bytes(disk.names[path].data)
        return disk, stored

    disk, stored = damaged()
    open_dir(disk).abandon()
    kept = [one for at, one in enumerate(stored) if at not in (1, 3)]
    for step in range(1, disk.steps + 1):
        for seed in (None, step):
            disk, _ = damaged()
            disk.stop_at(step)
            with pytest.raises(Stopped):
                open_dir(disk)
            log = log_in(open_dir(disk.crash(seed)))
            assert read_all(log) == kept
            assert [one.first_address for one in log.damages] == [stored[1].address, stored[3].address]
