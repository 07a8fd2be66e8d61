"""Times looked up to the record, counts and places, over several segments and codecs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.config.topic import LogConfig
from klog.errors import CorruptLog, OffsetOutOfRange, RequestTimedOut
from klog.record.batch import read_header, write_header
from klog.record.codec import Codec
from klog.record.records import Record, encode_batch
from klog.storage.batch_index import (
    ANCHORS_CLOSED_MAX,
    ANCHORS_MAX,
    DENSE_BATCHES,
    INTERVAL_BYTES,
    Anchor,
    BatchIndex,
    IndexBudget,
)
from klog.storage.log import Log
from klog.storage.lookup import RECORDS_A_LOOK
from klog.storage.lookup_budget import LookupBudget
from tests.faulty_filesystem import FaultyFileSystem
from tests.storage.log_cases import append, batch, delete_records, dense_batch, log_in, new_disk, open_dir, open_log

TIMES = st.lists(
    st.tuples(st.lists(st.integers(0, 60), min_size=1, max_size=5), st.sampled_from(list(Codec))),
    min_size=1,
    max_size=12,
)


def filled(batches: list[tuple[list[int], Codec]]) -> tuple[Log, list[tuple[int, int]]]:
    """A log of small segments, and (offset, timestamp) of all its records."""
    log = open_log(new_disk(), LogConfig(segment_bytes=300))
    rows = []
    for times, codec in batches:
        records = [Record(i, at_ms, None, b"v", ()) for i, at_ms in enumerate(times)]
        (stored,) = append(log, encode_batch(records, codec=codec))
        rows += [(stored.address + i, at_ms) for i, at_ms in enumerate(times)]
    return log, rows


@given(batches=TIMES, at_ms=st.integers(0, 65), cut=st.floats(0, 1))
def test_the_first_record_at_or_after_a_time(batches: list[tuple[list[int], Codec]], at_ms: int, cut: float) -> None:
    log, rows = filled(batches)
    delete_records(log, int(log.end.offset * cut * 0.7))
    rows = [row for row in rows if row[0] >= log.start_offset]
    found = next((row for row in rows if row[1] >= at_ms), None)
    assert log.offset_for_time(at_ms) == found
    assert log.may_have_time(at_ms) or found is None
    assert not log.may_have_time(1 + max(one for times, _ in batches for one in times))
    newest = max((row[1] for row in rows), default=None)
    assert log.max_timestamp() == next((row for row in rows if row[1] == newest), None)


def test_a_header_that_promises_a_later_time_than_its_records_have() -> None:
    """The largest timestamp of a header is the producer's word: what counts is the records."""
    lying = encode_batch([Record(0, 10, None, b"", ())])
    write_header(lying, 0, read_header(lying, 0)._replace(max_timestamp_ms=1_000))
    log = open_log(new_disk())
    append(log, lying)
    (honest,) = append(log, encode_batch([Record(0, 500, None, b"", ())]))
    assert log.offset_for_time(400) == (honest.address, 500)
    assert log.offset_for_time(600) is None


def test_messages_without_time() -> None:
    log = open_log(new_disk())
    append(log, encode_batch([Record(0, -1, None, b"", ())]))
    assert log.max_timestamp() is None
    assert log.offset_for_time(0) is None


def test_the_newest_message_of_a_large_batch_ends_the_search() -> None:
    log = open_log(new_disk())
    times_ms = [1, 5, *[3] * 5 * RECORDS_A_LOOK]
    (first,) = append(log, encode_batch([Record(at, one, None, b"", ()) for at, one in enumerate(times_ms)]))
    looks: list[None] = []
    found = log.max_timestamp(LookupBudget(is_wanted=lambda: not looks.append(None)))
    assert (found, len(looks)) == ((first.address + 1, 5), 2)


def test_an_empty_log() -> None:
    log = open_log(new_disk())
    assert log.max_timestamp() is None
    assert log.offset_for_time(0) is None
    assert log.count(0, 100) == 0
    assert log.nth(0, 0) == 0
    with pytest.raises(OffsetOutOfRange):
        log.locate(0)
    with pytest.raises(OffsetOutOfRange):
        log.read(1, 100, 0)
    assert log.read(0, 100, 0) == []


