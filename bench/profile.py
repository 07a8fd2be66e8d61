"""Where a broker's processor time goes, by function, for the smallest requests that there are; its memory; a commit.

    python -m bench.profile [--seconds N]

starts a broker under `bench.sampled`, sends it ready-made requests of one message of 200 bytes (acks=all, a thousand in
flight), and writes ``bench/PROFILE.md``: microseconds of a message by file and by function. A stack that begins in the
standard library counts for the function of klog's that called it. Of other threads than the main one, nearly all of it
the flusher's fdatasync, only the sum is told. Before that, its memory, by what was imported, and one member's commits,
in turns with writes of ZooKeeper's as large and with heartbeats, step by step.
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
from statistics import median

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

STEPS = {
    "its client encodes it; the broker reads and decodes it": "commit >",
    "it is checked, and handed to the thread that writes to ZooKeeper": "_send_all >",
    "its operations are made": "_call >",
    "they are handed to kazoo's thread, encoded and sent": "_send_request <",
    "ZooKeeper writes and flushes them, and answers": "_read_response >",
    "the answer is decoded, and handed to the thread that wrote": "_send_all <",
    "it is handed to the event loop": "commit <",
    "the broker encodes and sends its answer; the client decodes it": "client <",
}
"""What a commit consists of, and the moment at which each step ends (`bench.sampled`)."""

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


async def commits(system: Klog, topic: str) -> tuple[list[tuple[float, float]], list[float], list[float]]:
    """Of one member that commits again and again: when each commit began and ended. In turns with it the seconds that a
    write of another session to ZooKeeper takes, and a heartbeat of the member."""
    member = RawMember(await connect_to_coordinator(f"127.0.0.1:{system.port}", "profile"), "profile", topic, 0)
    await member.join()
    session = KazooClient(system.zookeeper)
    session.start()
    try:
        session.create("/profile", b"0")
        committed, written, heard = list[tuple[float, float]](), list[float](), list[float]()
        for offset in range(COMMITS):
            began_s = time.monotonic()
            refused = await member.commit(offset)
            committed_s = time.monotonic()
            session.set("/profile", str(offset).encode())
            written_s = time.monotonic()
            await member.heartbeat()
            heard.append(time.monotonic() - written_s)
            if refused:
                raise MemberFailed(f"a commit was answered with error {refused}")
            committed.append((began_s, committed_s))
            written.append(written_s - committed_s)
    finally:
        session.stop()
        session.close()
        await member.channel.close()
    return committed, written, heard


def steps_ms(committed: list[tuple[float, float]], moments: list[tuple[str, float]]) -> dict[str, float]:
    """The median of each of `STEPS`."""
    taken: dict[str, list[float]] = {step: [] for step in STEPS}
    following = iter(moments)
    for began_s, ended_s in committed:
        at_s = {"client <": ended_s}
        for name, noted_s in following:
            if noted_s > began_s:
                at_s.setdefault(name, noted_s)  # the first: one request to ZooKeeper
            if name == "commit <" and noted_s > began_s:
                break
        before_s = began_s
        for step, end in STEPS.items():
            taken[step].append(1000 * (at_s[end] - before_s))
            before_s = at_s[end]
    return {step: median(each) for step, each in taken.items()}


def measure(folder: Path, seconds: float) -> str:
    """The page."""
    file = folder / "samples.json"
    system = Klog("profiled", folder / "klog", {}, program=("-m", "bench.sampled", str(file)))
    system.start("first")
    try:
        idle_mb, imports = resident_bytes(system.broker_pids()) / 1e6, imported_megabytes()
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{system.port}"})
        admin.create_topics([NewTopic("topic", 1, 1)])["topic"].result(30)
        committed, written, heard = asyncio.run(commits(system, "topic"))
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
    rows = {
        "a commit": [ended_s - began_s for began_s, ended_s in committed],
        "a node of ZooKeeper's is set": written,
        "a heartbeat of the same member": heard,
    }
    latencies = {name: Latency.of(seconds) for name, seconds in rows.items()}
    lines = [
        "# Where a broker's time and memory go",
        "",
        f"Written by `python -m bench.profile` of commit {commit()} at load {load()}; nothing here is typed by hand.",
        "",
        "## A commit",
        "",
        f"{COMMITS} commits of one member, in turns with writes of ZooKeeper's and with heartbeats:",
        "",
        "| | p50, ms | p99, ms |",
        "|---|---|---|",
        *(f"| {name} | {one.p50_ms:.2f} | {one.p99_ms:.2f} |" for name, one in latencies.items()),
        "",
        "| step of a commit | median, ms |",
        "|---|---|",
        *(f"| {step} | {ms:.2f} |" for step, ms in steps_ms(committed, found["moments"]).items()),
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
