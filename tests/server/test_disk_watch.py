"""When a log dir counts as stalled, and when as failed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from klog.config import BrokerConfig
from klog.config.topic import LogConfig
from klog.coordination.zookeeper import ZooKeeper
from klog.server.executors import Executors
from klog.server.replicas.disk_watch import STALLED_S, DiskWatch
from klog.server.runtime import Identity, Runtime
from klog.storage.flusher import Flusher
from klog.storage.log_dir import LogDir, LogDirs
from tests.faulty_filesystem import FaultyFileSystem
from tests.hand_clock import HandClock

HUNG_S = 30.0


class Replicas:
    """Counts how often it is told to look at the disks."""

    def __init__(self) -> None:
        self.looks = 0

    def look_at_disks(self) -> None:
        self.looks += 1


def watched(work: Callable[[DiskWatch, LogDir, HandClock, Replicas], None]) -> None:
    async def run() -> None:
        executors, clock, replicas = Executors(), HandClock(), Replicas()
        file_system = FaultyFileSystem()
        log_dirs = LogDirs(file_system, ("/data",))
        log_dirs.load(lambda name: LogConfig())
        config = BrokerConfig.parse({"log.dir.hung.ms": str(round(HUNG_S * 1000))})
        loop = asyncio.get_running_loop()
        runtime = Runtime(config, Identity(1), executors, ZooKeeper("127.0.0.1:1"), loop)
        flusher = Flusher(runtime.from_thread, lambda log, outcome: None, file_system, clock)
        there: Any = replicas
        work(DiskWatch(runtime, log_dirs, flusher, there, clock), log_dirs.dirs[0], clock, replicas)
        executors.close()

    asyncio.run(run())


def test_a_disk_that_answers_again_is_appended_to_again() -> None:
    def work(watch: DiskWatch, one: LogDir, clock: HandClock, replicas: Replicas) -> None:
        one.checkpoints.busy_since_s = clock.monotonic_s()
        clock.move(STALLED_S / 2)
        watch._look(one)
        assert not one.is_stalled
        clock.move(STALLED_S)
        watch._look(one)
        assert one.is_stalled
        one.checkpoints.busy_since_s = None
        watch._look(one)
        assert not one.is_stalled
        assert (one.failure, replicas.looks) == (None, 0)

    watched(work)


@pytest.mark.parametrize("making", [False, True], ids=["a checkpoint", "a log"])
def test_a_disk_that_hangs_for_long_is_offline(making: bool) -> None:
    def work(watch: DiskWatch, one: LogDir, clock: HandClock, replicas: Replicas) -> None:
        busy: Any = one if making else one.checkpoints
        busy.busy_since_s = clock.monotonic_s()
        clock.move(HUNG_S - 1)
        watch._look(one)
        assert one.failure is None
        assert one.is_stalled is not making  # many logs may take a while
        clock.move(1)
        watch._look(one)
        assert one.failure is not None
        assert replicas.looks == 1

    watched(work)
