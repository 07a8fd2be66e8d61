"""What lies beside a log and is served by nothing: read back as it was kept."""

from __future__ import annotations

import pytest

from klog.config.topic import LogConfig
from klog.errors import NoSuchThing
from klog.record.batch import walk
from klog.storage.damage_record import DamageRecord
from klog.storage.quarantine import keep_lost, list_quarantined, read_quarantined
from tests.rows import each
from tests.storage.log_cases import FOLDER, append, batch, dense_batch, new_disk, open_log


def test_what_a_truncation_keeps_is_listed_and_read_back() -> None:
    disk = new_disk()
    log = open_log(disk, LogConfig(segment_bytes=500))
    made = [batch(2, mark=1), batch(3, mark=2), dense_batch(300, mark=3), batch(1, mark=4), batch(4, mark=5)]
    stored = [one for each in made for one in append(log, each)]
    cut = stored[1]
    segment = next(one for one in reversed(log.segments) if one.base_address <= cut.address)
    later = [(one, None) for one in log.segments if one.base_address > cut.address]
    names = keep_lost(disk, FOLDER, [(segment, cut.address), *later])

    found = list_quarantined(disk, FOLDER)
    assert sorted(one.file for one in found) == sorted(names)
    assert found[0].first == cut.address
    assert found[-1].end == log.end.address
    assert sum(one.messages or 0 for one in found) == sum(one.header.count for one in stored[1:])
    data = read_quarantined(disk, FOLDER, found[0].file, 0, 1 << 20)
    assert data.startswith(cut.data)
    assert read_quarantined(disk, FOLDER, found[0].file, found[0].size, 1 << 20) == b""
    assert read_quarantined(disk, FOLDER, found[0].file, 5, 10) == cut.data[5:15]


def test_damage_is_listed_with_its_reason_and_without_a_count() -> None:
    disk = new_disk()
    damage = DamageRecord(400, 900, "magic 7")
    disk.replace(f"{FOLDER}/{damage.file_name}", damage.render(b"x\ny" * 100))
    (one,) = list_quarantined(disk, FOLDER)
    assert (one.first, one.end, one.messages, one.reason, one.size) == (400, 900, None, "magic 7", 300)
    assert read_quarantined(disk, FOLDER, one.file, 0, 1_000) == b"x\ny" * 100
    assert read_quarantined(disk, FOLDER, one.file, 3, 3) == b"x\ny"


def test_a_batch_that_is_cut_off_at_the_end_is_no_message() -> None:
    disk = new_disk()
    log = open_log(disk)
    stored = append(log, batch(2), batch(2))
    whole = b"".join(one.data for one in stored)
    disk.replace(f"{FOLDER}/{0:020d}.lost", whole[:-5])
    (one,) = list_quarantined(disk, FOLDER)
    assert (one.messages, one.size, one.end) == (2, len(whole) - 5, len(whole) - 5)
    assert sum(1 for _ in walk(whole)) == 2


@each("name", ["../meta.properties", "00000000000000000000.log", "partition.metadata", "", "1.lost"])
def test_nothing_else_is_read(name: str) -> None:
    disk = new_disk()
    open_log(disk)
    assert list_quarantined(disk, FOLDER) == []
    with pytest.raises(NoSuchThing):
        read_quarantined(disk, FOLDER, name, 0, 10)


def test_a_record_that_is_none_is_passed_over() -> None:
    disk = new_disk()
    disk.replace(f"{FOLDER}/{7:020d}.damaged", b"not a record of damage")
    assert list_quarantined(disk, FOLDER) == []
