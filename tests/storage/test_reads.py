"""Reads on a real disk: ranges that outlive their segment, few descriptors, readers beside a writer."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import psutil
import pytest

from klog.config.topic import LogConfig
from klog.errors import KlogError, OffsetOutOfRange
from klog.record.batch import walk
from klog.storage.checkpoints import CheckpointedDir
from klog.storage.file_pool import FilePool
from klog.storage.filesystem import OsFileSystem
from klog.storage.log import FileRange, Log
from tests.storage.log_cases import NAME, append, batch, delete_old_segments, dense_batch

FILE_SYSTEM = OsFileSystem()


def new_log(folder: Path, config: LogConfig | None = None, open_files_max: int = 8) -> Log:
    folder.mkdir(exist_ok=True)
    home = CheckpointedDir(FILE_SYSTEM, str(folder), FilePool(open_files_max), clock_ms=lambda: 10**12)
    return Log.open(home, str(folder), NAME, config or LogConfig())


def pread(one: FileRange) -> bytes:
    return os.pread(one.file.fileno(), one.size, one.position)


def test_a_range_can_be_sent_after_its_segment_is_gone(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0", LogConfig(segment_bytes=100, retention_ms=1_000))
    first = append(log, batch(1, first_ms=5))[0]
    append(log, batch(1, first_ms=10**12))
    (held,) = log.read(0, 100, log.end.address)
    assert delete_old_segments(log, 10**12) == 1
    assert not (tmp_path / "t-0" / f"{0:020d}.log").exists()
    assert pread(held) == first.data
    descriptor = held.file.fileno()
    del held
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        os.fstat(descriptor)


def test_few_descriptors_however_many_segments(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0", LogConfig(segment_bytes=100), open_files_max=4)
    stored = [append(log, batch(1, mark=mark))[0] for mark in range(30)]
    log.flush()
    held = log.read(stored[0].address, 100, log.end.address)
    for _ in range(2):
        for one in stored:
            assert pread(log.read(one.address, 100, log.end.address)[0]) == one.data
    assert len(log.log_dir.pool) <= 5
    assert sum(segment.is_open for segment in log.segments) <= 5
    assert pread(held[0]) == stored[0].data


def test_files_with_bytes_to_flush_are_not_let_go(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0", LogConfig(segment_bytes=100), open_files_max=2)
    for mark in range(6):
        append(log, batch(1, mark=mark))
    assert all(segment.is_open for segment in log.segments)
    log.flush()
    log.read(0, 100, log.end.address)
    append(log, batch(1))
    assert sum(segment.is_open for segment in log.segments) <= 3


def test_closing_lets_go_of_every_descriptor(tmp_path: Path) -> None:
    def open_here() -> list[str]:
        return [one.path for one in psutil.Process().open_files() if one.path.startswith(str(tmp_path))]

    log = new_log(tmp_path / "t-0", LogConfig(segment_bytes=100))
    for mark in range(6):
        append(log, batch(1, mark=mark))
    assert open_here()
    log.close()
    assert not open_here()
    with pytest.raises(KlogError, match="closed"):
        log.read(0, 100, 100)


def test_over_dense_batches_take_no_room_on_the_disk(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0")
    for mark in range(50):
        append(log, dense_batch(30_000, 1_000, mark=mark))
    log.flush()
    status = Path(log.segments[0].path).stat()
    assert log.end.address == 50 * 30_000
    assert status.st_blocks * 512 < status.st_size / 2


@pytest.mark.slow
def test_readers_beside_a_writer(tmp_path: Path) -> None:
    """Readers in threads follow a writer that rolls, truncates and deletes: whole batches in order, or out of range."""
    log = new_log(tmp_path / "t-0", LogConfig(segment_bytes=20_000, retention_bytes=60_000, retention_ms=-1), 3)
    stop = threading.Event()
    problems: list[BaseException] = []
    batches_read = [0]

    def follow(max_bytes: int) -> None:
        offset = 0
        try:
            while not stop.is_set():
                try:
                    ranges = log.read(offset, max_bytes, log.end.address)
                    log.count(offset, log.end.offset)
                    log.nth(3, offset)
                except OffsetOutOfRange:
                    offset = log.start_offset
                    continue
                for one in ranges:
                    for _, header in walk(pread(one)):
                        assert header.last_offset >= offset
                        offset = header.last_offset + 1
                        batches_read[0] += 1
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=follow, args=(max_bytes,)) for max_bytes in (100, 3_000, 1 << 20)]
    for thread in threads:
        thread.start()
    for round_ in range(50):
        for mark in range(12):
            append(log, batch(2, value_bytes=100 + mark), dense_batch(100, 20) if mark == 5 else batch(1))
        if round_ % 10 == 0:
            log.flush()
        if round_ % 25 == 24:
            delete_old_segments(log, 0)
    stop.set()
    for thread in threads:
        thread.join()
    assert problems == []
    assert batches_read[0] > 0
