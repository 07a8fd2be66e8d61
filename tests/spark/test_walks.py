"""`scripts/quickstart`, the README's first command, and `scripts/tour-pipeline`, as a person runs them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.spark.quick_java import spark_environment

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.spark


def walk(folder: Path, script: str, *arguments: Path) -> str:
    """What the script shows; it ends well and leaves nothing in the folder for temporary files."""
    temporary = folder / "temporary"
    temporary.mkdir()
    ran = subprocess.run(
        [ROOT / "scripts" / script, *arguments],
        env=os.environ | spark_environment() | {"TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=400,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
    assert list(temporary.iterdir()) == []
    return ran.stdout


@pytest.mark.long("a document that is walked")
@pytest.mark.timeout(200)
def test_the_quickstart_counts_the_same_at_every_step(tmp_path: Path) -> None:
    file = tmp_path / "a web site's.log"
    file.write_text("".join(f"line {number}\n" for number in range(1_234)))
    shown = walk(tmp_path, "quickstart", file).splitlines()
    assert shown[-1] == "equal"
    assert [line.split()[-1] for line in shown[-6:-1]] == ["1234"] * 5


@pytest.mark.long("a tour")
@pytest.mark.timeout(420)
def test_the_tour_of_the_pipeline(tmp_path: Path) -> None:
    shown = walk(tmp_path, "tour-pipeline")
    for what in ("killed with -9 while it wrote part-", "no new messages", "different places in the log"):
        assert what in shown, shown
