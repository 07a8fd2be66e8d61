"""Goal: the CRC of a range says what is at those addresses, whatever segments a replica has rolled.

Method: the same batches appended by a leader with one segment size and by a follower with another; any range of both
has the same CRC, and that of the bytes laid out by a model.
"""

from __future__ import annotations

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from klog.config.topic import LogConfig
from klog.errors import CorruptLog
from klog.storage.log import Log
from tests.storage.log_cases import FOLDER, append, batch, dense_batch, new_disk, open_log

SIZES = st.lists(st.tuples(st.integers(1, 200), st.booleans()), min_size=1, max_size=12)


def pair(sizes: list[tuple[int, bool]]) -> tuple[Log, Log, bytes]:
    """A leader's log, its follower's in other segments, and the bytes at their addresses."""
    leader, follower = (open_log(new_disk(), LogConfig(segment_bytes=size)) for size in (400, 900))
    model = bytearray()
    for number, (size, is_dense) in enumerate(sizes):
        made = dense_batch(size + 200, mark=number) if is_dense else batch(1 + size % 4, value_bytes=size, mark=number)
        for stored in append(leader, made):
            model += bytes(stored.address - len(model)) + stored.data
            follower.append_at(memoryview(bytearray(stored.data)))
    model += bytes(leader.end.address - len(model))
    return leader, follower, bytes(model)


@given(sizes=SIZES, cut=st.tuples(st.floats(0, 1), st.floats(0, 1)), middle=st.floats(0, 1))
def test_a_range_has_one_crc_whatever_the_segments(
    sizes: list[tuple[int, bool]], cut: tuple[float, float], middle: float
) -> None:
    leader, follower, model = pair(sizes)
    first, end = sorted(int(one * len(model)) for one in cut)
    expected = (crc32c(model[first:end]), end - first)
    assert leader.checksum(first, end) == expected
    assert follower.checksum(first, end) == expected
    between = first + int(middle * (end - first))
    assert leader.checksum(between, end, follower.checksum(first, between).crc).crc == expected[0]


def test_a_flipped_bit_shows_and_its_batch_no_longer_checks() -> None:
    disk = new_disk()
    log = open_log(disk, LogConfig(segment_bytes=400))
    stored = append(log, *(batch(2, mark=number) for number in range(6)))
    before = log.checksum(0, log.end.address)
    hurt = stored[3]
    segment = next(one for one in reversed(log.segments) if one.base_address <= hurt.address)
    at = hurt.address + 70 - segment.base_address
    segment.file.write_at(at, bytes([segment.file.read_at(at, 1)[0] ^ 4]))
    assert log.checksum(0, log.end.address).crc != before.crc
    assert log.checksum(0, hurt.address).crc == crc32c(b"".join(one.data for one in stored[:3]))
    assert [log.batch_checks(one.address + 61) for one in stored] == [True, True, True, False, True, True]


def test_a_recorded_hole_is_no_byte() -> None:
    disk = new_disk()
    log = open_log(disk, LogConfig(segment_bytes=100_000))
    stored = append(log, *(batch(2, mark=number) for number in range(6)))
    log.close()
    file = disk.open(log.segments[0].path)
    file.write_at(stored[2].address + 70, b"\xff\xff")
    file.sync()
    again = open_log(disk)
    assert again.holes == [(stored[2].address, stored[3].address)]
    kept = b"".join(one.data for one in (*stored[:2], *stored[3:]))
    assert again.checksum(0, again.end.address) == (crc32c(kept), len(kept))


def test_a_file_that_ends_too_early_is_said_so() -> None:
    disk = new_disk()
    log = open_log(disk)
    (stored,) = append(log, batch(3))
    disk.open(f"{FOLDER}/{0:020d}.log").truncate(stored.address + 10)
    with pytest.raises(CorruptLog, match=r"\b10\b"):
        log.checksum(0, log.end.address)
