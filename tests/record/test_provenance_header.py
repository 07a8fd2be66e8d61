"""The header that says where a copied message comes from: put in by the fast way, held equal to decoder and encoder."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from klog.errors import CorruptBatch, MessageTooLarge
from klog.record.admission import check_headers, unpacked_bytes_max
from klog.record.batch import CONTROL, LOG_APPEND_TIME, read_header, walk, write_header
from klog.record.codec import Codec
from klog.record.compression import compress
from klog.record.provenance_header import (
    HEADER_NAME,
    Marker,
    Source,
    copies_of,
    mark_of,
    parse,
)
from klog.record.records import Record, decode_batch, encode_batch, encode_record
from tests.record.batches import CODECS, moved, plain, records
from tests.record.leader import LIMITS, check_contents
from tests.rows import each

SOURCE = Source("AbCdEfGhIjKlMnOpQrStUv", "orders.eu", 3)
LARGEST = 2**63 - 1


def the_run(batches: list[list[Record]], base_offset: int, codec: Codec = Codec.NONE) -> tuple[bytes, list[Record]]:
    """Batches one behind the other as a log has them, with holes between them, and the records as they are read."""
    run, rows = bytearray(), []
    for batch in batches:
        run += encode_batch(batch, codec=codec, base_offset=base_offset, producer_id=7, base_sequence=0)
        rows += moved(batch, base_offset)
        base_offset += len(batch) + 40
    return bytes(run), rows


def decoded(run: bytes) -> list[Record]:
    return [record for position, _ in walk(run) for record in decode_batch(run, position)]


def expected(rows: list[Record], from_offset: int, to_offset: int, messages_max: int) -> list[Record]:
    """The plain way: what is wanted, each with one header more."""
    wanted = [row for row in rows if from_offset <= row.offset < to_offset][:messages_max]
    marker = Marker(SOURCE)
    return [row._replace(headers=(*row.headers, marker.header(row.offset))) for row in wanted]


def without_offsets(rows: list[Record]) -> list[tuple[Record, tuple[bytes, int] | None]]:
    """As they are but for their offsets here; and what their marks say, which may have zeros in front."""
    assert all(row.headers[-1][0] == HEADER_NAME for row in rows)
    return [(row._replace(offset=0, headers=row.headers[:-1]), mark_of(row)) for row in rows]


@given(
    st.lists(records(max_size=8), min_size=1, max_size=3),
    st.sampled_from(CODECS),
    st.sampled_from([0, 5, 93, 9_990, 2**40]),
    st.integers(-5, 150),
    st.integers(0, 200),
    st.integers(1, 40) | st.just(LARGEST),
    st.just(LARGEST) | st.integers(700, 2000),
)
@example([plain(70)], Codec.NONE, 9_990, 0, 200, LARGEST, 2000)
@example([plain(70, value_bytes=300)], Codec.ZSTD, 0, 0, 200, LARGEST, 2000)
def test_marked_as_decoder_and_encoder_would(
    batches: list[list[Record]], codec: Codec, base: int, begin: int, span: int, messages_max: int, bytes_max: int
) -> None:
    run, rows = the_run(batches, base, codec)
    marker = Marker(SOURCE, batch_bytes_max=bytes_max)
    from_offset, to_offset = base + begin, base + begin + span
    wanted = expected(rows, from_offset, to_offset, messages_max)
    try:
        marked = marker.mark(memoryview(run), from_offset, to_offset, messages_max=messages_max)
    except MessageTooLarge:
        assert any(len(encode_batch([row])) > bytes_max or codec for row in wanted)
        return
    assert without_offsets(decoded(marked.records)) == without_offsets(wanted)
    assert marked.messages == len(wanted)
    assert (marked.first_offset, marked.last_offset) == ((wanted[0].offset, wanted[-1].offset) if wanted else (-1, -1))
    for _, header in walk(marked.records):
        assert header.codec is codec
        assert header.size_bytes <= bytes_max
        assert not header.has_producer
    for position, header in walk(marked.records):
        times = [row.timestamp_ms for row in decode_batch(marked.records, position)]
        assert header.max_timestamp_ms == max(times)
    if wanted:
        check_headers(memoryview(bytearray(marked.records)), bytes_max)
    # Going on behind it comes to the rest, and to nothing twice.
    rest = Marker(SOURCE).mark(memoryview(run), marked.next_offset, to_offset)
    assert marked.messages + rest.messages == len(expected(rows, from_offset, to_offset, LARGEST))
    if any(header.base_offset >= to_offset for _, header in walk(run)):
        assert rest.next_offset >= to_offset  # nothing is left of it, although its last message lies further in front


@given(records(max_size=20), st.sampled_from(CODECS), st.data())
def test_what_compaction_has_left(rows: list[Record], codec: Codec, data: st.DataObject) -> None:
    """A batch keeps the offsets of the records that are left; in the copy they are numbered anew."""
    kept = data.draw(st.lists(st.sampled_from(rows), min_size=1, unique_by=lambda row: row.offset))
    kept.sort(key=lambda row: row.offset)
    base_ms = rows[0].timestamp_ms
    body = b"".join(encode_record(row, row.offset, base_ms) for row in kept)
    batch = bytearray(encode_batch(rows, base_offset=1000)[:61]) + compress(codec, body)
    header = read_header(batch)._replace(batch_length=len(batch) - 12, attributes=codec, count=len(kept))
    write_header(batch, 0, header)
    marked = Marker(SOURCE).mark(memoryview(bytes(batch)), 0)
    wanted = expected(moved(kept, 1000), 0, LARGEST, LARGEST)
    assert without_offsets(decoded(marked.records)) == without_offsets(wanted)
    assert marked.next_offset == 1000 + len(rows)
    check_headers(memoryview(bytearray(marked.records)), LARGEST)


def test_times_set_by_the_broker_are_kept_as_the_messages_own() -> None:
    batch = encode_batch(plain(5), base_offset=10)
    write_header(batch, 0, read_header(batch)._replace(attributes=LOG_APPEND_TIME, max_timestamp_ms=1_800_000_000_000))
    marked = Marker(SOURCE).mark(memoryview(bytes(batch)), 0)
    assert {row.timestamp_ms for row in decoded(marked.records)} == {1_800_000_000_000}
    check_headers(memoryview(bytearray(marked.records)), LARGEST)


def test_control_batches_are_passed_over() -> None:
    control = encode_batch(plain(1), base_offset=10)
    write_header(control, 0, read_header(control)._replace(attributes=CONTROL))
    run = bytes(control) + bytes(encode_batch(plain(2), base_offset=11))
    marked = Marker(SOURCE).mark(memoryview(run), 10)
    assert (marked.messages, marked.first_offset, marked.next_offset) == (2, 11, 13)
    alone = Marker(SOURCE).mark(memoryview(bytes(control)), 10)
    assert (alone.records, alone.messages, alone.next_offset) == (b"", 0, 11)


@each("codec", CODECS)
@each("wanted", CODECS)
@each("bytes_max", [700, LARGEST])
@each("to_offset", [65, 70])
def test_another_codec(codec: Codec, wanted: Codec, bytes_max: int, to_offset: int) -> None:
    """Of a whole batch, of a part of one, and of one that is cut."""
    run, rows = the_run([plain(70)], 0, codec)
    marked = Marker(SOURCE, batch_bytes_max=bytes_max, codec=wanted).mark(memoryview(run), 0, to_offset)
    assert {header.codec for _, header in walk(marked.records)} == {wanted}
    assert without_offsets(decoded(marked.records)) == without_offsets(expected(rows, 0, to_offset, LARGEST))
    check_headers(memoryview(bytearray(marked.records)), bytes_max)


@given(records(max_size=5), st.data())
def test_damage_is_not_made_good(rows: list[Record], data: st.DataObject) -> None:
    batch = encode_batch(rows)
    place = data.draw(st.integers(21, len(batch) - 1))
    batch[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptBatch):
        Marker(SOURCE).mark(memoryview(bytes(batch)), 0)


@each("place", [23, 60, 70])
def test_what_lies_in_front_of_damage_is_given_first(place: int) -> None:
    """Byte 23 is the sign of the last offset: such a batch seems to end before it begins."""
    run, damaged = encode_batch(plain(3)), encode_batch(plain(2), base_offset=3)
    damaged[place] ^= 0x80
    both = memoryview(bytes(run + damaged))
    marked = Marker(SOURCE).mark(both, 1)
    assert (marked.messages, marked.last_offset, marked.next_offset) == (2, 2, 3)
    with pytest.raises(CorruptBatch):
        Marker(SOURCE).mark(both, 3)
    with pytest.raises(CorruptBatch):
        list(copies_of(SOURCE, both, 3))


@given(st.lists(records(max_size=8), min_size=1, max_size=4), st.sampled_from(CODECS), st.integers(0, 60))
def test_a_log_of_copies_says_how_far_each_source_is_copied(
    batches: list[list[Record]], codec: Codec, from_offset: int
) -> None:
    sources = [SOURCE, Source("other", "orders.eu", 3)]
    log = bytearray()
    copied: dict[Source, list[tuple[int, int]]] = {one: [] for one in sources}
    for number, batch in enumerate(batches):
        source = sources[number % 2]
        run, rows = the_run([batch], 100 * number, codec)
        base = 20 * number
        marked = bytearray(Marker(source).mark(memoryview(run), 0).records)
        write_header(marked, 0, read_header(marked)._replace(base_offset=base))
        log += marked
        copied[source] += [(row.offset, base + at) for at, row in enumerate(rows) if base + at >= from_offset]
    log += encode_batch(plain(3), base_offset=20 * len(batches))  # and somebody's own
    for source, wanted in copied.items():
        found = copies_of(source, memoryview(bytes(log)), from_offset)
        assert [(one.there, one.record.offset) for one in found] == wanted


def test_the_last_copy_is_the_one_that_counts() -> None:
    """A message that was copied from A to B and from there to C: in C it is B's."""
    first, _ = the_run([plain(1)], 5)
    once = Marker(SOURCE).mark(memoryview(first), 0).records
    twice = Marker(Source("second", "t", 0)).mark(memoryview(once), 0).records
    (record,) = decoded(twice)
    assert len(record.headers) == 2
    assert mark_of(record) == (Source("second", "t", 0).key, 0)


