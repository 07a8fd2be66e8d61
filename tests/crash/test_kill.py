"""kill -9 of a real broker under load: nothing that was acknowledged is lost, and nothing is there twice.

Goal: what a producer with idempotence and acks=all was told is written is read back after any number of kills, once,
in the order in which it was sent. Method: one librdkafka producer keeps sending numbered messages to three partitions
while the broker is killed and started again at seeded moments; then everything is read and compared.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable

import pytest

from tests.broker_fixture import RunningBroker
from tests.chance import seed_of
from tests.cluster.load import Load, judge

KILLS = int(os.environ.get("KLOG_TEST_KILLS", "5"))
PARTITIONS = 3


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_killed_again_and_again_under_load(make_broker: Callable[..., RunningBroker], topic: str) -> None:
    chance = random.Random(seed_of("killed under load"))
    # Small segments and few batches between checkpoints, so that kills fall on rolls and checkpoints too.
    broker = make_broker(
        num__partitions=str(PARTITIONS),
        log__segment__bytes="30000",
        log__flush__offset__checkpoint__interval__ms="200",
    ).start()
    load = Load(broker.bootstrap, topic, PARTITIONS, per_batch=50, pause_s=0.0025, **{"compression.type": "lz4"})
    try:
        for _ in range(KILLS):
            load.wait_for_more(chance.randrange(1, 2000))
            time.sleep(chance.random() * 0.02)
            broker.kill()
            broker.start()
        load.wait_for_more(100)
    finally:
        load.stop()
    assert not load.failed
    assert load.count() == load.sent
    judge(load, broker.bootstrap)
