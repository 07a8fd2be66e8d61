"""``klog log`` on real segment files, whole and damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from klog.record.batch import stamp
from klog.record.records import Record, encode_batch
from tests.cli.process import on_terminal
from tests.cli.runner import klog


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A partition's folder with three batches of ten messages, as a broker lays them down."""
    made = tmp_path / "data" / "events-0"
    made.mkdir(parents=True)
    data = bytearray()
    for number in range(3):
        records = [Record(index, 1000 + number, None, b"%d" % index, []) for index in range(10)]
        batch = encode_batch(records, base_offset=0)
        stamp(batch, 0, len(data), 0)
        data += batch
    (made / f"{0:020d}.log").write_bytes(data)
    return made


def damage(folder: Path) -> None:
    path = folder / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def test_a_whole_log(folder: Path) -> None:
    dumped = klog("log", "dump", folder, "-o", "json")
    assert dumped.code == 0, dumped.stderr
    assert [row["messages"] for row in dumped.rows] == [10, 10, 10]
    assert dumped.rows[1]["base_offset"] == dumped.rows[0]["end"]
    second = dumped.rows[1]["base_offset"]
    part = klog("log", "dump", folder, "--from", second + 3, "--to", second + 4, "-o", "json")
    assert [row["base_offset"] for row in part.rows] == [second]
    verified = klog("log", "verify", folder)
    assert verified.code == 0 and "30 messages" in verified.stderr
    nothing = klog("log", "repair", folder)
    assert nothing.code == 0 and "repair" in nothing.stderr
    assert klog("log", "dump", folder, "--from", 9, "--to", 9).code == 2


def test_damage_is_found_asked_about_and_repaired(folder: Path) -> None:
    damage(folder)
    assert klog("log", "verify", folder).code == 1
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    asked = klog("log", "repair", folder, "-o", "json")
    assert asked.code == 2 and asked.error["code"] == "NEEDS_ANSWER"
    dry = klog("log", "repair", folder, "--dry-run", "-o", "json")
    assert dry.code == 0 and dry.rows
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    with on_terminal("log", "repair", str(folder)) as (process, terminal):
        terminal.wait_for("20 messages stay")
        terminal.wait_for("[y/N] ")
        terminal.type("no\n")
        assert process.wait(20) == 1
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    done = klog("log", "repair", folder, "-y", "-o", "json")
    assert done.code == 0 and done.rows == dry.rows
    assert klog("log", "verify", folder).code == 0
    assert sum(row["messages"] or 0 for row in klog("log", "dump", folder, "-o", "json").rows) == 20
