"""Where a broker's processor time goes, by function, for the smallest requests that there are.

    python -m bench.profile [--seconds N]

starts a broker under `bench.sampled`, sends it ready-made requests of one message of 200 bytes (acks=all, a thousand in
flight), and writes ``bench/PROFILE.md``: microseconds of a message by file and by function. A stack that begins in the
standard library counts for the function of klog's that called it. Of other threads than the main one, nearly all of it
the flusher's fdatasync, only the sum is told.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from bench.klog_system import REPOSITORY, Klog
from bench.machine import load
from bench.paper.__main__ import commit
from bench.processes import cpu_seconds
from bench.produce import pump

KLOG = f"{REPOSITORY}/klog/"
PAGE = REPOSITORY / "bench" / "PROFILE.md"
WARM_UP_S = 3.0
FUNCTIONS_MAX = 45


def own_frame(stack: list[list[str]]) -> tuple[str, str]:
    """The innermost function of klog's in a stack, as (file in klog, name); the loop's own where there is none."""
    for file, function in stack:
        if file.startswith(KLOG):
            return file.removeprefix(KLOG), function
    return "asyncio", "the event loop"


def main_thread_seconds(pid: int) -> float:
    """User and system time of a process's main thread."""
    return next(one.user_time + one.system_time for one in psutil.Process(pid).threads() if one.id == pid)


def measure(folder: Path, seconds: float) -> str:
    """The page."""
    file = folder / "samples.json"
    system = Klog("profiled", folder / "klog", {}, program=("-m", "bench.sampled", str(file)))
    system.start("first")
    try:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{system.port}"})
        admin.create_topics([NewTopic("topic", 1, 1)])["topic"].result(30)
        pump(system.port, "topic", 1, 200, 1000, WARM_UP_S)
        [pid] = system.broker_pids()
        began_s, all_s, main_s = time.monotonic(), cpu_seconds([pid]), main_thread_seconds(pid)
        sent = pump(system.port, "topic", 1, 200, 1000, seconds)
        ended_s, all_s, main_s = time.monotonic(), cpu_seconds([pid]) - all_s, main_thread_seconds(pid) - main_s
    finally:
        system.stop()
    found = json.loads(file.read_text())
    counts = Counter(own_frame(found["stacks"][one]) for at_s, one in found["samples"] if began_s <= at_s <= ended_s)
    us = 1e6 * main_s / sent.messages / counts.total()
    rooms: Counter[str] = Counter()
    for (path, _), count in counts.items():
        rooms[path] += count
    lines = [
        "# Where a message's time goes",
        "",
        "Written by `python -m bench.profile`; nothing here is typed by hand.",
        "",
        f"Commit {commit()}, load {load()}: {sent.messages:,} requests of one message, "
        f"{sent.messages / sent.seconds:,.0f} a second; {1e6 * all_s / sent.messages:.1f} us of a broker's processor "
        f"time a message, {1e6 * main_s / sent.messages:.1f} of them in its main thread, the others the flusher's; "
        f"{counts.total():,} samples.",
        "",
        "| file | us a message |",
        "|---|---|",
        *(f"| `{path}` | {count * us:.2f} |" for path, count in rooms.most_common() if count * us >= 0.05),
        "",
        "| function | us a message |",
        "|---|---|",
        *(f"| `{path}` `{name}` | {count * us:.2f} |" for (path, name), count in counts.most_common(FUNCTIONS_MAX)),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description="Writes bench/PROFILE.md.")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--out", type=Path, default=PAGE)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="klog-profile-") as folder:
        page = measure(Path(folder), options.seconds)
    options.out.write_text(page)
    print(page, end="")


if __name__ == "__main__":
    main()
