"""The load client's own idea of the protocol, held against klog's, and against the server that does nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import wire
from bench.consume import ConsumeFailed, consume, consume_together
from bench.null_broker import FETCHED_BATCHES, FETCHED_MESSAGES
from bench.produce import Shape, fill, produce, pump
from bench.run import null_system
from klog.record.admission import check_headers
from klog.record.records import decode_batch
from tests.rows import each

A_FETCH = FETCHED_BATCHES * FETCHED_MESSAGES


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    with null_system(tmp_path) as system:
        yield system.port


@each(("count", "value_bytes"), [(1, 0), (1, 1), (50, 200), (3, 70_000)])
def test_a_built_batch_is_one_that_a_leader_takes(count: int, value_bytes: int) -> None:
    batch = bytearray(wire.build_batch(count, value_bytes))
    (header,) = check_headers(memoryview(batch), 1 << 20)
    records = decode_batch(batch)
    assert header.count == count
    assert [record.offset for record in records] == list(range(count))
    assert {record.value for record in records} == {b"v" * value_bytes}


def test_a_changed_batch_is_refused_so_the_check_means_something() -> None:
    batch = bytearray(wire.build_batch(2, 10))
    batch[-1] ^= 1
    with pytest.raises(Exception, match="CRC"):
        check_headers(memoryview(batch), 1 << 20)


def test_producers_reach_a_server_that_does_nothing(port: int) -> None:
    assert pump(port, "t", 10, 100, 50, seconds=0.05).messages > 0
    assert produce(port, "t", Shape(50, queue=1000), seconds=0.05).messages > 0
    assert fill(port, "t", 80, 200, 80 * 200 * 3 - 1) == 240


def test_consumers_count_what_they_throw_away(port: int) -> None:
    load = consume_together(port, "t", 2 * A_FETCH, consumers=3, passes=2)
    assert load.messages == 3 * 2 * 2 * A_FETCH
    assert load.value_bytes > load.messages * 200


def test_a_consumer_that_gets_more_than_there_is_says_so(port: int) -> None:
    with pytest.raises(ConsumeFailed, match=f"{A_FETCH} messages, not {A_FETCH - 1}"):
        consume(port, "t", A_FETCH - 1)


def test_nobody_there_is_an_answer_too() -> None:
    with pytest.raises(wire.NoAnswer, match="the process ended"):
        wire.produce_until_acknowledged(1, "t", 5, alive=lambda: False)
