"""Results of streams are exact after kills: of one process at each act of a commit, and of all, as `scripts/faults
--streams` does it, a few."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from klog.export.gc import find_garbage
from klog.export.verify import verify
from tests.broker_fixture import ROOT, RunningBroker
from tests.faults.streams import run
from tests.spark.test_tables import read

SEED = 20261125
ROWS = 3
"""Of a batch, as `killed_stream` writes them."""


@pytest.mark.long("test_tables.py kills the same commit, test_streams.py repeats batches into tables")
@pytest.mark.slow
@pytest.mark.parametrize("table", ["iceberg", "delta"])
def test_a_batch_that_was_killed_at_any_act_is_in_the_table_once(tmp_path: Path, table: str) -> None:
    root = tmp_path / "counts"
    command = [sys.executable, "-m", "tests.spark.killed_stream", str(root), table]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    batches = int(done.stdout)
    assert batches >= 8
    rows = sorted((row["batch_number"], row["row"]) for row in read(root, table).to_pylist())
    assert rows == [(number, row) for number in range(batches) for row in range(ROWS)]
    assert [(one.messages, one.state) for one in verify(None, str(root))] == [(batches * ROWS, "ok")]
    assert {one.what for one in find_garbage(str(root), older_than_s=0)} <= {"orphan", "temporary"}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kinds", "table"),
    [
        (("driver", "broker"), None),
        (("driver", "worker"), "iceberg"),
    ],
)
@pytest.mark.long("a kill series of three minutes; test_stream_parts.py cuts a batch off anywhere, as above for tables")
def test_windows_are_exact_after_kills(
    make_broker: Callable[..., RunningBroker], tmp_path: Path, kinds: tuple[str, ...], table: str | None
) -> None:
    """Kills of a worker in the middle of a batch are in `test_streams.py`."""
    draw = random.Random(SEED)
    result = run(make_broker().start(), tmp_path, draw, len(kinds), kinds=kinds, messages=900, table=table)
    assert result.is_good, result
    assert result.killed == {"driver": 0, "broker": 0, "worker": 0} | dict.fromkeys(kinds, 1)
    assert result.windows
