"""What `klog stream list` and `status` show: from the streams' folders, and the lag from the brokers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from klog.client.positions import LATEST
from klog.client.raw_fetch import Range, RawCluster
from klog.names import TopicPartition
from klog.spark.planning import messages_in
from klog.streams.folder import LastBatch, Progress, StreamFolder

RUNNING, STOPPED, FAILED, KILLED = "running", "stopped", "failed", "killed"


@dataclass(frozen=True, slots=True)
class StreamRow:
    """One stream. ``state``: running; stopped, by `stop` or at its end; failed; killed, without having said why."""

    name: str
    state: str
    from_: str
    to: str
    program: str
    batch: int | None
    batch_at: str | None


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One batch of a stream that runs."""

    batch: int | None
    at: str | None
    rows: int | None
    ms: int | None
    watermark: str | None
    late: int

    @classmethod
    def of(cls, progress: Progress) -> BatchRow:
        return cls(
            progress.batch, progress.batch_at, progress.rows, progress.batch_ms, progress.watermark, progress.late
        )


@dataclass(frozen=True)
class _Named:
    """``lag``: messages that wait; None where it is unknown, or none was read yet."""

    name: str
    state: str
    lag: int | None


@dataclass(frozen=True)
class StreamStatus(LastBatch, _Named):
    """One stream with its last batch."""


def state_of(folder: StreamFolder, progress: Progress | None) -> str:
    if folder.is_running():
        return RUNNING
    if progress is None or not progress.is_over:
        return KILLED
    return FAILED if progress.error else STOPPED


def rows(folders: Sequence[StreamFolder]) -> list[StreamRow]:
    found = []
    for folder in folders:
        known, progress = folder.existing(), folder.progress()
        found.append(
            StreamRow(
                folder.name,
                state_of(folder, progress),
                " ".join(known.sources),
                known.target,
                " ".join(known.program.split()),
                None if progress is None else progress.batch,
                None if progress is None else progress.batch_at,
            )
        )
    return found


def status(folders: Sequence[StreamFolder], servers: str) -> list[StreamStatus]:
    """The brokers at ``servers`` count the lag of those that read there."""
    found = []
    with RawCluster(servers) as cluster:
        for folder in folders:
            folder.existing()
            known = folder.progress()
            progress = known or Progress()
            batch = {one.name: getattr(progress, one.name) for one in fields(LastBatch)}
            found.append(StreamStatus(folder.name, state_of(folder, known), lag(cluster, progress), **batch))
    return found


def lag(cluster: RawCluster, progress: Progress) -> int | None:
    """The messages behind what was read."""
    if not progress.offsets:
        return None
    there = cluster.describe(list(progress.offsets))
    waiting = []
    for topic, partitions in progress.offsets.items():
        if topic not in there:
            return None
        names = [TopicPartition(topic, number) for number in there[topic].partitions]
        for one, end in cluster.offsets(dict.fromkeys(names, LATEST)).items():
            begin = partitions.get(str(one.partition), 0)
            if begin < end:
                waiting.append(Range(topic, one.partition, begin, end))
    return messages_in(cluster, waiting)
