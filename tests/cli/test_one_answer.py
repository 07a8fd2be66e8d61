"""Incidents judged by `klog status` alone: the right cause on top, and an advice that works as it stands."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer

from bench.processes import ports_in_a_row
from tests.cli.process import started
from tests.cli.runner import Ran, klog
from tests.processes import KLOG, ROOT

pytestmark = [
    pytest.mark.long("eleven incidents on three clusters; each cause has a rule in tests/admin/test_check.py"),
    pytest.mark.xdist_group("one-answer"),
]
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


def pasted(advice: str, number: int = 0, *more: str) -> None:
    """Run a command of an advice as a person would paste it, and say yes where it asks (``more``)."""
    commands = re.findall(r"`([^`]+)`", advice)
    assert len(commands) > number, advice
    words = shlex.split(commands[number])
    if words[0] == "klog":
        ran = klog(*words[1:], *more)
        assert ran.code == 0, (advice, ran)
    else:
        subprocess.run(words, check=True)


def by_clock(folder: Path, seconds: int, *words: object) -> Ran:
    """A command by a clock that is ahead by so much: what takes minutes to be a trouble has taken them."""
    folder.mkdir(exist_ok=True)
    text = f"import time\nns, s = time.time_ns, time.time\ntime.time_ns = lambda: ns() + {seconds} * 10**9\n"
    (folder / "sitecustomize.py").write_text(f"{text}time.time = lambda: s() + {seconds}\n")
    env = {**os.environ, "PYTHONPATH": str(folder)}
    ran = subprocess.run([*KLOG, *map(str, words)], capture_output=True, text=True, env=env, check=False, cwd=ROOT)
    return Ran(ran.returncode, ran.stdout, ran.stderr)


@contextmanager
def member(group: str, topic: str) -> Iterator[Consumer]:
    """A consumer that has committed what it read first, and reads no further."""
    (row, *_) = klog("broker", "list", "-o", "json").rows
    at = {"bootstrap.servers": f"{row['host']}:{row['port']}", "group.id": group}
    consumer = Consumer({**at, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    try:
        consumer.subscribe([topic])
        message = None
        while message is None or message.error():
            message = consumer.poll(1)
        consumer.commit(message, asynchronous=False)
        yield consumer
    finally:
        consumer.close()


@contextmanager
def immutable(folder: Path) -> Iterator[None]:
    """Nothing can be made, replaced or removed in the folder."""
    if subprocess.run(["chattr", "+i", folder], capture_output=True, check=False).returncode:
        pytest.skip("a folder cannot be made immutable here")
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", folder], check=True)


def kill_third(folder: Path) -> None:
    process = psutil.Process(pids(folder)["broker 3"])
    process.kill()
    process.wait(WITHIN_S)


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
    own = re.search(r"-z ([^\s`]+)", top(astray)["do"])
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


def test_groups_that_do_not_move(folder: Path, tmp_path: Path) -> None:
    assert klog("produce", "orders", input="".join(f"{number}\n" for number in range(99))).code == 0
    in_ten_minutes = partial(by_clock, tmp_path / "later", 600)

    with member("readers", "orders"):
        pass
    alone = in_ten_minutes("status", "-o", "json")
    assert [(row["what"], row["kind"]) for row in alone.rows] == [("group readers", "no-member")]
    assert "readers" in alone.rows[0]["cause"]
    pasted(alone.rows[0]["do"], 0, "--yes")
    assert in_ten_minutes("status").code == 0

    with member("billing", "orders"):
        stalled = in_ten_minutes("status", "-o", "json")
        assert [(row["what"], row["kind"]) for row in stalled.rows] == [("group billing", "group-stopped")]
        assert "rdkafka" in stalled.rows[0]["found"], "the member"
        why = in_ten_minutes("status", "group", "billing", "-o", "json")
        assert (why.code, why.rows[-1]["do"]) == (1, stalled.rows[0]["do"])
    assert klog("group", "delete", "billing", "--yes").code == 0

    assert klog("topic", "create", "clicks", "-p", 1).code == 0
    assert klog("produce", "clicks", input="1\n").code == 0
    with member("clicking", "clicks"):
        assert klog("topic", "delete", "clicks", "--yes").code == 0
        gone = in_ten_minutes("status", "-o", "json")
        assert [(row["what"], row["kind"]) for row in gone.rows] == [("group clicking", "topic-gone")]
        assert klog("acts", "list", "-o", "json").rows[-1]["act"] in gone.rows[0]["cause"]
        assert klog("status", "group", "clicking").code == 1
        pasted(gone.rows[0]["do"])
        awaited(is_well)
        assert klog("tail", "clicks", "-o", "start", "-e").stdout == "1\n"


def test_a_wrong_clock_and_disks_that_fail(folder: Path, tmp_path: Path) -> None:
    kill_third(folder)
    assert by_clock(tmp_path / "wrong", -864_000, "up", "--detach", "--dir", folder).code == 0
    wrong = awaited(lambda found: top(found)["kind"] == "clock-skew")
    assert (top(wrong)["what"], wrong.about["verdict"]) == ("broker 3", "AT RISK")
    alone = klog("status", "broker", 3, "-o", "json")
    assert alone.code == 1 and any("NTP" in (row["do"] or "") for row in alone.rows)
    kill_third(folder)

    for checkpoint in (folder / "broker-3").glob("*-checkpoint"):
        checkpoint.unlink()  # what it makes again when it starts
    with immutable(folder / "broker-3"):
        failed = klog("up", "--detach", "--dir", folder)
        assert failed.code == 1 and os.strerror(errno.EPERM) in failed.stderr.splitlines()[-1], "the last line says why"
        said = klog("broker", "log", 3, "-n", 2, "--dir", folder)
        assert said.code == 0 and os.strerror(errno.EPERM) in said.stdout
        dead = awaited(lambda found: os.strerror(errno.EPERM) in (top(found).get("cause") or ""))
        assert top(dead)["what"] == "broker 3"
        pasted(top(dead)["do"])
    pasted(top(dead)["do"], 1)
    awaited(is_well)

    with immutable(folder / "broker-2"):
        assert klog("topic", "create", "fresh", "-p", 6).code == 0
        broken = awaited(lambda found: top(found)["kind"] == "log-dir-offline")
        assert top(broken)["what"].startswith("broker 2, log dir ")
        assert top(broken)["found"] == "offline" and os.strerror(errno.EPERM) in top(broken)["cause"]
    process = psutil.Process(pids(folder)["broker 2"])
    pasted(top(broken)["do"], 0, "--yes")
    process.wait(WITHIN_S)
    pasted(top(broken)["do"], 1)
    awaited(is_well)
    assert sorted(klog("tail", "orders", "-o", "start", "-e").stdout.split()) == ["1", "2", "3"]
