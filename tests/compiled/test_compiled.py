"""The modules that an installation may compile: built, held against their source, and put to the source's own tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench import klog_system

REPOSITORY = Path(__file__).parents[2]
SUITES = (
    "tests/crash/test_kill.py",
    "tests/net/test_connection.py",
    "tests/net/test_memory_pool.py",
    "tests/net/test_tls.py",
    "tests/net/test_turns.py",
    "tests/net/test_unsent.py",
    "tests/protocol",
    "tests/record/test_admitted_headers.py",
    "tests/record/test_admitted_records.py",
    "tests/record/test_batch.py",
    "tests/record/test_records.py",
    "tests/replication/test_follower_model.py",
    "tests/replication/test_isr.py",
    "tests/replication/test_led_partition.py",
    "tests/replication/test_led_partition_model.py",
    "tests/replication/test_settled.py",
    "tests/storage/test_crash.py",
    "tests/storage/test_flusher.py",
    "tests/storage/test_follower_log.py",
    "tests/storage/test_log_model.py",
    "tests/storage/test_lookup.py",
    "tests/storage/test_reads.py",
    "tests/storage/test_recovery.py",
    "tests/storage/test_retention.py",
    "tests/storage/test_rules.py",
)
"""Those that put real objects, real files and real brokers to work. A compiled class takes nothing else in its place:
suites with imitations of one run by the source alone."""
ROUNDS = 400

pytestmark = [
    pytest.mark.long("a C compiler builds thirty modules; the source of each has its own room's tests"),
    pytest.mark.xdist_group("compiled"),  # built once
]


def run(folder: Path, *words: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with the compiled modules in it."""
    if shutil.which("gcc") is None and shutil.which("cc") is None:
        pytest.skip("no C compiler here")
    folder = tmp_path_factory.mktemp("compiled")
    for name in ("tests", "bench"):
        shutil.copytree(REPOSITORY / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return klog_system.compiled(folder)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_what_is_compiled_does_as_its_source(compiled: Path) -> None:
    of_source = run(REPOSITORY, "-m", "tests.compiled.outcomes", str(ROUNDS))
    of_compiled = run(compiled, "-m", "tests.compiled.outcomes", str(ROUNDS))
    assert "compiled" not in of_source
    assert of_compiled == of_source.replace(" source\n", " compiled\n")
    assert len(of_source.splitlines()) > ROUNDS


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_what_is_compiled_passes_the_tests_of_its_source(compiled: Path) -> None:
    run(compiled, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", *SUITES)


def test_nothing_is_compiled_in_place() -> None:
    """There it would hide a source that is changed later."""
    refused = subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--inplace"],
        cwd=REPOSITORY,
        env={**os.environ, "KLOG_COMPILE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 1
    assert "editable" in refused.stderr
    assert not list((REPOSITORY / "klog").rglob("*.so"))
