"""What is inside produced batches: how much, how many, and when."""

from __future__ import annotations

import gzip
import struct

import cramjam
import pytest

from klog.errors import CorruptBatch, InvalidRecord, InvalidTimestamp, MessageTooLarge
from klog.record.admission import (
    AT_ONCE_BYTES,
    AT_ONCE_RECORDS_MAX,
    AT_ONCE_SET_RECORDS,
    BATCHES_MAX,
    Limits,
    RequestBudget,
    Unread,
    admit,
    unpacked_bytes_max,
)
from klog.record.batch import BatchHeader, read_header, write_header
from klog.record.codec import Codec
from klog.record.compression import compress
from klog.record.records import Record, encode_batch, encode_record
from tests.record.batches import plain
from tests.record.leader import LIMITS, check_contents
from tests.rows import each

PACKING = [codec for codec in Codec if codec]
FIRST_MS = 1_700_000_000_000
TINY = bytes([12, 0, 0, 0, 1, 1, 0])
"""A record of nothing."""
SKIPPED = struct.pack("<II", 0x184D2A50, 1000) + bytes(1000)
"""A frame that decoders of zstd and lz4 pass over: padding, for what counts bytes before it unpacks them."""


def sealed(body: bytes | bytearray, codec: Codec, count: int, *, max_ms: int = FIRST_MS) -> bytearray:
    """A batch of this body, as it stands, that says it has ``count`` records."""
    batch = bytearray(61) + body
    write_header(
        batch,
        0,
        BatchHeader(0, len(batch) - 12, -1, 2, 0, codec, count - 1, FIRST_MS, max_ms, -1, -1, -1, count),
    )
    return batch


def body_of(count: int) -> bytes:
    return b"".join(encode_record(one, at, FIRST_MS) for at, one in enumerate(numbered(count)))


def numbered(count: int) -> list[Record]:
    return [Record(at, FIRST_MS + at, b"k" * (at % 90), b"v" * (at * 37 % 20_000)) for at in range(count)]


def check(batch: bytes | bytearray, limits: Limits = LIMITS) -> BatchHeader:
    (header,) = check_contents(memoryview(bytearray(batch)), limits)
    return header


# --- how many ---


@each("codec", PACKING)
def test_as_many_as_the_header_says(codec: Codec) -> None:
    """Lengths of one, two and three bytes."""
    assert check(sealed(compress(codec, body_of(300)), codec, 300)).count == 300


@each("codec", PACKING)
@each("said", [299, 301, 1, 4000])
def test_another_count_is_refused(codec: Codec, said: int) -> None:
    with pytest.raises(InvalidRecord, match=rf"\b{said} records"):
        check(sealed(compress(codec, body_of(300)), codec, said))


@each("value_bytes", [0, 40, 60, 100, 1_000, 20_000])
@each("odd_one", [None, 0, 1, 63, 64, 150, 299])
def test_records_that_are_alike_but_one(value_bytes: int, odd_one: int | None) -> None:
    """In rows, with one that is longer, or that is none, somewhere."""
    rows = [Record(at, FIRST_MS, None, b"v" * (value_bytes + (at == odd_one))) for at in range(300)]
    encoded = [encode_record(one, at, FIRST_MS) for at, one in enumerate(rows)]
    assert check(sealed(compress(Codec.LZ4, b"".join(encoded)), Codec.LZ4, 300)).count == 300
    for said in (299, 301):
        with pytest.raises(InvalidRecord, match=rf"\b{said} records"):
            check(sealed(compress(Codec.LZ4, b"".join(encoded)), Codec.LZ4, said))
    if odd_one is not None:
        for wrong in (encoded[odd_one][:-1], b"\x0d" + encoded[odd_one][1:], b"\x02\x00", encoded[odd_one] * 2):
            body = b"".join([*encoded[:odd_one], wrong, *encoded[odd_one + 1 :]])
            with pytest.raises(InvalidRecord):
                check(sealed(compress(Codec.LZ4, body), Codec.LZ4, 300))


