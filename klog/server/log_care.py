"""What is done for the logs at intervals: roll by age, retention, checkpoints. Event loop only."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from klog.server.broker import Broker

log = logging.getLogger(__name__)


class LogCare:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._timers: list[asyncio.TimerHandle] = []

    def start(self) -> None:
        pass

    def stop(self) -> None:
        for timer in self._timers:
            timer.cancel()
