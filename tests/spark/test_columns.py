"""Columns decoded across a run are, value for value, what decoding record by record gives."""

from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.client.raw_fetch import Range
from klog.errors import CorruptBatch, UnsupportedFormat
from klog.export.message_columns import SCHEMA
from klog.record.batch import HEADER_BYTES, read_header, walk, write_header
from klog.record.codec import Codec
from klog.record.records import Record, decode_batch, encode_batch, varint
from klog.spark import columns as columns_module
from klog.spark.columns import BATCH_BYTES, MICROSECONDS_MAX, decode
from tests.record.batches import CODECS, by_kafka_python, plain, records

ALL = Range("rows", 3, 0, 2**62)


def one_by_one(run: bytes | bytearray, wanted: Range, columns: Sequence[str] = tuple(SCHEMA.names)) -> pa.Table:
    """The slow way."""
    rows = []
    for position, header in walk(run):
        for record in decode_batch(run, position) if not header.is_control else ():
            if wanted.from_offset <= record.offset < wanted.to_offset:
                rows.append(
                    {
                        "key": record.key,
                        "value": record.value,
                        "topic": wanted.topic,
                        "partition": wanted.partition,
                        "offset": record.offset,
                        "timestamp": record.timestamp_ms * 1000,
                        "timestampType": int(header.is_log_append_time),
                        "headers": [{"key": key, "value": value} for key, value in record.headers],
                    }
                )
    schema = pa.schema([SCHEMA.field(column) for column in columns])
    return pa.table({f.name: pa.array([row[f.name] for row in rows], f.type) for f in schema}, schema=schema)


def at_once(
    run: bytes | bytearray, wanted: Range, columns: Sequence[str] = tuple(SCHEMA.names), **how: int
) -> pa.Table:
    schema = pa.schema([SCHEMA.field(column) for column in columns])
    batches = list(decode(memoryview(run), wanted, columns, **how))
    for batch in batches:
        assert batch.schema.equals(schema)
        batch.validate(full=True)
    return pa.Table.from_batches(batches, schema=schema)


def with_crc(batch: bytearray, **fields: int) -> bytearray:
    write_header(batch, 0, read_header(batch)._replace(**fields))
    return batch


@st.composite
def runs(draw: st.DrawFn) -> bytes:
    """Batches as klog's log holds them: one behind the other, each at its own address."""
    run = bytearray()
    address = draw(st.integers(0, 2**45))
    for rows, codec, attributes in draw(
        st.lists(
            st.tuples(records(12), st.sampled_from(CODECS), st.sampled_from([0, 0, 0, 0x08, 0x20])),
            min_size=1,
            max_size=6,
        )
    ):
        batch = encode_batch(rows, codec=codec, base_offset=address)
        run += with_crc(batch, attributes=codec | attributes)
        address = read_header(batch).next_address
    return bytes(run)


@st.composite
def lengths_alike(draw: st.DrawFn) -> bytes:
    """Batches in which many records in a row are of one length, and some of them of another."""
    run = bytearray()
    address = 0
    for _ in range(draw(st.integers(1, 3))):
        segments = draw(
            st.lists(st.tuples(st.sampled_from([0, 1, 40, 53, 54, 55, 56, 57, 300]), st.integers(1, 70)), min_size=1)
        )
        sizes = [size for size, count in segments[:5] for _ in range(count)]
        rows = [Record(i, 5, None, bytes([i % 256]) * size) for i, size in enumerate(sizes)]
        run += encode_batch(rows, base_offset=address)
        address += 10**6
    return bytes(run)


@given(
    lengths_alike() | runs(),
    st.lists(st.sampled_from(SCHEMA.names), min_size=1, unique=True),
    st.integers(1, 2_000),
    st.sampled_from([7, columns_module.ROWS_AT_ONCE]),
    st.data(),
)
def test_a_run_is_its_records(
    run: bytes, columns: list[str], batch_bytes: int, rows_at_once: int, data: st.DataObject
) -> None:
    """All of them, large batches in pieces; and some columns of those in a range, in pieces of any size."""
    with patch.object(columns_module, "ROWS_AT_ONCE", rows_at_once):
        if max(header.count for _, header in walk(run)) > 7 == rows_at_once and len(list(walk(run))) == 1:
            assert all(batch.num_rows <= 7 for batch in decode(run, ALL))
        assert at_once(run, ALL) == one_by_one(run, ALL)
    offsets = sorted(record.offset for position, _ in walk(run) for record in decode_batch(run, position))
    ends = st.sampled_from(offsets) | st.integers(offsets[0] - 2, offsets[-1] + 2)
    low, high = sorted((data.draw(ends), data.draw(ends)))
    wanted = Range("rows", 3, low, high)
    assert at_once(run, wanted, columns, batch_bytes=batch_bytes) == one_by_one(run, wanted, columns)


