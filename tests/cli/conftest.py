"""Every test of the command line has a home of its own and no cluster from the environment."""

from __future__ import annotations

import socket
from collections.abc import Iterator
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


@pytest.fixture
def dead_address() -> Iterator[str]:
    """An address at which nobody listens: it is taken, so that nobody else will."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture
def silent_address() -> Iterator[str]:
    """An address at which connections are taken and nothing is ever answered."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(16)
        yield f"127.0.0.1:{listening.getsockname()[1]}"
