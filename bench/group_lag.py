"""How long `klog lag` takes for many groups with many partitions each: the process, from start to end.

    python -m bench.group_lag [--groups 100] [--partitions 100] [--rounds 5] [--dir FOLDER]

One broker and one ZooKeeper of klog's own. Every group has committed somewhere else in every partition, so that no two
questions are the same, and every partition has an owner. Prints one JSON object: the seconds of each round, their
median, that of `klog lag --total`, and by how many offsets the groups are behind altogether.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.klog_system import Klog, environment
from klog.coordination import paths
from klog.coordination.committed import CommittedOffset, OffsetWriter
from klog.coordination.zookeeper import ZooKeeper
from klog.names import TopicPartition

TOPIC = "lagged"
MESSAGES_A_PARTITION = 2000
SEED = 5


def measure(folder: Path, groups: int, partitions: int, rounds: int) -> dict[str, object]:
    """The figures of one run; whatever was started has ended."""
    system = Klog("klog", folder, {})
    system.start("warm")
    try:
        ends = _fill(system, folder, partitions)
        with ZooKeeper(f"127.0.0.1:{system._zookeeper_port}/klog", operation_timeout_s=60) as zookeeper:
            zookeeper.start()
            lag = _commit(zookeeper, ends, groups)
            by_partition = [_run(system, folder, "group", "lag", "-o", "tsv") for _ in range(rounds)]
            by_group = [_run(system, folder, "group", "lag", "--total", "-o", "tsv") for _ in range(rounds)]
    finally:
        system.stop()
    assert all(len(text.splitlines()) == groups * partitions + 1 for _, text in by_partition)
    return {
        "groups": groups,
        "partitions": partitions,
        "offsets_behind": lag,
        "seconds": [round(seconds, 3) for seconds, _ in by_partition],
        "median_s": round(statistics.median(seconds for seconds, _ in by_partition), 3),
        "total_median_s": round(statistics.median(seconds for seconds, _ in by_group), 3),
    }


def _fill(system: Klog, folder: Path, partitions: int) -> dict[TopicPartition, int]:
    """Messages in every partition, in many batches; where each ends."""
    _run(system, folder, "topic", "create", TOPIC, "-p", str(partitions))
    lines = "".join(f"{'x' * 100}{number}\n" for number in range(MESSAGES_A_PARTITION * partitions))
    _run(system, folder, "produce", TOPIC, "-q", "--batch-messages", "100", stdin=lines)
    _, text = _run(system, folder, "offset", "list", TOPIC, "-o", "json")
    return {TopicPartition(TOPIC, row["partition"]): row["offset"] for row in json.loads(text)["rows"]}


def _commit(zookeeper: ZooKeeper, ends: dict[TopicPartition, int], groups: int) -> int:
    """Every group somewhere in every partition, and an owner for each; by how many offsets they are behind."""
    chance = random.Random(SEED)
    behind = 0
    for number in range(groups):
        group = f"group-{number:04}"
        places = {name: chance.randrange(max(1, end)) for name, end in ends.items()}
        behind += sum(ends[name] - place for name, place in places.items())
        writer = OffsetWriter(zookeeper)
        zookeeper.multi(writer.operations(group, {name: CommittedOffset(place) for name, place in places.items()}))
        for name in ends:
            zookeeper.create(paths.consumer_owner(group, *name), f"{group}_host-1-0-0".encode(), parents=True)
    return behind


def _run(system: Klog, folder: Path, *words: str, stdin: str = "") -> tuple[float, str]:
    """Seconds from the process's start to its end, and what it wrote."""
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "klog", *words, "-B", f"127.0.0.1:{system.port}"],
        env={**os.environ, **environment(folder)},
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"klog {' '.join(words)}: {done.stderr}")
    return time.perf_counter() - begun, done.stdout


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.group_lag")
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", type=Path)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=given.dir, prefix="klog-bench-") as folder:
        print(json.dumps(measure(Path(folder) / "klog", given.groups, given.partitions, given.rounds)))


if __name__ == "__main__":
    main(sys.argv[1:])
