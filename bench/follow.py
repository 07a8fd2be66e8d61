"""`klog export run --follow`: how long a message is on its way from its producer to a committed file.

A process as an operator starts it, a producer of a steady pace beside it. A batch counts from when its folder is seen
with its manifest, each of its messages from its own timestamp, which the producer has set when it was handed over.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from bench.commands import CommandFailed
from bench.klog_system import environment
from bench.pipeline_load import Paced, fill
from bench.processes import Process

LOOK_S = 0.005
FIRST_S = 120.0
"""Until the first batch is there: Spark starts."""
LAST_S = 60.0
"""After the last message was sent."""
WARM = 0.25
"""This part of the time does not count: Java compiles what it has seen often, and is slow before."""


class Watched:
    """The committed batches of a root: when each was first seen, and how many messages they say they have."""

    def __init__(self, root: Path) -> None:
        self._data = root / "data"
        self.seen_ms: dict[Path, int] = {}
        self.messages = 0

    def look(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            for folder in sorted(self._data.iterdir()):
                if folder not in self.seen_ms:
                    self.seen_ms[folder] = time.time_ns() // 1_000_000
                    (mark,) = folder.glob("_klog-*")
                    number, run = folder.name.removeprefix("batch="), mark.name.removeprefix("_klog-")
                    manifest = self._data.parent / "batches" / f"{number}-{run}" / "_manifest.json"
                    topics = json.loads(manifest.read_text())["topics"].values()
                    self.messages += sum(one["messages"] for about in topics for one in about["partitions"].values())

    def delays_ms(self, since_ms: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Of each message that was produced from then on."""
        found = []
        for folder, seen_ms in self.seen_ms.items():
            for path in folder.rglob("*.parquet"):
                times = pq.read_table(path, columns=["timestamp"])["timestamp"].cast("int64").to_numpy() // 1000
                found.append(seen_ms - times[times >= since_ms])
        return np.concatenate(found)


def follow(
    bootstrap: str, topic: str, folder: Path, pace: int, seconds: float, partitions: int, every: str = "1s"
) -> dict[str, float]:
    """The delays' median and 99th percentile in ms; CommandFailed where the command ends or does not come after."""
    root = folder / "followed"
    fill(bootstrap, topic, partitions, partitions)
    command = [sys.executable, "-m", "klog", "-B", bootstrap, "export", "run", topic, "--to", str(root)]
    process = Process("export", [*command, "--follow", "--every", every], folder / "follow.log", environment(folder))
    watched = Watched(root)
    try:
        _await(watched, process, partitions, FIRST_S)
        load = Paced(bootstrap, topic, pace, seconds, partitions)
        load.start()
        while load.is_alive():
            watched.look()
            time.sleep(LOOK_S)
        if load.failure is not None:
            raise load.failure
        _await(watched, process, partitions + load.sent, LAST_S)
    finally:
        process.stop()
    delays = watched.delays_ms(load.began_ms)
    if len(delays) != load.sent:
        raise CommandFailed(f"{load.sent} messages were produced, {len(delays)} are in the files")
    delays = watched.delays_ms(load.began_ms + round(1000 * WARM * seconds))
    return {
        "p50_ms": float(np.percentile(delays, 50)),
        "p99_ms": float(np.percentile(delays, 99)),
        "batches": len(watched.seen_ms) - 1,
        "producer_late_ms": load.late_s * 1000,
    }


def _await(watched: Watched, process: Process, messages: int, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        watched.look()
        if watched.messages >= messages:
            return
        if not process.running or time.monotonic() > deadline:
            raise CommandFailed(f"{watched.messages} of {messages} messages are committed: {process.log_tail()}")
        time.sleep(LOOK_S)
