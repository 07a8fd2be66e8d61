"""What brokers' log dirs tell of the registries: read without a broker, and nothing is written.

A log dir tells whose it is (``meta.properties``), what its broker knew of the cluster (``registry-checkpoint``), and of
each replica in it the topic's id and how far it goes: the epoch and the end of its last batch that checks, which is
where the broker's recovery would end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from klog.coordination.registry_copy import FILE, RegistryCopy
from klog.errors import NoSuchThing, Refused, UsageError
from klog.metrics import Count
from klog.names import TopicPartition
from klog.storage import meta_properties, partition_folder
from klog.storage.epochs import NO_EPOCH
from klog.storage.filesystem import OsFileSystem
from klog.storage.meta_properties import MetaProperties
from klog.tools.log_survey import Batch, find_folders, locked, survey


class Reach(NamedTuple):
    """How far a replica goes. Of two of a partition, the greater has all that is acknowledged of the other.

    Replicas of one epoch hold the same up to where the shorter one ends; and a leader of a later epoch had all that was
    acknowledged before (rules R1, R3).
    """

    leader_epoch: int
    end: int
    """The address behind the last batch."""


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    topic_id: UUID
    reach: Reach
    folder: str


@dataclass(frozen=True, slots=True)
class DirFacts:
    """One log dir. ``copy`` is None where its broker has kept none."""

    path: str
    cluster_id: str
    broker_id: int
    copy: RegistryCopy | None
    producer_id_max: int
    """The largest in the last segments; -1 where there is none."""
    replicas: dict[TopicPartition, ReplicaFacts] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    """Folders with a partition's name and no topic id."""


@contextmanager
def held(dirs: Sequence[Path]) -> Iterator[None]:
    """No broker starts on them meanwhile. LogDirLocked where one runs."""
    with ExitStack() as locks:
        for path in dirs:
            if not (path / meta_properties.NAME).is_file():
                raise NoSuchThing(
                    f"{path} is not a broker's log dir: it has no {meta_properties.NAME}",
                    hint="--dir takes a folder of log.dirs",
                )
            locks.enter_context(locked(path, "stop all brokers of the cluster first"))
        yield


def read_dirs(dirs: Sequence[Path], count: Count | None = None) -> list[DirFacts]:
    """All of them, which must be of one cluster: Refused where they are not; UsageError for one given twice.

    ``count``: of folders of partitions.
    """
    count = count or Count()
    seen: dict[tuple[int, int], Path] = {}
    for path in dirs:
        status = path.stat()
        first = seen.setdefault((status.st_dev, status.st_ino), path)
        if first is not path:
            raise UsageError(f"--dir {path} is {first}: give each log dir once")
    folders = {path: _partition_folders(path) for path in dirs}
    count.total = sum(map(len, folders.values()))
    found = [_read_dir(path, folders[path], count) for path in dirs]
    clusters = {one.cluster_id: one.path for one in found}
    if len(clusters) > 1:
        named = "; ".join(f"{path} of {cluster}" for cluster, path in clusters.items())
        raise Refused(f"the log dirs belong to {len(clusters)} clusters: {named}", hint="give those of one cluster")
    return found


def _partition_folders(path: Path) -> list[tuple[TopicPartition, str]]:
    entries = sorted((one.name, f"{path}/{one.name}") for one in OsFileSystem().scan(str(path)) if one.is_folder)
    named = ((partition_folder.parse_folder_name(name), folder) for name, folder in entries)
    return [(name, folder) for name, folder in named if name is not None]


def _read_dir(path: Path, folders: Sequence[tuple[TopicPartition, str]], count: Count) -> DirFacts:
    file_system = OsFileSystem()
    meta = MetaProperties(file_system, str(path))
    if meta.cluster_id is None or meta.broker_id is None:
        raise Refused(f"{path} does not belong to a cluster yet: no broker has used it", hint="leave it out")
    data = file_system.read(str(path / FILE))
    copy = None if data is None else RegistryCopy.parse(data, str(path / FILE))
    replicas: dict[TopicPartition, ReplicaFacts] = {}
    unknown = []
    producer_id_max = -1
    for name, folder in folders:
        count.done += 1
        topic_id = partition_folder.read_topic_id(file_system, folder)
        if topic_id is None:
            unknown.append(folder)
            continue
        reach, producer_id = _look(folder)
        replicas[name] = ReplicaFacts(topic_id, reach, folder)
        producer_id_max = max(producer_id_max, producer_id)
    return DirFacts(str(path), meta.cluster_id, meta.broker_id, copy, producer_id_max, replicas, tuple(unknown))


def _look(folder: str) -> tuple[Reach, int]:
    """Of the last segment that has a batch, and the largest producer id in it; an empty log reaches to its start."""
    try:
        ((_, segments),) = find_folders(folder)
    except NoSuchThing:
        return Reach(NO_EPOCH, 0), -1
    for at in range(len(segments) - 1, -1, -1):
        last, producer_id = None, -1
        for one in survey(folder, segments[at:]):
            if isinstance(one, Batch):
                last, producer_id = one, max(producer_id, one.header.producer_id)
        if last is not None:
            return Reach(last.header.leader_epoch, last.end), producer_id
    return Reach(NO_EPOCH, segments[0].base_address), -1
