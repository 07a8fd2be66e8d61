"""A checksum of a partition's messages that does not depend on their order, nor on how they lie in files.

Each message has a 64-bit hash of its offset, key and value; the checksum is the sum of the hashes modulo 2^64, written
as 16 hexadecimal digits. So parts that were hashed apart are added, and a message that is there twice shows. With
``mix`` for SplitMix64's finalizer and words of 8 bytes, little-endian, the last one filled up with zeros:

    bytes(b)   = mix(sum of (w[k] ^ w[k] >> 32) * M^(k+1) over b's words w, + length of b * L)      null: mix(-L)
    message    = mix(offset * O + bytes(key) + 3 * bytes(value))

It finds what chance does to data, not what somebody does who wants to deceive.

Strategy: numpy takes the k-th word of all values at once; values of many words are taken one by one, all their words at
once.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from klog.names import TopicPartition

Words = NDArray[np.uint64]

LONG_WORDS: Final = 512
"""Values of more words are hashed one by one."""
CHUNK_WORDS: Final = 4096

_M: Final = 0x9E3779B97F4A7C15
_L: Final = 0xD6E8FEB86659FD93
_O: Final = 0xA0761D6478BD642F
MODULUS: Final = 2**64


def checksums(batch: pa.RecordBatch) -> dict[TopicPartition, int]:
    """By partition, of a batch with topic, partition, offset, key and value."""
    if not batch.num_rows:
        return {}
    hashes = _messages(batch)
    runs = _runs(batch)
    return {one: int(np.add.reduce(hashes[rows])) for one, rows in runs.items()}


def add(into: dict[TopicPartition, int], more: dict[TopicPartition, int]) -> None:
    """``into`` covers ``more``'s messages too."""
    for one, value in more.items():
        into[one] = (into.get(one, 0) + value) % MODULUS


def _runs(batch: pa.RecordBatch) -> dict[TopicPartition, Any]:
    """The rows of each partition; most often all are one's."""
    topics = batch.column("topic").dictionary_encode() if batch.num_rows else None
    if isinstance(batch.column("topic"), pa.DictionaryArray):
        topics = batch.column("topic")
    assert topics is not None
    codes = np.asarray(topics.indices).astype(np.int64)
    partitions = np.asarray(batch.column("partition")).astype(np.int64)
    if (codes == codes[0]).all() and (partitions == partitions[0]).all():
        return {TopicPartition(topics[0].as_py(), int(partitions[0])): slice(None)}
    found = {}
    for code, partition in np.unique(np.stack([codes, partitions]), axis=1).T.tolist():
        rows = (codes == code) & (partitions == partition)
        found[TopicPartition(topics.dictionary[code].as_py(), int(partition))] = rows
    return found


def _messages(batch: pa.RecordBatch) -> Words:
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
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.zeros(last - first + 8, np.uint8)  # so that the last word of a value may be read whole
    if last > first:
        data[:-8] = np.frombuffer(column.buffers()[2], np.uint8)[first:last]
    starts = offsets[:-1].astype(np.int64) - first
    if nulls is not None:
        sizes[nulls] = 0
    sums = _sums(data, starts, sizes)
    if nulls is not None:
        sizes[nulls] = -1
    return _mix(sums + sizes.view(np.uint64) * np.uint64(_L))


def _sums(data: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> Words:
    """The sum over each value's words."""
    sums = np.zeros(len(starts), np.uint64)
    for row in np.flatnonzero(sizes > 8 * LONG_WORDS).tolist():
        sums[row] = _long(data[starts[row] : starts[row] + sizes[row]])
    words = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))
    rows: Any = slice(None)
    left = np.where(sizes > 8 * LONG_WORDS, 0, sizes)
    at = starts.copy()
    number = 0
    while len(at):
        number = _whole_words(words, at, sums, rows, number, int(left.min() - 8 * number) // 8)
        rest = left - 8 * number
        short = rest < 8  # these end with a part of a word, or have ended
        last = np.flatnonzero(short & (rest > 0))
        if len(last):
            unused = (np.uint64(8) - rest[last].astype(np.uint64)) * np.uint64(8)
            word = words[at[last]] & (np.uint64(MODULUS - 1) >> unused)
            word = (word ^ (word >> np.uint64(32))) * _power(number + 1)
            sums[last if isinstance(rows, slice) else rows[last]] += word
        inside = np.flatnonzero(~short)
        rows = inside if isinstance(rows, slice) else rows[inside]
        at, left = at[inside], left[inside]
    return sums


def _whole_words(words: Words, at: NDArray[np.int64], sums: Words, rows: Any, number: int, more: int) -> int:
    """``more`` words of these values, from word ``number`` on, are added; ``at`` moves on. The next word's number."""
    shifted = np.empty(len(at), np.uint64)
    part = np.zeros(len(at), np.uint64)
    for this in range(number, number + more):
        word = words[at]
        np.right_shift(word, np.uint64(32), out=shifted)
        word ^= shifted
        word *= _power(this + 1)
        part += word
        at += 8
    sums[rows] += part
    return number + more


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
def _power(exponent: int) -> np.uint64:
    return np.uint64(pow(_M, exponent, MODULUS))


@cache
def _powers() -> Words:
    return np.array([pow(_M, exponent, MODULUS) for exponent in range(1, CHUNK_WORDS + 1)], np.uint64)
