"""`scripts/tour-pipeline`: a log file to Parquet, a question, a kill and what makes it whole, as a person runs it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.spark.quick_java import spark_environment

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.long("a tour")
@pytest.mark.spark
@pytest.mark.timeout(420)
def test_the_tour_ends_well_and_leaves_nothing(tmp_path: Path) -> None:
    ran = subprocess.run(
        [ROOT / "scripts" / "tour-pipeline"],
        env=os.environ | spark_environment() | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=400,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
    for shown in (
        "killed with -9 while it wrote part-",
        "no new messages",
        "different places in the log",
        "report.html",
    ):
        assert shown in ran.stdout, ran.stdout
    assert list(tmp_path.iterdir()) == []
