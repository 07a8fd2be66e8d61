"""The scrubber finds what rots, anywhere in a log, and nothing else."""

from __future__ import annotations

import threading

from klog.config.topic import LogConfig
from klog.storage.damage_record import DamageRecord
from klog.storage.log import Log
from klog.storage.scrubber import Scrubber
from tests.faulty_filesystem import FaultyFileSystem
from tests.rows import each
from tests.storage.log_cases import NAME, Stored, append, batch, dense_batch, log_in, open_dir

CONFIG = LogConfig(segment_bytes=300)


def filled(disk: FaultyFileSystem) -> tuple[Log, list[Stored]]:
    log = log_in(open_dir(disk, CONFIG), CONFIG)
    stored = [one for mark in range(6) for one in append(log, batch(1, mark=mark), dense_batch(100, mark=mark))]
    log.flush()
    return log, stored


def scrub(log: Log) -> list[tuple[Log, DamageRecord]]:
    found: list[tuple[Log, DamageRecord]] = []
    scrubber = Scrubber(
        lambda: [log], lambda one, damage: found.append((one, damage)), interval_s=9, rate_bytes=1 << 40
    )
    scrubber.scrub()
    assert scrubber.passes == 1
    return found


def test_a_sound_log_is_sound(disk: FaultyFileSystem) -> None:
    log, _ = filled(disk)
    assert scrub(log) == []


@each("at", range(12))
def test_a_flipped_bit_is_found_in_every_batch(disk: FaultyFileSystem, at: int) -> None:
    log, stored = filled(disk)
    hit = stored[at]
    segment = next(one for one in reversed(log.segments) if one.base_address <= hit.address)
    disk.names[segment.path].data[hit.address - segment.base_address + 64] ^= 1
    ((where, damage),) = scrub(log)
    assert where is log
    assert damage.first_address == hit.address
    assert "CRC" in damage.reason


def test_what_is_not_flushed_yet_is_left_alone(disk: FaultyFileSystem) -> None:
    log, _ = filled(disk)
    (late,) = append(log, batch(1))
    disk.names[log.segments[-1].path].data[-1] ^= 1
    assert scrub(log) == []
    log.flush()
    ((_, damage),) = scrub(log)
    assert damage.first_address == late.address


def test_a_file_that_cannot_be_read_does_not_end_the_pass(disk: FaultyFileSystem) -> None:
    log, _ = filled(disk)
    log_dir = log.log_dir
    other = log_in(log_dir, CONFIG, NAME._replace(topic="u"))  # type: ignore[arg-type]
    append(other, batch(1))
    other.flush()
    disk.names[other.segments[0].path].data[70] ^= 1
    disk.fail("read", log.segments[0].path)
    found: list[DamageRecord] = []
    Scrubber(lambda: [log, other], lambda _, damage: found.append(damage), interval_s=9, rate_bytes=1 << 40).scrub()
    assert len(found) == 1


def test_the_thread_runs_at_its_interval_and_ends_when_told(disk: FaultyFileSystem) -> None:
    log, _ = filled(disk)
    disk.names[log.segments[0].path].data[70] ^= 1
    found = threading.Event()
    scrubber = Scrubber(lambda: [log], lambda *_: found.set(), interval_s=0.01, rate_bytes=1 << 40)
    scrubber.start()
    assert found.wait(20)
    scrubber.stop()


def test_a_pass_at_a_low_rate_can_be_stopped(disk: FaultyFileSystem) -> None:
    log = log_in(open_dir(disk))
    for _ in range(40):
        append(log, batch(10, value_bytes=10_000))
    log.flush()
    began = threading.Event()

    def logs() -> list[Log]:
        began.set()
        return [log]

    scrubber = Scrubber(logs, lambda *_: None, interval_s=0, rate_bytes=1)
    scrubber.start()
    assert began.wait(20)
    scrubber.stop()  # would take minutes at that rate
    assert scrubber.passes == 0
