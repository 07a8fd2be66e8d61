"""Faults of `scripts/faults --pipeline`, each once or twice: after each, the next run makes the export whole.

Kills of the driver at its named steps, two exporters, retention, a topic made again and a full disk stand in
`test_export_*.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker_fixture import RunningBroker
from tests.faults.exported import Difference, checksum, compare
from tests.faults.pipeline import run_cell

SEED = 20261121


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("cell", ["worker", "broker"])
@pytest.mark.long("a fault mix; test_export_run.py is killed anywhere")
def test_after_a_fault_the_next_run_makes_it_whole(
    spark: Any, make_broker: Callable[..., RunningBroker], tmp_path: Path, cell: str
) -> None:
    result = run_cell(cell, make_broker().start(), tmp_path, random.Random(SEED), 1, 6000)
    assert result.is_good, result
    assert result.runs == 1


def test_what_is_missing_doubled_or_changed_is_told_apart() -> None:
    log = {0: {at: at for at in range(5)}, 1: {7: 7}}
    whole = [(0, at, at) for at in range(5)] + [(1, 7, 7)]
    assert compare(log, whole) == Difference(6, 0, 0, 0, 0)
    beginning = compare(log, whole[:3])
    assert (beginning.missing, beginning.is_whole, beginning.is_a_beginning) == (3, False, True)
    hole = compare(log, [*whole[:2], *whole[3:]])
    assert (hole.missing, hole.holes, hole.is_a_beginning) == (1, 1, False)
    assert compare(log, [*whole, whole[0]]).doubled == 1
    assert compare(log, [*whole[:-1], (1, 7, 8)]).changed == 1
    assert compare(log, [*whole, (1, 9, 9)]).changed == 1
    assert len({checksum(0, key, value, []) for key in (None, b"") for value in (None, b"")}) == 4
