"""What `scripts/test` does: the checks and one tier of the tests, and whether the commit is green.

A test that fails is run once more, alone, after all others. Where it passes then it is *unsteady*: the run is green,
and says so with the line for ``tests/unsteady.md``. The run is red where a test fails twice, where more than
`UNSTEADY_MAX` are unsteady, or one of `NEVER_UNSTEADY`: those tests decide about loss and have no clock.

``build/test-run.json`` tells what has been run: commit, whether the tree was clean, tier, seconds, counts, names.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
DURATIONS = ROOT / "tests" / "durations.json"
RELIABILITY = ROOT / "docs" / "reliability.md"
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "tests.run_report"]

UNSTEADY_MAX = 3
AGAIN_MAX = 20
NEVER_UNSTEADY = tuple(
    f"tests/{room}/" for room in ("rules", "crash", "replication", "storage", "record", "simulation")
)

TIERS = {"fast": "fast", "default": "not timed and not long", "all": "not timed"}
"""The marks of each tier. What judges seconds (`timed`) runs by hand, on a quiet machine."""

PROFILE = {"all": ("--hypothesis-profile=all",)}
"""More examples of each property: tests/conftest.py."""

WORKERS = {"fast": 3, "default": 6, "all": 3}
"""For two cores: tests mostly wait for brokers. The long ones beside four others failed by chance."""

RUNS_KEPT = 20
DEAREST = 10


@dataclass
class Run:
    """What ``build/test-run.json`` has."""

    commit: str
    clean: bool
    tier: str
    date: str
    seconds: float = 0.0
    load: float = 0.0
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    unsteady: int = 0
    names: dict[str, list[str]] = field(default_factory=dict)
    """failed, unsteady: the tests' names."""
    green: bool = False


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def run_pytest(report: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and what the run has reported; {} where it did not get so far."""
    report.parent.mkdir(exist_ok=True)
    report.unlink(missing_ok=True)
    ran = subprocess.run([*PYTEST, *words], cwd=ROOT, env=environment(KLOG_TEST_REPORT=str(report)), check=False)
    code = ran.returncode
    return code, json.loads(report.read_text()) if report.exists() else {}


def run_tier(tier: str, words: list[str]) -> int:
    """The checks (not in the fast tier) and the tests of a tier; the exit code."""
    begun = time.monotonic()
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    run = Run(git("rev-parse", "HEAD"), not git("status", "--porcelain"), tier, now)
    BUILD.mkdir(exist_ok=True)  # what the checks say goes there
    reasons: list[str] = []
    with checks() if tier != "fast" else contextlib.nullcontext() as check:
        rewrite_once()
        workers = os.environ.get("KLOG_TEST_WORKERS", str(WORKERS[tier]))
        parallel = ("-n", workers, "--dist", "loadgroup", "--no-loadscope-reorder", *PROFILE.get(tier, ()))
        code, told = run_pytest(BUILD / "tests.json", "-m", TIERS[tier], *parallel, *words)
        if code not in (0, 1) or not told:
            reasons.append(f"pytest ended with {code}")
        run.load = round(os.getloadavg()[0], 1)
        failed = told.get("failed", {})
        again = run_again(failed) if failed and code == 1 else set(failed)
        if check is not None and check.wait():
            reasons.append("scripts/check failed: its output is above")
    unsteady = sorted(failed.keys() - again)
    run.passed = told.get("passed", 0) + len(unsteady)
    run.skipped, run.failed, run.unsteady = told.get("skipped", 0), len(again), len(unsteady)
    run.names = {"failed": sorted(again), "unsteady": unsteady}
    reasons += red_for(again, unsteady)
    run.green = not reasons
    run.seconds = round(time.monotonic() - begun, 1)
    (BUILD / "test-run.json").write_text(json.dumps(asdict(run), indent=1) + "\n")
    if tier == "all":
        DURATIONS.write_text(durations_text(told.get("seconds", {})))
        record(run)
    tell(run, told, failed, reasons)
    return 0 if run.green else 1


def rewrite_once() -> None:
    """In a fresh clone, have pytest rewrite the tests' assertions: else each of the workers would, all at once."""
    if any((ROOT / "tests" / "__pycache__").glob("conftest*-pytest-*.pyc")):
        return
    rooms = sorted({str(path.parent) for path in ROOT.glob("tests/*/test_*.py")})
    words = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider"]
    halves = [
        subprocess.Popen([*words, *half], cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL)
        for half in (rooms[::2], rooms[1::2])
    ]
    for half in halves:
        half.wait()


def environment(**more: str) -> dict[str, str]:
    """Of pytest: where Python is told to keep nothing compiled, each worker and broker would compile klog again."""
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "", **more}


