"""Where Java's clients put a key, written out: what klog's own and librdkafka's answer is held against."""

from __future__ import annotations


def murmur2(data: bytes) -> int:
    """As the Java client computes it: seed 0x9747b28c, m 0x5bd1e995, r 24."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15