@each("content", [b"", b"123456", b"123456123456789"])
def test_a_header_of_somebody_elses(content: bytes) -> None:
    assert parse(content) is None


def test_a_mark_is_small() -> None:
    """Messages of 20 bytes, behind 100 GB: less than as much again."""
    rows = [Record(number, 1, None, b"%020d" % number) for number in range(1000)]
    run = bytes(encode_batch(rows, base_offset=100 * 1024**3))
    marked = Marker(SOURCE).mark(memoryview(run), 0)
    assert marked.messages == 1000
    assert (len(marked.records) - len(run)) / 1000 <= 18


@each("begin", [0, 1], ids=["whole", "a part"])
def test_batches_that_unpack_to_more_than_the_target_takes_are_cut(begin: int) -> None:
    rows = [Record(at, 1_700_000_000_000 + at, None, bytes(1 << 20)) for at in range(20)]
    run = encode_batch(rows, codec=Codec.ZSTD)
    bytes_max = 100_000
    marked = Marker(SOURCE, batch_bytes_max=bytes_max).mark(memoryview(run), begin)
    assert marked.messages == 20 - begin
    limits = LIMITS._replace(batch_bytes_max=bytes_max, unpacked_bytes_max=unpacked_bytes_max(bytes_max))
    headers = check_contents(memoryview(bytearray(marked.records)), limits)
    assert len(headers) == 2
    huge = encode_batch([Record(0, 5, None, bytes(17 << 20))], codec=Codec.ZSTD)
    with pytest.raises(MessageTooLarge, match="16777216"):
        Marker(SOURCE, batch_bytes_max=bytes_max).mark(memoryview(huge), 0)
