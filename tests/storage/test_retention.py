"""What retention decides, from segments made by hand and from real ones."""

from __future__ import annotations

import re

from klog.config.topic import LogConfig
from klog.storage.log import Log
from klog.storage.log_dir import LogDirs
from klog.storage.retention import CLOCKS_APART_MS_MAX, Deletion, RetentionClock, decide_deletion, is_expired
from klog.storage.segment import Segment
from tests.faulty_filesystem import FaultyFileSystem
from tests.rows import each
from tests.storage.log_cases import NAME, TOPIC_ID, append, batch, delete_old_segments, log_in, open_dir, read_all

NOW = 1_000_000
DAY = 86_400_000


def log_with(*ages_ms: int, **settings: int) -> Log:
    """A log with one segment for each age; ages count back from NOW."""
    config = LogConfig(**{"segment_bytes": 100, "retention_ms": -1, **settings})
    disk = FaultyFileSystem()
    disk.clock_ms = NOW
    log = log_in(open_dir(disk, config, clock_ms=NOW), config)
    for age_ms in ages_ms:
        append(log, batch(1, first_ms=NOW - age_ms))
    return log


def decide(log: Log, **limits: int) -> int:
    found = decide_deletion(
        log.segments,
        **{"now_ms": NOW, "retention_ms": -1, "retention_bytes": -1, "limit_address": log.end.address, **limits},
    )
    return len(found.segments) if found else 0


@each(
    ("ages_ms", "retention_ms", "expected"),
    [
        ((500, 400, 300), 1_000, 0),
        ((1_000, 400, 300), 1_000, 0),
        ((1_001, 400, 300), 1_000, 1),
        ((5_000, 4_000, 300), 1_000, 2),
        ((5_000, 300, 4_000, 200), 1_000, 1),  # in order: what is behind a young one stays
        ((5_000, 4_000, 3_000), 1_000, 2),  # never the last
        ((5_000, 4_000, 3_000), -1, 0),
        ((5_000, 4_000, 3_000), 0, 2),
    ],
)
def test_by_time(ages_ms: tuple[int, ...], retention_ms: int, expected: int) -> None:
    assert decide(log_with(*ages_ms), retention_ms=retention_ms) == expected


@each(("keep", "expected"), [(1_000, 0), (352, 0), (351, 0), (264, 1), (263, 1), (100, 2), (0, 3)])
def test_by_size(keep: int, expected: int) -> None:
    log = log_with(1, 1, 1, 1)
    assert [segment.size for segment in log.segments] == [88] * 4
    assert decide(log, retention_bytes=keep) == expected


def test_never_above_the_high_watermark() -> None:
    log = log_with(5_000, 5_000, 5_000)
    for limit, expected in ((0, 0), (87, 0), (88, 1), (175, 1), (176, 2)):
        assert decide(log, retention_ms=1_000, limit_address=limit) == expected


def test_never_what_is_not_counted_yet() -> None:
    log = log_with(5_000, 5_000, 5_000)
    log.segments[1].count = None
    assert decide(log, retention_ms=1_000) == 1


def test_messages_without_time_go_by_the_files() -> None:
    log = log_with(1, 1)
    segment: Segment = log.segments[0]
    segment.max_timestamp_ms = -1
    segment.modified_ms = NOW - 10
    assert not is_expired(segment, NOW, 10)
    assert is_expired(segment, NOW, 9)


def test_messages_ahead_of_the_clock_go_by_the_files() -> None:
    """A single one of the year 9999 kept its segment, and all behind it, until then."""
    log = log_with(5_000, 100 - 8_000 * 365 * DAY, 4_000, 100)  # written NOW
    assert decide(log, retention_ms=1_000) == 1
    assert decide(log, retention_ms=1_000, now_ms=NOW + 1_000) == 1
    assert decide(log, retention_ms=1_000, now_ms=NOW + 1_001) == 3
    log = log_with(-8_000 * 365 * DAY, retention_ms=1_000)
    assert delete_old_segments(log, NOW + 1_000) == 0
    assert delete_old_segments(log, NOW + 1_001) == 1


def test_both_limits_in_one_log() -> None:
    log = log_with(5_000, 100, 100, 100, retention_ms=1_000, retention_bytes=170)
    found = log.plan_deletion(NOW)
    assert isinstance(found, Deletion)
    assert len(found.segments) == 2
    assert found.start_offset == 89
    assert re.findall(r"\d+", str(found)) == ["2", "1000", "170"]


