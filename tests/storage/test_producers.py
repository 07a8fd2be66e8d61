"""Idempotence against a model: each producer's batches as a plain list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.errors import InvalidProducerEpoch, OutOfOrderSequence
from klog.record.batch import BatchHeader
from klog.storage.producers import SEQUENCE_END, WINDOW_BATCHES, Producer, Producers, last_sequence


def header(producer_id: int, epoch: int, sequence: int, count: int = 1) -> BatchHeader:
    return BatchHeader(0, 88, 1, 2, 0, 0, count - 1, 5, 5, producer_id, epoch, sequence, count)


STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 9), st.integers(1, 3), st.integers(0, 9)),
    max_size=60,
)


@given(steps=STEPS)
def test_against_a_list(steps: list[tuple[int, int, int, int, int]]) -> None:
    producers = Producers()
    written: dict[int, tuple[int, list[tuple[int, int, int]]]] = {}
    address = 0
    for producer_id, epoch, sequence, count, kind in steps:
        one = header(producer_id, epoch, sequence, count)
        known = written.get(producer_id)
        expected: object = None
        if known is not None:
            last_epoch, batches = known
            recent = batches[-WINDOW_BATCHES:]
            after = batches[-1][1] + 1
            if kind and epoch == last_epoch:  # mostly a sequence that has a chance
                sequence = after if kind < 6 else recent[0][0]
                one = header(producer_id, epoch, sequence, count)
            last = sequence + count - 1
            if epoch < last_epoch:
                expected = InvalidProducerEpoch
            elif epoch > last_epoch:
                expected = None if sequence == 0 else OutOfOrderSequence
            elif sequence == after:
                expected = None
            else:
                expected = next(
                    (at for first, end, at in recent if (first, end) == (sequence, last)), OutOfOrderSequence
                )
        if isinstance(expected, type):
            with pytest.raises(expected):
                producers.check(one)
            continue
        repeated = producers.check(one)
        assert (repeated.base_offset if repeated else None) == expected
        if repeated is None:
            producers.written(address, one)
            if known is None or known[0] != epoch:
                written[producer_id] = (epoch, [])
            written[producer_id][1].append((sequence, sequence + count - 1, address))
            address += 100


def test_sequences_wrap() -> None:
    assert last_sequence(SEQUENCE_END - 1, 3) == 1
    producers = Producers()
    producers.written(0, header(1, 0, SEQUENCE_END - 2, 2))
    assert producers.check(header(1, 0, 0, 5)) is None
    producers.written(100, header(1, 0, 0, 5))
    assert producers.check(header(1, 0, SEQUENCE_END - 2, 2)) is not None
    with pytest.raises(OutOfOrderSequence, match="expected 5"):
        producers.check(header(1, 0, 6))


def test_truncation_takes_back_what_was_written() -> None:
    producers = Producers()
    for at in range(8):
        producers.written(100 * at, header(1, 3, at))
    producers.truncate(600)
    assert producers.check(header(1, 3, 6)) is None
    repeated = producers.check(header(1, 3, 5))
    assert repeated is not None and repeated.base_offset == 500
    producers.truncate(0)
    assert producers.check(header(1, 3, 77)) is None  # nothing known but the epoch
    with pytest.raises(InvalidProducerEpoch):
        producers.check(header(1, 2, 0))


def test_forgetting() -> None:
    producers = Producers()
    producers.written(0, header(1, 0, 0))
    producers.written(100, header(2, 0, 0)._replace(max_timestamp_ms=50))
    producers.forget_idle(6)
    assert [*producers.snapshot()] == [2]
    producers.forget_idle(51)
    assert not producers.snapshot()


def test_what_lies_in_several_segments_is_one_window() -> None:
    """A walk finds a producer's batches segment by segment, the newest first, or one in the middle (a refill)."""
    whole = Producers()
    parts = [Producers() for _ in range(3)]
    for at in range(7):
        whole.written(100 * at, header(1, 3, at))
        parts[at % 3].written(100 * at, header(1, 3, at))
    merged = parts[2]
    merged.merge(parts[0].snapshot())
    merged.merge(parts[1].snapshot())
    merged.merge(parts[1].snapshot())
    assert merged.snapshot() == whole.snapshot()
    merged.merge({1: Producer(2, (), 9), 5: Producer(0, (), 9)})
    known = merged.snapshot()
    assert known[1] == whole.snapshot()[1] and 5 in known
    merged.merge({1: Producer(4, (), 9)})
    assert merged.snapshot()[1] == Producer(4, (), 9)


def test_a_snapshot_does_not_change() -> None:
    producers = Producers()
    producers.written(0, header(1, 0, 0))
    before = producers.snapshot()
    again = Producers(dict(before))
    producers.written(100, header(1, 0, 1))
    assert len(before[1].batches) == 1
    assert again.check(header(1, 0, 1)) is None


def test_whose_earlier_batches_may_be_missing() -> None:
    """What is taken on trust (rule L6), an unknown id or one whose batches were cut, is not where it may not be."""
    producers = Producers()

    def is_ahead(first: int) -> bool:
        assert producers.check(header(7, 0, first, 3)) is None  # on trust
        try:
            assert producers.check(header(7, 0, first, 3), may_begin_anywhere=False) is None
        except OutOfOrderSequence as error:
            assert error.is_ahead
            return True
        return False

    assert is_ahead(23) and not is_ahead(0)
    producers.written(0, header(7, 0, 0, 3))
    assert not is_ahead(3)
    producers.truncate(0)
    assert is_ahead(3) and not is_ahead(0)
