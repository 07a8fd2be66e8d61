"""Records: what goes in comes out, other encoders' batches too, and what lies is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch
from kio.records.readers import read_batch as kio_read_batch

from klog.errors import CorruptBatch, UnsupportedCodec, UnsupportedFormat
from klog.record.batch import check_crc, read_header, walk
from klog.record.codec import Codec
from klog.record.records import Record, decode_batch, encode_batch, read_varint, record_times, varint
from tests.record.batches import CODECS, by_kafka_python, moved, plain, records
from tests.rows import each

BODY_FROM = 61


@given(records(), st.sampled_from(CODECS), st.integers(0, 2**50))
def test_round_trip(rows: list[Record], codec: Codec, base_offset: int) -> None:
    batch = encode_batch(rows, codec=codec, base_offset=base_offset, producer_id=5, producer_epoch=1, base_sequence=8)
    header = read_header(batch)
    check_crc(batch, 0, header)
    assert (header.count, header.codec, header.size_bytes) == (len(rows), codec, len(batch))
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (
        rows[0].timestamp_ms,
        max(row.timestamp_ms for row in rows),
    )
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, 8)
    assert decode_batch(batch) == moved(rows, base_offset)


@given(st.lists(records(max_size=5), min_size=1, max_size=4), st.sampled_from(CODECS))
def test_several_batches_in_one_buffer(sets: list[list[Record]], codec: Codec) -> None:
    buffer = memoryview(b"".join(encode_batch(rows, codec=codec) for rows in sets))
    assert [decode_batch(buffer, position) for position, _ in walk(buffer)] == sets


@given(records(), st.sampled_from(CODECS))
def test_reads_what_kafka_python_writes(rows: list[Record], codec: Codec) -> None:
    assert decode_batch(by_kafka_python(rows, codec)) == rows


@given(records(), st.sampled_from(CODECS))
def test_kafka_python_reads_what_is_written(rows: list[Record], codec: Codec) -> None:
    found = DefaultRecordBatch(bytes(encode_batch(rows, codec=codec, base_offset=40)))
    assert found.validate_crc()
    assert [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in found] == moved(rows, 40)


def test_an_uncompressed_batch_is_byte_for_byte_kafka_pythons() -> None:
    rows = [Record(0, 1_700_000_000_000, None, b"v" * 200, (("h", b"x"), ("h", None))), *moved(plain(3), 1)]
    ours, theirs = encode_batch(rows), by_kafka_python(rows)
    assert ours[:12] == theirs[:12]
    assert ours[16:] == theirs[16:]  # but the leader epoch, which a producer does not know


@given(records())
def test_kio_reads_what_is_written(rows: list[Record]) -> None:
    # kio keeps whole seconds only, and no timestamp beyond datetime's.
    rows = [row._replace(timestamp_ms=row.timestamp_ms % 10**12 // 1000 * 1000) for row in rows]
    batch = encode_batch(rows, base_offset=9, leader_epoch=3)
    found, size = kio_read_batch(bytes(batch), 0)
    assert size == len(batch)
    assert found.partition_leader_epoch == 3
    assert [
        Record(
            record.offset,
            round(record.timestamp.timestamp() * 1000),
            record.key,
            record.value,
            tuple((header.key.decode(), header.value) for header in record.headers),
        )
        for record in found.records
    ] == moved(rows, 9)


def test_log_append_time_is_every_records_time() -> None:
    batch = encode_batch(plain(3))
    batch[22] |= 0x08
    newest = read_header(batch).max_timestamp_ms
    assert [record.timestamp_ms for record in decode_batch(batch)] == [newest] * 3


def test_a_header_name_that_is_no_utf8_is_shown_marked() -> None:
    batch = encode_batch([Record(0, 1, None, b"", (("ab", b"x"),))])
    at = batch.index(b"ab")
    batch[at : at + 2] = b"\xffb"
    assert decode_batch(batch)[0].headers == (("\ufffdb", b"x"),)


@given(records(), st.sampled_from(CODECS), st.sampled_from([0, 0x08]))
def test_times_are_those_of_the_records(rows: list[Record], codec: Codec, attributes: int) -> None:
    batch = encode_batch(rows, codec=codec, base_offset=70)
    batch[22] |= attributes
    assert list(record_times(batch)) == [(record.offset, record.timestamp_ms) for record in decode_batch(batch)]


@given(st.binary(max_size=300), st.integers(-3, 60))
def test_times_of_random_records(body: bytes, count: int) -> None:
    batch = encode_batch(plain(1))[:BODY_FROM] + body
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    try:
        assert len(list(record_times(batch))) == count
    except CorruptBatch:
        with pytest.raises(CorruptBatch):
            decode_batch(batch)


def test_an_empty_batch_is_a_programming_error() -> None:
    with pytest.raises(ValueError, match="record"):
        encode_batch([])


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_hold_64_bits(value: int) -> None:
    data = varint(value)
    assert read_varint(data, 0, 10) == (value, len(data))
    assert read_varint(b"\x80" + data, 1, 10) == (value, len(data) + 1)
    for cut in range(len(data)):
        with pytest.raises(CorruptBatch):
            read_varint(data[:cut], 0, 10)


def test_a_varint_without_end() -> None:
    with pytest.raises(CorruptBatch, match=r"\b5 bytes"):
        read_varint(b"\xff" * 20, 0)


@given(records(max_size=4), st.data())
def test_any_byte_of_the_records_changed(rows: list[Record], data: st.DataObject) -> None:
    """Without the CRC's help: other records, or CorruptBatch; never another error, never a read past the batch."""
    batch = encode_batch(rows)
    batch[data.draw(st.integers(BODY_FROM, len(batch) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        found = decode_batch(batch)
    except CorruptBatch:
        return
    assert len(found) == len(rows)


@given(st.sampled_from(CODECS), st.binary(max_size=300), st.integers(-3, 60))
def test_random_records(codec: Codec, body: bytes, count: int) -> None:
    batch = encode_batch(plain(1))[:BODY_FROM] + body
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[22] = codec
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    try:
        assert len(decode_batch(batch)) == count
    except CorruptBatch:
        pass


def test_every_cut() -> None:
    for codec in CODECS:
        batch = encode_batch(plain(3), codec=codec)
        for cut in range(len(batch)):
            with pytest.raises(CorruptBatch):
                decode_batch(batch[:cut])


@each(
    ("at", "value", "error"),
    [(16, 1, UnsupportedFormat), (22, 7, UnsupportedCodec), (60, 2, CorruptBatch), (60, 4, CorruptBatch)],
    ids=["magic", "codec", "one record too few", "one too many"],
)
def test_headers_that_lie(at: int, value: int, error: type[Exception]) -> None:
    batch = encode_batch(plain(3))
    batch[at] = value
    with pytest.raises(error):
        decode_batch(batch)


def test_the_bound_on_decompressed_bytes() -> None:
    batch = encode_batch(plain(100, value_bytes=1_000), codec=Codec.ZSTD)
    with pytest.raises(CorruptBatch, match="50000"):
        decode_batch(batch, 0, 50_000)
