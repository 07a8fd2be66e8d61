"""Incidents judged by `klog status` alone: the right cause on top, and an advice that works as it stands."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.processes import ports_in_a_row
from tests.cli.process import started
from tests.cli.runner import Ran, klog

pytestmark = pytest.mark.long("five incidents on one cluster; each cause has its rule in tests/admin/test_check.py")
WITHIN_S = 60


@pytest.fixture
def folder(home: Path, tmp_path: Path) -> Iterator[Path]:
    """A cluster of three with a topic of three replicas."""
    where = tmp_path / "a cluster"
    try:
        assert klog("up", "--detach", "--brokers", 3, "--dir", where, "--port", ports_in_a_row(3)).code == 0
        assert klog("topic", "create", "orders", "-p", 3).code == 0
        assert klog("produce", "orders", input="1\n2\n3\n").code == 0
        yield where
    finally:
        klog("down", "--dir", where)


def status(*flags: object) -> Ran:
    return klog("status", "-o", "json", *flags)


def awaited(fits: Callable[[Ran], Any], *flags: object) -> Ran:
    """The answer once it is as expected: the cluster needs a moment to see what has happened."""
    deadline = time.monotonic() + WITHIN_S
    while not fits(found := status(*flags)):
        assert time.monotonic() < deadline, found
        time.sleep(0.3)
    return found


def top(found: Ran) -> dict[str, Any]:
    """The first finding: what an operator reads first."""
    return found.rows[0] if found.rows else {"what": "", "do": "", "kind": "", "consequences": []}


def pids(folder: Path) -> dict[str, int]:
    rows = klog("up", "--detach", "--dir", folder, "-o", "json").rows
    return {f"{row['kind']} {row['id'] or ''}".strip(): row["pid"] for row in rows}


def pasted(advice: str) -> None:
    """Run the first command of an advice as a person would paste it."""
    command = re.search(r"`([^`]+)`", advice)
    assert command is not None, advice
    words = shlex.split(command[1])
    if words[0] == "klog":
        ran = klog(*words[1:])
        assert ran.code == 0, (advice, ran)
    else:
        subprocess.run(words, check=True)


def is_well(found: Ran) -> bool:
    return found.about["verdict"] in ("OK", "WARNING")


def test_what_is_wrong_is_told_and_what_helps_helps(folder: Path) -> None:
    running = pids(folder)

    for number in (2, 3):
        os.kill(running[f"broker {number}"], signal.SIGKILL)
    dead = awaited(lambda found: top(found)["what"] == "brokers 2,3" and found.about["verdict"] == "BROKEN")
    assert dead.about["partitions"]["refusing"] >= 3 and "orders (3)" in " ".join(top(dead)["consequences"])
    assert {row["because"] for row in dead.rows[1:]} <= {"brokers 2,3", None}
    pasted(top(dead)["do"])
    awaited(is_well)

    bootstrap = ",".join(f"{one['host']}:{one['port']}" for one in klog("broker", "list", "-o", "json").rows)
    os.kill(pids(folder)["zookeeper"], signal.SIGKILL)
    away = awaited(lambda found: found.about["verdict"] == "AT RISK" and top(found)["what"].startswith("zookeeper"))
    assert away.about["partitions"]["offline"] == 0, "reads and writes go on"
    with started("top", "-o", "jsonl", "-B", bootstrap) as live:
        assert live.stdout is not None
        ticks = (json.loads(line) for line in live.stdout)
        tick = next(one for one in ticks if one["verdict"].startswith("AT RISK"))
        assert tick["groups"] is None and tick["no_groups"], "not known, and not none"
    pasted(top(away)["do"])
    awaited(is_well)

    at = bootstrap.split(",")[0]
    (server,) = status().about["zookeeper"]
    astray = status("-B", at, "-z", f"{server['address']}/astray")
    own = re.search(r"-z (\S+)", top(astray)["do"])
    assert own is not None and is_well(awaited(is_well, "-B", at, "-z", own[1]))

    hung = pids(folder)["broker 2"]
    os.kill(hung, signal.SIGSTOP)
    try:
        stopped = awaited(lambda found: f"kill -CONT {hung}" in top(found)["do"])
        assert top(stopped)["what"] == "broker 2"
        pasted(top(stopped)["do"])
        awaited(is_well)
    finally:
        os.kill(hung, signal.SIGCONT)

    assert klog("broker", "restart", "--all", "-y").code == 0
    rolling = [line for line in klog("events", "--since", "@-10m").stdout.splitlines() if "rolling restart" in line]
    assert len(rolling) == 1, "one line"
    awaited(is_well)

    assert klog("down", "--dir", folder).code == 0
    klog("up", "--detach", "--dir", folder)
    assert sorted(klog("tail", "orders", "-o", "start", "-e").stdout.split()) == ["1", "2", "3"]
