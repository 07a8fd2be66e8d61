"""docs/operations.md, "Three hosts", as it stands there, on three hosts; then one host is lost and one is cut off.

What it takes is waiting for the host that is cut off, which nobody hears of: 9 s until its session has ended, and then
as long as it was cut off until the kernel sends again what was under way, since it waits twice as long each time.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from klog.coordination import embedded
from klog.coordination.process import ProcessId, with_arguments
from tests.cluster import network
from tests.cluster.doc_runner import FOLDER, ROOT, make_programs
from tests.cluster.load import Load, judge
from tests.cluster.network import Network

WAIT_S = 90.0
SILENCE_MS = 6_000
"""After which the producer takes a broker for dead. librdkafka's own minute would be most of the test."""


class Hosts:
    """Three hosts, each with a folder of its own in the place of the document's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.network = Network(3)
        make_programs(folder)
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

    def run_everywhere(self, script: str) -> None:
        """On all hosts at a time."""
        with ThreadPoolExecutor(len(self.network.hosts)) as pool:
            for _ in pool.map(lambda host: self.run(host, script), self.network.hosts):
                pass

    def kill(self, host: int) -> None:
        """The power is gone."""
        running = self.running(host)
        assert len(running) == 2, running
        for one in running:
            one.send(9)
        for one in running:
            assert one.wait(WAIT_S)

    def running(self, host: int) -> list[ProcessId]:
        server = embedded.find(self.home(host) / "zookeeper")
        return [*self.brokers(host), *([] if server is None else [server.identity])]

    def brokers(self, host: int) -> list[ProcessId]:
        return list(with_arguments("broker", "start", str(self.home(host) / "broker")))

    def logs(self) -> str:
        files = [self.home(host) / "broker.log" for host in self.network.hosts]
        return "\n".join(f"--- {one}\n{one.read_text(errors='replace')[-3000:]}" for one in files if one.exists())

    def end(self) -> None:
        running = [one for host in self.network.hosts for one in self.running(host)]
        for one in running:
            one.send(9)
        for one in running:
            one.wait(WAIT_S)
        self.network.end()


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    reason = network.why_not()
    if reason:
        pytest.skip(reason)
    made = Hosts(tmp_path)
    try:
        yield made
    finally:
        made.end()


def procedure(where: str) -> str:
    """The commands of the document that are to be run there."""
    document = (ROOT / "docs" / "operations.md").read_text("utf-8")
    (found,) = re.findall(rf"```sh\n# three hosts: {where}\n(.*?)```", document, re.DOTALL)
    return str(found)


@pytest.mark.long("three hosts in network namespaces")
@pytest.mark.timeout(420)
def test_the_document_on_three_hosts(hosts: Hosts) -> None:
    hosts.run_everywhere(procedure("on each"))
    printed = hosts.run(2, procedure("on any of them"))
    assert re.search(r"clicks +3 +3 +yes", printed), printed
    bootstrap = ",".join(f"10.0.0.{host}:9092" for host in (1, 2, 3))

    running = hosts.network.on(1, lambda: Load(bootstrap, "clicks", 3, **{"socket.timeout.ms": SILENCE_MS}))
    try:
        wait_for_more(running, 100)
        hosts.kill(3)
        wait_for_more(running, 200)
        hosts.run(1, f"klog topic create one-is-dead -B {bootstrap} --replication-factor 2 --timeout 60s")
        hosts.run(3, procedure("on each"))
        hosts.run(1, f"klog status topics zookeeper --wait 60s -B {bootstrap}")
        hosts.network.cut_off(2)
        wait_for_more(running, 200)
        hosts.run(1, f"klog topic create one-is-cut-off -B {bootstrap} --replication-factor 2 --timeout 60s")
        hosts.network.heal(2)
        hosts.run(2, f"klog status topics zookeeper --wait 60s -B {bootstrap}")
        wait_for_more(running, 100)
        running.stop()
    except BaseException:
        print(hosts.logs())
        running.abandon()
        raise
    hosts.network.on(3, lambda: judge(running, bootstrap))


def wait_for_more(running: Load, more: int) -> None:
    """In every partition."""
    for partition in range(3):
        running.wait_for_more(more, partition, WAIT_S)
