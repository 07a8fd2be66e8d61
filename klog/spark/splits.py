"""Which task reads what: ranges cut where they are long, packed where they are short.

On klog an offset is a byte address, so cutting by offset balances the tasks' bytes without asking anybody.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from klog.client.raw_fetch import Range

PACKED_RANGES_MAX = 1000
"""Ranges in one task: each costs a round trip, so a task of thousands of tiny ones would be the last to end."""

Align = Callable[[Range, int], int]
"""(range, offset inside it) -> the offset to cut at instead: a batch's start, so that no batch is decoded twice."""


def cut_evenly(ranges: Sequence[Range], pieces: int, align: Align) -> list[tuple[Range, ...]]:
    """About ``pieces`` tasks (the connector's minPartitions): each range has its share by length, at least one."""
    total = sum(one.to_offset - one.from_offset for one in ranges)
    return [
        (part,)
        for one in ranges
        for part in cut(one, max(1, round((one.to_offset - one.from_offset) / total * pieces)), align)
    ]


def cut_and_pack(ranges: Sequence[Range], split_bytes: int, align: Align) -> list[tuple[Range, ...]]:
    """Tasks of about ``split_bytes``: longer ranges are cut evenly, shorter ones share a task in their order."""
    tasks: list[tuple[Range, ...]] = []
    packed: list[Range] = []
    packed_bytes = 0
    for one in ranges:
        size = one.to_offset - one.from_offset
        if size > split_bytes:
            tasks.extend((part,) for part in cut(one, -(-size // split_bytes), align))
            continue
        if packed and (packed_bytes + size > split_bytes or len(packed) >= PACKED_RANGES_MAX):
            tasks.append(tuple(packed))
            packed, packed_bytes = [], 0
        packed.append(one)
        packed_bytes += size
    if packed:
        tasks.append(tuple(packed))
    return tasks


def cut(one: Range, pieces: int, align: Align) -> list[Range]:
    """The range in at most ``pieces`` parts of about equal length; together exactly the range, none empty."""
    size = one.to_offset - one.from_offset
    cuts = {align(one, one.from_offset + size * i // pieces) for i in range(1, pieces)}
    inner = sorted(at for at in cuts if one.from_offset < at < one.to_offset)
    return cut_at(one, inner)


def cut_at(one: Range, offsets: Sequence[int]) -> list[Range]:
    """The range cut at these offsets, which are ascending and inside it."""
    edges = [one.from_offset, *offsets, one.to_offset]
    return [one._replace(from_offset=start, to_offset=end) for start, end in itertools.pairwise(edges)]