@given(st.data())
def test_pieces_of_a_batch_that_lies_are_refused(data: st.DataObject) -> None:
    batch = encode_batch([Record(0, 5, None, bytes(number % 5)) for number in range(40)])
    lies = data.draw(st.integers(1, 80).filter(lambda count: count != 40))
    with patch.object(columns_module, "ROWS_AT_ONCE", 7), pytest.raises(CorruptBatch):
        list(decode(with_crc(batch, count=lies), ALL))


def test_a_record_of_very_many_headers_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns_module, "HEADERS_MAX", 20)
    rows = [Record(0, 5, None, b"v", [("", None)] * count) for count in (3, 20)]
    assert at_once(encode_batch(rows), ALL).num_rows == 2
    with pytest.raises(CorruptBatch, match="21 headers"):
        list(decode(encode_batch([*rows, Record(0, 5, None, b"v", [("", None)] * 21)]), ALL))


@given(records(), st.sampled_from(CODECS))
def test_what_another_client_wrote(rows: list[Record], codec: Codec) -> None:
    run = by_kafka_python(rows, codec)
    assert at_once(run, ALL) == one_by_one(run, ALL)


def test_lengths_of_one_two_and_three_bytes() -> None:
    sizes = [0, 1, 40, 55, 57, 63, 64, 65, 8_000, 8_180, 8_192, 8_200, 1_048_570, 1_048_580, 3]
    rows = [Record(i, 5, bytes(size), bytes([i]) * size) for i, size in enumerate(sizes)]
    run = encode_batch(rows)
    assert at_once(run, ALL) == one_by_one(run, ALL)
    assert len(run) > 3_000_000


def check_agreement(batch: bytes) -> None:
    """The same records as one by one, or refused by both."""
    try:
        expected = decode_batch(batch)
    except CorruptBatch:
        with pytest.raises(CorruptBatch):
            list(decode(batch, ALL))
        return
    if all(abs(record.timestamp_ms) <= MICROSECONDS_MAX for record in expected):
        assert at_once(batch, ALL) == one_by_one(batch, ALL)


@given(st.integers(17, 60), st.sampled_from([0, 3, 54, 56, 60]), st.data())
def test_any_byte_changed_of_records_of_one_length(count: int, size: int, data: st.DataObject) -> None:
    batch = encode_batch([Record(i, 5, None, bytes(size)) for i in range(count)])
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(61, len(batch) - 1))] = data.draw(st.integers(0, 255))
    check_agreement(with_crc(batch))


def test_offsets_and_timestamps_of_many_bytes() -> None:
    rows = [row._replace(timestamp_ms=7 ** (i % 19)) for i, row in enumerate(plain(2_000))]
    run = encode_batch(rows, codec=Codec.LZ4)
    assert at_once(run, ALL) == one_by_one(run, ALL)


def test_headers_that_differ_in_number() -> None:
    for many in (1, 3, 9, 40, 1_000):
        rows = [
            row._replace(headers=tuple((f"h{n}", None if n % 5 == 0 else b"%d" % n) for n in range(i * many % 47)))
            for i, row in enumerate(plain(200))
        ]
        rows[77] = rows[77]._replace(headers=tuple(("x", b"y") for _ in range(many)))
        run = encode_batch(rows)
        assert at_once(run, ALL, ["offset", "headers"]) == one_by_one(run, ALL, ["offset", "headers"]), many


def test_a_header_name_that_is_no_utf8() -> None:
    batch = encode_batch([Record(i, 1, None, b"", (("ab", b"x"),)) for i in range(30)])
    at = batch.index(b"ab")
    batch[at : at + 2] = b"\xffb"
    with_crc(batch)
    assert at_once(batch, ALL) == one_by_one(batch, ALL)
    assert at_once(batch, ALL)["headers"][0].as_py() == [{"key": "\ufffdb", "value": b"x"}]


