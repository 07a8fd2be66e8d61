"""``klog up --brokers N``: several brokers on this machine; what is missing is started, more are added."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import psutil
import pytest

from bench.processes import ports_in_a_row
from klog.admin.local_state import Plan
from klog.server.processes import MODULE
from tests.cli.process import on_terminal
from tests.cli.runner import klog
from tests.until import until


@pytest.fixture
def port() -> int:
    """The first of four neighbours that were free a moment ago."""
    return ports_in_a_row(4)


def states(*words: object) -> dict[int, str]:
    """Broker id -> what ``klog up WORDS`` says of it."""
    ran = klog("up", "--detach", "-o", "json", *words)
    assert ran.code == 0, ran.stderr
    return {row["id"]: row["state"] for row in ran.rows if row["kind"] == "broker"}


def factor(topic: str) -> int:
    ran = klog("topic", "create", topic, "-o", "json")
    assert ran.code == 0, ran.stderr
    made: int = ran.rows[0]["replication_factor"]
    return made


@pytest.mark.long("tests/coordination/test_local_cluster.py has one broker, tests/cluster several")
def test_brokers_side_by_side(home: Path, port: int) -> None:
    try:
        begun = klog("up", "--detach", "--brokers", 2, "--port", port)
        assert begun.code == 0, begun.stderr
        assert "default.replication.factor=2" in begun.stderr
        assert f"127.0.0.1:{port},127.0.0.1:{port + 1}" in begun.stderr
        assert factor("two") == 2  # at once: whichever broker is asked knows the other
        fewer = klog("up", "--detach", "--brokers", 1, "-o", "json")
        assert fewer.code == 1 and "broker 2" in fewer.error["message"] and "reassign" in fewer.error["hint"]
        more = klog("up", "--detach", "--brokers", 3)
        assert more.code == 0, more.stderr
        assert re.search(r"brokers? 1, 2\b", more.stderr)
        assert states() == {1: "running", 2: "running", 3: "running"}
        listed = klog("broker", "list", "-o", "json")
        assert [row["port"] for row in listed.rows] == [port, port + 1, port + 2]
        stopped = klog("down", "-o", "json")
        assert stopped.code == 0 and {row["state"] for row in stopped.rows} == {"stopped"}

        assert states() == {1: "started", 2: "started", 3: "started"}
        assert factor("three") == 3
    finally:
        klog("down")


@pytest.mark.long("the advice of test_one_answer.py, for brokers that a parent keeps")
def test_a_broker_that_was_stopped_under_its_parent(home: Path, port: int) -> None:
    """Its parent starts it no more, so `klog up` would wait in vain for it. One that is interrupted stops nothing."""
    up = ("up", "--detach", "--processes", 2, "--port", port)
    try:
        assert klog(*up).code == 0
        assert klog("topic", "create", "t", "--replication-factor", 2).code == 0
        assert klog("broker", "stop", 1).code == 0  # the parent's namesake
        refused = klog("up", "--detach", "-o", "json")
        (do,) = (row["do"] for row in klog("status", "brokers", "-o", "json").rows if row["kind"] == "dead-broker")
        command = do.split("`")[1]
        assert refused.error["code"] == "REFUSED" and f"`{command}`" in refused.error["hint"]
        for one in command.split(" && "):
            assert klog(*shlex.split(one)[1:]).code == 0
        assert klog("status", "topics", "--wait", "20s").code == 0

        (pid,) = {row["pid"] for row in klog("up", "--detach", "-o", "json").rows if row["kind"] == "broker"}
        hung = [one for one in psutil.Process(pid).children() if MODULE in one.cmdline()]
        for one in hung:
            one.suspend()
        with on_terminal("up", "--detach") as (process, terminal):
            until(lambda: psutil.Process(process.pid).net_connections("tcp"), "it asks the broker")
            terminal.type("\x03")
            assert process.wait(20) == 130
        for one in hung:
            one.resume()
        assert states() == {1: "running", 2: "running"}
    finally:
        klog("down")


def test_what_the_user_says_goes() -> None:
    assert Plan(2).replication == {"default.replication.factor": "2"}
    assert Plan(3, properties={"default.replication.factor": "1"}).replication == {"min.insync.replicas": "2"}
