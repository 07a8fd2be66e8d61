"""What is done to all logs by the clock, while others are made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from klog.config import BrokerConfig
from klog.config.topic import LogConfig
from klog.names import TopicPartition
from klog.server.log_care import LogCare
from klog.storage.log import Log
from tests.faulty_filesystem import FaultyFileSystem
from tests.storage.log_cases import NAME, TOPIC_ID, log_in, open_dir


def test_high_watermarks_are_kept_while_a_log_is_made() -> None:
    """Logs are made in threads: a round was lost for it, with a traceback in the broker's log."""
    log_dir = open_dir(FaultyFileSystem())
    log_in(log_dir)
    other = TopicPartition("other", 0)

    def high_watermark(one: Log) -> int:
        log_dir.create({other: (TOPIC_ID, LogConfig())})
        return 7

    async def run_at(path: str, purpose: object, act: Callable[..., object], *arguments: Any) -> None:
        act(*arguments)

    broker: Any = SimpleNamespace(
        config=BrokerConfig.parse({}),
        log_dirs=SimpleNamespace(logs=list, dirs=[log_dir]),
        replicas=SimpleNamespace(high_watermark=high_watermark),
        executors=SimpleNamespace(run_at=run_at),
    )
    asyncio.run(LogCare(broker)._keep_high_watermarks_in(log_dir))
    assert log_dir.checkpoints.high_watermarks() == {NAME: 7}
    assert other in log_dir.logs
