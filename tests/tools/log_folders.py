"""A real log dir with one partition in several segments, and ways to harm it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from klog.config.topic import LogConfig
from klog.names import TopicPartition
from klog.record.batch import read_header
from klog.record.codec import Codec
from klog.record.records import Record, encode_batch
from klog.storage.filesystem import OsFileSystem
from klog.storage.log_dir import LogDirs

ROWS = TopicPartition("rows", 0)
TOPIC_ID = UUID(int=7)
FIRST_MS = 1_700_000_000_000


class Stored(NamedTuple):
    """A batch where the log put it."""

    file: Path
    address: int
    end: int
    size: int
    count: int

    @property
    def position(self) -> int:
        return self.address - int(self.file.stem)


def records_of(number: int, count: int, value_bytes: int = 100) -> list[Record]:
    first_ms = FIRST_MS + number * 1_000
    return [
        Record(i, first_ms + i, b"k%d" % i, (b"batch %d record %d " % (number, i)).ljust(value_bytes, b"."))
        for i in range(count)
    ]


@contextmanager
def opened(log_dir: Path, **config: int) -> Iterator[LogDirs]:
    """The log dir as a broker has it: locked, its logs recovered."""
    held = LogDirs(OsFileSystem(), (str(log_dir),))
    try:
        held.load(lambda name: LogConfig(**config))
        yield held
    finally:
        held.close()


def fill(log_dir: Path, batches: int = 12, *, segment_bytes: int = 700, producer_id: int = -1) -> list[Stored]:
    """Append batches of 1 to 5 records under all codecs; what is then in the log, in its order."""
    stored = []
    with opened(log_dir, segment_bytes=segment_bytes) as held:
        log = held.log_or_create(ROWS, TOPIC_ID, LogConfig(segment_bytes=segment_bytes))
        sequence = 0
        for number in range(batches):
            rows = records_of(number, 1 + number % 5)
            batch = encode_batch(rows, codec=Codec(number % 5))
            if producer_id >= 0:
                batch = encode_batch(rows, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
            sequence += len(rows)
            result = log.append(memoryview(batch), leader_epoch=number // 4)
            header = read_header(batch)
            stored.append(Stored(Path(), result.base_offset, result.end.address, header.size_bytes, header.count))
    bases = sorted(int(file.stem) for file in folder_of(log_dir).glob("*.log"))
    return [
        one._replace(file=folder_of(log_dir) / f"{max(base for base in bases if base <= one.address):020d}.log")
        for one in stored
    ]


def folder_of(log_dir: Path) -> Path:
    return log_dir / str(ROWS)


def overwrite(file: Path, position: int, data: bytes) -> None:
    with file.open("r+b") as opened_file:
        opened_file.seek(position)
        opened_file.write(data)


def tree(log_dir: Path) -> dict[str, bytes]:
    """Every file and what is in it."""
    return {str(path.relative_to(log_dir)): path.read_bytes() for path in sorted(log_dir.rglob("*")) if path.is_file()}
