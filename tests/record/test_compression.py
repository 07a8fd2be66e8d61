"""Each codec against other implementations of it, broken input, and input that would fill the memory."""

from __future__ import annotations

import gzip
import io
import struct
import tracemalloc
from collections.abc import Callable

import cramjam
import lz4.block
import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from kafka import codec as kafka_codec

from klog.errors import CorruptBatch
from klog.record.codec import Codec
from klog.record.compression import compress, decompress
from tests.chance import noise
from tests.record.batches import CODECS
from tests.rows import each

PACKING = CODECS[1:]
SAMPLES = [b"", b"a", b"log line " * 9_000, noise(150_000), bytes(65_536), bytes(65_537)]


def zstd_stream(data: bytes) -> bytes:
    """A frame that does not say how much it holds, as a streaming writer leaves it."""
    out = io.BytesIO()
    with zstandard.ZstdCompressor(write_content_size=False).stream_writer(out, closefd=False) as writer:
        writer.write(data)
    return out.getvalue()


FOREIGN: list[tuple[str, Codec, Callable[[bytes], bytes]]] = [
    ("gzip", Codec.GZIP, gzip.compress),
    ("gzip in two members", Codec.GZIP, lambda data: gzip.compress(data[:7]) + gzip.compress(data[7:])),
    ("snappy raw, as librdkafka writes it", Codec.SNAPPY, snappy.compress),
    ("snappy in blocks, as snappy-java writes it", Codec.SNAPPY, kafka_codec.snappy_encode),
    ("lz4", Codec.LZ4, lz4.frame.compress),
    ("lz4, linked blocks of 4 MB, sums", Codec.LZ4, lambda data: lz4.frame.compress(
        data, block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=True, content_checksum=True, block_checksum=True)),
    ("lz4 without a content size", Codec.LZ4, lambda data: lz4.frame.compress(data, store_size=False)),
    ("zstd", Codec.ZSTD, zstandard.ZstdCompressor().compress),
    ("zstd without a content size", Codec.ZSTD, zstd_stream),
    ("zstd in two frames", Codec.ZSTD, lambda data: zstd_stream(data[:7]) + zstandard.compress(data[7:])),
    ("zstd with a sum", Codec.ZSTD, zstandard.ZstdCompressor(write_checksum=True).compress),
]  # fmt: skip


@each(("codec", "encode"), [case[1:] for case in FOREIGN], ids=[case[0] for case in FOREIGN])
def test_reads_what_others_write(codec: Codec, encode: Callable[[bytes], bytes]) -> None:
    for data in SAMPLES:
        assert decompress(codec, encode(data)) == data


@each(
    ("codec", "decode"),
    [
        (Codec.GZIP, gzip.decompress),
        (Codec.SNAPPY, kafka_codec.snappy_decode),
        (Codec.LZ4, lz4.frame.decompress),
        (Codec.ZSTD, zstandard.decompress),
    ],
)
def test_others_read_what_is_written(codec: Codec, decode: Callable[[bytes], bytes]) -> None:
    for data in SAMPLES:
        assert decode(bytes(compress(codec, data))) == data


def test_lz4_blocks_are_independent() -> None:
    """Java's KafkaLZ4BlockInputStream refuses linked blocks. Each block is decoded by itself here."""
    data = b"the same words again and again " * 10_000
    frame = bytes(compress(Codec.LZ4, data))
    info = lz4.frame.get_frame_info(frame)
    assert not info["block_linked"]
    assert info["block_size"] == 65_536
    at, out = 7, b""
    while True:
        (length,) = struct.unpack_from("<I", frame, at)
        at += 4
        if not length:
            break
        out += lz4.block.decompress(frame[at : at + length], uncompressed_size=65_536)
        at += length
    assert out == data
    assert at == len(frame)


@given(st.binary(max_size=3_000), st.sampled_from(CODECS), st.sampled_from([bytes, bytearray, memoryview]))
def test_round_trip(data: bytes, codec: Codec, kind: Callable[[bytes], bytes]) -> None:
    assert decompress(codec, kind(bytes(compress(codec, kind(data)))), len(data)) == data


@each("codec", PACKING)
def test_any_cut_is_an_error_or_whole_pieces(codec: Codec) -> None:
    """A snappy-java stream may end after any block; no other codec's may."""
    data = noise(50) * 900
    packed = bytes(compress(codec, data))
    for cut in range(len(packed)):
        try:
            found = decompress(codec, packed[:cut])
        except CorruptBatch:
            continue
        assert codec is Codec.SNAPPY
        assert found in (b"", data[: 32 * 1024])


@given(st.sampled_from(PACKING), st.binary(max_size=200))
def test_random_bytes(codec: Codec, data: bytes) -> None:
    try:
        assert len(decompress(codec, data, 10_000)) <= 10_000
    except CorruptBatch:
        pass


@given(st.sampled_from(PACKING), st.data())
def test_one_byte_changed(codec: Codec, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, b"0123456789abcdef" * 40))
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        assert len(decompress(codec, packed, 10_000)) <= 10_000
    except CorruptBatch:
        pass


@each(("codec", "encode"), [case[1:] for case in FOREIGN], ids=[case[0] for case in FOREIGN])
def test_the_bound_is_exact(codec: Codec, encode: Callable[[bytes], bytes]) -> None:
    data = b"x" * 100_000
    packed = encode(data)
    assert decompress(codec, packed, len(data)) == data
    with pytest.raises(CorruptBatch, match="99999"):
        decompress(codec, packed, len(data) - 1)


@each(("codec", "encode"), [case[1:] for case in FOREIGN], ids=[case[0] for case in FOREIGN])
def test_a_bomb_takes_no_memory(codec: Codec, encode: Callable[[bytes], bytes]) -> None:
    packed = encode(bytes(16_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatch, match="1000000"):
            decompress(codec, packed, 1_000_000)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


@each(
    ("codec", "claim"),
    [
        (Codec.GZIP, gzip.compress(b"x", mtime=0)[:-4] + b"\xff\xff\xff\xff"),
        (Codec.ZSTD, b"\x28\xb5\x2f\xfd\xe0" + (2**40).to_bytes(8, "little") + b"\x01\x00\x00x"),
        (Codec.SNAPPY, b"\xff\xff\xff\xff\x0f\x00x"),
    ],
    ids=["gzip", "zstd", "snappy"],
)
def test_a_claim_alone_takes_little_memory(codec: Codec, claim: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatch):
            decompress(codec, claim)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


@each("module", [cramjam.gzip, cramjam.lz4, cramjam.zstd])
def test_the_words_by_which_a_small_buffer_is_told(module: object) -> None:
    """klog.record.compression grows its buffer on these words of the library, and on no others."""
    packed = bytes(module.compress(bytes(100)))  # type: ignore[attr-defined]
    with pytest.raises(cramjam.DecompressionError, match="write whole buffer"):
        module.decompress_into(packed, bytearray(10))  # type: ignore[attr-defined]
