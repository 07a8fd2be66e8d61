"""Results of streams are exact after kills, as `scripts/faults --streams` does it, a few."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker_fixture import RunningBroker
from tests.faults.streams import run

SEED = 20261125


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
@pytest.mark.long(
    "a kill series of three minutes; test_stream_parts.py cuts a batch off anywhere, test_tables.py a commit"
)
def test_windows_are_exact_after_kills(
    make_broker: Callable[..., RunningBroker], tmp_path: Path, kinds: tuple[str, ...], table: str | None
) -> None:
    """Kills of a worker in the middle of a batch are in `test_streams.py`."""
    draw = random.Random(SEED)
    result = run(make_broker().start(), tmp_path, draw, len(kinds), kinds=kinds, messages=900, table=table)
    assert result.is_good, result
    assert result.killed == {"driver": 0, "broker": 0, "worker": 0} | dict.fromkeys(kinds, 1)
    assert result.windows
