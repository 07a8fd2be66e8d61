"""The bench still runs from end to end, against klog alone: it cannot rot unseen. Nothing here looks at a time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench import bars, encrypted_run, host_run
from bench.workloads import WORKLOADS
from tests.spark.quick_java import spark_environment

pytestmark = [pytest.mark.slow, pytest.mark.long("bench smokes")]

REPOSITORY = Path(__file__).parents[2]


def smoke(folder: Path, *flags: str, timeout_s: float, **environment: str) -> str:
    """What the bench has written; it ended well and left nothing in its folder."""
    done = subprocess.run(
        [sys.executable, "-m", "bench", *flags, "--smoke", "--dir", str(folder)],
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(folder.iterdir()) == []
    return done.stdout


@pytest.mark.timeout(180)
def test_smoke(tmp_path: Path) -> None:
    shown = smoke(tmp_path, timeout_s=170)
    for workload in WORKLOADS:
        assert f"| {workload.name} |" in shown


@pytest.mark.timeout(300)
def test_smoke_of_three_brokers(tmp_path: Path) -> None:
    shown = smoke(tmp_path, "--cluster", timeout_s=290)
    for bar in bars.BARS:
        if bar.of == bars.KLOG_3 and bar.against is None and bar.workload not in bars.CONSUMER_ROWS:
            assert f"| {bar.workload} |" in shown


@pytest.mark.timeout(180)
def test_smoke_of_processes(tmp_path: Path) -> None:
    shown = smoke(tmp_path, "--processes", timeout_s=170)
    for row in host_run.SHAPES:
        assert re.search(rf"\| {re.escape(row)} \| messages/s \| \S+ \S+ \| \S+ \S+ \|", shown), shown


@pytest.mark.timeout(120)
def test_smoke_of_tls(tmp_path: Path) -> None:
    shown = smoke(tmp_path, "--encrypted", timeout_s=110)
    for row in (*encrypted_run.PRODUCED, *encrypted_run.PUMPED, *encrypted_run.CONSUMED, bars.TLS_CONNECT):
        assert f"| {row} |" in shown


@pytest.mark.timeout(300)
def test_smoke_of_consumers(tmp_path: Path) -> None:
    shown = smoke(tmp_path, "--consumers", timeout_s=290)
    for name in bars.CONSUMER_ROWS:
        assert f"| {name} |" in shown


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_smoke_of_the_pipeline(tmp_path: Path) -> None:
    shown = smoke(tmp_path, "--pipeline", timeout_s=290, **spark_environment())
    for name in bars.PIPELINE_ROWS:
        assert f"| {name} |" in shown
