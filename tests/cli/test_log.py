"""``klog log`` on real segment files, whole and damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.runner import klog
from tests.tools.log_folders import Stored, fill, overwrite, tree


@pytest.fixture
def stored(tmp_path: Path) -> list[Stored]:
    """Batches of one, two and three messages in one segment."""
    return fill(tmp_path / "data", 3, segment_bytes=1 << 20)


def test_a_whole_log(stored: list[Stored]) -> None:
    folder = stored[0].file.parent
    dumped = klog("log", "dump", folder, "-o", "json")
    assert dumped.code == 0, dumped.stderr
    assert [row["messages"] for row in dumped.rows] == [1, 2, 3]
    assert dumped.rows[1]["base_offset"] == dumped.rows[0]["end"]
    second = dumped.rows[1]["base_offset"]
    part = klog("log", "dump", folder, "--from", second + 1, "--to", second + 2, "-o", "json")
    assert [row["base_offset"] for row in part.rows] == [second]
    verified = klog("log", "verify", folder)
    assert verified.code == 0 and "6 messages" in verified.stderr
    nothing = klog("log", "repair", folder)
    assert nothing.code == 0 and "repair" in nothing.stderr
    assert klog("log", "dump", folder, "--from", 9, "--to", 9).code == 2


def test_damage_is_found_asked_about_and_repaired(stored: list[Stored]) -> None:
    folder, harmed = stored[0].file.parent, stored[1]
    overwrite(harmed.file, harmed.position + 70, b"\xff\xfe\xfd")
    assert klog("log", "verify", folder).code == 1
    before = tree(folder)
    asked = klog("log", "repair", folder, "-o", "json")
    assert asked.code == 2 and asked.error["code"] == "NEEDS_ANSWER"
    assert "4 messages stay" in asked.error["message"]
    dry = klog("log", "repair", folder, "--dry-run", "-o", "json")
    assert dry.code == 0 and dry.rows
    assert tree(folder) == before
    done = klog("log", "repair", folder, "-y", "-o", "json")
    assert done.code == 0 and done.rows == dry.rows
    assert klog("log", "verify", folder).code == 0
    assert sum(row["messages"] or 0 for row in klog("log", "dump", folder, "-o", "json").rows) == 4
