"""Short plans of faults on a cluster of three brokers, judged by the checker of histories.

Goal: what an acknowledgement promised is kept while the leader dies, a follower hangs, the controller dies and
ZooKeeper is restarted.
Method: the runner of `scripts/faults`, one plan of some faults under one load.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chance import seed_of
from tests.faults import plan as plans
from tests.faults.run import run

FAULTS = [
    ("kill", "leader", 2.0),
    ("pause", "follower", plans.PAUSE_S),
    ("kill", "controller", 2.0),
    ("zookeeper", "none", 2.0),
]
REST_S = 2.5
ACKED_MIN = 100


@pytest.mark.long("a mix of faults")
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nothing_is_lost_doubled_or_moved_by_a_short_mix_of_faults(tmp_path: Path) -> None:
    plan = plans.sequence("smoke", seed_of("smoke"), FAULTS, REST_S)
    result = run(plan, tmp_path, keep=tmp_path / "history.jsonl")
    print("\n".join(result.done), result.notes)
    assert len(result.done) == len(FAULTS)
    assert not result.problems
    assert result.verdict is not None
    assert result.verdict.is_clean, result.verdict.summary()
    # Two of three replicas live through each of these: the work goes on.
    assert result.verdict.acked_during_faults > ACKED_MIN
    assert result.verdict.unknown == 0, "producers with retries settle what they sent"
