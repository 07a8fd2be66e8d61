"""A checksum of a partition's messages that does not depend on their order, nor on how they lie in files.

Each message has a 64-bit hash of its offset, key and value (docs/export-format.md has the arithmetic); the checksum is
the sum of the hashes modulo 2^64, written as 16 hexadecimal digits. So parts that were hashed apart are added, and a
message that is there twice shows. It finds accidental damage, not deliberate changes.

Strategy: values of about as many words are the rows of a matrix, and numpy takes all of them at once; those of many
words are taken one by one.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from klog.names import TopicPartition

Words = NDArray[np.uint64]
Ints = NDArray[np.int64]

LONG_WORDS: Final = 512
"""Values of more words are hashed one by one."""
CHUNK_WORDS: Final = 4096
MATRIX_WORDS: Final = 16 * 1024
"""In one matrix: so few that it stays in the processor's cache."""

_WIDTHS: Final = np.array(
    [
        words if words <= 8 else -(-words // step) * step
        for words in range(LONG_WORDS + 2)
        for step in [4 if words <= 32 else 16 if words <= 128 else 64]
    ]
)
"""How wide the matrix is in which a value of so many words is a row; a few widths, so that there are few matrices."""

_M: Final = 0x9E3779B97F4A7C15
_L: Final = 0xD6E8FEB86659FD93
_O: Final = 0xA0761D6478BD642F
MODULUS: Final = 2**64


def checksums(batch: pa.RecordBatch) -> dict[TopicPartition, int]:
    """By partition, of a batch with topic, partition, offset, key and value."""
    if not batch.num_rows:
        return {}
    found = hashes(batch)
    return {one: int(np.add.reduce(found[rows])) for one, rows in runs(batch).items()}


def add(into: dict[TopicPartition, int], more: dict[TopicPartition, int]) -> None:
    """``into`` covers ``more``'s messages too."""
    for one, value in more.items():
        into[one] = (into.get(one, 0) + value) % MODULUS


def runs(batch: pa.RecordBatch) -> dict[TopicPartition, Any]:
    """The rows of each partition; most often all are one's."""
    if not batch.num_rows:
        return {}
    topics = batch.column("topic")
    if not isinstance(topics, pa.DictionaryArray):
        topics = topics.dictionary_encode()
    codes = np.asarray(topics.indices).astype(np.int64)
    partitions = np.asarray(batch.column("partition")).astype(np.int64)
    if (codes == codes[0]).all() and (partitions == partitions[0]).all():
        return {TopicPartition(topics[0].as_py(), int(partitions[0])): slice(None)}
    found = {}
    for code, partition in np.unique(np.stack([codes, partitions]), axis=1).T.tolist():
        rows = (codes == code) & (partitions == partition)
        found[TopicPartition(topics.dictionary[code].as_py(), int(partition))] = rows
    return found


def hashes(batch: pa.RecordBatch) -> Words:
    """Of each message of a batch with offset, key and value."""
    offsets = np.asarray(batch.column("offset")).astype(np.int64).view(np.uint64)
    keys, values = _bytes(batch.column("key")), _bytes(batch.column("value"))
    return _mix(offsets * np.uint64(_O) + keys + np.uint64(3) * values)


def _mix(x: Words) -> Words:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _bytes(column: pa.Array) -> Words:
    """The hash of each value."""
    if column.type != pa.binary():
        column = column.cast(pa.binary())
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    sizes = np.diff(offsets).astype(np.int64)
    nulls = np.asarray(column.is_null()) if column.null_count else None
    data = np.frombuffer(column.buffers()[2] or b"", np.uint8)
    starts = offsets[:-1].astype(np.int64)
    if nulls is not None:
        sizes[nulls] = 0
    sums = _sums(data, starts, sizes)
    if nulls is not None:
        sizes[nulls] = -1
    return _mix(sums + sizes.view(np.uint64) * np.uint64(_L))


def _sums(data: NDArray[np.uint8], starts: Ints, sizes: Ints) -> Words:
    """The sum over each value's words."""
    sums = np.zeros(len(starts), np.uint64)
    words = -(-sizes // 8)
    widths = _WIDTHS[np.minimum(words, LONG_WORDS + 1)]
    if (widths == widths[0]).all() and 0 < widths[0] <= LONG_WORDS:
        return _block(data, starts, sizes, int(widths[0]))
    for width in np.unique(widths).tolist():
        rows = np.flatnonzero(widths == width)
        if width > LONG_WORDS:
            for row in rows.tolist():
                sums[row] = _long(data[starts[row] : starts[row] + sizes[row]])
        elif width:
            sums[rows] = _block(data, starts[rows], sizes[rows], width)
    return sums


def _block(data: NDArray[np.uint8], starts: Ints, sizes: Ints, width: int) -> Words:
    """The sums of values that have at most ``width`` words."""
    found = np.empty(len(starts), np.uint64)
    # The reads after a value's end do not count, but need bytes there, which the last values lack.
    inside = int(np.searchsorted(starts, len(data) - 8 * width, "right"))
    rows = MATRIX_WORDS // width
    for at in range(0, inside, rows):
        these = slice(at, min(at + rows, inside))
        found[these] = _matrix(data, starts[these], sizes[these], width)
    for row in range(inside, len(starts)):
        found[row] = _long(data[starts[row] : starts[row] + sizes[row]])
    return found


def _matrix(data: NDArray[np.uint8], starts: Ints, sizes: Ints, width: int) -> Words:
    """The same of a few of them, side by side as the rows of a matrix."""
    words = np.lib.stride_tricks.sliding_window_view(data, 8 * width)[starts].view("<u8")
    whole, rest = np.divmod(sizes, 8)
    rows = np.flatnonzero(rest)
    last = words[rows, whole[rows]] & (np.uint64(MODULUS - 1) >> ((8 - rest[rows]) * 8).astype(np.uint64))
    if (sure := int(whole.min())) < width:  # behind a value lies what is not its own
        words[:, sure:] *= np.arange(sure, width) < whole[:, None]
    words[rows, whole[rows]] = last
    words ^= words >> np.uint64(32)
    found: Words = words @ _powers()[:width]
    return found


def _long(value: NDArray[np.uint8]) -> int:
    padded = np.zeros(-(-len(value) // 8) * 8, np.uint8)
    padded[: len(value)] = value
    words = padded.view("<u8")
    found = 0
    for at in range(0, len(words), CHUNK_WORDS):
        chunk = words[at : at + CHUNK_WORDS]
        part = int(np.add.reduce((chunk ^ (chunk >> np.uint64(32))) * _powers()[: len(chunk)]))
        found += part * pow(_M, at, MODULUS)
    return found % MODULUS


@cache
def _powers() -> Words:
    return np.array([pow(_M, exponent, MODULUS) for exponent in range(1, CHUNK_WORDS + 1)], np.uint64)
