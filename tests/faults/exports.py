"""An export by Spark, killed with -9 again and again at points drawn from a seed, and run again: every message once."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

from klog.coordination import embedded
from klog.ops.export.run import STEPS
from klog.ops.export.verify import verify
from klog.spark.export import run_export
from tests.broker_fixture import RunningBroker
from tests.spark import killed_export
from tests.spark.conftest import Message, TopicOnBroker, exported_rows

PARTITIONS = 3
MESSAGES_MAX = 20_000
"""A round produces up to so many: some seconds of writing, so that kills by time fall into it."""

NEVER = "999999"
"""Seconds after which nobody waits any more."""

POINTS = (*STEPS, "writing", "by time", "two at once")


def kill_exports(kills: int, draw: random.Random, folder: Path) -> int:
    """Each round: more messages, an export killed at a point, and what is there held against what was produced.

    Returns the exit code: 1 where a message is missing, there twice, or what was committed is not whole batches.
    """
    os.environ["JAVA_TOOL_OPTIONS"] = killed_export.JVM_QUICK_START
    zookeeper = embedded.start(folder / "zookeeper", cache=None)
    zookeeper.await_serving()
    broker = RunningBroker(folder / "broker", f"{zookeeper.address}/faults")
    try:
        topic = TopicOnBroker(broker.start().bootstrap, "faults", PARTITIONS)
        produced: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
        root = folder / "root"
        points: Counter[str] = Counter()
        killed = 0
        began = time.monotonic()
        while killed < kills:
            for partition, offsets in produced.items():
                count = draw.randrange(MESSAGES_MAX // PARTITIONS)
                offsets += topic.produce([Message(b"%d" % i, draw.randbytes(200)) for i in range(count)], partition)
            point = draw.choice(POINTS)
            dead = _round(topic, root, point, draw)
            killed += dead
            points[point] += dead
            committed = _check_committed(root, produced)
            print(
                f"{killed:3} killed at {point:12} {committed} of {sum(map(len, produced.values()))} committed, "
                f"{time.monotonic() - began:.0f} s",
                flush=True,
            )
        run_export(topic.bootstrap, [topic.name], str(root), staging_ttl_s=0)
        whole = _check_committed(root, produced) == sum(map(len, produced.values()))
        states = Counter(row.state for row in verify(topic.bootstrap, str(root)))
        print(f"{killed} kills ({dict(points)}): {'exact' if whole else 'MESSAGES MISSING'}; verify {dict(states)}")
        return 0 if whole and states.keys() == {"ok"} else 1
    finally:
        broker.end()
        zookeeper.stop()


def _round(topic: TopicOnBroker, root: Path, point: str, draw: random.Random) -> int:
    """One export killed at the point, or two racing of which one is; how many were killed."""
    if point != "two at once":
        at = f"{draw.uniform(0.5, 8):.2f}" if point == "by time" else point
        return int(killed_export.kill_at(topic.bootstrap, topic.name, root, at))
    others = killed_export.start(topic.bootstrap, topic.name, root, NEVER)
    dead = int(killed_export.kill_at(topic.bootstrap, topic.name, root, draw.choice(STEPS)))
    _, errors = others.communicate()
    assert others.returncode == 0, errors.decode()[-3000:]
    return dead


def _check_committed(root: Path, produced: dict[int, list[int]]) -> int:
    """How many messages are there; AssertionError unless each partition's are the first of those produced, once."""
    found: dict[int, list[int]] = {partition: [] for partition in produced}
    for row in exported_rows(root):
        found[row["partition"]].append(row["offset"])
    for partition, offsets in found.items():
        assert offsets == produced[partition][: len(offsets)], f"partition {partition} is not exact"
    return sum(map(len, found.values()))
