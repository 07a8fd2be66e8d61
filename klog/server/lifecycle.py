"""A broker's state: starting, serving, stopping; and the reason of the stop."""

from __future__ import annotations

import asyncio
import logging
from enum import Enum
from typing import Final

from klog.errors import KlogError

log = logging.getLogger(__name__)

RESTART_CODE: Final = 75
"""Exit code of a broker process that is to be started again at once."""


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
        self.restart = False
        """Whether to serve again after the stop."""
        self.failure: KlogError | None = None
        """The fault that ends the broker; None after a request to stop."""

    @property
    def is_stopping(self) -> bool:
        return self.stopping.is_set()

    def stop_soon(self, reason: str, failure: KlogError | None = None, *, restart: bool = False) -> None:
        """Start the controlled shutdown. The first call's reason and ``restart`` count."""
        if failure is not None:
            self.failure = failure
        if not self.is_stopping:
            log.info("stopping: %s", reason)
            self.restart = restart
            self.stopping.set()
