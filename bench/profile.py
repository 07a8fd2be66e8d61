"""Where a broker's processor time goes, by function, for the smallest requests that there are; its memory; a commit.

    python -m bench.profile [--seconds N]

starts a broker under `bench.sampled`, sends it ready-made requests of one message of 200 bytes (acks=all, a thousand in
flight), and writes ``bench/PROFILE.md``: microseconds of a message by file and by function. A stack that begins in the
standard library counts for the function of klog's that called it. Of other threads than the main one, nearly all of it
the flusher's fdatasync, only the sum is told. Before that, its memory, by what was imported, and one member's commits,
in turns with writes of ZooKeeper's as large.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from bench.klog_system import REPOSITORY, Klog
from bench.latency import Latency
from bench.machine import load
from bench.paper.__main__ import commit
from bench.processes import cpu_seconds, resident_bytes
from bench.produce import pump
from bench.raw_member import MemberFailed, RawMember, connect_to_coordinator

KLOG = f"{REPOSITORY}/klog/"
PAGE = REPOSITORY / "bench" / "PROFILE.md"
WARM_UP_S = 3.0
FUNCTIONS_MAX = 45
COMMITS = 500
IMPORTS = {
    "Python itself": "pass",
    "asyncio, with ssl": "import asyncio",
    "kazoo and crc32c": "import kazoo.client, crc32c",
    "klog's modules, with kio": "import klog.server.broker",
}
"""Of a broker's process, in their order."""


def own_frame(stack: list[list[str]]) -> tuple[str, str]:
    """The innermost function of klog's in a stack, as (file in klog, name); the loop's own where there is none."""
    for file, function in stack:
        if file.startswith(KLOG):
            return file.removeprefix(KLOG), function
    return "asyncio", "the event loop"


def main_thread_seconds(pid: int) -> float:
    """User and system time of a process's main thread."""
    return next(one.user_time + one.system_time for one in psutil.Process(pid).threads() if one.id == pid)


def imported_megabytes() -> dict[str, float]:
    """Resident memory that each of `IMPORTS` adds."""
    told = 'print(int(open("/proc/self/statm").read().split()[1]) * getpagesize())'
    steps = ["from resource import getpagesize", *(f"{one}\n{told}" for one in IMPORTS.values())]
    done = subprocess.run([sys.executable, "-c", "\n".join(steps)], capture_output=True, text=True, check=True)
    after = [int(line) / 1e6 for line in done.stdout.split()]
    return {name: now - before for name, now, before in zip(IMPORTS, after, [0.0, *after], strict=False)}


async def commits(system: Klog, topic: str) -> tuple[Latency, Latency]:
    """Of one member that commits again and again; of a session that writes as much to ZooKeeper, in turns with it."""
    member = RawMember(await connect_to_coordinator(f"127.0.0.1:{system.port}", "profile"), "profile", topic, 0)
    await member.join()
    session = KazooClient(system.zookeeper)
    session.start()
    try:
        session.create("/profile", b"0")
        taken: tuple[list[float], list[float]] = [], []
        for offset in range(COMMITS):
            began_s = time.perf_counter()
            refused = await member.commit(offset)
            committed_s = time.perf_counter()
            session.set("/profile", str(offset).encode())
            written_s = time.perf_counter()
            if refused:
                raise MemberFailed(f"a commit was answered with error {refused}")
            taken[0].append(committed_s - began_s)
            taken[1].append(written_s - committed_s)
    finally:
        session.stop()
        session.close()
        await member.channel.close()
    return Latency.of(taken[0]), Latency.of(taken[1])


def measure(folder: Path, seconds: float) -> str:
    """The page."""
    file = folder / "samples.json"
    system = Klog("profiled", folder / "klog", {}, program=("-m", "bench.sampled", str(file)))
    system.start("first")
    try:
        idle_mb, imports = resident_bytes(system.broker_pids()) / 1e6, imported_megabytes()
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{system.port}"})
        admin.create_topics([NewTopic("topic", 1, 1)])["topic"].result(30)
        committed, written = asyncio.run(commits(system, "topic"))
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
        "# Where a broker's time and memory go",
        "",
        f"Written by `python -m bench.profile` of commit {commit()} at load {load()}; nothing here is typed by hand.",
        "",
        "## A commit",
        "",
        f"{COMMITS} commits of one member, in turns with writes of ZooKeeper's:",
        "",
        "| | p50, ms | p99, ms |",
        "|---|---|---|",
        f"| a commit | {committed.p50_ms:.2f} | {committed.p99_ms:.2f} |",
        f"| a node of ZooKeeper's is set | {written.p50_ms:.2f} | {written.p99_ms:.2f} |",
        "",
        "## Memory of an idle broker",
        "",
        "| what | resident, MB |",
        "|---|---|",
        *(f"| {name} | {megabytes:.1f} |" for name, megabytes in imports.items()),
        f"| its session, its threads, its listeners, its first topic | {idle_mb - sum(imports.values()):.1f} |",
        f"| all | {idle_mb:.1f} |",
        "",
        "## A message alone",
        "",
        f"{sent.messages:,} requests of one message, "
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
