"""Compresses and decompresses the records of a batch, compatibly with Java's clients and librdkafka.

Framings
    gzip    members in a row (RFC 1952).
    snappy  raw, as by librdkafka, or snappy-java's: a 16-byte head, then blocks with int32 lengths. klog writes the
            latter: Java's stream reader is built for it.
    lz4     frames (magic 0x184D2204) of *independent* blocks: Java's reader refuses linked ones, which lz4 libraries
            write by default. That is why klog builds the frame from blocks.
    zstd    frames, with or without their content's size.

Limits: the output has ``max_bytes`` at most, whatever the input claims. The buffer grows with the output, from a guess;
a claim alone allocates `TRUSTED_CLAIM_BYTES` at most.

Imported where a batch is compressed: without cramjam, which has the codecs, a broker takes 1.7 MB less.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import ModuleType
from typing import Final

import cramjam

from klog.errors import CorruptBatch, UnpackedTooLarge
from klog.record.codec import DECOMPRESSED_BYTES_MAX, Codec

TRUSTED_CLAIM_BYTES: Final = 16 * 1024 * 1024
GROWTH: Final = 4
ZSTD_LEVEL: Final = 3
GZIP_LEVEL: Final = 6

_XERIAL_HEAD: Final = b"\x82SNAPPY\x00"
_XERIAL_VERSIONS: Final = struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_INT32: Final = struct.Struct(">i")

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_HEAD: Final = _LZ4_MAGIC + b"\x60\x40\x82"
"""Version 1, independent blocks, no checksums; blocks up to 64 KB; the second byte of xxHash-32 of those two bytes."""
_LZ4_BLOCK_BYTES: Final = 64 * 1024
_LZ4_STORED: Final = 0x80000000
_LZ4_END: Final = b"\x00\x00\x00\x00"
_LZ4_LENGTH: Final = struct.Struct("<I")

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"


def compress(codec: Codec, data: bytes | bytearray | memoryview) -> bytes | bytearray:
    """Compress ``data``; a copy for NONE."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data, level=GZIP_LEVEL))
        case Codec.SNAPPY:
            return _snappy_blocks(data)
        case Codec.LZ4:
            return _lz4_frame(data)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=ZSTD_LEVEL))


