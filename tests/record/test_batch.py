"""Headers, walking, CRC and stamping: nothing that is not a batch passes for one."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from klog.errors import CorruptBatch, UnsupportedCodec, UnsupportedFormat
from klog.record.batch import (
    CRC_FROM,
    HEADER_BYTES,
    BatchHeader,
    check_crc,
    read_header,
    stamp,
    walk,
    write_header,
)
from klog.record.codec import Codec
from klog.record.records import encode_batch
from tests.record.batches import CODECS, by_kafka_python, plain
from tests.rows import each

THREE = [
    encode_batch(plain(count), codec=codec) for count, codec in ((1, Codec.NONE), (50, Codec.ZSTD), (7, Codec.LZ4))
]


def test_a_header_reads_what_another_encoder_wrote() -> None:
    rows = plain(3)
    batch = by_kafka_python(rows, Codec.GZIP, producer_id=77, producer_epoch=5, base_sequence=1234)
    header = read_header(batch)
    assert header == BatchHeader(
        base_offset=0,
        batch_length=len(batch) - 12,
        leader_epoch=header.leader_epoch,
        magic=2,
        crc=header.crc,
        attributes=1,
        last_offset_delta=2,
        base_timestamp_ms=rows[0].timestamp_ms,
        max_timestamp_ms=rows[2].timestamp_ms,
        producer_id=77,
        producer_epoch=5,
        base_sequence=1234,
        count=3,
    )
    assert (header.size_bytes, header.codec, header.has_producer) == (len(batch), Codec.GZIP, True)
    check_crc(batch, 0, header)


def test_write_header_is_the_inverse_of_read_header() -> None:
    batch = THREE[1]
    copy = bytearray(len(batch))
    copy[HEADER_BYTES:] = batch[HEADER_BYTES:]
    write_header(copy, 0, read_header(batch)._replace(crc=0))
    assert copy == batch


@each(("size", "count", "span"), [(100, 5, 100), (100, 100, 100), (100, 9_999, 9_999)])
def test_a_batch_spans_the_larger_of_bytes_and_records(size: int, count: int, span: int) -> None:
    header = read_header(THREE[0])._replace(
        base_offset=1_000, batch_length=size - 12, count=count, last_offset_delta=count - 1
    )
    assert (header.span, header.next_address, header.last_offset) == (span, 1_000 + span, 1_000 + count - 1)


def test_a_real_zstd_batch_has_more_records_than_bytes() -> None:
    rows = [row._replace(timestamp_ms=1, key=None, value=b"0123456789") for row in plain(9_999)]
    batch = encode_batch(rows, codec=Codec.ZSTD)
    header = read_header(batch)
    assert header.size_bytes < header.count == header.span == 9_999


@given(st.binary(max_size=80))
@example(b"")
@example(b"\x00" * 60)
def test_a_header_needs_61_bytes(data: bytes) -> None:
    if len(data) >= HEADER_BYTES:
        read_header(data)
    else:
        with pytest.raises(CorruptBatch, match=rf"\b{len(data)} .*\b61\b"):
            read_header(data)


@each("number", [5, 6, 7])
def test_codecs_that_are_none(number: int) -> None:
    header = read_header(THREE[0])._replace(attributes=number)
    with pytest.raises(UnsupportedCodec, match=str(number)):
        _ = header.codec


def test_walk_finds_every_batch_and_where_it_starts() -> None:
    buffer = b"".join(THREE)
    starts = [0, len(THREE[0]), len(THREE[0]) + len(THREE[1])]
    assert [position for position, _ in walk(buffer)] == starts
    assert [header.count for _, header in walk(memoryview(buffer)[: starts[2]])] == [1, 50]
    assert list(walk(b"")) == []


def test_walk_byte_by_byte() -> None:
    """At every cut: the whole batches before it, then an error, or an end where that was asked for."""
    buffer = b"".join(THREE)
    ends = [len(THREE[0]), len(THREE[0]) + len(THREE[1]), len(buffer)]
    for cut in range(len(buffer) + 1):
        whole = sum(end <= cut for end in ends)
        assert len(list(walk(buffer[:cut], allow_partial=True))) == whole
        seen = []
        if cut in (0, *ends):
            seen = list(walk(buffer[:cut]))
        else:
            with pytest.raises(CorruptBatch):
                for found in walk(buffer[:cut]):
                    seen.append(found)
        assert len(seen) == whole


@given(st.binary(max_size=400), st.booleans())
def test_walk_over_any_bytes(data: bytes, allow_partial: bool) -> None:
    """Random bytes raise CorruptBatch or UnsupportedFormat and nothing else, and never loop."""
    try:
        found = list(walk(data, allow_partial=allow_partial))
    except (CorruptBatch, UnsupportedFormat):
        return
    assert sum(header.size_bytes for _, header in found) <= len(data)


@given(st.integers(0, 60), st.binary(min_size=1, max_size=8))
def test_walk_over_a_header_with_bytes_replaced(at: int, patch: bytes) -> None:
    buffer = bytearray(b"".join(THREE))
    buffer[at : at + len(patch)] = patch
    try:
        for position, header in walk(buffer):
            assert position + header.size_bytes <= len(buffer)
    except (CorruptBatch, UnsupportedFormat):
        pass


@each("magic", [0, 1])
def test_old_formats_are_named(magic: int) -> None:
    # A message set of one empty message: offset, size 14, crc, magic, attributes, key -1, value -1.
    old = bytes(8) + (14).to_bytes(4, "big") + bytes(4) + bytes([magic, 0]) + b"\xff" * 8
    old += bytes(HEADER_BYTES)
    with pytest.raises(UnsupportedFormat, match=f"magic\\) {magic}"):
        list(walk(old))


@each("codec", CODECS)
def test_every_flipped_byte_under_the_crc_is_found(codec: Codec) -> None:
    batch = encode_batch(plain(5), codec=codec)
    header = read_header(batch)
    check_crc(batch, 0, header)
    for at in range(CRC_FROM, len(batch)):
        for bit in (0x01, 0x80):
            batch[at] ^= bit
            with pytest.raises(CorruptBatch):
                check_crc(batch, 0, header)
            batch[at] ^= bit


def test_the_crc_of_a_batch_that_is_cut_off() -> None:
    with pytest.raises(CorruptBatch, match="only"):
        check_crc(THREE[0][:-1], 0, read_header(THREE[0]))


@given(st.integers(0, 2**62), st.integers(0, 2**31 - 1))
def test_a_stamp_changes_two_fields_and_no_crc(address: int, epoch: int) -> None:
    buffer = bytearray(b"".join(THREE))
    position = len(THREE[0])
    before = read_header(buffer, position)
    stamp(memoryview(buffer), position, address, epoch)
    after = read_header(buffer, position)
    assert after == before._replace(base_offset=address, leader_epoch=epoch)
    check_crc(buffer, position, after)
    stamp(buffer, position, before.base_offset, before.leader_epoch)
    assert buffer == b"".join(THREE)
