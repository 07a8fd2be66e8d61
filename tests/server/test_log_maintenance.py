"""What is done to all logs by the clock, while others are made."""

from __future__ import annotations

import asyncio

from klog.config import BrokerConfig
from klog.config.topic import LogConfig
from klog.coordination.zookeeper import ZooKeeper
from klog.names import TopicPartition
from klog.replication.follower import Follower
from klog.replication.led_partition import LedPartition
from klog.server.executors import Executors
from klog.server.image import ClusterImage
from klog.server.replicas.deletions import Deletions
from klog.server.replicas.log_maintenance import LogMaintenance
from klog.server.runtime import Identity, Runtime
from klog.storage.log import Log
from klog.storage.log_dir import LogDirs
from tests.faulty_filesystem import FaultyFileSystem
from tests.storage.log_cases import NAME, TOPIC_ID, log_in


class Replicas:
    """Makes another log whenever it is asked for a high watermark."""

    def __init__(self, log_dirs: LogDirs, other: TopicPartition) -> None:
        self.partitions: dict[TopicPartition, LedPartition] = {}
        self.followed: dict[TopicPartition, Follower] = {}
        self._log_dirs = log_dirs
        self._other = other

    def high_watermark(self, one: Log) -> int:
        self._log_dirs.logs_or_create({self._other: (TOPIC_ID, LogConfig())})
        return 7

    def damaged(self, one: Log, first: int, end: int) -> None:
        raise AssertionError("nothing is damaged")


async def test_high_watermarks_are_kept_while_a_log_is_made() -> None:
    """Logs are made in threads: a round was lost for it, with a traceback in the broker's log."""
    executors = Executors()
    log_dirs = LogDirs(FaultyFileSystem(), ("/data",))
    log_dirs.load(lambda name: LogConfig())
    (log_dir,) = log_dirs.dirs
    log_in(log_dir)
    other = TopicPartition("other", 0)
    runtime = Runtime(
        BrokerConfig.parse({}),
        Identity(1),
        executors,
        ZooKeeper("127.0.0.1:1"),
        asyncio.get_running_loop(),
    )
    maintenance = LogMaintenance(runtime, ClusterImage(), log_dirs, Deletions(executors), Replicas(log_dirs, other))
    await maintenance._keep_high_watermarks_in(log_dir)
    assert log_dir.checkpoints.high_watermarks() == {NAME: 7}
    assert other in log_dir.logs
    executors.close()