def decompress(
    codec: Codec, data: bytes | bytearray | memoryview, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> memoryview:
    """Decompress ``data``. Raises CorruptBatch for invalid bytes, and beyond ``max_bytes``."""
    view = memoryview(data)
    match codec:
        case Codec.NONE:
            if len(view) > max_bytes:
                raise _too_large(max_bytes)
            return view
        case Codec.GZIP:
            return _decompress_growing(cramjam.gzip, codec, view, _gzip_size(view), max_bytes)
        case Codec.SNAPPY:
            if bytes(view[: len(_XERIAL_HEAD)]) == _XERIAL_HEAD:
                return _read_snappy_blocks(view, max_bytes)
            return _read_snappy_raw(view, max_bytes)
        case Codec.LZ4:
            return _decompress_growing(cramjam.lz4, codec, view, 0, max_bytes)
        case Codec.ZSTD:
            return _decompress_growing(cramjam.zstd, codec, view, _zstd_size(view), max_bytes)


def _too_large(max_bytes: int) -> UnpackedTooLarge:
    return UnpackedTooLarge(f"the records of a batch take more than {max_bytes} bytes when decompressed")


def _wrong(codec: Codec, error: Exception) -> CorruptBatch:
    return CorruptBatch(f"the records of a batch are not valid {codec.label}: {error}")


def _decompress_growing(module: ModuleType, codec: Codec, data: memoryview, claim: int, max_bytes: int) -> memoryview:
    """Decompress into a buffer of the claimed or a guessed size, enlarged while it is too small."""
    into: Callable[[memoryview, bytearray], int] = module.decompress_into
    size = min(claim or GROWTH * len(data) + 1024, TRUSTED_CLAIM_BYTES, max_bytes)
    while True:
        out = bytearray(size)
        try:
            return memoryview(out)[: into(data, out)]
        except cramjam.DecompressionError as error:
            # cramjam has no class for "too small", so its text decides; a test checks that text.
            if "whole buffer" not in str(error) or "write" not in str(error):
                raise _wrong(codec, error) from None
        del out  # before the larger one is allocated
        if size >= max_bytes:
            raise _too_large(max_bytes)
        size = min(size * GROWTH, max_bytes)


def _gzip_size(data: memoryview) -> int:
    """The last four bytes of a gzip member: its content's size modulo 2^32; exact for one member."""
    return _LZ4_LENGTH.unpack_from(data, len(data) - 4)[0] if len(data) >= 18 else 0


def _zstd_size(data: memoryview) -> int:
    """The content size in the head of the first frame; 0 for none (RFC 8878, section 3.1.1.1)."""
    if len(data) < 14 or bytes(data[:4]) != _ZSTD_MAGIC:
        return 0
    descriptor = data[4]
    is_single_segment = bool(descriptor & 0x20)
    at = 5 + (not is_single_segment) + (0, 1, 2, 4)[descriptor & 3]
    match descriptor >> 6:
        case 0:
            return data[at] if is_single_segment else 0
        case 1:
            return int.from_bytes(data[at : at + 2], "little") + 256
        case 2:
            return int.from_bytes(data[at : at + 4], "little")
        case _:
            return int.from_bytes(data[at : at + 8], "little")


# --- Snappy ---


def _snappy_blocks(data: bytes | bytearray | memoryview) -> bytearray:
    view = memoryview(data)
    out = bytearray(_XERIAL_HEAD + _XERIAL_VERSIONS)
    # At least one block: some readers take a head with nothing behind it for raw snappy.
    for start in range(0, max(len(view), 1), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        out += _INT32.pack(len(block))
        out += block
    return out


def _snappy_size(data: memoryview) -> int:
    """The size claimed by a raw block; snappy's decoder enforces it."""
    if not data:
        raise CorruptBatch("a snappy block of no bytes")
    try:
        size: int = cramjam.snappy.decompress_raw_len(data)
    except cramjam.DecompressionError as error:
        raise _wrong(Codec.SNAPPY, error) from None
    # The format makes 64 bytes out of 3 at best: a larger claim is false.
    if size > 32 * (len(data) + 1):
        raise CorruptBatch(f"a snappy block of {len(data)} bytes says it holds {size}")
    return size


def _read_snappy_raw(data: memoryview, max_bytes: int) -> memoryview:
    size = _snappy_size(data)
    if size > max_bytes:
        raise _too_large(max_bytes)
    out = bytearray(size)
    _snappy_into(data, memoryview(out))
    return memoryview(out)


def _snappy_into(data: memoryview, out: memoryview) -> None:
    try:
        size = cramjam.snappy.decompress_raw_into(data, out) if len(out) else 0
    except cramjam.DecompressionError as error:
        raise _wrong(Codec.SNAPPY, error) from None
    if size != len(out):
        raise CorruptBatch(f"a snappy block holds {size} bytes and says it holds {len(out)}")


def _read_snappy_blocks(data: memoryview, max_bytes: int) -> memoryview:
    blocks: list[tuple[memoryview, int]] = []
    position = len(_XERIAL_HEAD) + len(_XERIAL_VERSIONS)
    if position > len(data):
        raise CorruptBatch("a snappy stream ends inside its head")
    total = 0
    while position < len(data):
        if position + _INT32.size > len(data):
            raise CorruptBatch("a snappy stream ends inside a block's length")
        (length,) = _INT32.unpack_from(data, position)
        position += _INT32.size
        if length < 0 or position + length > len(data):
            raise CorruptBatch(f"a snappy block of {length} bytes; {len(data) - position} are there")
        block = data[position : position + length]
        size = _snappy_size(block)
        blocks.append((block, size))
        total += size
        if total > max_bytes:
            raise _too_large(max_bytes)
        position += length
    out = memoryview(bytearray(total))
    at = 0
    for block, size in blocks:
        _snappy_into(block, out[at : at + size])
        at += size
    return out


# --- LZ4 ---


def _lz4_frame(data: bytes | bytearray | memoryview) -> bytearray:
    view = memoryview(data)
    out = bytearray(_LZ4_HEAD)
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        block = view[start : start + _LZ4_BLOCK_BYTES]
        packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
        if len(packed) < len(block):
            out += _LZ4_LENGTH.pack(len(packed))
            out += packed
        else:
            out += _LZ4_LENGTH.pack(len(block) | _LZ4_STORED)
            out += block
    out += _LZ4_END
    return out
