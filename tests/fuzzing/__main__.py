"""Damaged frames by the million: ``scripts/fuzz --help``."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.broker_fixture import own_broker
from tests.fuzzing.inside import Plan
from tests.fuzzing.target import Target, Watch
from tests.server.wire import resident_bytes

WHO = ("nobody", "anonymous", "mallory")


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
    with own_broker(folder) as broker:
        target = Target(broker, is_fed_from_inside=True)
        target.start()
        with Watch(target, is_sacred="root" not in given.who) as watch:
            target.feed(Plan(given.seed, given.frames, tuple(given.who.split(",")), keys))
            said_s = 0.0
            while target.is_alive() and not (seen := target.progress()).get("done"):
                time.sleep(0.5)
                if seen and time.monotonic() - said_s > 30:
                    said_s = time.monotonic()
                    print(_line(seen, target, watch), flush=True)
        print(_line(target.progress(), target, watch))
        print(target.progress().get("outcomes"))
        print(f"seed {given.seed}; the files are in {folder}")
        if "root" not in given.who:
            target.check()
        found = target.findings()
        print(*found, sep="\n")
        return 1 if found or watch.failure or not target.is_alive() else 0


def _line(seen: dict[str, object], target: Target, watch: Watch) -> str:
    frames, seconds = float(str(seen.get("frames", 0))), float(str(seen.get("seconds", 1)))
    resident = resident_bytes(target.broker.pid) if target.is_alive() else 0
    what = {
        "frames": f"{frames:,.0f}",
        "a second": f"{frames / max(seconds, 0.1):,.0f}",
        "cpu s": seen.get("cpu_s"),
        "findings": seen.get("findings"),
        "MB": f"{resident / 1e6:.0f}, {watch.resident_max / 1e6:.0f} at most",
        "slowest answer": f"{watch.slowest_s:.2f} s",
        "threads": watch.threads_max,
        "descriptors": watch.descriptors_max,
        "tasks": f"{seen.get('tasks')} {seen.get('most_tasks')}",
        "watch": repr(watch.failure) if watch.failure else "well",
    }
    return "; ".join(f"{name} {value}" for name, value in what.items())


if __name__ == "__main__":
    sys.exit(main())
