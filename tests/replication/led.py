"""A partition led over a real log, for tests: what is flushed, fetched and written down is done by the test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from klog.config import LogConfig
from klog.coordination.partition_states import PartitionState
from klog.errors import KlogError
from klog.names import TopicPartition
from klog.record.records import Record, encode_batch
from klog.replication.isr import IsrChange
from klog.replication.led_partition import LedPartition
from klog.storage.checkpoints import CheckpointedDir
from klog.storage.filesystem import OsFileSystem
from klog.storage.log import Log, LogEnd

NAME = TopicPartition("t", 0)
NEVER = 2**63 - 1
LAG_S = 10.0
ALIVE = {1: 11, 2: 22, 3: 33}
"""Broker id -> incarnation, as the replicas of a `Led` report themselves unless told otherwise."""


class Waiter:
    def __init__(self) -> None:
        self.told: list[KlogError | None] = []

    def committed(self, error: KlogError | None) -> None:
        self.told.append(error)


class Reader:
    def __init__(self) -> None:
        self.times = 0

    def more(self, partition: object) -> None:
        self.times += 1


def records(count: int = 1) -> memoryview:
    batch = encode_batch([Record(index, 1000, None, b"x" * 20, ()) for index in range(count)])
    return memoryview(bytearray(batch))


def state_of(isr: tuple[int, ...], incarnations: tuple[int, ...] = (), version: int = -1) -> PartitionState:
    """Broker 1 leads."""
    return PartitionState(1, 3, isr, 1, version=version, incarnations=incarnations)


def lead(log: Log, state: PartitionState, **others: Any) -> LedPartition:
    """Broker 1 leads; nobody is asked for anything, unless ``others`` name somebody."""
    silent = {"want_flush": lambda log: None, "want_isr": lambda partition: None}
    usual = {"incarnation": ALIVE[1], "replicas": (1, 2, 3)}
    return LedPartition(log.topic_partition, log, broker_id=1, state=state, **{**silent, **usual, **others})


class Led:
    """Broker 1 leads in epoch 3; the replicas are 1, 2 and 3, and ``isr`` of them in sync."""

    def __init__(self, folder: Path, isr: tuple[int, ...] = (1, 2, 3), before: int = 0, **config: Any) -> None:
        """``before``: batches that were there already, flushed, when the leader was elected."""
        folder.mkdir()
        self.log = Log.open(CheckpointedDir(OsFileSystem(), str(folder)), str(folder), NAME, LogConfig(**config))
        for _ in range(before):
            self.log.append(records(), 2)
        self.log.flush()
        self.noticed = self.flushes_wanted = 0
        self.log.begin_epoch(3)
        state = state_of(isr, tuple(ALIVE[one] for one in isr), 7)
        self.partition = lead(
            self.log, state, high_watermark=LogEnd(0, 0), want_isr=self._notice, want_flush=self._want_flush
        )

    def _notice(self, partition: LedPartition) -> None:
        self.noticed += 1

    def _want_flush(self, log: Log) -> None:
        self.flushes_wanted += 1

    def append(self) -> tuple[LogEnd, Waiter]:
        """One batch with acks=all: where it ends, and who waits for it."""
        waiter = Waiter()
        end = self.partition.append(records()).end
        assert not self.partition.when_committed(end.address, waiter)
        return end, waiter

    def flush(self) -> LogEnd:
        end = self.log.flush()
        self.partition.flushed(end)
        return end

    def fetched(
        self, broker_id: int, flushed: LogEnd, end_address: int | None = None, incarnation: int | None = None
    ) -> None:
        """A follower reports; by default all that it has is flushed."""
        self.partition.replica_fetched(
            broker_id,
            ALIVE[broker_id] if incarnation is None else incarnation,
            flushed.address if end_address is None else end_address,
            flushed,
            0.0,
        )

    def propose(self, now_s: float = 0.0, alive: dict[int, int] | None = None) -> IsrChange | None:
        return self.partition.propose_isr(now_s, ALIVE if alive is None else alive, LAG_S)

    def settle(self, change: IsrChange) -> None:
        """It stands in ZooKeeper now."""
        self.partition.isr_written(change, change.state_version + 1)
