"""repair: a log that is whole again, with every valid batch at its address and every other byte kept beside it."""

from __future__ import annotations

from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klog.config.topic import LogConfig
from klog.errors import LogDirLocked, NoSuchThing, Refused
from klog.record.records import decode_batch, encode_batch
from klog.storage.recovery import DamageRecord
from klog.tools.log_files import LogRow, dump, verify
from klog.tools.log_repair import RepairPlan, apply_repair, plan_repair
from tests.tools.log_folders import ROWS, TOPIC_ID, Stored, fill, folder_of, opened, overwrite, records_of, tree


def good(log_dir: Path) -> list[tuple[int, int]]:
    return [(row.base_offset, row.end) for row in dump(log_dir) if row.state == "ok"]


def spans(rows: list[LogRow]) -> list[tuple[str, int, int]]:
    return [(row.state, row.base_offset, row.end) for row in rows]


def is_whole(log_dir: Path) -> bool:
    return not any(row.is_fault for row in verify(log_dir))


def test_a_whole_log_needs_nothing(log_dir: Path, stored: list[Stored]) -> None:
    before = tree(log_dir)
    plan = plan_repair(log_dir)
    assert plan == RepairPlan(())
    assert apply_repair(plan) == []
    assert tree(log_dir) == before


def test_a_damaged_batch_becomes_a_recorded_hole(log_dir: Path, stored: list[Stored]) -> None:
    harmed = stored[2]
    overwrite(harmed.file, harmed.position + 70, b"\xff\xfe\xfd")
    damaged_bytes = harmed.file.read_bytes()[harmed.position :][: harmed.size]
    before = tree(log_dir)

    plan = plan_repair(log_dir)
    assert tree(log_dir) == before  # a plan changes nothing
    assert spans(plan.rows) == [("hole", harmed.address, harmed.end)]
    assert Path(plan.rows[0].file).name == f"{harmed.address:020d}.damaged"
    assert plan.kept_messages == sum(one.count for one in stored) - harmed.count

    assert apply_repair(plan) == plan.rows
    rest = [one for one in stored if one != harmed]
    assert good(log_dir) == [(one.address, one.end) for one in rest]
    kept = Path(plan.rows[0].file).read_bytes()
    damage = DamageRecord.parse(kept)
    assert damage is not None
    assert (damage.first_address, damage.end_address) == (harmed.address, harmed.end)
    assert kept.partition(b"\n")[2] == damaged_bytes
    assert is_whole(log_dir)
    assert spans([row for row in verify(log_dir) if row.state == "hole"]) == [("hole", harmed.address, harmed.end)]
    assert plan_repair(log_dir).folders == ()


def test_a_broker_serves_what_was_repaired(log_dir: Path, stored: list[Stored]) -> None:
    harmed = stored[4]
    overwrite(harmed.file, harmed.position + 61, b"?")
    apply_repair(plan_repair(log_dir))
    with opened(log_dir) as held:
        log = held.log(ROWS)
        assert log is not None
        assert log.end.address == stored[-1].end
        (*_, last) = log.read(stored[-1].address, 1 << 20, log.end.address)
        data = last.file.read_at(last.position, last.size)
        assert [record.value for record in decode_batch(data)] == [
            record.value for record in records_of(len(stored) - 1, stored[-1].count)
        ]
        more = log.append(memoryview(encode_batch(records_of(50, 2))), leader_epoch=9)
        assert more.base_offset == stored[-1].end
    assert is_whole(log_dir)


def test_damage_larger_than_any_buffer_is_kept_whole(log_dir: Path) -> None:
    with opened(log_dir) as held:
        log = held.log_or_create(ROWS, TOPIC_ID, LogConfig())
        batch = encode_batch(records_of(0, 900, value_bytes=1_000))
        ends = [log.append(memoryview(bytearray(batch)), 0).end.address for _ in range(5)]
    (file,) = folder_of(log_dir).glob("*.log")
    overwrite(file, ends[0], b"#" * (ends[3] - ends[0]))
    apply_repair(plan_repair(log_dir))
    assert good(log_dir) == [(0, ends[0]), (ends[3], ends[4])]
    kept = (folder_of(log_dir) / f"{ends[0]:020d}.damaged").read_bytes()
    assert kept.partition(b"\n")[2] == b"#" * (ends[3] - ends[0])


# --- When it refuses ---


