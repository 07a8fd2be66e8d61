"""A batch with a right CRC and records that do not decode: appends let it in, lookups by time must bear it."""

from __future__ import annotations

from tests.storage.log_cases import batch, dense_batch, new_disk, open_log


def test_lookups_by_time_go_past_it() -> None:
    log = open_log(new_disk())
    log.append(memoryview(batch(3, first_ms=1_000)), 0)
    lying = log.append(memoryview(dense_batch(90, first_ms=5_000)), 0)
    after = log.append(memoryview(batch(2, first_ms=9_000)), 0)
    assert log.offset_for_time(1_001) == (1, 1_001)
    assert log.offset_for_time(4_000) == (lying.last_offset, 5_000)
    assert log.offset_for_time(5_001) == (after.base_offset, 9_000)
    assert log.max_timestamp() == (after.last_offset, 9_001)


def test_the_largest_time_may_be_its_own() -> None:
    log = open_log(new_disk())
    log.append(memoryview(batch(3, first_ms=1_000)), 0)
    lying = log.append(memoryview(dense_batch(90, first_ms=5_000)), 0)
    assert log.max_timestamp() == (lying.last_offset, 5_000)
