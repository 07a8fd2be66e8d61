"""The tours in ``scripts/``: walks through a cluster's life, and its consumers', as a person runs them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHOWN = {
    "tour-cluster": ("$ kill -9", "0 doubled", "$ klog topic verify", "$ klog broker stop 1"),
    "tour-consumers": ("by two streams", "undo: klog undo", "windows compared: no difference", "1 differ"),
}


@pytest.mark.long("tours")
@pytest.mark.timeout(240)
@pytest.mark.parametrize("tour", SHOWN)
def test_the_tour_ends_well_and_leaves_nothing(tour: str, tmp_path: Path) -> None:
    ran = subprocess.run(
        [ROOT / "scripts" / tour],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
    for shown in SHOWN[tour]:
        assert shown in ran.stdout, ran.stdout
    assert list(tmp_path.iterdir()) == []
