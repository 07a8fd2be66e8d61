"""Log dirs: whose they are, what their checkpoints keep, which of them serves."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from uuid import UUID

import pytest

from klog.config.topic import LogConfig
from klog.errors import CorruptLog, InvalidConfig, LogDirLocked, StorageError, WrongCluster
from klog.names import TOPIC_NAME_CHARS_MAX, TopicPartition
from klog.secret import Secret
from klog.storage import checkpoints
from klog.storage.filesystem import OsFileSystem
from klog.storage.log import LogEnd
from klog.storage.log_dir import LogDir, LogDirs
from klog.storage.partition_folder import FILE_NAME_CHARS_MAX, parse_folder_name
from tests.faulty_filesystem import FaultyFileSystem
from tests.rows import each
from tests.storage.log_cases import NAME, NEVER, TOPIC_ID, append, batch, dir_and_log, log_in, open_dir, read_all

SMALL = LogConfig(segment_bytes=100)


def open_dirs(disk: FaultyFileSystem, *paths: str) -> LogDirs:
    dirs = LogDirs(disk, paths or ("/a", "/b"))
    dirs.load(lambda name: LogConfig())
    return dirs


def test_a_dir_keeps_its_uuid_and_its_owner(disk: FaultyFileSystem) -> None:
    log_dir = open_dir(disk)
    uuid = log_dir.meta.directory_id
    assert (log_dir.meta.cluster_id, log_dir.meta.broker_id) == (None, None)
    log_dir.record_owner("right", 3)
    log_dir.close()
    disk = disk.crash()
    log_dir = open_dir(disk)
    meta = log_dir.meta
    assert (meta.directory_id, meta.cluster_id, meta.broker_id) == (uuid, "right", 3)
    log_dir.record_owner("right", 3)
    with pytest.raises(WrongCluster, match="cluster right"):
        log_dir.record_owner("wrong", 3)
    with pytest.raises(WrongCluster, match="broker 3"):
        log_dir.record_owner("right", 4)


def test_r10_a_dir_keeps_the_clusters_secret_and_takes_no_other(disk: FaultyFileSystem) -> None:
    secret = Secret.random()
    dirs = open_dirs(disk)
    assert dirs.secret is None
    dirs.keep_secret(secret)
    dirs.close()
    disk = disk.crash()
    dirs = open_dirs(disk)
    assert dirs.secret == secret
    dirs.keep_secret(secret)
    with pytest.raises(WrongCluster, match=r"cluster\.secret") as refusal:
        dirs.keep_secret(Secret.random())
    assert secret.text not in str(refusal.value) and secret.text not in repr(dirs.secret)


def test_a_secret_that_does_not_parse_is_not_repeated(disk: FaultyFileSystem) -> None:
    disk.make_folder("/a")
    disk.replace("/a/meta.properties", b"cluster.secret=hunter2\nother=kept\n")
    log_dir = open_dir(disk, path="/a")
    with pytest.raises(CorruptLog, match=r"cluster\.secret") as refusal:
        _ = log_dir.meta.secret
    assert "hunter2" not in str(refusal.value)
    assert b"other=kept" in (disk.read("/a/meta.properties") or b"")


def test_meta_properties_is_its_owners_alone(tmp_path: Path) -> None:
    """Also where one that others could read was there before, or was left half written."""
    file = tmp_path / "meta.properties"
    for name in ("meta.properties", "meta.properties.tmp"):
        (tmp_path / name).write_text("version=0\n")
        (tmp_path / name).chmod(0o644)
    dirs = LogDirs(OsFileSystem(), (str(tmp_path),))
    dirs.keep_secret(Secret.random())
    assert file.stat().st_mode & 0o777 == 0o600
    dirs.close()


def test_two_dirs_have_two_uuids(disk: FaultyFileSystem) -> None:
    assert len(set(open_dirs(disk).uuids)) == 2


def test_a_dir_that_is_locked_is_offline_and_the_others_serve(disk: FaultyFileSystem) -> None:
    open_dir(disk, path="/a")
    dirs = open_dirs(disk)
    assert [one.path for one in dirs.dirs] == ["/b"]
    assert isinstance(dirs.offline["/a"], LogDirLocked)
    with pytest.raises(LogDirLocked, match="/a"):
        LogDirs(disk, ("/a",))


def test_a_dir_that_is_named_twice_is_refused(disk: FaultyFileSystem, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "a")
    for again in ("a", "b/../a", "link"):
        with pytest.raises(InvalidConfig, match="twice"):
            LogDirs(disk, (f"{tmp_path}/a", f"{tmp_path}/b", f"{tmp_path}/{again}"))


def test_a_dir_that_cannot_be_read_is_offline_and_the_others_serve(disk: FaultyFileSystem) -> None:
    dirs = open_dirs(disk)
    logs = dirs.logs_or_create({TopicPartition("t", at): (TOPIC_ID, LogConfig()) for at in range(2)})
    for log in logs.values():
        append(log, batch(1))
    dirs.close()
    disk.fail("open", "/a/*", errno.EIO)
    disk.names["/a/log-summary-checkpoint"].data[:] = b"rubbish"
    disk.names["/a/recovery-point-offset-checkpoint"].data[:] = b"rubbish"
    dirs = open_dirs(disk)
    assert list(dirs.offline) == ["/a"]
    assert [log.log_dir.path for log in dirs.logs() if log.log_dir.failure is None] == ["/b"]
    assert len(read_all(next(log for log in dirs.logs() if log.log_dir.path == "/b"))) == 1


def test_new_partitions_go_where_fewest_are(disk: FaultyFileSystem) -> None:
    dirs = open_dirs(disk, "/a", "/b", "/c")
    dirs.logs_or_create({TopicPartition("t", at): (TOPIC_ID, LogConfig()) for at in range(7)})
    assert sorted(len(one.logs) for one in dirs.dirs) == [2, 2, 3]
    dirs.log_or_create(TopicPartition("u", 0), TOPIC_ID, LogConfig())
    assert sorted(len(one.logs) for one in dirs.dirs) == [2, 3, 3]
    again = dirs.logs_or_create({TopicPartition("t", at): (TOPIC_ID, SMALL) for at in range(9)})
    assert len(dirs.logs()) == 10
    assert all(log.config.segment_bytes == 100 for log in again.values())


def test_what_is_new_is_durable(disk: FaultyFileSystem) -> None:
    for count in (1, 9):
        disk = FaultyFileSystem()
        dirs = open_dirs(disk, "/a")
        names = {TopicPartition("t", at): (TOPIC_ID, LogConfig()) for at in range(count)}
        dirs.logs_or_create(names)
        again = open_dirs(disk.crash(), "/a")
        assert {log.topic_partition for log in again.logs()} == names.keys()
        assert again.topic_id(TopicPartition("t", 0)) == TOPIC_ID


def test_removing_a_partition(disk: FaultyFileSystem) -> None:
    dirs = open_dirs(disk, "/a")
    log = dirs.log_or_create(NAME, TOPIC_ID, LogConfig())
    append(log, batch(1))
    dirs.dirs[0].checkpoint()
    purge = dirs.remove(NAME)
    assert dirs.log(NAME) is None
    assert purge is not None
    purge()
    assert not any("t-0" in path for path in disk.names)
    assert dirs.remove(NAME) is None
    new = dirs.log_or_create(NAME, UUID(int=99), LogConfig())
    assert new.end == LogEnd(0, 0)
    assert not new.needs_rebuild


def test_the_longest_topic_name_can_be_set_aside_and_deleted(disk: FaultyFileSystem) -> None:
    name = TopicPartition("n" * TOPIC_NAME_CHARS_MAX, 99_999)
    dirs = open_dirs(disk, "/a")
    dirs.log_or_create(name, TOPIC_ID, LogConfig())
    dirs.log_or_create(name, UUID(int=99), LogConfig())
    dirs.remove(name)
    assert max(len(path.rpartition("/")[2]) for path in disk.names) <= FILE_NAME_CHARS_MAX


@each(
    ("name", "expected"),
    [
        ("t-0", TopicPartition("t", 0)),
        ("a-b-12", TopicPartition("a-b", 12)),
        ("a.b_c-3", TopicPartition("a.b_c", 3)),
        ("-3", None),
        ("t-", None),
        ("t", None),
        ("t-x", None),
        ("t-٣", None),
        ("t-0.abc.01234567-delete", None),
        ("t-0.abc.01234567-aside", None),
    ],
)
def test_folder_names(name: str, expected: TopicPartition | None) -> None:
    assert parse_folder_name(name) == expected


def test_foreign_folders_and_files_are_left_alone(disk: FaultyFileSystem) -> None:
    log_dir = open_dir(disk)
    log_in(log_dir)
    log_dir.close()
    disk.make_folder("/data/lost+found")
    disk.open("/data/notes.txt", create=True)
    assert list(open_dir(disk).logs) == [NAME]
    assert disk.exists("/data/lost+found") and disk.exists("/data/notes.txt")


def test_what_klog_0_2_keeps_of_deleted_topics_stays_and_is_named(
    disk: FaultyFileSystem, caplog: pytest.LogCaptureFixture
) -> None:
    kept = "/data/orders-0.0123456789abcdef.89abcdef-trash"
    disk.make_folder("/data")
    disk.make_folder(kept)
    disk.replace(f"{kept}/{0:020}.log", b"a message")
    log_dir = open_dir(disk)
    assert log_dir.logs == {}
    assert disk.read(f"{kept}/{0:020}.log") == b"a message"
    assert [record.getMessage().split()[0] for record in caplog.records if "0.2" in record.getMessage()] == [kept]


@each("content", [b"", b"rubbish", b"0\n1\n", b"7\n0\n", b"0\n1\nt 0 x\n", b"\xff\xfe"])
@each("file_name", ["log-summary-checkpoint", "recovery-point-offset-checkpoint", "replication-offset-checkpoint"])
def test_a_checkpoint_that_is_none_is_rebuilt(
    disk: FaultyFileSystem, file_name: str, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    log_dir, log = dir_and_log(disk, SMALL)
    stored = append(log, batch(1)) + append(log, batch(2)) + append(log, batch(1))
    log_dir.checkpoints.keep_high_watermarks({NAME: 4})
    log_dir.close()
    disk.replace(f"/data/{file_name}", content)
    with caplog.at_level(logging.CRITICAL):
        log_dir = open_dir(disk, SMALL)
    log = log_in(log_dir)
    assert read_all(log) == stored
    log.adopt(log.rebuild())
    assert log.count(0, log.end.offset) == 4
    log_dir.checkpoint()
    log_dir.close()
    log = log_in(open_dir(disk, SMALL))
    assert log.recovered_bytes == 0
    assert not log.needs_rebuild


def test_high_watermarks_are_kept(disk: FaultyFileSystem) -> None:
    log_dir = open_dir(disk)
    log_dir.checkpoints.keep_high_watermarks({NAME: 4, TopicPartition("a", 1): 2**40})
    assert disk.read("/data/replication-offset-checkpoint") == b"0\n2\na 1 1099511627776\nt 0 4\n"
    assert open_dir(disk.crash()).checkpoints.high_watermarks() == {NAME: 4, TopicPartition("a", 1): 2**40}


def wait_for_checkpoint(log_dir: LogDir) -> None:
    """The thread writes what was noted before it ends."""
    log_dir.checkpoints.stop_thread()


def test_a_roll_and_many_batches_are_checkpointed_by_themselves(
    disk: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "DUE_BATCHES", 10)
    log_dir, log = dir_and_log(disk)
    log_dir.checkpoints.start_thread()
    for _ in range(10):
        append(log, batch(1))
    wait_for_checkpoint(log_dir)
    log_dir.abandon()
    again = log_in(open_dir(disk.crash()))
    assert again.recovered_bytes == 0
    assert again.count(0, again.end.offset) == 10


def test_a_log_that_is_made_while_states_are_noted_disturbs_nobody(
    disk: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logs are made in threads; what is noted on the way of an append must not fail for it."""
    log_dir, log = dir_and_log(disk)
    append(log, batch(1))
    made: list[object] = []

    def never_flushes(self: object) -> bool:
        if not made:
            made.append(None)
            log_dir.create({TopicPartition("other", 0): (TOPIC_ID, LogConfig())})
        return False

    seen = property(never_flushes, lambda self, value: None)
    monkeypatch.setattr(type(log), "never_flushes", seen, raising=False)
    log_dir.checkpoint()
    assert made
    assert log_in(open_dir(disk.crash())).recovered_bytes == 0