@contextlib.contextmanager
def checks() -> Iterator[subprocess.Popen[bytes]]:
    """`scripts/check` beside the tests; what it says is shown when they are done."""
    with (BUILD / "check.txt").open("wb") as log:
        process = subprocess.Popen(["scripts/check"], cwd=ROOT, stdout=log, stderr=log)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait()
        sys.stdout.write((BUILD / "check.txt").read_text())
        sys.stdout.flush()


def run_again(failed: dict[str, Any]) -> set[str]:
    """Those that fail a second time, alone; all, where they are too many to be chance."""
    if len(failed) > AGAIN_MAX:
        return set(failed)
    print(f"\nonce more, alone: {len(failed)}", flush=True)
    code, told = run_pytest(BUILD / "tests-again.json", "-n", "0", "-m", "", *failed)
    return set(told.get("failed", failed)) if code in (0, 1) else set(failed)


def red_for(failed: set[str], unsteady: list[str]) -> list[str]:
    """Why a run with these is red."""
    reasons = [f"{len(failed)} failed twice"] if failed else []
    if len(unsteady) > UNSTEADY_MAX:
        reasons.append(f"{len(unsteady)} unsteady, and {UNSTEADY_MAX} are the most")
    reasons += [f"{name} has no clock and may not be unsteady" for name in unsteady if name.startswith(NEVER_UNSTEADY)]
    return reasons


def durations_text(seconds: dict[str, float]) -> str:
    """JSON, a line a test, the longest first: what takes half a second and more."""
    slow = sorted(((value, name) for name, value in seconds.items() if value >= 0.5), reverse=True)
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {value:.1f}" for value, name in slow) + "\n}\n"


def record(run: Run) -> None:
    """A line in docs/reliability.md; the newest first."""
    names = ("date", "commit", "outcome", "passed", "skipped", "unsteady", "minutes", "load")
    head = f"| {' | '.join(names)} |\n{'|---' * len(names)}|\n"
    text = RELIABILITY.read_text()
    if head not in text:
        text = text.rstrip("\n") + "\n\n## Runs of every test\n\nWritten by `scripts/test --all`.\n\n" + head
    before, _, rows = text.partition(head)
    outcome = "green" if run.green else "red: " + ", ".join(run.names["failed"] or run.names["unsteady"] or ["checks"])
    commit = run.commit[:8] + ("" if run.clean else " with changes")
    line = (
        f"| {run.date[:16]}Z | {commit} | {outcome} | {run.passed} | {run.skipped} | {run.unsteady} "
        f"| {run.seconds / 60:.1f} | {run.load} |\n"
    )
    kept = re.findall(r"^\|.*\n", rows, re.MULTILINE)[: RUNS_KEPT - 1]
    rest = rows[len("".join(re.match(r"(?:\|.*\n)*", rows).group())) :]  # type: ignore[union-attr]
    RELIABILITY.write_text(before + head + line + "".join(kept) + rest)


def tell(run: Run, told: dict[str, Any], failed: dict[str, Any], reasons: list[str]) -> None:
    """The summary; its last line is the count that tools read."""
    cpu = sorted(told.get("cpu_s", {}).items(), key=lambda one: -one[1])[:DEAREST]
    print("\ndearest in processor seconds: " + ", ".join(f"{name.rpartition('/')[2]} {value}" for name, value in cpu))
    for name in run.names["failed"]:
        print(f"failed: {name}: {failed.get(name, {}).get('line', '')}")
    if run.unsteady:
        print(f"unsteady: {run.unsteady}. Add to tests/unsteady.md:")
        for name in run.names["unsteady"]:
            line = failed[name]["line"].replace("|", "\\|")
            print(f"| `{name}` | {run.date[:10]} | {failed[name]['load']} | {line} | |")
    for reason in reasons:
        print(f"red: {reason}")
    commit = run.commit[:10] + ("" if run.clean else " with changes")
    outcome = "green" if run.green else "red"
    print(f"{outcome}: tier {run.tier}, {commit}, {run.seconds / 60:.1f} minutes, load {run.load}")
    print(f"test: {run.passed} passed, {run.failed + (not run.green and not run.failed)} failed, {run.skipped} skipped")


def repeat(times: int, paths: list[str]) -> int:
    """The tests of these paths, that many times, with two busy loops beside them; stops at the first failure."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        for number in range(1, times + 1):
            code = subprocess.run([*PYTEST, "-x", "-m", "", *paths], cwd=ROOT, check=False).returncode
            if code:
                print(f"repeat: failed in round {number} of {times}")
                return code
        print(f"repeat: {times} of {times} rounds passed")
        return 0
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/test", add_help=False, allow_abbrev=False)
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--repeat", type=int)
    given, words = parser.parse_known_args()
    if given.repeat is not None:
        return repeat(given.repeat, words)
    tier = "fast" if given.fast else "all" if given.all else "default"
    if words and not given.fast and not given.all:
        return subprocess.run([sys.executable, "-m", "pytest", *words], cwd=ROOT, check=False).returncode
    return run_tier(tier, words)


if __name__ == "__main__":
    sys.exit(main())
