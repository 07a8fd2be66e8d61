"""The messages of a source, to hold their copies against.

A mark (`klog.record.provenance_header`) is a header: any client that may write to the target can write one, with any
offset of the source. So a mark is believed only of a message that *is* the one at that offset of the source, and only
where it is the next one to be copied: then nothing is missing in front of it, whichever client has put it there. What a
copier has committed itself, and what was acknowledged to it, need not be looked at again.

Event loop only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from klog.errors import OffsetOutOfRange
from klog.names import TopicPartition
from klog.record.batch import CONTROL, walk
from klog.record.provenance_header import Copy
from klog.record.records import Record, each_record

if TYPE_CHECKING:
    from klog.tools.copying.cluster_endpoint import ClusterEndpoint


class Originals:
    """One partition of the source. It is read forwards: what is asked for next should lie behind."""

    def __init__(self, side: ClusterEndpoint, partition: TopicPartition, *, keeps_times: bool = True) -> None:
        """``keeps_times``: whether copies have the times of their originals."""
        self._side = side
        self._partition = partition
        self._keeps_times = keeps_times
        self._records: Iterator[Record] = iter(())
        self._head: Record | None = None
        self._asked = 0
        """The last position: the head is the first message there or behind it."""
        self._after = 0
        """Where the next run is fetched."""

    async def confirm(self, position: int, copy: Copy) -> bool:
        """Whether ``copy`` is the first message that the source has at ``position`` or behind it."""
        original = await self._first(position)
        if original is None or original.offset != copy.there:
            return False
        _, time_ms, key, value, headers = copy.record
        if self._keeps_times and time_ms != original.timestamp_ms:
            return False
        return (key, value, headers[:-1]) == (original.key, original.value, original.headers)  # the mark is the last

    async def _first(self, position: int) -> Record | None:
        if position < self._asked:
            self._records, self._head, self._after = iter(()), None, position
        self._asked = position
        while self._head is None or self._head.offset < position:
            self._head = next(self._records, None)
            if self._head is None and not await self._fetch(max(position, self._after)):
                return None
        return self._head

    async def _fetch(self, at: int) -> bool:
        """The next run, from ``at`` on or from where the log begins now; False where there is none."""
        try:
            fetched = await self._side.fetch(self._partition, at)
        except OffsetOutOfRange:
            start, _ = await self._side.bounds(self._partition)
            return start > at and await self._fetch(start)
        if fetched.after < 0:
            return False
        self._after = fetched.after
        self._records = _messages(fetched.run)
        return True


def _messages(run: memoryview) -> Iterator[Record]:
    for position, header in walk(run):
        if header.count and not header.attributes & CONTROL:
            yield from each_record(run, position)
