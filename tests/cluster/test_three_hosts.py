"""docs/operations.md, "Three hosts", as it stands there, on three hosts; then one host is lost and one is cut off."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from klog.coordination import embedded
from klog.coordination.process import ProcessId, with_arguments
from tests.cluster import network
from tests.cluster.doc_runner import FOLDER, ROOT
from tests.cluster.load import Load, judge
from tests.cluster.network import Network

WAIT_S = 90.0


class Hosts:
    """Three hosts, each with a folder of its own in the place of the document's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.network = Network(3)
        programs = folder / "bin"
        programs.mkdir()
        klog = programs / "klog"
        klog.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -P -m klog "$@"\n')
        klog.chmod(0o755)
        for host in self.network.hosts:
            self.home(host).mkdir()

    def home(self, host: int) -> Path:
        return self.folder / f"host-{host}"

    def run(self, host: int, script: str) -> str:
        """What it printed; AssertionError where a command of it fails."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KLOG_")}
        words = ["bash", "--noprofile", "--norc", "-euc", script.replace(FOLDER, str(self.home(host)))]
        printed = self.home(host) / "printed"
        with printed.open("wb") as out:  # no pipe: the broker that is started in the background would hold it open
            code = subprocess.run(
                self.network.command(host, words),
                cwd=self.home(host),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=WAIT_S * 2,
                check=False,
                env={
                    **environment,
                    "PATH": f"{self.folder / 'bin'}{os.pathsep}{environment['PATH']}",
                    "KLOG_HOME": str(self.home(host) / ".klog"),
                    "N": str(host),
                    "ADDRESS": self.network.address(host),
                },
            ).returncode
        text = printed.read_text(errors="replace")
        assert code == 0, f"host {host}: exit {code}\n{text}\n{self.logs()}"
        return text

    def kill(self, host: int) -> None:
        """The power is gone."""
        server = embedded.find(self.home(host) / "zookeeper")
        assert server is not None
        for one in (server.identity, *self.brokers(host)):
            one.send(9)
            assert one.wait(WAIT_S)

    def brokers(self, host: int) -> list[ProcessId]:
        return list(with_arguments("broker", "start", str(self.home(host) / "broker")))

    def logs(self) -> str:
        files = [self.home(host) / "broker.log" for host in self.network.hosts]
        return "\n".join(f"--- {one}\n{one.read_text(errors='replace')[-3000:]}" for one in files if one.exists())

    def end(self) -> None:
        for host in self.network.hosts:
            for broker in self.brokers(host):
                broker.send(9)
                broker.wait(WAIT_S)
            server = embedded.find(self.home(host) / "zookeeper")
            if server is not None:
                server.stop()
        self.network.end()


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    if not os.environ.get("KLOG_TEST_HOSTS"):
        pytest.skip("two minutes, most of them waiting for hosts that are lost: KLOG_TEST_HOSTS=1 runs it")
    reason = network.why_not()
    if reason:
        pytest.skip(reason)
    made = Hosts(tmp_path)
    yield made
    made.end()


def procedure(where: str) -> str:
    """The commands of the document that are to be run there."""
    document = (ROOT / "docs" / "operations.md").read_text("utf-8")
    (found,) = re.findall(rf"```sh\n# three hosts: {where}\n(.*?)```", document, re.DOTALL)
    return str(found)


@pytest.mark.timeout(420)
def test_the_document_on_three_hosts(hosts: Hosts) -> None:
    for host in (1, 2, 3):
        hosts.run(host, procedure("on each"))
    printed = hosts.run(2, procedure("on any of them"))
    assert re.search(r"clicks +3 +3 +yes", printed), printed
    bootstrap = ",".join(f"10.0.0.{host}:9092" for host in (1, 2, 3))

    running = hosts.network.on(1, lambda: Load(bootstrap, "clicks", 3))
    try:
        wait_for_more(hosts, running, 100)
        hosts.kill(3)
        wait_for_more(hosts, running, 200)
        hosts.run(1, f"klog topic create one-is-dead -B {bootstrap} --replication-factor 2 --timeout 60s")
        hosts.run(3, procedure("on each"))
        hosts.run(1, f"klog check topics zookeeper --wait 60s -B {bootstrap}")
        hosts.network.cut_off(2)
        wait_for_more(hosts, running, 200)
        hosts.run(1, f"klog topic create one-is-cut-off -B {bootstrap} --replication-factor 2 --timeout 60s")
        hosts.network.heal(2)
        hosts.run(2, f"klog check topics zookeeper --wait 60s -B {bootstrap}")
        wait_for_more(hosts, running, 100)
        running.stop()
    except BaseException:
        running.abandon()
        raise
    assert running.failed == []
    hosts.network.on(3, lambda: judge(running, bootstrap))


def wait_for_more(hosts: Hosts, running: Load, more: int) -> None:
    """In every partition."""
    wanted = {partition: running.count(partition) + more for partition in range(3)}
    deadline = time.monotonic() + WAIT_S
    while any(running.count(partition) < count for partition, count in wanted.items()):
        running.check_alive()
        assert time.monotonic() < deadline, f"in vain; given up: {running.failed[:3]}\n{hosts.logs()}"
        time.sleep(0.02)
