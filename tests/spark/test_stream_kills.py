"""Faults of `scripts/faults --streams`, a few: exact windows after kills of the driver and the broker."""

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
def test_windows_are_exact_after_kills(make_broker: Callable[..., RunningBroker], tmp_path: Path) -> None:
    """Kills of a worker in the middle of a batch are in `test_streams.py`."""
    kinds = ("driver", "broker")
    result = run(make_broker().start(), tmp_path, random.Random(SEED), len(kinds), kinds=kinds)
    assert result.is_good, result
    assert result.killed == {"driver": 1, "broker": 1, "worker": 0}
    assert result.windows