def big_log() -> tuple[Log, list[int], FaultyFileSystem]:
    """More than the dense list holds and many anchors; 20 records of 45 bytes a batch."""
    disk = FaultyFileSystem()
    log = log_in(open_dir(disk))
    addresses = [append(log, batch(20, value_bytes=38, first_ms=at))[0].address for at in range(3_000)]
    return log, addresses, disk


def test_far_from_the_tail_lookups_walk_little() -> None:
    log, addresses, _ = big_log()
    index = log.segments[0].index
    assert len(index.dense.starts) < 2 * DENSE_BATCHES
    assert len(index.anchors.addresses) > 10
    for at in range(0, len(addresses), 97):
        address = addresses[at]
        assert log.is_known(address, 2 * INTERVAL_BYTES)
        assert index.distance(address + 5) < 2 * INTERVAL_BYTES
        assert log.locate(address + 19).header.base_offset == address
        if at + 1 < len(addresses):
            assert log.locate(address + 20).header.base_offset == addresses[at + 1]
        assert log.count(0, address + 7) == 20 * at + 7
        assert log.nth(20 * at + 3, 0) == address + 3
        assert log.offset_for_time(at)[0] in range(addresses[max(at - 19, 0)], address + 1)  # type: ignore[index]


def test_after_a_restart_the_first_lookup_walks_and_leaves_anchors() -> None:
    log, addresses = after_a_restart()
    assert log.recovered_bytes == 0
    target = addresses[-5]
    assert not log.is_known(target, INTERVAL_BYTES)
    assert log.count(0, target) == 20 * (len(addresses) - 5)
    assert log.is_known(target, 20 * INTERVAL_BYTES)
    append(log, batch(1))
    assert log.count(target, log.end.offset) == 101


def test_the_index_stays_small() -> None:
    index = BatchIndex(0, IndexBudget())
    for at in range(5 * ANCHORS_MAX):
        index.add(at * INTERVAL_BYTES, at + 1, at)
    assert len(index.anchors.addresses) <= ANCHORS_MAX
    assert len(index.dense.starts) <= 2 * DENSE_BATCHES
    anchor = index.floor(3 * ANCHORS_MAX * INTERVAL_BYTES + 5)
    number = anchor.address // INTERVAL_BYTES
    assert anchor == Anchor(anchor.address, number, number, (number - 1) * INTERVAL_BYTES + 1)
    index.close()
    assert len(index.anchors.addresses) <= ANCHORS_CLOSED_MAX
    assert len(index.dense.starts) == 0


def test_all_indexes_of_a_broker_stay_within_one_budget() -> None:
    budget = IndexBudget(1_000)
    indexes = [BatchIndex(0, budget) for _ in range(50)]
    for at in range(2_000):
        for index in indexes[: 1 + at % 50]:
            index.add(at * INTERVAL_BYTES, at + 1, at)
        assert sum(len(index.anchors.addresses) for index in indexes) <= 1_000 + 50
    for index in indexes:
        for address in range(0, 2_000 * INTERVAL_BYTES, 77 * INTERVAL_BYTES):
            assert index.floor(address).address <= address
    del indexes[1:]
    kept = len(indexes[0].anchors.addresses)
    for at in range(2_000, 2_400):
        indexes[0].add(at * INTERVAL_BYTES, at + 1, at)
    assert len(indexes[0].anchors.addresses) > kept  # what the others held is free again


def test_more_segments_than_the_budget_has_anchors() -> None:
    budget = IndexBudget(10)
    indexes = [BatchIndex(0, budget) for _ in range(100)]
    for index in indexes:
        index.add(0, 1, -1)
        index.add(INTERVAL_BYTES, 2, -1)
    assert all(index.floor(5).address == 0 for index in indexes)


def test_a_walk_tells_when_the_bytes_are_no_log() -> None:
    disk = new_disk()
    log = open_log(disk)
    stored = [append(log, batch(20, value_bytes=200))[0] for _ in range(2 * DENSE_BATCHES + 50)]
    path = log.segments[0].path
    disk.names[path].data[stored[1].address] ^= 0xFF
    with pytest.raises(CorruptLog, match="base offset"):
        log.locate(stored[2].address)
    assert log.log_dir.failure is None  # one log's trouble, not the disk's
    assert log.read(stored[-1].address, 100, log.end.address)