def test_an_active_segment_that_is_not_committed_stays() -> None:
    log = log_with(5_000, retention_ms=1_000)
    assert log.plan_deletion(NOW, limit_address=10) is None
    assert len(log.segments) == 1


def test_segments_roll_by_age() -> None:
    log = log_with(segment_ms=1_000)
    assert not log.roll_if_due(NOW + DAY)  # nothing in it
    append(log, batch(1))
    assert not log.roll_if_due(NOW + 999)
    assert log.roll_if_due(NOW + 1_000)
    assert len(log.segments) == 2
    assert not log.roll_if_due(NOW + DAY)


def test_the_jitter_takes_off_less_than_it_says() -> None:
    for partition in range(20):
        config = LogConfig(segment_ms=1_000, segment_jitter_ms=500)
        disk = FaultyFileSystem()
        disk.clock_ms = NOW
        log_dir = open_dir(disk, config, clock_ms=NOW)
        log = log_in(log_dir, config, NAME._replace(partition=partition))
        append(log, batch(1))
        assert not log.roll_if_due(NOW + 500)
        assert log.roll_if_due(NOW + 1_000)


def test_the_clocks() -> None:
    clock = RetentionClock(NOW, 0)
    assert clock.doubt(NOW + DAY, DAY) is None
    assert clock.doubt(NOW + 2 * DAY + CLOCKS_APART_MS_MAX, 2 * DAY) is None  # slewed; compared anew from here
    assert clock.doubt(NOW + 3 * DAY + 2 * CLOCKS_APART_MS_MAX, 3 * DAY) is None
    assert clock.doubt(NOW + 4 * DAY + 3 * CLOCKS_APART_MS_MAX + 1, 4 * DAY) is not None
    assert clock.doubt(NOW + 5 * DAY + 3 * CLOCKS_APART_MS_MAX + 1, 5 * DAY) is not None
    assert clock.doubt(NOW - DAY, 6 * DAY) is not None
    assert clock.doubt(NOW + 6 * DAY + 2 * CLOCKS_APART_MS_MAX, 6 * DAY) is None


def test_many_logs_in_steps() -> None:
    disk = FaultyFileSystem()
    config = LogConfig(segment_bytes=100, retention_ms=1_000)
    dirs = LogDirs(disk, ("/a", "/b"), clock_ms=lambda: NOW, monotonic_ms=lambda: 0)
    dirs.load(lambda name: config)
    logs = dirs.logs_or_create({NAME._replace(partition=at): (TOPIC_ID, config) for at in range(6)})
    for log in logs.values():
        for age_ms in (5_000, 4_000, 100):
            append(log, batch(1, first_ms=NOW - age_ms))
        log.flush()
    since = len(disk.trace)
    run = dirs.plan_retention(lambda log: log.end.address)
    assert len(run.plans) == 6
    run.persist()
    assert len([1 for act, path in disk.trace[since:] if path.endswith("log-start-offset-checkpoint")]) == 2
    assert all(log.start_offset == 0 for log in logs.values())
    dirs.remove(NAME)  # deleted meanwhile
    run.apply()
    assert run.unlink() == 10
    for name, log in logs.items():
        if name != NAME:
            assert log.start_offset == 89
            assert len(read_all(log)) == 1


def test_a_dir_that_fails_in_between_keeps_its_segments() -> None:
    """A start that is not durable is not used (rule L4)."""
    disk = FaultyFileSystem()
    config = LogConfig(segment_bytes=100, retention_ms=1_000)
    dirs = LogDirs(disk, ("/a", "/b"), clock_ms=lambda: NOW, monotonic_ms=lambda: 0)
    dirs.load(lambda name: config)
    logs = dirs.logs_or_create({NAME._replace(partition=at): (TOPIC_ID, config) for at in range(2)})
    for log in logs.values():
        append(log, batch(1, first_ms=0))
        append(log, batch(1, first_ms=NOW))
    disk.fail("rename", "/a/log-start-offset-checkpoint")
    assert dirs.plan_retention(lambda log: log.end.address).run() == 1
    assert [log.log_dir.path for log in logs.values() if log.start_offset] == ["/b"]