def test_a_log_dir_in_use_is_refused(log_dir: Path, stored: list[Stored]) -> None:
    overwrite(stored[2].file, stored[2].position + 70, b"\xff\xfe\xfd")
    plan = plan_repair(log_dir)
    with opened(log_dir):
        before = tree(log_dir)
        with pytest.raises(LogDirLocked, match="broker"):
            plan_repair(log_dir)
        with pytest.raises(LogDirLocked, match="broker"):
            plan_repair(stored[0].file)
        with pytest.raises(LogDirLocked, match="broker"):
            apply_repair(plan)
        assert tree(log_dir) == before


def test_files_that_changed_since_the_plan_are_refused(log_dir: Path, stored: list[Stored]) -> None:
    overwrite(stored[2].file, stored[2].position + 70, b"\xff\xfe\xfd")
    plan = plan_repair(log_dir)
    overwrite(stored[3].file, stored[3].position + 70, b"\xff\xfe\xfd")
    before = tree(log_dir)
    with pytest.raises(Refused, match="changed"):
        apply_repair(plan)
    assert tree(log_dir) == before


def test_a_folder_that_is_no_partitions_is_refused(tmp_path: Path, log_dir: Path, stored: list[Stored]) -> None:
    copy = tmp_path / "evidence"
    copy.mkdir()
    (copy / stored[0].file.name).write_bytes(b"x" * 100)
    (copy / "letters.tmp").write_bytes(b"of others")
    with pytest.raises(Refused, match="topic"):
        plan_repair(copy)
    with pytest.raises(NoSuchThing):
        plan_repair(tmp_path / "nothing")
    assert (copy / "letters.tmp").exists()


def test_a_file_stands_for_its_folder(log_dir: Path, stored: list[Stored]) -> None:
    overwrite(stored[2].file, stored[2].position + 70, b"\xff\xfe\xfd")
    assert plan_repair(stored[0].file).rows == plan_repair(folder_of(log_dir)).rows == plan_repair(log_dir).rows


# --- Whatever happened ---


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_damage_at_all(tmp_path: Path, data: st.DataObject) -> None:
    """No valid batch is lost, the log is whole afterwards, and a broker opens it at the same end."""
    log_dir = Path(mkdtemp(dir=tmp_path)) / "data"
    stored = fill(log_dir, 10)
    files = sorted({one.file for one in stored})
    for _ in range(data.draw(st.integers(1, 3))):
        file = data.draw(st.sampled_from(files))
        size = file.stat().st_size if file.exists() else 0
        match data.draw(st.sampled_from(["noise", "cut", "grow", "lose"])):
            case "noise" if size:
                position = data.draw(st.integers(0, size - 1))
                overwrite(file, position, data.draw(st.binary(min_size=1, max_size=min(300, size - position))))
            case "cut" if size:
                with file.open("r+b") as opened_file:
                    opened_file.truncate(data.draw(st.integers(0, size)))
            case "grow" if size:
                with file.open("ab") as opened_file:
                    opened_file.write(data.draw(st.binary(max_size=200)))
            case "lose":
                file.unlink(missing_ok=True)
    if not any(folder_of(log_dir).glob("*.log")):
        return
    before = good(log_dir)
    plan = plan_repair(log_dir)
    no_batches = [
        Path(fault.file).read_bytes()[fault.address - int(Path(fault.file).stem) :][: fault.bytes]
        for folder in plan.folders
        for fault in folder.faults
    ]
    apply_repair(plan)
    assert good(log_dir) == before
    assert is_whole(log_dir)
    beside = [file.read_bytes() for pattern in ("*.cut", "*.damaged") for file in folder_of(log_dir).glob(pattern)]
    assert all(any(kept.endswith(lost) for kept in beside) for lost in no_batches)
    assert not list(folder_of(log_dir).glob("*.tmp"))
    assert plan_repair(log_dir).folders == ()
    with opened(log_dir, segment_bytes=700) as held:
        assert good(log_dir) == before
        log = held.log(ROWS)
        assert log is not None
        more = log.append(memoryview(encode_batch(records_of(99, 1))), leader_epoch=max(5, log.last_epoch))
    # Only the newest batch's epoch, raised by the noise, cannot be told from a true one before another batch follows.
    assert good(log_dir)[-1] == (more.base_offset, more.end.address)
    assert good(log_dir)[: len(before) - 1] == before[:-1]
