"""The disk of a log dir: whether it serves, is full, answers; its files and clocks."""

from __future__ import annotations

import time
from collections.abc import Callable

from klog.clock import SYSTEM_CLOCK, Clock
from klog.errors import DiskFull, NoDescriptors, StorageError
from klog.storage.file_pool import FilePool
from klog.storage.filesystem import FileSystem

RESERVE = ".reserve"
RESERVE_BYTES = 256 * 1024
"""Space for the log start offsets of some thousand partitions."""
ROOM_BYTES_MIN = 1 << 20
"""Free space, besides the append, at which a full disk accepts appends again; with less it would soon be full."""


def boot_clock_ms() -> int:
    """A monotonic clock that also counts suspended time."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class Disk:
    """Shared by all logs of one log dir, and by their checkpoints. Thread-safe."""

    def __init__(
        self,
        file_system: FileSystem,
        path: str,
        pool: FilePool | None = None,
        clock_ms: Callable[[], int] = SYSTEM_CLOCK.now_ms,
    ) -> None:
        """``clock_ms`` dates what is written."""
        self.file_system = file_system
        self.path = path
        self.pool = FilePool() if pool is None else pool
        self.clock_ms = clock_ms
        self.clock: Clock = SYSTEM_CLOCK
        """Measures how long the disk has been busy."""
        self.failure: StorageError | None = None
        """Why the dir is offline; None while it serves. Final once set."""
        self.is_full = False
        self.is_stalled = False
        """The disk has not answered for a while: the owner thread must not touch it."""

    def stall(self) -> None:
        """Refuse appends until `resume`, as a full disk does: a write might block."""
        self.is_stalled = self.is_full = True

    def resume(self) -> None:
        """The disk has answered; the next append checks for space."""
        self.is_stalled = False

    def fail(self, error: StorageError) -> StorageError:
        """Take the dir offline after an I/O error, unless only descriptors ran out. Returns the error to raise."""
        if isinstance(error, NoDescriptors):
            return error.bare()
        if self.failure is None:
            self.failure = StorageError(
                f"log dir {self.path} is offline: {error.message}",
                hint="repair or replace the disk, then restart the broker",
            )
        return self.failure.bare()

    def write_failed(self, error: StorageError) -> StorageError:
        """The error to raise for a failed write. A full disk refuses appends until there is space again (rule L5); any
        other disk that cannot write takes the dir offline."""
        if isinstance(error, DiskFull):
            self.is_full = True
            return error.bare()
        return self.fail(error)

    def check_room(self, size: int) -> None:
        """Raise DiskFull while there is no space for ``size`` bytes; otherwise the dir is no longer full."""
        if self.is_stalled:
            raise DiskFull(
                f"log dir {self.path} does not answer",
                hint="appends resume by themselves when it does; look at the disk",
            )
        free = self.file_system.free_bytes(self.path)
        if free < size + ROOM_BYTES_MIN:
            raise DiskFull(
                f"log dir {self.path} is full: {free} bytes are free",
                hint="appends resume by themselves when there is room; shorten the retention or add a disk",
            )
        self.is_full = False
        self.keep_reserve()

    def give_reserve(self) -> bool:
        """Release the reserve; False if it is gone already."""
        path = f"{self.path}/{RESERVE}"
        if not self.file_system.exists(path):
            return False
        self.file_system.remove(path)
        return True

    def keep_reserve(self) -> None:
        """Reserve the space that retention needs on a full disk: it writes a checkpoint before it deletes."""
        path = f"{self.path}/{RESERVE}"
        try:
            if not self.file_system.exists(path):
                self.file_system.replace(path, bytes(RESERVE_BYTES))
        except StorageError:
            pass  # no space yet, or a failing disk, which the next write reports
