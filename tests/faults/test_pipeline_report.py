"""The table of faults in the pipeline: what was met, what was left wrong, and when a cell is good."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.faults import pipeline_report
from tests.faults.pipeline import CELLS
from tests.faults.pipeline_report import BEGIN, END, PAGE, WHAT, PipelineResult, keep
from tests.rows import each


def test_every_cell_says_what_it_is() -> None:
    assert WHAT.keys() == CELLS.keys()
    text = PAGE.read_text()
    assert text.count(BEGIN) == text.count(END) == 1


@each(
    ("changes", "good"),
    [
        ({}, True),
        ({"faults": 0}, False),
        ({"missing": 1}, False),
        ({"doubled": 1}, False),
        ({"problems": ["x"]}, False),
    ],
)
def test_a_cell_is_good_when_faults_were_met_and_nothing_is_wrong(changes: dict[str, object], good: bool) -> None:
    assert PipelineResult(**{"cell": "driver", "faults": 3, "runs": 3, **changes}).is_good is good  # type: ignore[arg-type]


def test_a_later_result_takes_the_place_of_an_earlier_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\n{END}\nafter\n")
    monkeypatch.setattr(pipeline_report, "PAGE", page)
    monkeypatch.setattr(pipeline_report, "KEPT", tmp_path / "kept.jsonl")
    keep(PipelineResult("worker", 2, Counter(ended=2), 2, 100), seed=1)
    keep(PipelineResult("driver", 5, Counter(written=5), 5, 100, missing=1), seed=1)
    keep(PipelineResult("worker", 3, Counter(ended=3), 3, 200), seed=2)
    kept = [json.loads(line) for line in (tmp_path / "kept.jsonl").read_text().splitlines()]
    assert [(row["cell"], row["faults"]) for row in kept] == [("driver", 5), ("worker", 3)]
    text = page.read_text()
    assert re.search(r"\b8 faults, 8 .*\b1 .*missing, 0 doubled, 0 changed", text)
    assert "| worker | 3 | ended 3 | 3 | 200 | 0 | 0 | 0 | 2 |" in text
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