def test_a_time_beyond_microseconds_is_the_last_that_there_is() -> None:
    run = encode_batch([Record(0, 2**62, None, b""), Record(1, 5, None, b"")])
    found = at_once(run, ALL)["timestamp"].cast(pa.int64()).to_pylist()
    assert found == [MICROSECONDS_MAX * 1000, 5_000]


def test_nothing_yields_nothing() -> None:
    run = encode_batch(plain(3), base_offset=100)
    assert list(decode(b"", ALL)) == []
    assert list(decode(run, Range("rows", 0, 103, 200))) == []
    assert list(decode(run, Range("rows", 0, 0, 100))) == []


def test_pieces_keep_to_the_bound() -> None:
    run = b"".join(bytes(encode_batch(plain(500, value_bytes=200), base_offset=i * 10**6)) for i in range(100))
    pieces = list(decode(run, ALL))
    assert sum(piece.num_rows for piece in pieces) == 50_000
    assert len(pieces) > 1
    assert all(piece.nbytes < 1.2 * BATCH_BYTES for piece in pieces)


# --- What lies ---


def test_a_wrong_crc() -> None:
    run = encode_batch(plain(3))
    run[-1] ^= 1
    with pytest.raises(CorruptBatch, match="CRC"):
        list(decode(run, ALL))


@pytest.mark.parametrize("count", [1, 40])
def test_bytes_behind_the_last_field_of_a_record(count: int) -> None:
    """Whatever columns are asked for: a record that is longer than its fields is no record."""
    record = varint(8) + bytes([0, 0, 0, 1, 0]) + b"\x00\x07\x07"
    batch = encode_batch(plain(count))[:HEADER_BYTES] + record * count
    with_crc(batch, batch_length=len(batch) - 12)
    with pytest.raises(CorruptBatch, match=r"byte \d+"):
        decode_batch(batch)
    for columns in (SCHEMA.names, ["offset"], ["value"]):
        with pytest.raises(CorruptBatch, match="headers"):
            list(decode(batch, ALL, columns))


def test_an_old_format() -> None:
    run = encode_batch(plain(3))
    run[16] = 1
    with pytest.raises(UnsupportedFormat):
        list(decode(run, ALL))


@given(records(6), st.sampled_from([Codec.NONE, Codec.NONE, Codec.ZSTD]), st.data())
def test_any_byte_of_the_records_changed(rows: list[Record], codec: Codec, data: st.DataObject) -> None:
    """Under a right CRC: the same records as one by one, or refused by both."""
    batch = encode_batch(rows, codec=codec)
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(61, len(batch) - 1))] ^= data.draw(st.integers(1, 255))
    check_agreement(with_crc(batch))


def test_a_batch_that_was_emptied() -> None:
    emptied = with_crc(encode_batch(plain(1), base_offset=5)[:61], batch_length=49, count=0, last_offset_delta=7)
    run = emptied + encode_batch(plain(4), base_offset=20)
    assert at_once(run, ALL)["offset"].to_pylist() == [20, 21, 22, 23]
    assert list(decode(emptied, ALL)) == []


@given(st.binary(max_size=200), st.integers(1, 40))
def test_random_records(body: bytes, count: int) -> None:
    batch = encode_batch(plain(1))[:61] + body
    with_crc(batch, batch_length=len(batch) - 12, count=count, last_offset_delta=count - 1)
    try:
        expected = decode_batch(batch)
    except CorruptBatch:
        expected = []
    if expected:
        assert at_once(batch, ALL)["value"].to_pylist() == [record.value for record in expected]
    else:
        with pytest.raises(CorruptBatch):
            list(decode(batch, ALL))


def test_a_number_without_end() -> None:
    body = varint(20) + b"\x00" + b"\xff" * 19
    batch = encode_batch(plain(1))[:61] + body
    with_crc(batch, batch_length=len(batch) - 12)
    with pytest.raises(CorruptBatch, match="within 10 bytes"):
        list(decode(batch, ALL))


def test_no_value_is_shared_with_the_run() -> None:
    """The run is a receive buffer: it may be written over as soon as its columns are made."""
    run = encode_batch(plain(50))
    (piece,) = list(decode(run, ALL))
    before = piece.to_pylist()
    run[:] = np.random.default_rng(0).bytes(len(run))
    assert piece.to_pylist() == before
