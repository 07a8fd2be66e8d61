"""What a broker is doing: starting, serving, stopping; and why it stops."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Final

from klog.errors import KlogError

RESTART_CODE: Final = 75
"""A broker process ends with this code when it is to be started again at once."""


class BrokerState(Enum):
    """0.8's names of a broker's states."""

    STARTING = "Starting"
    RUNNING = "RunningAsBroker"
    CONTROLLER = "RunningAsController"
    STOPPING = "BrokerShuttingDown"


class Lifecycle:
    """Event loop only; `state` may be read from any thread."""

    def __init__(self, stopping: asyncio.Event) -> None:
        self.state = BrokerState.STARTING
        self.stopping = stopping
        """Set when the controlled shutdown begins."""
        self.reason = ""
        self.restart = False
        """Whether it is to serve again after the stop."""
        self.failure: KlogError | None = None
        """The fault that ends the broker; None where the stop was asked for."""

    @property
    def is_stopping(self) -> bool:
        return self.stopping.is_set()

    def stop_soon(self, reason: str, failure: KlogError | None = None, *, restart: bool = False) -> None:
        """Begin the controlled shutdown. The first reason counts, and whether the broker is to serve again."""
        if failure is not None:
            self.failure = failure
        if not self.is_stopping:
            self.reason = reason
            self.restart = restart
            self.stopping.set()
