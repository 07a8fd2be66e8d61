"""A batch with a right CRC and records that do not decode: appends let it in, lookups by time must bear it."""

from __future__ import annotations

from klog.record.codec import Codec
from klog.record.records import Record, encode_batch
from tests.storage.log_cases import batch, dense_batch, new_disk, open_log


def test_lookups_by_time_go_past_it() -> None:
    log = open_log(new_disk())
    log.append(memoryview(batch(3, first_ms=1_000)), 0)
    lying = log.append(memoryview(dense_batch(90, first_ms=5_000)), 0)
    after = log.append(memoryview(batch(2, first_ms=9_000)), 0)
    assert log.offset_for_time(1_001) == (1, 1_001)
    assert log.offset_for_time(4_000) == (lying.end.offset - 1, 5_000)
    assert log.offset_for_time(5_001) == (after.base_offset, 9_000)
    assert log.max_timestamp() == (after.end.offset - 1, 9_001)


def test_the_largest_time_may_be_its_own() -> None:
    log = open_log(new_disk())
    log.append(memoryview(batch(3, first_ms=1_000)), 0)
    lying = log.append(memoryview(dense_batch(90, first_ms=5_000)), 0)
    assert log.max_timestamp() == (lying.end.offset - 1, 5_000)


def test_one_that_unpacks_to_too_much_is_not_unpacked() -> None:
    """Appended before there was a bound, or under a larger one."""
    log = open_log(new_disk())
    rows = [Record(at, 5_000 + 1_000 * at, None, bytes(size)) for at, size in enumerate((1, 1, 17 << 20))]
    for packed in (encode_batch(rows[:2], codec=Codec.ZSTD), encode_batch(rows, codec=Codec.ZSTD)):
        log.append(memoryview(packed), 0)
    first_of_large = log.end.offset - 3
    assert log.offset_for_time(5_500) == (1, 6_000)
    assert log.offset_for_time(6_500) == (first_of_large + 2, 7_000)
    assert log.time_of(first_of_large + 1) == 7_000  # 6,000, could it be looked into
