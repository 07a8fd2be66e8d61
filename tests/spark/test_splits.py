"""Tasks together read exactly the ranges, each part once, in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klog.client.raw_fetch import Range
from klog.spark.planning import PACKED_RANGES_MAX, cut, cut_and_pack, cut_evenly


@st.composite
def ranges(draw: st.DrawFn) -> list[Range]:
    found = []
    for partition in range(draw(st.integers(1, 12))):
        start = draw(st.integers(0, 10**6))
        found.append(Range("t", partition, start, start + draw(st.integers(1, 5000))))
    return found


def to_batch_start(one: Range, offset: int) -> int:
    """Batches of 100: the start may lie before the range."""
    return offset - offset % 100


def exactly(parts: list[Range], whole: list[Range]) -> None:
    assert all(part.to_offset > part.from_offset for part in parts)
    joined: dict[int, Range] = {}
    for part in parts:
        before = joined.get(part.partition)
        if before is not None:
            assert before.to_offset == part.from_offset
            part = part._replace(from_offset=before.from_offset)
        joined[part.partition] = part
    assert sorted(joined.values()) == sorted(whole)


@given(ranges(), st.integers(1, 3000))
def test_cut_and_packed_by_bytes(whole: list[Range], split_bytes: int) -> None:
    tasks = cut_and_pack(whole, split_bytes, to_batch_start)
    exactly([part for task in tasks for part in task], whole)
    for task in tasks:
        assert len(task) <= PACKED_RANGES_MAX
        if len(task) > 1:
            assert sum(part.to_offset - part.from_offset for part in task) <= split_bytes


@given(ranges(), st.integers(1, 40))
def test_cut_evenly_into_a_number_of_tasks(whole: list[Range], pieces: int) -> None:
    tasks = cut_evenly(whole, pieces, lambda one, offset: offset)
    exactly([part for (part,) in tasks], whole)
    assert len(tasks) <= max(pieces, len(whole)) * 2


def test_cuts_are_at_the_starts_of_batches() -> None:
    parts = cut(Range("t", 0, 130, 1130), 4, to_batch_start)
    assert [part.from_offset for part in parts] == [130, 300, 600, 800]


def test_a_range_inside_one_batch_is_not_cut() -> None:
    one = Range("t", 0, 110, 190)
    assert cut(one, 5, to_batch_start) == [one]
