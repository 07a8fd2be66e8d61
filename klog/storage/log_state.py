"""What a log is: segments, ends, epochs, producers. `LogReader` reads it; `Log`, `truncation` and `repair` change it.

Concurrency: the owner thread replaces ``segments``, ``end`` and the rest, and never changes a tuple in place, so any
thread may read them without a lock. ``lock`` guards what a flush in another thread changes too: ``generation``, ``end``
and ``durable_end``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from klog.config.topic import LogConfig
from klog.errors import CorruptLog, OffsetOutOfRange, StorageError
from klog.names import TopicPartition
from klog.storage.checkpoints import CheckpointedDir
from klog.storage.damage_record import DamageRecord
from klog.storage.epochs import Epochs
from klog.storage.log_end import LogEnd
from klog.storage.producers import Producers
from klog.storage.recovery import Recovered
from klog.storage.segment import Segment

_State = TypeVar("_State", bound="LogState")
_Asked = ParamSpec("_Asked")
_Answer = TypeVar("_Answer")


def reads(method: Callable[Concatenate[_State, _Asked], _Answer]) -> Callable[Concatenate[_State, _Asked], _Answer]:
    """For a method that reads the log's files: the log must be open, and a disk that cannot read goes offline."""

    @wraps(method)
    def reading(log: _State, /, *asked: _Asked.args, **named: _Asked.kwargs) -> _Answer:
        log.check_open()
        try:
            return method(log, *asked, **named)
        except StorageError as error:
            raise log.read_failed(error) from error

    return reading


class LogState:
    """See the module."""

    __slots__ = (
        "active",
        "appended_messages",
        "config",
        "damages",
        "durable_end",
        "end",
        "epochs",
        "file_system",
        "folder",
        "generation",
        "is_closed",
        "lock",
        "log_dir",
        "producers",
        "segments",
        "start_offset",
        "topic_partition",
    )

    def __init__(
        self,
        name: TopicPartition,
        folder: str,
        log_dir: CheckpointedDir,
        found: Recovered,
        config: LogConfig,
    ) -> None:
        self.topic_partition = name
        self.folder = folder
        self.log_dir = log_dir
        self.file_system = log_dir.file_system
        self.config = config
        self.segments: tuple[Segment, ...] = found.segments
        self.active: Segment = found.segments[-1]
        self.start_offset = found.start_offset
        """The log start offset: the first offset visible to consumers (rule L4)."""
        self.end: LogEnd = found.end
        self.durable_end: LogEnd = found.end
        """The end of what is on the disk, whatever the flush rule."""
        self.epochs: Epochs = found.epochs
        self.producers: Producers = found.producers
        self.damages: tuple[DamageRecord, ...] = found.damages
        self.appended_messages = 0
        self.generation = 0
        """How often the log was truncated since it was opened."""
        self.is_closed = False
        self.lock = threading.Lock()

    @property
    def start_address(self) -> int:
        """The first segment's base address."""
        return self.segments[0].base_address

    def check_open(self) -> None:
        """Raise StorageError if the log dir is offline or the log is closed."""
        if self.log_dir.failure is not None:
            raise self.log_dir.failure.bare()
        if self.is_closed:
            raise StorageError(f"the log of {self.topic_partition} is closed")

    def check_offset(self, offset: int) -> None:
        """Raise OffsetOutOfRange unless log start offset <= ``offset`` <= end address."""
        if offset < self.start_offset or offset > self.end.address:
            raise OffsetOutOfRange(
                f"{self.topic_partition}: offset {offset} is outside {self.start_offset} to {self.end.offset}"
            )

    def read_failed(self, error: StorageError) -> StorageError:
        """The error to raise for a failed read: a disk that cannot read takes its log dir offline.

        Invalid bytes concern this log alone.
        """
        if isinstance(error, CorruptLog):
            return error
        if self.is_closed:  # its files were closed during the read; the disk is not to blame
            return StorageError(f"the log of {self.topic_partition} is closed")
        return self.log_dir.fail(error)

    def begin_segment(self, address: int) -> Segment:
        """Close the active segment and start the next, at the log end or behind a recorded hole. Owner thread."""
        old, log_dir = self.active, self.log_dir
        segment = Segment(self.file_system, self.folder, address, log_dir.pool)
        try:
            segment.create()
        except StorageError as error:
            raise log_dir.write_failed(error) from error
        segment.created_ms = segment.modified_ms = log_dir.clock_ms()
        old.modified_ms = log_dir.clock_ms()
        old.index.close()
        segment.end_offset = segment.base_address
        self.segments = (*self.segments, segment)
        self.active = segment
        return segment