@each("config", [LogConfig(segment_bytes=200), LogConfig(200, *[2**62] * 2, 10**9, -1, 2**63 - 1)])
def test_a_closed_segment_is_not_read_again(disk: FaultyFileSystem, config: LogConfig) -> None:
    log_dir, log = dir_and_log(disk, config)
    log_dir.checkpoints.start_thread()
    for _ in range(5):
        append(log, batch(1))
    wait_for_checkpoint(log_dir)
    log_dir.abandon()
    again = log_in(open_dir(disk.kill(), config))
    assert again.recovered_bytes <= log.segments[-1].size
    assert again.count(0, again.end.offset) == 5


def test_a_log_that_is_never_flushed_is_not_flushed_by_checkpoints(disk: FaultyFileSystem) -> None:
    log_dir, log = dir_and_log(disk, NEVER)
    since = len(disk.trace)
    append(log, batch(1))
    log_dir.checkpoint()
    assert not [path for act, path in disk.trace[since:] if act == "sync" and path.endswith(".log")]


def test_a_checkpoint_never_says_more_than_the_disk_holds(disk: FaultyFileSystem) -> None:
    log_dir, log = dir_and_log(disk)
    kept = append(log, batch(1))
    log.flush()
    append(log, batch(1))
    log_dir.checkpoints.note()
    log.truncate(kept[0].header.next_address)
    more = append(log, batch(2))
    log.flush()
    log_dir.checkpoints.write()  # what was noted is no longer so
    log_dir.abandon()
    log = log_in(open_dir(disk.crash()))
    assert read_all(log) == kept + more
    assert log.count(0, log.end.offset) == 3


def test_a_truncation_while_a_checkpoint_is_written_voids_it(
    disk: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir, log = dir_and_log(disk)
    stored = append(log, batch(1)) + append(log, batch(1))
    log_dir.checkpoints.note()
    flush = log.flush

    def flush_and_be_overtaken() -> LogEnd:
        flush()
        monkeypatch.undo()
        log.truncate(stored[1].address)
        stored[1:] = append(log, batch(3))
        return flush()

    monkeypatch.setattr(log, "flush", flush_and_be_overtaken)
    log_dir.checkpoints.write()
    log_dir.abandon()
    log = log_in(open_dir(disk.crash()))
    assert read_all(log) == stored
    assert log.count(0, log.end.offset) == 4


def test_an_io_error_while_a_checkpoint_is_written_takes_the_dir_offline(disk: FaultyFileSystem) -> None:
    log_dir, log = dir_and_log(disk)
    append(log, batch(1))
    disk.fail("write", "*checkpoint.tmp", errno.EIO)
    with pytest.raises(StorageError):
        log_dir.checkpoint()
    with pytest.raises(StorageError, match="offline"):
        append(log, batch(1))
