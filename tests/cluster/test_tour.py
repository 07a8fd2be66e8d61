"""``scripts/tour-cluster``: the walk through a cluster's life, as a person runs it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(240)
def test_the_tour_ends_well_and_leaves_nothing(tmp_path: Path) -> None:
    ran = subprocess.run(
        [ROOT / "scripts" / "tour-cluster"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
    for shown in ("$ kill -9", "0 doubled", "$ klog verify replicas", "$ klog broker stop 1"):
        assert shown in ran.stdout, ran.stdout
    assert list(tmp_path.iterdir()) == []
