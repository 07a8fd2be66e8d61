"""Every test of the command line has a home of its own and no cluster from the environment."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``KLOG_HOME``, empty."""
    for name in ("KLOG_BOOTSTRAP_SERVER", "KLOG_ZOOKEEPER", "KLOG_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "klog-home"
    monkeypatch.setenv("KLOG_HOME", str(folder))
    return folder
