"""The leader's side of a partition: what moves the high watermark, and who is told what and when (rule R9)."""

from __future__ import annotations

from pathlib import Path

import pytest

from klog.errors import FencedLeaderEpoch, NotLeader, StorageError, UnknownLeaderEpoch
from klog.record.records import Record, encode_batch
from klog.storage.log import LogEnd
from tests.replication.led import NEVER, Led, Reader, Waiter, records


@pytest.fixture
def led(tmp_path: Path) -> Led:
    return Led(tmp_path / "t-0", isr=(1,))


def test_an_append_is_acknowledged_when_it_is_flushed_and_not_before(led: Led) -> None:
    waiter = Waiter()
    result = led.partition.append(records(5))
    assert led.flushes_wanted == 1
    assert not led.partition.when_committed(result.end.address, waiter)
    assert led.partition.high_watermark == LogEnd(0, 0)
    assert waiter.told == []
    led.flush()
    assert waiter.told == [None]
    assert led.partition.high_watermark == result.end
    assert led.partition.high_watermark.offset == 5  # shown: the last record + 1, not the next address
    assert led.partition.when_committed(result.end.address, Waiter())


def test_one_flush_acknowledges_all_before_it_and_none_after_it(led: Led) -> None:
    first, second, third = Waiter(), Waiter(), Waiter()
    for waiter in (first, second):
        assert not led.partition.when_committed(led.partition.append(records()).end.address, waiter)
    end = led.log.flush()
    assert not led.partition.when_committed(led.partition.append(records()).end.address, third)
    led.partition.flushed(end)
    assert (first.told, second.told, third.told) == ([None], [None], [])


def test_with_the_rule_never_to_flush_an_append_is_committed_at_once(tmp_path: Path) -> None:
    led = Led(tmp_path / "t-0", isr=(1,), flush_messages=NEVER, flush_ms=NEVER)
    result = led.partition.append(records())
    assert led.partition.when_committed(result.end.address, Waiter())
    assert led.partition.high_watermark == result.end


def test_readers_wake_when_the_high_watermark_moves_not_when_something_is_appended(led: Led) -> None:
    reader = Reader()
    led.partition.watch(reader)
    led.partition.append(records())
    assert reader.times == 0
    led.flush()
    assert reader.times == 1
    led.partition.unwatch(reader)
    led.partition.append(records())
    led.flush()
    assert reader.times == 1


def test_a_disk_that_refuses_fails_whoever_waits(led: Led) -> None:
    waiter = Waiter()
    led.partition.when_committed(led.partition.append(records()).end.address, waiter)
    error = StorageError("no disk")
    led.partition.failed(error)
    assert waiter.told == [error]


def test_who_finishes_appends_nothing_but_still_commits(led: Led) -> None:
    waiter = Waiter()
    led.partition.when_committed(led.partition.append(records()).end.address, waiter)
    led.partition.finish()
    with pytest.raises(NotLeader):
        led.partition.append(records())
    led.flush()
    assert waiter.told == [None]


def test_epochs_of_clients_are_checked(led: Led) -> None:
    led.partition.check_epoch(-1)
    led.partition.check_epoch(3)
    with pytest.raises(FencedLeaderEpoch):
        led.partition.check_epoch(2)
    with pytest.raises(UnknownLeaderEpoch):
        led.partition.check_epoch(4)


def test_a_duplicate_waits_for_the_commit_of_the_original(led: Led) -> None:
    """Rule L6: a retry that overtakes the flush must not be told that the message is safe."""

    def batch() -> memoryview:
        record = Record(0, 1000, None, b"x", ())
        return memoryview(bytearray(encode_batch([record], producer_id=7, producer_epoch=0, base_sequence=0)))

    original = led.partition.append(batch())
    repeated = led.partition.append(batch())
    assert repeated.duplicate
    assert (repeated.base_offset, repeated.end) == (original.base_offset, original.end)
    waiter = Waiter()
    assert not led.partition.when_committed(repeated.end.address, waiter)
    led.flush()
    assert waiter.told == [None]
