"""``klog up --brokers N``: several brokers on this machine; what is missing is started, more are added."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
from pathlib import Path
from typing import Any

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
        assert klog("produce", "two", input=b"one\ntwo\n").code == 0
        shown = klog("status", "-o", "json")
        assert shown.code == 0, shown.stdout
        assert [one["broker"] for one in shown.about["brokers"]] == [1, 2]

        killed = next(row for row in klog("up", "--detach", "-o", "json").rows if row["id"] == 2)
        os.kill(killed["pid"], signal.SIGKILL)

        def shown_states() -> dict[int, str]:
            down = klog("status", "-o", "json")
            assert down.code == 1
            return {one["broker"]: one["state"] for one in down.about["brokers"]}

        until(lambda: shown_states() == {1: "up", 2: "dead"}, "the other broker has seen it")
        assert states() == {1: "running", 2: "started"}
        assert klog("status", "topics", "--wait", "20s").code == 0

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
        assert klog("tail", "two", "-o", "start", "-e", "-q").stdout.split() == ["one", "two"]
    finally:
        klog("down")


@pytest.mark.long("what check says is carried out; test_local_cluster.py starts again what was killed")
def test_what_helps_is_a_command(home: Path, port: int, tmp_path: Path) -> None:
    """`klog status` knows the brokers of a local cluster: how one is started, its process, its log."""
    folder = tmp_path / "a cluster"
    up = ("up", "--detach", "--dir", folder)

    def processes() -> dict[int, int]:
        return {row["id"]: row["pid"] for row in klog(*up, "-o", "json").rows if row["kind"] == "broker"}

    def found(what: str) -> tuple[dict[str, Any], str]:
        """The last step of `klog status broker 2`, and what `klog status` says is to do."""
        steps = until(
            lambda: (rows := klog("status", "broker", 2, "-o", "json").rows) and what in rows[-1]["what"] and rows, what
        )
        return steps[-1] | {"evidence": " ".join(one["evidence"] for one in steps)}, troubles()[0]

    def troubles() -> list[str]:
        rows = klog("status", "brokers", "-o", "json").rows
        return [one["do"] for one in rows if one["kind"] in ("dead-broker", "silent-broker")]

    try:
        assert klog(*up, "--brokers", 2, "--port", port).code == 0
        assert factor("t") == 2
        pid = processes()[2]
        os.kill(pid, signal.SIGSTOP)
        cause, do = found("hangs")
        os.kill(pid, signal.SIGCONT)
        for text in (cause["do"], do):
            assert f"`kill -CONT {pid}`" in text and str(folder / "broker-2.log") in text
        until(lambda: not troubles(), "all is well")

        os.kill(pid, signal.SIGKILL)
        cause, do = found("is dead")
        command = "klog " + shlex.join(map(str, up))
        assert f"`{command}`" in cause["do"] and f"`{command}`" in do

        properties = folder / "broker-2" / "meta.properties"
        kept = properties.read_text()
        properties.write_text(re.sub("cluster.id=.*", "cluster.id=another", kept))
        failed = klog(*shlex.split(command)[1:])
        assert failed.code == 1 and "another" in failed.stderr.splitlines()[-1], "the last line says why"
        assert [row["broker"] for row in klog("broker", "list", "-o", "json").rows if row["state"] != "dead"] == [1]
        said = klog("broker", "log", 2, "-n", 2)
        assert said.code == 0 and "another" in said.stdout
        cause, _ = found("is dead")
        assert f"log {folder / 'broker-2.log'}: " in cause["evidence"] and "another" in cause["evidence"]
        properties.write_text(kept)
        assert klog(*shlex.split(command)[1:]).code == 0
        assert klog("status", "topics", "--wait", "20s").code == 0
    finally:
        klog("down", "--dir", folder)


@pytest.mark.long("the advice of test_what_helps_is_a_command, for brokers that a parent keeps")
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


def test_a_neighbours_port_in_use(home: Path, port: int) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port + 1))
        taken.listen()
        ran = klog("up", "--detach", "--brokers", 2, "--port", port, "-o", "json")
    assert ran.code == 1 and ran.error["code"] == "PORT_IN_USE"
    assert f"127.0.0.1:{port + 1}" in ran.error["message"] and "broker 2" in ran.error["message"]
    assert klog("status").code == 1
