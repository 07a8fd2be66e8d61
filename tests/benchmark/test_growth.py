"""The curves run, each by itself; the page says what was measured. Nothing here looks at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.growth import page as pages
from bench.growth.curves import CURVES
from bench.growth.record import GrowthRecord

REPOSITORY = Path(__file__).parents[2]
SMOKE = ("partitions", "connections", "three", "groups", "topics", "message-size")
"""One of each kind of measure: of one broker, of what it registers, of several brokers."""


def growth(*arguments: str, timeout_s: float = 350) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", "--growth", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=timeout_s, check=False)


def a_record() -> GrowthRecord:
    record = GrowthRecord(date="2026-01-01 10:00 UTC", commit="abc", machine={"cores": "2"})
    curve = record.curve("partitions", "klog")
    for x, megabytes, seconds in ((1, 50.0, 1.0), (1001, 55.0, 2.0), (2001, 70.0, 9.0)):
        curve.add(x, {"megabytes": megabytes, "restart_s": seconds})
    record.curve("partitions", "kafka-4.1").add(1, {"megabytes": 400.0})
    return record


def test_slopes_bends_and_bars_follow_the_figures() -> None:
    shown = pages.section(a_record())
    assert "| broker, MB | klog | 50.0 | 55.0<br>5 KB each | 70.0<br>15 KB each ↑ |" in shown
    assert "|  | kafka-4.1 | 400 |  |  |" in shown
    assert "broker, MB, at 2,001 partitions: 5 KB each before, 15 now" in shown
    assert "| memory a partition, KB | 6 | 10.0 | **missed**: 1.67 times as much |" in shown
    assert "| kill -9 to the first ack, s | 8 | 9.00 | **missed**: 1.12 times as much |" in shown
    quick = a_record()
    quick.curves[0].points = {name: points[:2] for name, points in quick.curves[0].points.items()}
    assert "| memory a partition, KB | 6 | 5.00 | reached |" in pages.section(quick)


def test_every_bar_is_of_a_figure_that_is_told() -> None:
    for growing in CURVES:
        assert {*growing.sloped, *(bar.figure for bar in growing.bars)} <= growing.figures.keys()
        assert {bar.figure for bar in growing.bars if bar.each} <= growing.sloped.keys()
        assert list(growing.values) == sorted(growing.values) and list(growing.quick) == sorted(growing.quick)


def test_the_page_is_written_from_the_results_alone(tmp_path: Path) -> None:
    """And the one of the documentation is what its results say."""
    kept = REPOSITORY / "docs" / "scale"
    record = GrowthRecord.read(kept / "results.json")
    assert (REPOSITORY / "docs" / "scale.md").read_text() == pages.page(record, kept)
    record.write(tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_text()) == json.loads((kept / "results.json").read_text())


@pytest.mark.slow
@pytest.mark.long("a bench smoke")
@pytest.mark.timeout(360)
def test_smoke(tmp_path: Path) -> None:
    done = growth(*SMOKE, "--quick", "--most", "100", "--systems", "klog", "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    record = GrowthRecord.read(tmp_path / "scale" / "results.json")
    assert record.notes == []
    assert {one.key for one in record.curves} == set(SMOKE)
    for curve in record.curves:
        told = next(one for one in CURVES if one.key == curve.key).figures
        assert curve.points and curve.points.keys() <= told.keys()
        assert (tmp_path / "scale" / f"{curve.key}.svg").stat().st_size > 5_000
    assert "# How cost grows" in (tmp_path / "scale.md").read_text()
