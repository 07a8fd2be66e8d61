"""Where a source's offset is in a partition that is copied to: a search by the marks of what was copied.

Theory
    The marks of one source rise with the offsets of the target. What others have appended there, or
    the copier of another source, lies between and says nothing; so a probe reads on from its place up to the first
    message of this source. What a probe has read over is not read again: even where nothing but others' messages is
    found, all probes together read the stretch once.

    Where a target without conditional appends has messages twice, the one that is found is followed by all that are
    wanted, since each copier goes on at or before where the one before it has stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from klog.record.provenance_header import Source, copies_of
from klog.tools.copying.cluster_endpoint import PAUSE_S
from klog.tools.copying.fetch import Fetched

PROBE_BYTES = 64 * 1024
READ_ON_BYTES = 1024 * 1024
"""Where a probe has come upon others' messages only."""

Read = Callable[[int, int], Awaitable[Fetched]]
"""What lies at an offset of the target, of about so many bytes."""


async def find_first(read: Read, source: Source, wanted: int, begin: int, end: int) -> int | None:
    """The offset in [begin, end) of the first message that was copied from ``wanted`` of the source or from behind it.

    None where there is none. What is copied below ``begin`` is of smaller offsets of the source.
    """
    low, high, found = begin, end, None
    while low < high:  # copies below low are of smaller offsets, copies at high and behind are not
        middle = (low + high) // 2
        at, size = middle, PROBE_BYTES
        is_decided = False
        while at < high and not is_decided:
            fetched = await read(at, size)
            if fetched.after < 0:
                if fetched.high_watermark <= at:
                    break
                await asyncio.sleep(PAUSE_S)
                continue
            for there, record in copies_of(source, fetched.run, at):
                here = record.offset
                if here >= high:
                    break
                if there < wanted:
                    low = here + 1
                elif low > middle:
                    return here  # the one before it is of a smaller offset
                else:
                    found, high = here, middle
                    break
            if low > middle:
                low = min(fetched.after, high)
            is_decided = low > middle or high == middle
            at, size = fetched.after, READ_ON_BYTES
        if not is_decided:
            high = middle
    return found
