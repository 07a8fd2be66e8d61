"""Watches whether the disks answer: one that hangs must not stop what lies on the others (rule L5).

A disk that fails says so, and its log dir goes offline. One that hangs says nothing: a flush, or the write of a
checkpoint, does not come back. After `STALLED_S` the log dir counts as stalled: appends to it are refused as those to a
full disk are, since the next write, or the next segment, might stop the event loop; reads wait in the threads of that
log dir alone; new replicas go elsewhere. When it answers again all goes on. After ``log.dir.hung.ms`` it is offline, as
if it had failed, until the broker is restarted: whoever waits for it is told, and the controller has others lead. So it
is where the making or the removal of a log takes as long.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from klog.errors import RequestTimedOut, StorageError
from klog.server.executors import Purpose

if TYPE_CHECKING:
    from klog.server.broker import Broker
    from klog.storage.log_dir import LogDir

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

STALLED_S: Final = 2.0
"""Well below the time after which the watchdog ends a broker whose loop waits; well above a slow flush.

Until then appends go on: the page cache of a disk that hangs takes them for some seconds (ext4: until its journal wants
to commit). A frozen file system stops the first of them, which no shorter time would help against; a change of threads
for every append would, and costs twenty times the write.
"""
LOOK_EVERY_S: Final = 0.25


async def at_disks(broker: Broker, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Do what the controller wants of replicas, in a thread.

    RequestTimedOut where a disk that it may wait for is given up: said again, it is done without that.
    """

    def given_up() -> set[str]:
        return {one.path for one in broker.log_dirs.dirs if one.failure is not None and one.is_stalled}

    before = given_up()
    doing = asyncio.ensure_future(broker.executors.run(Purpose.REPLICAS, work, *arguments, **named))
    while not (await asyncio.wait((doing,), timeout=LOOK_EVERY_S))[0]:
        if given_up() - before:
            doing.cancel()
            raise RequestTimedOut("a log dir does not answer, and is offline now")
    return doing.result()


class DiskWatch:
    """Event loop only."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._hung_s = broker.config.integer("log.dir.hung.ms") / 1000
        self._watching: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._watching = self._broker.spawn(self._watch())

    def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            for one in self._broker.log_dirs.dirs:
                if one.failure is None:
                    self._look(one)

    def _look(self, one: LogDir) -> None:
        since = [self._broker.flusher.busy_since_s(one.path), one.checkpoints.busy_since_s]
        busy_s = max((time.monotonic() - at_s for at_s in since if at_s is not None), default=0.0)
        makes_s = 0.0 if one.busy_since_s is None else time.monotonic() - one.busy_since_s  # many may take a while
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
        self._broker.flusher.give_up(one.path)
        for there in list(one.logs.values()):
            self._broker.replicas.flushed(there, failure)
        self._broker.replicas.look_at_disks()
