"""Results of streams are exact after kills, as `scripts/faults --streams` does it, a few.

A batch that is cut off is in `test_stream_parts.py` and `test_tables.py`, one that is repeated in `test_streams.py`.
"""

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
        (("driver", "broker", "worker"), None),
        (("driver", "worker"), "iceberg"),
    ],
)
@pytest.mark.long("a kill series of three minutes; test_stream_parts.py and test_tables.py cut a batch off")
def test_windows_are_exact_after_kills(
    make_broker: Callable[..., RunningBroker], tmp_path: Path, kinds: tuple[str, ...], table: str | None
) -> None:
    draw = random.Random(SEED)
    result = run(make_broker().start(), tmp_path, draw, len(kinds), kinds=kinds, messages=900, table=table)
    assert result.is_good, result
    assert result.killed == {"driver": 0, "broker": 0, "worker": 0} | dict.fromkeys(kinds, 1)
    assert result.windows
