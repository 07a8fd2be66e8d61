"""Batches, logs and log dirs for the storage tests."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from klog.config.topic import LogConfig
from klog.names import TopicPartition
from klog.record.batch import HEADER_BYTES, BatchHeader, read_header, walk, write_header
from klog.record.codec import Codec
from klog.record.records import Record, encode_batch
from klog.storage.checkpoints import CheckpointedDir
from klog.storage.file_pool import FilePool
from klog.storage.filesystem import FileSystem
from klog.storage.log import Log
from klog.storage.log_dir import LogDir, RetentionRun
from klog.storage.retention import Deletion
from klog.storage.segment import FileRange
from tests.faulty_filesystem import FaultyFileSystem

NAME = TopicPartition("t", 0)
TOPIC_ID = UUID(int=7)
FOLDER = "/log"
LONG_MAX = 2**63 - 1
NEVER = LogConfig(flush_messages=LONG_MAX, flush_ms=LONG_MAX)


class Stored(NamedTuple):
    """A batch as the log must have it."""

    address: int
    data: bytes
    header: BatchHeader


def batch(
    count: int = 1,
    *,
    value_bytes: int = 20,
    first_ms: int = 1_000,
    producer_id: int = -1,
    epoch: int = 0,
    sequence: int = 0,
    mark: int = 0,
) -> bytearray:
    """An uncompressed batch of real records, a millisecond apart."""
    records = [
        Record(i, first_ms + i, None, (b"%d/%d " % (mark, i)).ljust(value_bytes, b".")[:value_bytes], ())
        for i in range(count)
    ]
    producer = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
    return bytearray(encode_batch(records, **(producer if producer_id >= 0 else {})))


def dense_batch(count: int, body_bytes: int = 10, *, first_ms: int = 1_000, mark: int = 0) -> bytearray:
    """A batch whose header says that it has ``count`` records, more than bytes; what is in it is never decoded."""
    data = bytearray(HEADER_BYTES + body_bytes)
    data[HEADER_BYTES:] = mark.to_bytes(4, "big").ljust(body_bytes, b"d")[:body_bytes]
    header = BatchHeader(0, len(data) - 12, -1, 2, 0, Codec.ZSTD, count - 1, first_ms, first_ms, -1, -1, -1, count)
    write_header(data, 0, header)
    return data


def new_disk() -> FaultyFileSystem:
    disk = FaultyFileSystem()
    disk.make_folder(FOLDER)
    disk.sync_folder("/")
    return disk


def open_log(disk: FileSystem, config: LogConfig | None = None, folder: str = FOLDER) -> Log:
    """A log by itself: every open checks all of it."""
    home = CheckpointedDir(disk, folder, clock_ms=lambda: 1_000)
    return Log.open(home, folder, NAME, config or LogConfig())


def open_dir(disk: FileSystem, config: LogConfig | None = None, clock_ms: int = 1_000, path: str = "/data") -> LogDir:
    """A log dir with its checkpoints, loaded."""
    log_dir = LogDir(disk, path, FilePool(4), lambda: clock_ms)
    log_dir.load(lambda name: config or LogConfig())
    return log_dir


def log_in(log_dir: LogDir, config: LogConfig | None = None, name: TopicPartition = NAME) -> Log:
    """The one log of the tests, made if it is not there."""
    return log_dir.logs.get(name) or log_dir.create({name: (TOPIC_ID, config or LogConfig())})[name]


def dir_and_log(disk: FileSystem, config: LogConfig | None = None) -> tuple[LogDir, Log]:
    """A loaded log dir, and the one log of the tests in it."""
    log_dir = open_dir(disk, config)
    return log_dir, log_in(log_dir, config)


def append(log: Log, *batches: bytes | bytearray, epoch: int = 1) -> list[Stored]:
    """Append a record set; what the log must have of it now."""
    data = bytearray().join(batches)
    result = log.append(memoryview(data), epoch)
    stored, at = [], 0
    address = result.base_offset
    for _ in batches:
        header = read_header(data, at)
        assert header.base_offset == address
        stored.append(Stored(address, bytes(data[at : at + header.size_bytes]), header))
        at += header.size_bytes
        address += max(header.size_bytes, header.count)
    assert result.end.address == log.end.address == address
    assert result.end.offset == log.end.offset == stored[-1].address + stored[-1].header.count
    return stored


def bytes_of(ranges: list[FileRange]) -> bytes:
    return b"".join(file.read_at(position, size) for file, position, size in ranges)


def split(data: bytes) -> list[Stored]:
    """Whole batches, and nothing between them: raises otherwise."""
    return [Stored(header.base_offset, data[at : at + header.size_bytes], header) for at, header in walk(data)]


def read_all(log: Log, max_bytes: int = 1 << 20, offset: int | None = None) -> list[Stored]:
    """What a consumer gets that reads from the start to the end as clients do: on from the last record + 1."""
    found: list[Stored] = []
    offset = log.start_offset if offset is None else offset
    while True:
        got = split(bytes_of(log.read(offset, max_bytes, log.end.address)))
        if not got:
            assert offset >= log.end.offset, f"nothing at {offset}, the end is {log.end}"
            return found
        found += got
        offset = got[-1].header.last_offset + 1


def delete_records(log: Log, offset: int) -> int:
    """Raise the log start offset to ``offset``, and remove segments below it. Returns the log start offset."""
    run_deletion(log, log.plan_records_deletion(offset))
    return log.start_offset


def delete_old_segments(log: Log, now_ms: int, limit_address: int | None = None) -> int:
    """Apply retention; returns the number of removed segments."""
    return run_deletion(log, log.plan_deletion(now_ms, limit_address=limit_address))


def run_deletion(log: Log, deletion: Deletion | None) -> int:
    return RetentionRun([] if deletion is None else [(log, deletion)]).run()
