"""Group commit: which appends a flush serves, when the rule asks for one, and who hears of it."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue

import pytest

from klog.config.topic import LogConfig
from klog.errors import StorageError
from klog.storage.flusher import Flusher
from klog.storage.log import Log, LogEnd
from tests.faulty_filesystem import FaultyFile, FaultyFileSystem
from tests.storage.log_cases import LONG_MAX, NEVER, append, batch, dir_and_log, log_in, open_dir


class Heard:
    """The owner thread's side: outcomes in order."""

    def __init__(self) -> None:
        self.queue: SimpleQueue[tuple[Log, LogEnd | StorageError]] = SimpleQueue()

    def __call__(self, log: Log, outcome: LogEnd | StorageError) -> None:
        self.queue.put((log, outcome))

    def next(self) -> LogEnd | StorageError:
        return self.queue.get(timeout=20)[1]


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def flusher(disk: FaultyFileSystem, heard: Heard) -> Iterator[Flusher]:
    made = Flusher(lambda function, *arguments: function(*arguments), heard, disk)
    yield made
    made.stop()


def syncs(disk: FaultyFileSystem) -> int:
    return sum(act == "sync" and path.endswith(".log") for act, path in disk.trace)


class HeldDisk(FaultyFileSystem):
    """Whose flushes wait until they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Semaphore(0)
        self.let_go = threading.Semaphore(0)
        self.holds = False

    def open(self, path: str, *, create: bool = False) -> FaultyFile:
        disk, file = self, super().open(path, create=create)

        class Held(FaultyFile):
            def sync(self) -> None:
                if disk.holds:
                    disk.entered.release()
                    assert disk.let_go.acquire(timeout=20)
                super().sync()

        return Held(self, path, file._inode)


def test_one_flush_serves_all_that_came_while_another_ran(heard: Heard) -> None:
    disk = HeldDisk()
    log = log_in(open_dir(disk))
    flusher = Flusher(lambda function, *arguments: function(*arguments), heard, disk)
    disk.holds = True
    append(log, batch(1))
    flusher.want(log)
    assert disk.entered.acquire(timeout=20)  # the first flush runs
    first = log.end
    for _ in range(50):
        append(log, batch(1))
        flusher.want(log)
    assert log.flushed_end == LogEnd(0, 0)
    before = syncs(disk)
    disk.let_go.release()
    assert heard.next() == first
    assert disk.entered.acquire(timeout=20)
    disk.let_go.release()
    assert heard.next() == log.end == log.flushed_end
    assert syncs(disk) - before == 2
    flusher.stop()


def test_what_is_appended_together_is_flushed_together(heard: Heard, disk: FaultyFileSystem) -> None:
    later: list[Callable[[], None]] = []
    flusher = Flusher(lambda function, *arguments: function(*arguments), heard, disk, soon=later.append)
    logs = [log_in(open_dir(disk, path=f"/d{number}")) for number in range(2)]
    before = syncs(disk)
    for _ in range(20):
        for log in logs:
            append(log, batch(1))
            flusher.want(log)
    assert syncs(disk) == before
    flusher.begin()
    assert {heard.next(), heard.next()} == {log.end for log in logs}
    assert syncs(disk) - before == 2
    assert len(later) == 1, "for whoever never begins"
    append(logs[0], batch(1))
    flusher.want(logs[0])
    later.pop()()
    assert heard.next() == logs[0].end
    append(logs[0], batch(1))
    flusher.want(logs[0])
    flusher.stop()
    assert logs[0].flushed_end == logs[0].end, "what is wanted at the end is flushed before it"


def test_a_truncation_during_a_flush_voids_it(heard: Heard) -> None:
    disk = HeldDisk()
    log = log_in(open_dir(disk))
    append(log, batch(1))
    cut = log.end
    log.flush()
    append(log, batch(3))
    disk.holds = True
    thread = threading.Thread(target=log.flush)
    thread.start()
    assert disk.entered.acquire(timeout=20)
    disk.holds = False
    log.truncate(cut.address)
    append(log, batch(5))
    disk.let_go.release()
    thread.join()
    assert log.flushed_end == cut


@pytest.mark.parametrize(
    ("config", "appends"),
    [
        (LogConfig(), 1),
        (LogConfig(flush_messages=10), 4),
        (LogConfig(flush_messages=LONG_MAX, flush_ms=30), 1),
    ],
)
def test_the_rule_asks(disk: FaultyFileSystem, heard: Heard, flusher: Flusher, config: LogConfig, appends: int) -> None:
    log = log_in(open_dir(disk, config), config)
    for _ in range(appends):
        append(log, batch(3))
        flusher.want(log)
    assert heard.next() == log.end


def test_below_the_count_nothing_is_flushed(disk: FaultyFileSystem, heard: Heard, flusher: Flusher) -> None:
    config = LogConfig(flush_messages=10)
    log = log_in(open_dir(disk, config), config)
    before = syncs(disk)
    for _ in range(3):
        append(log, batch(3))
        flusher.want(log)
    flusher.stop()
    assert heard.queue.empty()
    assert syncs(disk) == before
    assert log.flushed_end == LogEnd(0, 0)


def test_never_is_never(disk: FaultyFileSystem, heard: Heard, flusher: Flusher) -> None:
    log = log_in(open_dir(disk, NEVER), NEVER)
    append(log, batch(3))
    flusher.want(log)
    flusher.stop()
    assert heard.queue.empty()
    assert log.flushed_end == log.end


def test_stop_flushes_what_waits_for_its_time(disk: FaultyFileSystem, heard: Heard, flusher: Flusher) -> None:
    config = LogConfig(flush_messages=LONG_MAX, flush_ms=3_600_000)
    log = log_in(open_dir(disk, config), config)
    append(log, batch(3))
    flusher.want(log)
    flusher.stop()
    assert heard.next() == log.end


def test_a_failure_is_told_for_every_log_of_the_dir(disk: FaultyFileSystem, heard: Heard, flusher: Flusher) -> None:
    log = log_in(open_dir(disk))
    append(log, batch(1))
    disk.fail("sync", "*.log", errno.EIO, times=1)
    flusher.want(log)
    assert isinstance(heard.next(), StorageError)
    flusher.flush_now(log)
    assert isinstance(heard.next(), StorageError)


def test_many_logs_when_the_shared_flush_fails(disk: FaultyFileSystem, heard: Heard) -> None:
    """It may be another program's file: each log's own flush decides."""
    log_dir = open_dir(disk)
    logs = [log_in(log_dir, None, log_in(log_dir).topic_partition._replace(partition=at)) for at in range(30)]
    posted: list[Callable[[], None]] = []
    flusher = Flusher(lambda function, *arguments: posted.append(lambda: function(*arguments)), heard, disk)
    disk.fail("sync everything")
    disk.fail("sync", "*/t-7/*.log", times=1)
    for log in logs:
        append(log, batch(1))
    for log in logs:  # the first failure takes the dir offline, and no append is taken then
        flusher.want(log)
    flusher.stop()
    for deliver in posted:
        deliver()
    outcomes = {}
    while not heard.queue.empty():
        log, outcome = heard.queue.get()
        outcomes[log.topic_partition.partition] = outcome
    assert len(outcomes) == 30
    assert isinstance(outcomes[7], StorageError)
    flushed = [at for at, outcome in outcomes.items() if isinstance(outcome, LogEnd)]
    assert all(logs[at].durable_end == logs[at].end for at in flushed)


def test_a_file_whose_write_back_failed_is_found_behind_a_shared_flush(disk: FaultyFileSystem, heard: Heard) -> None:
    log = log_in(open_dir(disk))
    append(log, batch(1))
    mark = log.begin_flush()
    disk.sync_everything("/data")
    disk.fail("confirm", "*.log")
    with pytest.raises(StorageError, match="offline"):
        log.finish_flush(mark, written=True)
    assert log.flushed_end == LogEnd(0, 0)


def test_a_flush_that_finds_no_descriptor_is_tried_again(
    disk: FaultyFileSystem, heard: Heard, flusher: Flusher
) -> None:
    config = LogConfig(segment_bytes=100)
    log_dir, log = dir_and_log(disk, config)
    stored = append(log, batch(1)) + append(log, batch(1))  # a roll: the folder must be opened for its flush
    disk.fail("sync folder", "/data/t-0", errno.EMFILE, times=2)
    flusher.want(log)
    assert heard.next() == log.end == log.durable_end
    assert log_dir.failure is None
    assert log.end.address == stored[-1].header.next_address
