"""`scripts/setup`, which the README's commands run: what is there already stays as it is."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.rows import each

ROOT = Path(__file__).resolve().parents[2]


@each("options", ["", "-Xmx64m"])
def test_a_java_that_is_there_is_found_and_not_replaced(tmp_path: Path, options: str) -> None:
    """With JAVA_TOOL_OPTIONS set, Java says something before its version. An upgrade under a running JVM ends it."""
    if not (ROOT / ".venv" / ".klog-setup-run").exists():
        pytest.skip("klog runs from another environment than scripts/setup makes")
    asked = tmp_path / "asked"
    (tmp_path / "apt-get").write_text(f'#!/bin/sh\necho "$@" >> "{asked}"\nexit 1\n')
    (tmp_path / "apt-get").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    ran = subprocess.run(
        [ROOT / "scripts" / "setup"],
        env={**os.environ, "PATH": path, "JAVA_TOOL_OPTIONS": options},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert not asked.exists(), asked.read_text()
