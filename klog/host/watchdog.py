"""Ends the process when its event loop hangs (rule L8).

kazoo keeps the ZooKeeper session of a process whose loop is blocked, so a broker that answers no request would look
alive to every other process. A thread watches a heartbeat of the loop. After a session time-out without one it writes
every thread's stack to stderr and ends the process at once. Acknowledged messages are safe, because they are flushed.

A process that was paused (SIGSTOP, a sleeping laptop) does not count as hung: the watchdog was paused too, and starts
its measurement again.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import sys
import threading
import time

log = logging.getLogger(__name__)

HEARTBEAT_S = 0.5
EXIT_CODE = 70
"""EX_SOFTWARE of sysexits.h: an internal error."""


class Watchdog:
    """Started on the event loop that it watches."""

    def __init__(self, silence_max_s: float) -> None:
        self._silence_max_s = silence_max_s
        self._beat_s = time.monotonic()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._beat()
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self) -> None:
        assert self._loop is not None
        self._beat_s = time.monotonic()
        self._timer = self._loop.call_later(HEARTBEAT_S, self._beat)

    def _watch(self) -> None:
        woke_s = time.monotonic()
        while not self._stopping.wait(HEARTBEAT_S):
            now_s = time.monotonic()
            if now_s - woke_s > 4 * HEARTBEAT_S:
                self._beat_s = now_s
            woke_s = now_s
            if now_s - self._beat_s > self._silence_max_s:
                log.critical(
                    "the event loop has been silent for %.1f s (zookeeper.session.timeout.ms): ending the process, "
                    "for a broker that hangs must not look alive",
                    now_s - self._beat_s,
                )
                faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
                os._exit(EXIT_CODE)
