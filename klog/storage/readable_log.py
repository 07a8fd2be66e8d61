"""The half of a log that any thread may ask: what it is, what it reads, and questions to it.

Works on a tuple of segments and an end that the owner thread replaces, never changes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from operator import attrgetter
from typing import TypeVar

from klog.errors import CorruptLog, OffsetOutOfRange, StorageError
from klog.names import TopicPartition
from klog.record.compression import DECOMPRESSED_BYTES_MAX
from klog.storage import checksums, lookup
from klog.storage.checksums import Checksum
from klog.storage.epochs import Epochs, EpochStart
from klog.storage.home import Home
from klog.storage.log_end import LogEnd
from klog.storage.lookup import Location
from klog.storage.patience import ENDLESS, Patience
from klog.storage.recovery import Recovered
from klog.storage.segment import FileRange, Segment

_base_address = attrgetter("base_address")
_Answer = TypeVar("_Answer")


class ReadableLog:
    """Thread-safe. ``Log`` adds what belongs to the owner thread."""

    def __init__(self, name: TopicPartition, home: Home, found: Recovered) -> None:
        self.topic_partition = name
        self.damages = found.damages
        self.damages_at_open = found.fresh_damages
        """Those that recovery has just found, for whoever tells of it."""
        self.recovered_bytes = found.checked_bytes
        self._home = home
        self._closed = False
        self._segments: tuple[Segment, ...] = found.segments
        self._end: LogEnd = found.end
        self._start_offset = found.start_offset
        self._epochs: Epochs = found.epochs
        self._unpacked_bytes_max = DECOMPRESSED_BYTES_MAX

    @property
    def start_offset(self) -> int:
        """The start shown to consumers: positions from here on are in range (rule L4)."""
        return self._start_offset

    @property
    def start_address(self) -> int:
        """Where the first segment begins."""
        return self._segments[0].base_address

    @property
    def end(self) -> LogEnd:
        return self._end

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last batch, or the one begun since; -1 where there is none."""
        return self._epochs.last

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self._segments

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def home(self) -> Home:
        return self._home

    @property
    def is_closed(self) -> bool:
        return self._closed

    def _check_open(self) -> None:
        if self._home.failure is not None:
            raise self._home.failure.bare()
        if self._closed:
            raise StorageError(f"the log of {self.topic_partition} is closed")

    # --- Reading ---

    def check_offset(self, offset: int) -> None:
        """OffsetOutOfRange unless ``offset`` can be read from: at or after the start, at or before the end address."""
        if offset < self._start_offset or offset > self._end.address:
            raise OffsetOutOfRange(
                f"{self.topic_partition}: offset {offset} is outside {self._start_offset} to {self._end.offset}"
            )

    def read(self, offset: int, max_bytes: int, limit_address: int, at_least_one: bool = True) -> list[FileRange]:
        """Whole batches from the first that has a record at or after ``offset``, none beyond ``limit_address``.

        Of one segment, ``max_bytes`` at most, but the first batch whole where ``at_least_one`` is set. Empty where
        nothing follows below the limit. Raises OffsetOutOfRange, StorageError.
        """
        if self._home.failure is not None or self._closed:
            self._check_open()
        end = self._end
        if offset < self._start_offset or offset > end.address:
            self.check_offset(offset)
        if offset >= end.offset:
            return []
        segments = self._segments
        at = len(segments) - 1
        if offset < segments[at].base_address:
            at = max(bisect_right(segments, offset, key=_base_address) - 1, 0)
        try:
            while at < len(segments):
                segment = segments[at]
                if segment.base_address >= limit_address:
                    return []
                start = segment.find(offset)
                if start is not None:
                    if start >= limit_address:
                        return []
                    return segment.ranges(start, max_bytes, limit_address, at_least_one=at_least_one)
                at += 1
        except StorageError as error:
            raise self._read_failed(error) from error
        return []

    def is_known(self, offset: int, walk_bytes: int = 1 << 20) -> bool:
        """Whether ``read`` finds its batch without a long walk through a file; where not, read in a thread."""
        if self._home.is_stalled:
            return False
        if offset >= self._end.offset:
            return True
        segments = self._segments
        segment = segments[max(bisect_right(segments, offset, key=_base_address) - 1, 0)]
        return offset <= segment.base_address or segment.index.distance(offset) <= walk_bytes

    def is_resident(self, ranges: list[FileRange]) -> bool:
        """Whether the page cache has these bytes, so that sendfile will not wait for the disk (rule L8)."""
        return all(file.is_resident(position, size) for file, position, size in ranges)

    def warm(self, ranges: list[FileRange]) -> None:
        """Read these bytes into the page cache. Blocks: for a thread."""
        try:
            for file, position, size in ranges:
                file.warm(position, size)
        except StorageError as error:
            raise self._read_failed(error) from error

    def _ask(self, question: Callable[..., _Answer], *arguments: object) -> _Answer:
        self._check_open()
        try:
            return question(*arguments)
        except StorageError as error:
            raise self._read_failed(error) from error

    def _read_failed(self, error: StorageError) -> StorageError:
        """A disk that cannot read takes the dir offline; bytes that are no log are one log's trouble."""
        if isinstance(error, CorruptLog):
            return error
        if self._closed:  # its files went under a reader: nobody's disk is to blame
            return StorageError(f"the log of {self.topic_partition} is closed")
        return self._home.fail(error)

    # --- Looking up: RequestTimedOut where that asks for more patience than was given ---

    def count(self, from_offset: int, to_offset: int) -> int | None:
        """Messages with from_offset <= offset < to_offset, exactly; None while a segment between is not counted yet."""
        return self._ask(lookup.count, self._segments, max(from_offset, self._start_offset), to_offset)

    def nth(self, n: int, from_offset: int) -> int | None:
        """The offset of message ``n`` (from 0) at or after ``from_offset``; the end where there are fewer, None while
        a segment between is not counted yet."""
        return self._ask(lookup.nth, self._segments, self._end, n, max(from_offset, self._start_offset))

    def offset_for_time(self, timestamp_ms: int, patience: Patience = ENDLESS) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record whose timestamp is at or after ``timestamp_ms``; None without one."""
        return self._ask(
            lookup.offset_for_time, self._segments, self._start_offset, timestamp_ms, self._unpacked_bytes_max, patience
        )

    def time_of(self, offset: int, patience: Patience = ENDLESS) -> int | None:
        """The timestamp of the first record at or after ``offset``; None without one, -1 where it carries none."""
        return self._ask(
            lookup.time_of, self._segments, max(offset, self._start_offset), self._unpacked_bytes_max, patience
        )

    def max_timestamp(self, patience: Patience = ENDLESS) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record with the largest timestamp; None without one."""
        return self._ask(lookup.max_timestamp, self._segments, self._start_offset, self._unpacked_bytes_max, patience)

    def locate(self, offset: int) -> Location:
        """Where the batch lies that a fetch at ``offset`` begins with. Raises OffsetOutOfRange where there is none."""
        self.check_offset(offset)
        return self._ask(lookup.locate, self._segments, offset)

    def checksum(self, first: int, end: int, seed: int = 0) -> Checksum:
        """The CRC of addresses [first, end), which must lie in the log; see `klog.storage.checksums`."""
        return self._ask(checksums.checksum, self._segments, first, end, seed)

    @property
    def holes(self) -> list[tuple[int, int]]:
        """Addresses [first, end) between segments that hold no batch: recorded damage (rule L2)."""
        return checksums.holes(self._segments)

    def batch_checks(self, address: int) -> bool:
        """Whether the batch that has the byte at ``address`` checks."""
        self._check_open()
        return checksums.batch_checks(self._segments, address)

    def epoch_end(self, leader_epoch: int) -> tuple[int, LogEnd]:
        """The largest epoch at or below the asked one, and where it ended; see Epochs.end for the edges."""
        return self._epochs.end(leader_epoch, self._start_offset, self._end)

    @property
    def epoch_starts(self) -> tuple[EpochStart, ...]:
        return self._epochs.starts
