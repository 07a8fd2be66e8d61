"""A log dir with damage to come."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.log_folders import Stored, fill


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def stored(log_dir: Path) -> list[Stored]:
    return fill(log_dir)
