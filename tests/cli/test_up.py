"""``klog up`` as a person runs it: in the foreground, found by every command, stopped by Ctrl-C."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.processes import free_port
from klog.admin.local_state import log_dir
from klog.coordination.process import ProcessId
from tests.cli.process import on_terminal
from tests.cli.runner import klog


@pytest.fixture
def port() -> int:
    """A port that is free, and that no connection is given."""
    return free_port()


def test_up_in_the_foreground_until_ctrl_c(home: Path, port: int) -> None:
    try:
        with on_terminal("up", "--port", str(port)) as (process, terminal):
            shown = terminal.wait_for("Ctrl-C", 60)
            assert f"127.0.0.1:{port}" in shown and "zookeeper" in shown and ".log" in shown
            found = klog("topic", "create", "made", "-o", "json", "-v")
            assert found.code == 0, found.stderr
            assert f"127.0.0.1:{port}" in found.stderr and str(home / "local") in found.stderr
            assert klog("status").code == 0
            assert klog("up", "--secure", "--detach", "-o", "json").error["code"] == "REFUSED"  # it is open
            killed = next(row for row in klog("up", "--detach", "-o", "json").rows if row["kind"] == "broker")
            os.kill(killed["pid"], signal.SIGKILL)
            terminal.wait_for("broker 1 has stopped", 20)
            assert klog("status").code == 1
            pid = start_again()
            assert [row["topic"] for row in klog("topic", "list", "-o", "json").rows] == ["made"]
            start_while_it_ends(home, pid)
            for number in (signal.SIGINT, signal.SIGINT, signal.SIGHUP):  # as `timeout` and service managers do
                process.send_signal(number)
            terminal.wait_for("shutting down")
            assert process.wait(40) == 0
        gone = klog("status", "-o", "json")
        assert gone.code == 1 and [row["because"] for row in gone.rows] == [None, "brokers", "brokers"]
        assert "klog up --detach" in gone.rows[0]["do"]
        assert klog("topic", "list", "-o", "json").error["code"] == "NO_CLUSTER"
    finally:
        klog("down")


def start_while_it_ends(home: Path, pid: int) -> None:
    """After `klog broker stop` its process is there for a moment, and says of itself that it stops; what it logs does
    not matter."""
    stand_in = "import time; from klog.coordination.process import show_stopping as stop; "
    stand_in += "input(); stop(); print(flush=True); time.sleep(2)"
    broker = ProcessId.of(pid)
    assert broker is not None and not broker.is_stopping()
    assert broker.send(signal.SIGTERM)
    said = [False]
    while broker.is_alive():
        said.append(broker.is_stopping())
    assert any(said)
    words = [sys.executable, "-c", stand_in, "broker", "start", log_dir(home / "local", 1)]
    ending = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert ending.stdin is not None and ending.stdout is not None
    try:
        starts = ProcessId.of(ending.pid)
        assert starts is not None and not starts.is_stopping()
        ending.stdin.write(b"\n")
        ending.stdin.close()
        assert ending.stdout.readline() and starts.is_stopping()
        start_again()
        assert ending.poll() == 0
    finally:
        ending.kill()
        ending.wait()
        ending.stdout.close()


def start_again() -> int:
    """By `klog up`; the broker's process id."""
    again = klog("up", "--detach", "-o", "json")
    assert again.code == 0, again.stderr
    assert {row["kind"]: row["state"] for row in again.rows} == {"zookeeper": "running", "broker": "started"}
    return next(int(row["pid"]) for row in again.rows if row["kind"] == "broker")


def test_ctrl_c_while_it_starts_leaves_nothing_running(home: Path, port: int) -> None:
    try:
        with on_terminal("up", "--port", str(port)) as (process, terminal):
            while not (home / "local").exists():
                assert process.poll() is None
                time.sleep(0.01)
            terminal.type("\x03")  # whatever it is starting by then
            assert process.wait(60) == 0
        assert klog("topic", "list", "-o", "json").error["code"] == "NO_CLUSTER"
    finally:
        klog("down")


def test_settings_are_looked_at_before_anything_starts(home: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ran = klog("up", "--detach", "--port", port, "-X", "log.segment.bytez=5")
        assert "log.segment.bytez" in ran.stderr and "log.segment.bytes?" in ran.stderr
        wrong = klog("up", "--detach", "--port", port, "-X", "log.segment.bytes=abc", "-o", "json")
    assert wrong.code == 1 and wrong.error["code"] == "INVALID_CONFIG"
    for name in ("zookeeper.connect", "zk.connect", "node.id", "log.dirs"):
        own = klog("up", "--detach", "-X", f"{name}=1")
        assert own.code == 2 and name in own.stderr and "klog broker start" in own.stderr
