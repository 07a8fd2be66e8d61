"""Frames that are nearly right, from any client, change only what is theirs, and delay no other client.

By hand by the million: ``scripts/fuzz --frames 1000000 --seed N``.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator

import psutil
import pytest

from klog.coordination.embedded import ZooKeeperServer
from klog.protocol.apis import ApiKey
from klog.server.dispatch import ROUTES
from tests.broker_fixture import RunningBroker
from tests.chance import seed_of
from tests.fuzzing.attacker import WHO, Attacker
from tests.fuzzing.frames import Frames
from tests.fuzzing.target import Target, Watch
from tests.server.garbage import tasks_in
from tests.server.wire import open_descriptors
from tests.until import until

WITHIN_S = 60.0
ANSWERS_WITHIN_S = 8.0
"""Of a bystander, on a busy machine; a broker that is silent for its session's time ends itself (rule L8)."""
RESIDENT_BYTES_MAX = 400_000_000
FRAMES = 4_000

pytestmark = pytest.mark.xdist_group("fuzzing")


@pytest.fixture(scope="module")
def target(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    broker = RunningBroker(tmp_path_factory.mktemp("fuzzing"), f"{zookeeper.address}/fuzz-{secrets.token_hex(4)}")
    one = Target(broker)
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


def test_damaged_frames_change_nothing_and_leave_no_thread_no_descriptor_and_no_task(target: Target) -> None:
    attacker = Attacker(target, seed_of("damaged frames"))
    with Watch(target) as watch:
        attacker.attack(FRAMES)
    assert set(attacker.answered) == set(WHO) and min(attacker.answered.values()) > 30, attacker.answered
    watch.check(within_s=ANSWERS_WITHIN_S, resident_bytes_max=RESIDENT_BYTES_MAX)
    target.check()
    until(lambda: open_descriptors(target.broker.pid) <= target.descriptors + 15, timeout_s=WITHIN_S)
    until(lambda: tasks_in(target.broker) <= target.tasks + 3, timeout_s=WITHIN_S)
    assert psutil.Process(target.broker.pid).num_threads() <= target.threads + 20  # of pools with bounds of their own
