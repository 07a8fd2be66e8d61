"""The text of checkpoints: Kafka's form to the byte, and nothing believed that does not check."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.errors import CorruptLog
from klog.names import TopicPartition
from klog.storage.checkpoint import (
    LogSummary,
    SegmentSummary,
    parse_offsets,
    parse_summaries,
    render_offsets,
    render_summaries,
    render_summary,
)
from klog.storage.epochs import EpochStart
from klog.storage.producers import Producer, WrittenBatch
from tests.rows import each

numbers = st.integers(0, 2**62)
names = st.builds(TopicPartition, st.text("abc._-XY09", min_size=1, max_size=20), st.integers(0, 10_000))
batches = st.builds(WrittenBatch, numbers, numbers, numbers, numbers, numbers)
producers = st.builds(Producer, st.integers(0, 2**15), st.lists(batches, max_size=5).map(tuple), numbers)
rows = st.builds(
    SegmentSummary, numbers, numbers, numbers, numbers, numbers, st.integers(-1, 2**62), numbers, st.booleans(), numbers
)
summaries = st.builds(
    LogSummary,
    st.lists(rows, min_size=1, max_size=3).map(tuple),
    st.lists(st.builds(EpochStart, numbers, numbers, numbers), max_size=3).map(tuple),
    st.dictionaries(numbers, producers, max_size=3),
)


def test_kafkas_own_form() -> None:
    text = render_offsets({TopicPartition("b", 10): 7, TopicPartition("a-b", 0): 0})
    assert text == b"0\n2\na-b 0 0\nb 10 7\n"
    assert render_offsets({}) == b"0\n0\n"


@given(offsets=st.dictionaries(names, numbers, max_size=20))
def test_offsets_there_and_back(offsets: dict[TopicPartition, int]) -> None:
    assert parse_offsets(render_offsets(offsets), "x") == offsets


@each(
    "text",
    [b"", b"\n", b"1\n0\n", b"0\n", b"0\nx\n", b"0\n1\n", b"0\n1\na 0\n", b"0\n1\na b 3\n", b"0\n0\na 0 3\n", b"\xe9"],
)
def test_what_is_none(text: bytes) -> None:
    with pytest.raises(CorruptLog, match="x"):
        parse_offsets(text, "x")


@given(known=st.dictionaries(names, summaries, max_size=4))
def test_summaries_there_and_back(known: dict[TopicPartition, LogSummary]) -> None:
    text = render_summaries([render_summary(name, summary) for name, summary in known.items()])
    found = parse_summaries(text)
    assert (found.known, found.rejected) == (known, 0)
    assert render_summaries(list(found.lines.values())) == text


@given(known=summaries, at=st.floats(0, 1, exclude_max=True), mask=st.integers(1, 255))
def test_a_flipped_byte_is_not_believed(known: LogSummary, at: float, mask: int) -> None:
    name = TopicPartition("t", 0)
    text = bytearray(render_summaries([render_summary(name, known)]))
    text[int(at * len(text))] ^= mask
    found = parse_summaries(bytes(text)).known
    assert found.get(name) in (None, known)


def test_what_holds_below_a_cut() -> None:
    row = SegmentSummary(0, 100, 90, 100, 5, 1, 1, False, 0)
    later = row._replace(base_address=100, end_address=250, end_offset=240)
    known = LogSummary(
        (row, later),
        (EpochStart(1, 0, 0), EpochStart(2, 150, 140)),
        {7: Producer(0, (WrittenBatch(0, 0, 50, 50, 90), WrittenBatch(1, 1, 200, 200, 240)), 5)},
    )
    assert known.below(250) == known
    kept = known.below(249)
    assert kept is not None
    assert kept.segments == (row,)
    assert [start.epoch for start in kept.epochs] == [1]
    assert [one.base_offset for one in kept.producers[7].batches] == [50]
    assert known.below(99) is None
