"""Signals that ask for a stop, counted."""

from __future__ import annotations

import time

ECHO_S = 0.1
"""A signal within this time is the first one's echo: no person is so quick. A program that runs commands (``timeout``)
sends it to the process and to its group; a service manager may send SIGHUP right behind SIGTERM."""


class StopRequest:
    """How often a stop was asked for by a signal. Of the first one's echo, by whatever signal, nothing is made."""

    def __init__(self) -> None:
        self.count = 0
        self.first_s = 0.0

    def again(self) -> bool:
        """Count one; False for an echo."""
        now_s = time.monotonic()
        if self.count and now_s - self.first_s < ECHO_S:
            return False
        if not self.count:
            self.first_s = now_s
        self.count += 1
        return True