def test_counts_up_to_each_batch_of_a_log_longer_than_its_dense_list() -> None:
    """Also to batches that are anchors of the sparse list, where there is nothing to walk and all to be counted."""
    log = open_log(new_disk())
    stored = [
        append(log, encode_batch([Record(0, 1, None, b"x" * 5_000, ())] * 3))[0] for _ in range(3 * DENSE_BATCHES)
    ]
    for number, one in enumerate(stored):
        assert log.count(0, one.address) == 3 * number
        assert log.count(one.address, log.end.offset) == 3 * (len(stored) - number)


def after_a_restart() -> tuple[Log, list[int]]:
    """`big_log` without anchors, as a process that has just started has it."""
    log, addresses, disk = big_log()
    log.flush()
    log.log_dir.checkpoint()  # type: ignore[attr-defined]
    log.abandon()
    return log_in(open_dir(disk.kill())), addresses


def test_a_look_up_that_runs_out_of_bytes_begins_further_on_the_next_time() -> None:
    log, addresses = after_a_restart()
    at = len(addresses) - 5  # batch number = the time of its first record
    attempts = 0
    while True:
        attempts += 1
        try:
            found = log.offset_for_time(at + 19, LookupBudget(bytes_max=log.size_bytes / 4))
        except RequestTimedOut:
            assert attempts < 20, "no attempt gets any further"
            continue
        break
    assert attempts > 1
    assert found == log.offset_for_time(at + 19)
    with pytest.raises(RequestTimedOut):
        after_a_restart()[0].max_timestamp(LookupBudget(bytes_max=0))


def test_a_look_up_ends_with_its_time_and_with_whoever_asks() -> None:
    log, addresses = after_a_restart()
    with pytest.raises(RequestTimedOut, match=r"\b0 s"):
        log.offset_for_time(len(addresses), LookupBudget(seconds=0))
    looked = 0

    def is_wanted() -> bool:
        nonlocal looked
        looked += 1
        return looked < 3

    with pytest.raises(RequestTimedOut, match="disconnected"):
        log.offset_for_time(len(addresses), LookupBudget(is_wanted=is_wanted))
    assert looked == 3
    with pytest.raises(RequestTimedOut):
        log.time_of(addresses[7] + 1, LookupBudget(seconds=-1))


# --- A batch with a right CRC and records that do not decode: appends let it in, lookups by time must bear it ---


def test_lookups_by_time_go_past_records_that_do_not_decode() -> None:
    log = open_log(new_disk())
    append(log, batch(3, first_ms=1_000))
    append(log, dense_batch(90, first_ms=5_000))
    lying_end = log.end.offset
    assert log.max_timestamp() == (lying_end - 1, 5_000), "the largest time may be its own"
    (after,) = append(log, batch(2, first_ms=9_000))
    assert log.offset_for_time(1_001) == (1, 1_001)
    assert log.offset_for_time(4_000) == (lying_end - 1, 5_000)
    assert log.offset_for_time(5_001) == (after.address, 9_000)
    assert log.max_timestamp() == (after.header.last_offset, 9_001)


def test_a_batch_that_unpacks_to_too_much_is_not_unpacked() -> None:
    """Appended before there was a bound, or under a larger one."""
    log = open_log(new_disk())
    rows = [Record(at, 5_000 + 1_000 * at, None, bytes(size)) for at, size in enumerate((1, 1, 17 << 20))]
    for packed in (encode_batch(rows[:2], codec=Codec.ZSTD), encode_batch(rows, codec=Codec.ZSTD)):
        append(log, packed)
    first_of_large = log.end.offset - 3
    assert log.offset_for_time(5_500) == (1, 6_000)
    assert log.offset_for_time(6_500) == (first_of_large + 2, 7_000)
    assert log.time_of(first_of_large + 1) == 7_000  # 6,000, could it be looked into