@each(
    "body",
    [
        b"",
        bytes([12, 0, 0, 0, 1, 1]),
        bytes([13]) + bytes(6),  # a negative length
        bytes([10, 0, 0, 0, 1, 1]),  # shorter than any record is
        b"\x80" * 12,
        b"\xff\xff\xff\xff\x0f" + bytes(20),
        b"\x8c\x00" + bytes(6),  # six, in two bytes
        bytes([128 + 10, 0]) + bytes(5),
    ],
)
def test_what_is_no_record_is_refused(body: bytes) -> None:
    batch = sealed(compress(Codec.ZSTD, body), Codec.ZSTD, 1)
    if body[:2] == b"\x8c\x00":
        assert check(batch).count == 1
        return
    with pytest.raises(InvalidRecord):
        check(batch)


@each("codec", PACKING)
def test_what_is_not_of_its_codec_is_refused(codec: Codec) -> None:
    """Not as corrupt: that clients would send again and again."""
    with pytest.raises(InvalidRecord, match=codec.label):
        check(sealed(b"nonsense" * 5, codec, 1))


# --- how much ---


def bombs(unpacked: bytes) -> dict[str, tuple[Codec, bytes]]:
    half = unpacked[: len(unpacked) // 2]
    xerial = bytearray(b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1))
    for block in (half, half):
        packed = bytes(cramjam.snappy.compress_raw(block))
        xerial += struct.pack(">i", len(packed)) + packed
    zstd, lz4 = cramjam.zstd.compress, cramjam.lz4.compress
    return {
        "gzip": (Codec.GZIP, gzip.compress(unpacked)),
        "gzip, of two members": (Codec.GZIP, gzip.compress(half) * 2),
        "gzip, a small last member": (Codec.GZIP, gzip.compress(unpacked) + gzip.compress(TINY)),
        "snappy, raw": (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(unpacked))),
        "snappy, blocks": (Codec.SNAPPY, bytes(xerial)),
        "lz4": (Codec.LZ4, bytes(lz4(unpacked))),
        "lz4, of two frames": (Codec.LZ4, bytes(lz4(half)) * 2),
        "lz4, padded": (Codec.LZ4, SKIPPED + bytes(lz4(half)) + SKIPPED + bytes(lz4(half))),
        "zstd": (Codec.ZSTD, bytes(zstd(unpacked))),
        "zstd, of two frames": (Codec.ZSTD, bytes(zstd(half)) * 2),
        "zstd, padded": (Codec.ZSTD, SKIPPED + bytes(zstd(half)) + SKIPPED + bytes(zstd(half))),
        "zstd, of many frames": (Codec.ZSTD, bytes(zstd(unpacked[:70_000])) * 6),
    }


TINY_COUNT = 60_000
BOMBS = bombs(TINY * TINY_COUNT)


