"""The commands of docs/runbook.md are run in the incidents, or in the list of rows."""

from __future__ import annotations

import re
from pathlib import Path

from klog.cli.root import walk

ROOT = Path(__file__).resolve().parents[2]
HANDS_ON = {"broker start", "reassign cancel"}
"""Run by the fixtures that start brokers, and by the tests of reassignment."""


def test_each_command_of_the_runbook_is_run() -> None:
    known = {" ".join(words) for words, _ in walk()}
    said = re.sub(r"\s+", " ", (ROOT / "docs" / "runbook.md").read_text())
    found = {
        name
        for one, two in re.findall(r"klog ([a-z]+)(?: ([a-z-]+))?", said)
        for name in (f"{one} {two}", one)
        if name in known
    }
    run = (ROOT / "tests" / "cli" / "rows.txt").read_text()
    for file in (ROOT / "tests" / "incidents").glob("*.py"):
        run += re.sub(r'["\s,]+', " ", file.read_text())
    assert len(found) > 15
    assert {name for name in found - HANDS_ON if name not in run} == set()
