"""A host that takes connections and says nothing: how long each command that connects waits for it.

A command's wait is measured at the host, from its first connection to the end of its last one: what a busy machine
needs to start a process does not count. The time of the whole command is judged on a quiet machine (``-m timed``).
"""

from __future__ import annotations

import signal
import socketserver
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from klog.client.cluster import CONNECT_TIMEOUT_S
from tests.broker_fixture import RunningBroker
from tests.cli.process import started
from tests.cli.runner import klog
from tests.cli.test_walk import ASKING_A_BROKER, words_for

SOME = ["topic list", "zk ls", "status", "tail", "produce"]
"""Of each way to connect one."""

AT_ONCE = 6
SLACK_S = 1.5
"""For a busy machine; less than a second question in a row would take."""

WHOLE_S = 3.2
"""The longest that a command may take, from its start to its end."""


class Waited(NamedTuple):
    """How one command ended."""

    name: str
    code: int
    output: str
    waited_s: float
    took_s: float


class SilentHost(socketserver.ThreadingTCPServer):
    """Takes connections, reads, answers nothing."""

    first_s = last_s = 0.0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class Silence(socketserver.BaseRequestHandler):
    """One connection."""

    server: SilentHost

    def handle(self) -> None:
        self.server.first_s = self.server.first_s or time.monotonic()
        try:
            while self.request.recv(4096):
                pass
        except OSError:
            pass
        self.server.last_s = time.monotonic()


@contextmanager
def silent_host() -> Iterator[SilentHost]:
    with SilentHost(("127.0.0.1", 0), Silence) as host:
        serving = threading.Thread(target=host.serve_forever)
        serving.start()
        try:
            yield host
        finally:
            host.shutdown()
            serving.join()


def waited(name: str, flag: str, folder: Path, *, cold: bool) -> Waited:
    """Run the command, in a process, with a silent host as its cluster."""
    with silent_host() as host:
        began_s = time.monotonic()
        words = (*words_for(name), flag, host.address)
        streams = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
        with started(*words, **streams, cwd=folder, cold=cold) as process:
            output, _ = process.communicate(timeout=100)
        took_s = time.monotonic() - began_s
    said = output.decode("utf-8", "replace").replace(host.address, "HOST")
    return Waited(name, process.returncode, said, host.last_s - host.first_s, took_s)


def in_a_pool(names: list[str], flag: str, folder: Path, at_once: int) -> list[Waited]:
    """``at_once``: 1 where seconds are judged, with the start of each process."""
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda name: waited(name, flag, folder, cold=at_once == 1), names))


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["-B", pytest.param("-z", marks=pytest.mark.long("the other half"))])
def test_some_commands_give_a_silent_host_up_after_one_wait(flag: str, tmp_path: Path) -> None:
    check_waits(SOME, flag, tmp_path)


@pytest.mark.slow
@pytest.mark.long("a process for each command that connects")
@pytest.mark.timeout(300)
def test_each_command_gives_a_silent_host_up_after_one_wait(tmp_path: Path) -> None:
    check_waits(ASKING_A_BROKER, "-B", tmp_path)


def check_waits(names: list[str], flag: str, folder: Path) -> None:
    """That they end with an error that names the host, after one wait."""
    ended = in_a_pool(names, flag, folder, AT_ONCE)
    assert {one.name for one in ended if one.code != 1 or "Traceback" in one.output} == set(), ended
    assert {one.name for one in ended if "HOST" not in one.output} == set(), ended
    long = [(one.name, round(one.waited_s, 1)) for one in ended if one.waited_s > CONNECT_TIMEOUT_S + SLACK_S]
    assert long == [], "they wait for more than one answer"
    assert {one.name for one in ended if "the caller" in one.output} == set(), "they know who gave the address"


@pytest.mark.timed
@pytest.mark.timeout(600)
def test_the_whole_command_takes_little_more(tmp_path: Path) -> None:
    """One at a time, and once more where something else on the machine made it slow."""
    long = [one.name for one in in_a_pool(ASKING_A_BROKER, "-B", tmp_path, 1) if one.took_s > WHOLE_S]
    assert [one for one in in_a_pool(long, "-B", tmp_path, 1) if one.took_s > WHOLE_S] == []


def test_check_asks_a_stopped_broker_once(make_broker: Callable[..., RunningBroker]) -> None:
    """Its address is in ZooKeeper, too. The finding names who gave it, as the errors of other commands do."""
    broker = make_broker().start()
    at = ["-B", broker.bootstrap, "-z", broker.zookeeper, "--timeout", "500ms", "-o", "json"]
    broker.send(signal.SIGSTOP)
    found = klog("status", *at).rows
    assert [row["kind"] for row in found] == ["no-brokers"]
    assert all(one in found[0]["found"] for one in ("-B", "-z", broker.bootstrap)), found
