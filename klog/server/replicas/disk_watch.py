"""Detects disks that hang, which must not stop the others (rule L5).

A disk that fails reports an error, and its log dir goes offline. A disk that hangs reports nothing: a flush, or the
write of a checkpoint, does not return. After `STALLED_S` the log dir counts as stalled: appends to it fail as on a full
disk, since the next write, or the next segment, might block the event loop; reads wait in the threads of that log dir
alone; new replicas go elsewhere. When the disk answers again, appends go on. After ``log.dir.hung.ms`` the log dir is
offline, as if the disk had failed, until the broker restarts: each request that waits for it gets an error, and the
controller elects other leaders. The same holds where creating or removing one log takes as long.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from klog.clock import SYSTEM_CLOCK, Clock
from klog.errors import StorageError
from klog.server.replicas.disk_wait import LOOK_EVERY_S
from klog.server.replicas.replicas import Replicas
from klog.server.runtime import Runtime
from klog.storage.flusher import Flusher
from klog.storage.log_dir import LogDir, LogDirs

log = logging.getLogger(__name__)

STALLED_S: Final = 2.0
"""Well below the time after which the watchdog ends a broker whose loop waits; well above a slow flush.

Until then appends go on: the page cache of a disk that hangs takes them for some seconds (ext4: until its journal must
commit). A frozen file system blocks the first append, which no shorter time would prevent; a change of threads for
every append would, and costs twenty times the write.
"""


class DiskWatch:
    """Event loop only."""

    def __init__(
        self,
        runtime: Runtime,
        log_dirs: LogDirs,
        flusher: Flusher,
        replicas: Replicas,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self._runtime = runtime
        self._log_dirs = log_dirs
        self._flusher = flusher
        self._replicas = replicas
        self._hung_s = runtime.config.integer("log.dir.hung.ms") / 1000
        self._watching: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._watching = self._runtime.spawn(self._watch())

    def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            for one in self._log_dirs.dirs:
                if one.failure is None:
                    self._look(one)

    def _look(self, one: LogDir) -> None:
        since = [self._flusher.busy_since_s(one.path), one.checkpoints.busy_since_s]
        makes_since_s = one.busy_since_s  # read once: threads set it, and set it to None
        now_s = self._clock.monotonic_s()
        busy_s = max((now_s - at_s for at_s in since if at_s is not None), default=0.0)
        makes_s = 0.0 if makes_since_s is None else now_s - makes_since_s  # many may take a while
        if max(busy_s, makes_s) >= self._hung_s:
            self._give_up(one, max(busy_s, makes_s))
        elif busy_s >= min(STALLED_S, self._hung_s / 2) and not one.is_stalled:
            one.stall()
            log.error("log dir %s does not answer: nothing is appended there until it does", one.path)
        elif not busy_s and one.is_stalled:
            one.resume()
            log.warning("log dir %s answers again", one.path)

    def _give_up(self, one: LogDir, busy_s: float) -> None:
        one.stall()
        failure = one.fail(StorageError(f"it has not answered for {busy_s:.0f} s (log.dir.hung.ms)"))
        log.error("%s", failure.message)
        self._flusher.give_up(one.path)
        for there in list(one.logs.values()):
            self._replicas.flushed(there, failure)
        self._replicas.look_at_disks()