@each("name", BOMBS)
def test_what_unpacks_to_too_much_is_refused(name: str) -> None:
    codec, body = BOMBS[name]
    count = min(TINY_COUNT, len(body) * 64)  # what the header may say in so few bytes
    batch = sealed(body, codec, count)
    unpacked_bytes = len(TINY) * TINY_COUNT
    with pytest.raises(MessageTooLarge, match=str(unpacked_bytes // 2)):
        check(batch, LIMITS._replace(unpacked_bytes_max=unpacked_bytes // 2))
    try:
        check(batch, LIMITS._replace(unpacked_bytes_max=unpacked_bytes + 100))
    except InvalidRecord as error:
        assert f" {count} records" in error.message  # of padded ones the count is another


def test_the_bound_follows_the_setting_within_what_readers_take() -> None:
    assert unpacked_bytes_max(1_000_012) == 16 << 20
    assert unpacked_bytes_max(1_000) == 16 << 20
    assert unpacked_bytes_max(10_000_000) == 160_000_000
    assert unpacked_bytes_max(2**31 - 1) == 256 << 20


# --- when ---


@each("codec", list(Codec))
def test_records_too_far_ahead_are_named(codec: Codec) -> None:
    rows = [Record(at, FIRST_MS + 1_000 * at, None, b"v") for at in range(10)]
    batch = encode_batch(rows, codec=codec)
    limits = LIMITS._replace(after_max_ms=FIRST_MS + 7_000)
    with pytest.raises(InvalidTimestamp, match=r"2 of 10 records.*message\.timestamp\.after\.max\.ms") as caught:
        check(batch, limits)
    assert [number for number, _ in caught.value.record_errors] == [8, 9]
    assert f"{FIRST_MS + 8_000} ms" in caught.value.record_errors[0][1]
    check(batch, limits._replace(after_max_ms=FIRST_MS + 9_000))


@each("codec", list(Codec))
def test_records_too_old_are_named_and_those_without_a_time_are_not(codec: Codec) -> None:
    rows = [Record(at, time_ms, None, b"v") for at, time_ms in enumerate([FIRST_MS, FIRST_MS - 5_000, -1, FIRST_MS])]
    batch = encode_batch(rows, codec=codec)
    check(batch)
    check(batch, LIMITS._replace(before_max_ms=5_000 - FIRST_MS))
    with pytest.raises(InvalidTimestamp, match=r"message\.timestamp\.before\.max\.ms") as caught:
        check(batch, LIMITS._replace(before_max_ms=4_999 - FIRST_MS))
    assert [number for number, _ in caught.value.record_errors] == [1]


def test_a_header_that_says_a_later_time_than_its_records_is_refused() -> None:
    batch = sealed(body_of(3), Codec.NONE, 3, max_ms=2**60)
    with pytest.raises(InvalidTimestamp, match="timestamp"):
        check(batch, LIMITS._replace(after_max_ms=FIRST_MS + 10_000))


def test_as_many_records_as_there_may_be_are_named() -> None:
    rows = [Record(at, FIRST_MS, None, b"v") for at in range(1_000)]
    with pytest.raises(InvalidTimestamp, match="1000 of 1000 records") as caught:
        check(encode_batch(rows), LIMITS._replace(after_max_ms=0))
    assert len(caught.value.record_errors) == 100


# --- whether to look ---


def test_what_is_read_in_a_thread() -> None:
    one, packed = encode_batch(plain(3)), encode_batch(plain(3), codec=Codec.LZ4)
    newest_ms = read_header(one).max_timestamp_ms
    large = sealed(bytes(AT_ONCE_BYTES), Codec.NONE, 1, max_ms=newest_ms)
    padded = sealed(
        compress(Codec.ZSTD, encode_record(Record(0, FIRST_MS, None, bytes(20_000)), 0, FIRST_MS)), Codec.ZSTD, 1
    )

    def judged(records: bytearray, after_max_ms: int = 2**62, before_max_ms: int | None = None) -> bool:
        limits = LIMITS._replace(after_max_ms=after_max_ms, before_max_ms=before_max_ms)
        found = admit(memoryview(bytearray(records)), limits, 0, RequestBudget())
        if not isinstance(found, Unread):
            return False
        assert [one.count for one in found.headers] and (found.limits, found.now_ms) == (limits, 0)
        return True

    for small in (one, packed, one + packed, sealed(body_of(2), Codec.NONE, 2, max_ms=-1)):
        assert not judged(small)
    assert not judged(one, newest_ms) and not judged(one, before_max_ms=0)
    with pytest.raises(InvalidTimestamp):
        judged(one, newest_ms - 1)
    assert not judged(large, newest_ms)
    assert judged(large, newest_ms - 1) and judged(large, before_max_ms=0) and judged(large + packed)
    assert judged(padded)


def test_what_a_request_may_cost_is_over_all_of_its_record_sets() -> None:
    one, packed = encode_batch(plain(3)), encode_batch(plain(3), codec=Codec.LZ4)

    def is_unread(records: bytes | bytearray) -> bool:
        return isinstance(admit(memoryview(bytearray(records)), LIMITS, 0, budget), Unread)

    budget = RequestBudget()
    at_once = AT_ONCE_RECORDS_MAX // (AT_ONCE_SET_RECORDS + 3) + 1
    assert [is_unread(packed) for _ in range(at_once)] == [False] * at_once
    assert is_unread(packed) and not is_unread(one), "records that need not be read cost nothing"

    budget = RequestBudget()
    budget.batches = 5
    assert not is_unread(one * 3)
    with pytest.raises(InvalidRecord):
        is_unread(one * 3)
    assert not is_unread(one), "of each partition one, whatever the others have"

    budget = RequestBudget()
    with pytest.raises(CorruptBatch):
        is_unread(one * 4 + b"!")
    assert budget.batches <= BATCHES_MAX - 4, "what was read of a bad set counts"
