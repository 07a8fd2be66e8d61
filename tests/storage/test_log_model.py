"""The log against a list: whatever is done to it, it has what the list has.

Method: Hypothesis picks appends (plain batches, several at once, batches with more records than bytes), flushes, rolls,
truncations, deletions, clean restarts, kills and power losses on a disk in memory; after each the whole log is read,
counted and searched, and compared with a list of batches.
"""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from klog.config.topic import LogConfig
from klog.errors import CorruptLog, OffsetOutOfRange
from tests.faulty_filesystem import FaultyFileSystem
from tests.storage.log_cases import (
    Stored,
    append,
    batch,
    bytes_of,
    delete_old_segments,
    delete_records,
    dense_batch,
    log_in,
    open_dir,
    read_all,
    split,
)


class LogAgainstList(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = FaultyFileSystem()
        self.batches: list[Stored] = []
        self.removed_end = 0  # the last record + 1 of what was deleted
        self.mark = 0
        self.epoch = 1

    @initialize(segment_bytes=st.sampled_from([300, 700, 5_000]))
    def open(self, segment_bytes: int) -> None:
        self.config = LogConfig(segment_bytes=segment_bytes, retention_bytes=2 * segment_bytes, retention_ms=-1)
        self.dir = open_dir(self.disk, self.config)
        self.log = log_in(self.dir, self.config)

    def make(self, shape: tuple[int, int, int]) -> bytes:
        kind, count, time = shape
        self.mark += 1
        if kind == 0:
            return bytes(dense_batch(70 + 10 * count, 10 + count, first_ms=time, mark=self.mark))
        return bytes(batch(count, value_bytes=5 * kind, first_ms=time, mark=self.mark))

    @rule(
        shapes=st.lists(st.tuples(st.integers(0, 8), st.integers(1, 12), st.integers(0, 500)), min_size=1, max_size=4)
    )
    def append(self, shapes: list[tuple[int, int, int]]) -> None:
        self.batches += append(self.log, *map(self.make, shapes), epoch=self.epoch)

    @rule(times=st.integers(20, 400))
    def append_many(self, times: int) -> None:
        """Enough small ones to leave the dense list and set anchors."""
        for _ in range(times):
            self.batches += append(self.log, self.make((2, 1, 7)), epoch=self.epoch)

    @rule()
    def new_epoch(self) -> None:
        self.epoch += 1

    @rule()
    def flush(self) -> None:
        assert self.log.flush() == self.log.end == self.log.flushed_end

    @rule()
    def checkpoint(self) -> None:
        self.dir.checkpoint()

    @rule()
    def roll(self) -> None:
        self.log.roll_if_due(10**15)

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.batches) - 1))
        address = self.batches[at].address
        if address < max(self.log.start_address, self.log.start_offset):
            return
        self.log.truncate(address)
        del self.batches[at:]
        assert self.log.end.address == address
        assert self.log.flushed_end.address <= address

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def truncate_elsewhere(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.batches))
        address = one.address + data.draw(st.integers(1, len(one.data) - 1))
        if address < self.log.start_address or address >= self.log.end.address:
            return
        with pytest.raises(CorruptLog):
            self.log.truncate(address)

    @rule()
    def retain(self) -> None:
        self.log.flush()
        before = self.log.size_bytes
        delete_old_segments(self.log, 2_000, limit_address=self.log.flushed_end.address)
        self.forget_removed()
        assert self.log.size_bytes <= before
        last = self.log.segments[-1].size
        assert self.log.size_bytes <= max(3 * self.config.segment_bytes + 1500, last)

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        self.log.flush()  # only what is committed is deleted
        start, end = self.log.start_offset, self.log.end.offset
        offset = start + int((end - start) * part)
        assert delete_records(self.log, offset) == offset
        self.removed_end = max(self.removed_end, offset)
        self.forget_removed()
        with pytest.raises(OffsetOutOfRange):
            delete_records(self.log, end + 1)

    def forget_removed(self) -> None:
        """Rule L4: what is gone ends at the start shown."""
        first = self.log.start_address
        gone = [one for one in self.batches if one.address < first]
        self.batches = self.batches[len(gone) :]
        if gone:
            self.removed_end = max(self.removed_end, gone[-1].header.last_offset + 1)
        self.batches = [one for one in self.batches if one.header.last_offset >= self.removed_end]
        assert self.log.start_offset == self.removed_end

    @rule()
    def restart(self) -> None:
        self.dir.close()
        self.reopen()
        assert self.log.recovered_bytes == 0

    @rule()
    def kill(self) -> None:
        self.dir.abandon()
        self.disk = self.disk.kill()
        self.reopen()
        assert self.log.flushed_end == self.log.end

    @rule(seed=st.none() | st.integers(0, 1000))
    def power_loss(self, seed: int | None) -> None:
        flushed = self.log.flushed_end
        self.disk = self.disk.crash(seed)
        self.reopen()
        assert self.log.end.address >= flushed.address
        starts = {one.address for one in read_all(self.log)}
        assert {one.address for one in self.batches if one.address < flushed.address} <= starts
        # Of what was not flushed any part may be there, and the holes between are recorded.
        holes = {(damage.first_address, damage.end_address) for damage in self.log.damages}
        lost = [one for one in self.batches if one.address not in starts and one.address < self.log.end.address]
        assert all(any(first <= one.address < end for first, end in holes) for one in lost)
        self.batches = [one for one in self.batches if one.address in starts]

    def reopen(self) -> None:
        self.dir = open_dir(self.disk, self.config)
        self.log = log_in(self.dir, self.config)
        assert not self.log.needs_rebuild

    @invariant()
    def has_what_the_list_has(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        got = read_all(log, 500)
        assert [(one.address, one.data) for one in got] == [(one.address, one.data) for one in self.batches]
        if self.batches:
            assert log.end.offset == self.batches[-1].header.last_offset + 1
        else:
            assert log.end.offset == log.start_offset

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def look(self, data: st.DataObject) -> None:
        log = self.log
        every = (one.address + i for one in self.batches for i in range(one.header.count))
        offsets = [offset for offset in every if offset >= log.start_offset]
        at = st.integers(log.start_offset, log.end.address)
        low, high = sorted((data.draw(at), data.draw(at)))
        assert log.count(low, high) == sum(low <= offset < high for offset in offsets)
        from_here = [offset for offset in offsets if offset >= low]
        n = data.draw(st.integers(0, len(offsets)))
        assert log.nth(n, low) == (from_here[n] if n < len(from_here) else log.end.offset)
        max_bytes = data.draw(st.integers(0, 600))
        limit = data.draw(st.sampled_from([one.address for one in self.batches] + [log.end.address]))
        got = split(bytes_of(log.read(low, max_bytes, limit)))
        due = [one for one in self.batches if one.header.last_offset >= low and one.header.next_address <= limit]
        assert [one.address for one in got] == [one.address for one in due[: len(got)]]
        if due and (limit == log.end.address or got):
            assert got, "a fetch with something to read gets at least one batch"
            assert len(got) == 1 or sum(len(one.data) for one in got) <= max_bytes
            where = log.locate(low)
            assert where.header == due[0].header


LogAgainstList.TestCase.settings = settings(
    max_examples=max(60, settings.default.max_examples),
    stateful_step_count=25,
    phases=[p for p in Phase if p is not Phase.shrink],
)
test_log_against_list = LogAgainstList.TestCase
