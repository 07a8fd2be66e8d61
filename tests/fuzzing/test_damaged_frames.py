"""Frames that are nearly right, from any client, change only what is theirs, and delay no other client.

By hand by the million: ``scripts/fuzz --frames 1000000 --seed N``.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from klog.coordination.embedded import ZooKeeperServer
from klog.protocol.apis import ApiKey
from klog.server.dispatch import ROUTES
from tests.broker_fixture import RunningBroker
from tests.chance import seed_of
from tests.fuzzing.frames import Frames
from tests.fuzzing.inside import Plan
from tests.fuzzing.sockets import Attacker
from tests.fuzzing.target import Target, Watch
from tests.server.wire import open_descriptors
from tests.until import until

WITHIN_S = 60.0
ANSWERS_WITHIN_S = 8.0
"""Of a bystander, on a busy machine; a broker that is silent for its session's time ends itself (rule L8)."""
RESIDENT_BYTES_MAX = 400_000_000
INSIDE, OUTSIDE = 4_000, 100

pytestmark = pytest.mark.xdist_group("fuzzing")


@pytest.fixture(scope="module")
def target(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    broker = RunningBroker(tmp_path_factory.mktemp("fuzzing"), f"{zookeeper.address}/fuzz-{secrets.token_hex(4)}")
    one = Target(broker, is_fed_from_inside=True)
    try:
        one.start()
        yield one
    finally:
        broker.end()


def test_every_request_and_version_is_drawn() -> None:
    frames = Frames(random.Random(1))
    assert {key for key, _ in frames.served} == set(ROUTES) >= {ApiKey.PRODUCE, ApiKey.CHANGE_SCHEMAS}
    drawn = {frames.next().key for _ in range(1500)}
    assert set(ROUTES) <= drawn
    assert [one.body for one in Frames(random.Random(2))._kept] == [one.body for one in Frames(random.Random(2))._kept]


def test_damaged_frames_before_and_after_a_login_change_nothing(target: Target) -> None:
    plan = Plan(seed_of("damaged frames"), INSIDE, ("nobody", "anonymous", "mallory"))
    with Watch(target) as watch:
        target.feed(plan)
        until(lambda: target.progress().get("done") or not target.is_alive(), timeout_s=WITHIN_S)
    outcomes = target.progress()["outcomes"]
    assert target.progress()["tasks_left"] <= 3, target.progress()["most_tasks"]
    assert min(outcomes[f"{who} answered"] for who in plan.who) > 50, outcomes
    watch.check(within_s=ANSWERS_WITHIN_S, resident_bytes_max=RESIDENT_BYTES_MAX)
    target.check()


def test_damaged_frames_over_sockets_leave_no_thread_and_no_descriptor(target: Target, tmp_path: Path) -> None:
    attacker = Attacker(target, seed_of("damaged frames over sockets"))
    with Watch(target) as watch:
        attacker.attack(OUTSIDE)
    assert set(attacker.answered) == {"plain", "before", "login", "user"} and all(attacker.answered.values())
    watch.check(within_s=ANSWERS_WITHIN_S, resident_bytes_max=RESIDENT_BYTES_MAX)
    target.check()
    until(lambda: open_descriptors(target.broker.pid) <= target.descriptors + 15, timeout_s=WITHIN_S)
    assert psutil.Process(target.broker.pid).num_threads() <= target.threads + 20  # of pools with bounds of their own
