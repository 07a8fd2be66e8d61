"""Damaged frames by the million: ``scripts/fuzz --help``."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

from tests.broker_fixture import own_broker
from tests.fuzzing.attacker import WHO, Attacker
from tests.fuzzing.target import Target, Watch
from tests.server.garbage import tasks_in
from tests.server.wire import resident_bytes

ATTACKERS = 4
"""At once: one waits for its answers while another draws its frames."""
REPORT_S = 30.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description="Damaged frames against a real broker.")
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--who", default=",".join(WHO), help="nobody (before a login), anonymous, mallory, root")
    parser.add_argument("--keys", help="numbers of requests; all by default")
    parser.add_argument("--dir", type=Path, help="where the broker's files and the findings stay")
    given = parser.parse_args()
    folder = given.dir or Path(tempfile.mkdtemp(prefix="klog-fuzz-"))
    folder.mkdir(parents=True, exist_ok=True)
    keys = tuple(map(int, given.keys.split(","))) if given.keys else None
    who = tuple(given.who.split(","))
    findings = 0
    with own_broker(folder) as broker:
        target = Target(broker)
        target.start()
        attackers = [Attacker(target, given.seed + number, who, keys) for number in range(ATTACKERS)]
        began_s = time.monotonic()
        with Watch(target, is_sacred="root" not in who) as watch, ThreadPoolExecutor(ATTACKERS) as pool:
            attacks = [pool.submit(one.attack, given.frames // ATTACKERS) for one in attackers]
            while not all(one.done() for one in attacks):
                wait(attacks, REPORT_S)
                findings += target.look_into_log([frame for one in attackers for frame in one.last])
                print(_line(attackers, time.monotonic() - began_s, findings, target, watch), flush=True)
        for one in attacks:
            one.result()
        print(f"seed {given.seed}; the files are in {folder}")
        if "root" not in who:
            target.check()
        return 1 if findings or watch.failure or not target.is_alive() else 0


def _line(attackers: list[Attacker], seconds: float, findings: int, target: Target, watch: Watch) -> str:
    frames = sum(one.sent.total() for one in attackers)
    is_alive = target.is_alive()
    megabytes = resident_bytes(target.broker.pid) / 1e6 if is_alive else 0.0
    what = {
        "frames": f"{frames:,}",
        "a second": f"{frames / seconds:,.0f}",
        "findings": findings,
        "MB": f"{megabytes:.0f}, {watch.resident_max / 1e6:.0f} at most",
        "slowest answer": f"{watch.slowest_s:.2f} s",
        "threads": watch.threads_max,
        "descriptors": watch.descriptors_max,
        "tasks": tasks_in(target.broker) if is_alive else 0,
        "watch": repr(watch.failure) if watch.failure else "well",
    }
    return "; ".join(f"{name} {value}" for name, value in what.items())


if __name__ == "__main__":
    sys.exit(main())
