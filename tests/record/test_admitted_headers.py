"""What a leader lets into its log, and the error that each other thing is answered with."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.errors import (
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    KlogError,
    MessageTooLarge,
    TransactionsNotServed,
    UnsupportedCodec,
    UnsupportedFormat,
)
from klog.record.admission import check_headers
from klog.record.batch import BatchHeader, read_header, write_header
from klog.record.codec import Codec
from klog.record.records import Record, decode_batch, encode_batch
from tests.record.batches import CODECS, by_kafka_python, plain, records
from tests.record.leader import MAX_BYTES, check_contents
from tests.rows import each


def changed(batch: bytes | bytearray, **fields: int) -> bytearray:
    """The batch with header fields replaced and its CRC made right again."""
    copy = bytearray(batch)
    length = len(copy) - 12
    write_header(copy, 0, read_header(copy)._replace(**fields)._replace(batch_length=length))
    return copy


@given(records(), st.sampled_from(CODECS))
def test_what_is_encoded_passes(rows: list[Record], codec: Codec) -> None:
    batch = encode_batch(rows, codec=codec)
    before = bytes(batch)
    assert check_headers(memoryview(batch), MAX_BYTES) == [read_header(batch)]
    assert batch == before


@each("codec", CODECS)
def test_what_another_client_encodes_passes(codec: Codec) -> None:
    batch = by_kafka_python(plain(30), codec, producer_id=9, producer_epoch=0, base_sequence=0)
    assert check_headers(memoryview(batch), MAX_BYTES) == [read_header(batch)]


def test_several_batches_in_one_set() -> None:
    batches = [encode_batch(plain(count)) for count in (3, 1, 20)]
    headers = check_headers(memoryview(b"".join(batches)), MAX_BYTES)
    assert [header.count for header in headers] == [3, 1, 20]
    assert [header.size_bytes for header in headers] == [len(batch) for batch in batches]


def test_more_batches_than_a_request_may_have() -> None:
    three = memoryview(b"".join(encode_batch(plain(1)) for _ in range(3)))
    assert len(check_headers(three, MAX_BYTES, 3)) == 3
    with pytest.raises(InvalidRecord):
        check_headers(three, MAX_BYTES, 2)


ONE = encode_batch(plain(4))
PACKED = encode_batch(plain(40), codec=Codec.ZSTD)
REFUSED: list[tuple[str, Callable[[], bytes | bytearray], type[KlogError], str]] = [
    ("nothing", lambda: b"", InvalidRecord, "batch"),
    ("part of a header", lambda: ONE[:40], CorruptBatch, "40 bytes"),
    ("part of a batch", lambda: ONE[:-1], CorruptBatch, "only"),
    ("bytes behind", lambda: ONE + b"\x00", CorruptBatch, "1 bytes"),
    ("a cut second batch", lambda: ONE + ONE[:-3], CorruptBatch, "only"),
    ("no length", lambda: bytes(200), CorruptBatch, "12 bytes"),
    ("a negative length", lambda: ONE[:8] + b"\xff\xff\xff\x00" + ONE[12:], CorruptBatch, "-[0-9]"),
    ("a wrong CRC", lambda: ONE[:-1] + b"!", CorruptBatch, "CRC"),
    ("magic 0", lambda: ONE[:16] + b"\x00" + ONE[17:], UnsupportedFormat, "magic"),
    ("magic 1", lambda: ONE[:16] + b"\x01" + ONE[17:], UnsupportedFormat, "magic"),
    ("magic 3", lambda: ONE[:16] + b"\x03" + ONE[17:], UnsupportedFormat, "magic"),
    ("no records", lambda: changed(ONE, count=0, last_offset_delta=-1), InvalidRecord, "0 records"),
    ("a negative count", lambda: changed(ONE, count=-5, last_offset_delta=-6), InvalidRecord, "-5 records"),
    ("gaps in its offsets", lambda: changed(ONE, last_offset_delta=9), InvalidRecord, r"delta 9\b"),
    ("more than fit", lambda: changed(ONE, count=5_000, last_offset_delta=4_999), InvalidRecord, "cannot hold"),
    (
        "a claim that would take all addresses",
        lambda: changed(PACKED, count=2**31 - 1, last_offset_delta=2**31 - 2),
        InvalidRecord,
        "cannot hold",
    ),
    ("an unknown codec", lambda: changed(ONE, attributes=6), UnsupportedCodec, "6"),
    ("a control batch", lambda: changed(ONE, attributes=0x20), InvalidRecord, "control"),
    ("a transaction", lambda: changed(ONE, attributes=0x10), TransactionsNotServed, "transactional"),
    ("log append time", lambda: changed(ONE, attributes=0x08), InvalidTimestamp, "LogAppendTime"),
    ("a time before all", lambda: changed(ONE, base_timestamp_ms=-2), InvalidTimestamp, "-2"),
    ("a last time before all", lambda: changed(ONE, max_timestamp_ms=-9), InvalidTimestamp, "-9"),
    ("a producer without sequence", lambda: changed(ONE, producer_id=5), InvalidRecord, "base sequence -1"),
]


@each(("batch", "error", "words"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_refused(batch: Callable[[], bytes | bytearray], error: type[KlogError], words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        check_headers(memoryview(batch()), MAX_BYTES)
    assert type(caught.value) is error


def test_refused_as_the_second_batch_too() -> None:
    for name, batch, error, _ in REFUSED[4:]:
        with pytest.raises(error):
            check_headers(memoryview(PACKED + batch()), MAX_BYTES)
            pytest.fail(f"{name} passed behind a good batch")


def test_the_size_limit_is_each_batchs_and_both_sizes_are_named() -> None:
    size = len(ONE)
    assert len(check_headers(memoryview(ONE * 3), size)) == 3
    with pytest.raises(MessageTooLarge, match=rf"\b{size} .*\b{size - 1}\b"):
        check_headers(memoryview(ONE), size - 1)


@each("codec", CODECS)
def test_every_flipped_byte_is_found(codec: Codec) -> None:
    """Every byte but the two fields that a leader writes itself."""
    batch = encode_batch(plain(6), codec=codec)
    for at in range(8, len(batch)):
        if 12 <= at < 16:
            continue
        for bit in (0x01, 0x40):
            batch[at] ^= bit
            with pytest.raises((CorruptBatch, UnsupportedFormat)):
                check_headers(memoryview(batch), MAX_BYTES)
                pytest.fail(f"bit {bit:#x} of byte {at} was not missed")
            batch[at] ^= bit


def test_every_cut_is_found() -> None:
    batch = PACKED + ONE
    whole = (len(PACKED), len(batch))
    for cut in range(1, len(batch)):
        if cut not in whole:
            with pytest.raises(CorruptBatch):
                check_headers(memoryview(batch)[:cut], MAX_BYTES)


@given(st.binary(min_size=1, max_size=300))
def test_random_bytes_are_corrupt_or_of_an_old_format(data: bytes) -> None:
    with pytest.raises((CorruptBatch, UnsupportedFormat)):
        check_headers(memoryview(data), MAX_BYTES)


@given(st.data())
def test_any_header_with_a_right_crc_is_judged(data: st.DataObject) -> None:
    """A CRC proves no good will: whatever the fields say, the answer is an error of the tree or a sane header."""
    fields = {
        "attributes": data.draw(st.integers(-(2**15), 2**15 - 1)),
        "count": data.draw(st.integers(-(2**31), 2**31 - 1) | st.integers(1, 5)),
        "last_offset_delta": data.draw(st.integers(-(2**31), 2**31 - 1) | st.integers(0, 4)),
        "base_timestamp_ms": data.draw(st.integers(-(2**63), 2**63 - 1)),
        "max_timestamp_ms": data.draw(st.integers(-(2**63), 2**63 - 1)),
        "producer_id": data.draw(st.integers(-(2**63), 2**63 - 1)),
        "base_sequence": data.draw(st.integers(-(2**31), 2**31 - 1)),
    }
    try:
        (header,) = check_headers(memoryview(changed(ONE, **fields)), MAX_BYTES)
    except KlogError:
        return
    assert isinstance(header, BatchHeader)
    assert header.last_offset_delta == header.count - 1 >= 0
    assert min(header.max_timestamp_ms, header.base_timestamp_ms) >= -1


@each("codec", CODECS)
def test_a_largest_timestamp_that_was_left_out_is_filled_in(codec: Codec) -> None:
    rows = plain(5)
    rows[2] = rows[2]._replace(timestamp_ms=rows[0].timestamp_ms + 5_000)
    good = encode_batch(rows, codec=codec)
    batch = changed(good, max_timestamp_ms=-1)
    (header,) = check_contents(memoryview(batch))
    assert header.max_timestamp_ms == rows[2].timestamp_ms
    assert batch == good
    assert header == read_header(batch)


def test_no_timestamps_at_all() -> None:
    rows = [row._replace(timestamp_ms=-1) for row in plain(3)]
    (header,) = check_contents(memoryview(encode_batch(rows)))
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (-1, -1)
    assert [record.timestamp_ms for record in decode_batch(encode_batch(rows))] == [-1, -1, -1]


@each("base_ms", [2**63 - 3, 2**62])
def test_a_timestamp_that_no_field_can_hold(base_ms: int) -> None:
    rows = [row._replace(timestamp_ms=row.timestamp_ms - plain(1)[0].timestamp_ms) for row in plain(5)]
    batch = changed(encode_batch(rows), base_timestamp_ms=base_ms, max_timestamp_ms=-1)
    if base_ms + 4 < 2**63:
        assert check_contents(memoryview(batch))[0].max_timestamp_ms == base_ms + 4
    else:
        with pytest.raises(InvalidTimestamp):
            check_contents(memoryview(batch))
