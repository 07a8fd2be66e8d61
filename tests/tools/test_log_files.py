"""dump and verify: every batch and every damaged address, whatever was done to the files."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klog.config.topic import LogConfig
from klog.errors import NoSuchThing, UsageError
from klog.names import TopicPartition
from klog.record.batch import read_header, stamp
from klog.record.codec import Codec
from klog.record.records import Record, encode_batch
from klog.tools.log_files import LogRow, dump, verify
from klog.tools.log_survey import LogRange, Meter, Stopped
from tests.tools.log_folders import FIRST_MS, ROWS, TOPIC_ID, Stored, fill, folder_of, opened, overwrite, tree


def span(row: LogRow) -> tuple[str, int, int]:
    return row.state, row.base_offset, row.end


def ok(batches: list[Stored]) -> list[tuple[str, int, int]]:
    return [("ok", one.address, one.end) for one in batches]


def test_a_row_says_all_about_its_batch(log_dir: Path) -> None:
    (batch,) = fill(log_dir, 1, producer_id=4_001)
    (row,) = dump(log_dir)
    assert row == LogRow(
        base_offset=0,
        end=batch.size,
        bytes=batch.size,
        messages=1,
        codec="none",
        timestamp=datetime.fromtimestamp(FIRST_MS / 1000, UTC),
        epoch=0,
        producer=4_001,
        state="ok",
        file=str(batch.file),
        reason=None,
    )


def test_of_a_file_a_folder_and_a_log_dir(log_dir: Path, stored: list[Stored]) -> None:
    files = sorted({one.file for one in stored})
    assert len(files) > 2
    whole = list(dump(log_dir))
    assert [span(row) for row in whole] == ok(stored)
    assert [row.messages for row in whole] == [one.count for one in stored]
    assert [row.codec for row in whole[:5]] == ["none", "gzip", "snappy", "lz4", "zstd"]
    assert [row.epoch for row in whole] == [number // 4 for number in range(12)]
    assert list(dump(folder_of(log_dir))) == whole
    assert [row for file in files for row in dump(file)] == whole


def test_partitions_of_a_log_dir_come_in_the_order_of_their_numbers(log_dir: Path) -> None:
    with opened(log_dir) as held:
        for partition in (10, 2, 0):
            log = held.log_or_create(TopicPartition("t", partition), TOPIC_ID, LogConfig())
            log.append(memoryview(encode_batch([Record(0, 1, None, b"")])), 0)
    assert [Path(row.file).parent.name for row in dump(log_dir)] == ["t-0", "t-2", "t-10"]


def test_a_range_of_offsets(log_dir: Path, stored: list[Stored]) -> None:
    for low in stored:
        for high in stored:
            rows = list(dump(log_dir, LogRange(low.address, None, high.address)))
            assert [span(row) for row in rows] == ok(
                [one for one in stored if low.address <= one.address < high.address]
            )
    middle = stored[5]
    (row,) = dump(log_dir, LogRange(middle.address + 1, None, middle.end))
    assert span(row) == ok([middle])[0]
    assert list(dump(log_dir, LogRange(stored[-1].end))) == []


def test_verify_sums_what_is_good(log_dir: Path, stored: list[Stored]) -> None:
    rows = list(verify(log_dir))
    assert not any(row.is_fault for row in rows)
    assert len(rows) == len({one.file for one in stored})
    assert sum(row.messages or 0 for row in rows) == sum(one.count for one in stored)
    assert sum(row.bytes for row in rows) == sum(one.size for one in stored)
    assert [row.base_offset for row in rows] == [int(Path(row.file).stem) for row in rows]
    assert rows[-1].end == stored[-1].end
    assert rows[0].codec is None


def test_verify_names_what_all_of_a_run_agrees_on(log_dir: Path) -> None:
    stored = fill(log_dir, 4, segment_bytes=1 << 20, producer_id=4_001)
    (row,) = verify(log_dir)
    assert row == LogRow(
        base_offset=0,
        end=stored[-1].end,
        bytes=sum(one.size for one in stored),
        messages=10,
        codec="none",
        timestamp=datetime.fromtimestamp(FIRST_MS / 1000 + 3, UTC).replace(microsecond=3_000),
        epoch=0,
        producer=4_001,
        state="ok",
        file=str(stored[0].file),
    )


def test_more_records_than_bytes_is_no_fault(log_dir: Path) -> None:
    with opened(log_dir) as held:
        log = held.log_or_create(ROWS, TOPIC_ID, LogConfig())
        dense = encode_batch([Record(i, 1, None, b"0123456789") for i in range(9_999)], codec=Codec.ZSTD)
        for _ in range(3):
            log.append(memoryview(bytearray(dense)), 0)
    rows = list(dump(log_dir))
    assert [span(row) for row in rows] == [("ok", i * 9_999, (i + 1) * 9_999) for i in range(3)]
    assert all(row.bytes < 9_999 for row in rows)


# --- Damage ---


def test_a_flipped_byte_costs_one_batch_and_is_named(log_dir: Path, stored: list[Stored]) -> None:
    harmed = stored[2]
    overwrite(harmed.file, harmed.position + 70, b"\xff\xfe\xfd")
    rows = list(dump(log_dir))
    expected = ok(stored)
    expected[2] = ("damaged", harmed.address, harmed.end)
    assert [span(row) for row in rows] == expected
    assert rows[2].bytes == harmed.size
    assert "CRC" in (rows[2].reason or "")
    faults = [row for row in verify(log_dir) if row.is_fault]
    assert [span(row) for row in faults] == [expected[2]]


def test_any_field_of_a_header(log_dir: Path, stored: list[Stored]) -> None:
    harmed = next(one for one in stored[4:] if one.position and one.address != stored[-1].address)
    expected = ok(stored)
    expected[stored.index(harmed)] = ("damaged", harmed.address, harmed.end)
    whole = harmed.file.read_bytes()
    for at in (0, 4, 8, 12, 16, 20, 22, 26, 30, 57):
        overwrite(harmed.file, harmed.position + at, b"\x7f\x7f")
        assert [span(row) for row in dump(log_dir)] == expected, at
        harmed.file.write_bytes(whole)


def test_a_torn_end(log_dir: Path, stored: list[Stored]) -> None:
    last = stored[-1]
    size = last.file.stat().st_size
    with last.file.open("r+b") as file:
        file.truncate(size - 7)
    *good, torn = dump(log_dir)
    assert [span(row) for row in good] == ok(stored[:-1])
    assert span(torn) == ("torn", last.address, last.end - 7)
    assert torn.is_fault


def test_a_segment_that_is_gone(log_dir: Path, stored: list[Stored]) -> None:
    gone = stored[5].file
    lost = [one for one in stored if one.file == gone]
    gone.unlink()
    faults = [row for row in verify(log_dir) if row.is_fault]
    assert [span(row) for row in faults] == [("missing", lost[0].address, lost[-1].end)]


def test_a_segment_that_reaches_into_the_next(log_dir: Path, stored: list[Stored]) -> None:
    first = stored[0].file
    end = first.stat().st_size
    with first.open("ab") as file:
        file.write(b"x" * 50)
    faults = [row for row in verify(log_dir) if row.is_fault]
    assert [span(row) for row in faults] == [("overlap", end, end + 50)]


def test_an_epoch_below_the_one_before_is_damage(log_dir: Path, stored: list[Stored]) -> None:
    """The leader epoch lies outside the CRC (rule L2)."""
    harmed = next(one for one in stored[9:] if one.position)
    overwrite(harmed.file, harmed.position + 12, bytes(4))
    faults = [row for row in verify(log_dir) if row.is_fault]
    assert [span(row) for row in faults] == [("damaged", harmed.address, harmed.end)]
    assert "epoch" in (faults[0].reason or "")


def test_a_payload_that_looks_like_a_batch_hides_nothing(log_dir: Path) -> None:
    """A producer who guesses addresses can put a batch into a value: only a search after damage may meet it."""
    with opened(log_dir) as held:
        log = held.log_or_create(ROWS, TOPIC_ID, LogConfig())
        fake = encode_batch([Record(0, 1, None, b"fake")])
        at = encode_batch([Record(0, 1, None, bytes(fake))]).index(fake)
        stamp(fake, 0, at, 0)
        batch = encode_batch([Record(0, 1, None, bytes(fake))])
        assert read_header(batch, at).base_offset == at
        log.append(memoryview(batch), 0)
        log.append(memoryview(encode_batch([Record(0, 1, None, b"real")])), 0)
    assert [row.state for row in dump(log_dir)] == ["ok", "ok"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_damage_at_all(tmp_path: Path, data: st.DataObject) -> None:
    """Whatever is written over a file: no error, every address accounted for once, every untouched batch found."""
    log_dir = Path(mkdtemp(dir=tmp_path)) / "data"
    stored = fill(log_dir, 10)
    touched: set[int] = set()
    for _ in range(data.draw(st.integers(1, 3))):
        file = data.draw(st.sampled_from(sorted({one.file for one in stored})))
        size = file.stat().st_size
        position = data.draw(st.integers(0, size - 1))
        noise = data.draw(st.binary(min_size=1, max_size=min(400, size - position)))
        overwrite(file, position, noise)
        start = int(file.stem) + position
        touched.update(one.address for one in stored if one.address < start + len(noise) and start < one.end)
    rows = list(dump(log_dir))
    at = 0
    for row in rows:
        assert row.base_offset == at
        at = row.end
    assert at == stored[-1].end
    found = [row for row in rows if row.state == "ok"]
    untouched = [one for one in stored if one.address not in touched]
    missed = set(ok(untouched)) - {span(row) for row in found}
    # A leader epoch raised by the noise can make the good batches behind it look old, as it would to recovery.
    assert not missed or any("epoch" in (row.reason or "") for row in rows)
    assert {row.base_offset for row in found} <= {one.address for one in stored}


# --- What is no log ---


def test_paths_that_hold_no_log(tmp_path: Path) -> None:
    with pytest.raises(NoSuchThing, match="nothing"):
        list(dump(tmp_path / "nothing"))
    with pytest.raises(NoSuchThing, match=str(tmp_path)):
        list(verify(tmp_path))
    other = tmp_path / "notes.log"
    other.write_bytes(b"words")
    with pytest.raises(UsageError, match=other.name):
        list(dump(other))


def test_a_file_of_anything_is_one_torn_stretch(tmp_path: Path) -> None:
    file = tmp_path / "00000000000000001000.log"
    file.write_bytes(b"words, not batches" * 1_000)
    (row,) = dump(file)
    assert span(row) == ("torn", 1_000, 19_000)
    file.write_bytes(b"")
    assert list(dump(file)) == []


def test_reading_changes_nothing_and_needs_no_right_to_write(log_dir: Path, stored: list[Stored]) -> None:
    overwrite(stored[3].file, stored[3].position + 40, b"!!!!")
    before = tree(log_dir)
    for file in folder_of(log_dir).iterdir():
        file.chmod(0o444)
    list(dump(log_dir))
    list(verify(log_dir))
    assert tree(log_dir) == before


def test_a_log_that_a_broker_is_appending_to(log_dir: Path) -> None:
    with opened(log_dir) as held:
        log = held.log_or_create(ROWS, TOPIC_ID, LogConfig())
        rows = 0
        for number in range(20):
            log.append(memoryview(encode_batch([Record(0, number, None, b"x")])), 0)
            found = list(dump(log_dir))
            assert [row.state for row in found] == ["ok"] * (number + 1)
            rows += len(found)
        assert rows == 210


def test_how_far_a_verification_is(log_dir: Path, stored: list[Stored]) -> None:
    meter = Meter()
    seen = []
    for _ in verify(log_dir, meter):
        seen.append(meter.done)
    assert meter.total == meter.done == sum(one.size for one in stored)
    assert seen == sorted(seen) and 0 < seen[0] < meter.done
    overwrite(stored[1].file, stored[1].position + 70, b"\xff\xfe\xfd")
    harmed = Meter()
    assert sum(row.is_fault for row in verify(log_dir, harmed)) == 1
    assert harmed.done == harmed.total == meter.total
    meter.stop()
    with pytest.raises(Stopped):
        list(verify(log_dir, meter))
