"""klog as a measured system: its own commands and defaults, ZooKeeper and the broker each a process of its own."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import klog
from bench.peers import START_TIMEOUT_S, first_ack
from bench.processes import Process, children, free_port, wait_for_port

REPOSITORY = Path(klog.__file__).parents[1]
ENVIRONMENT = {"PYTHONPATH": str(REPOSITORY)}


def klog_version() -> str:
    try:
        return version("klog")
    except PackageNotFoundError:
        return "source"


class Klog:
    """A broker and the embedded ZooKeeper, started by `klog zookeeper start` and `klog broker start`."""

    def __init__(self, name: str, folder: Path, settings: Mapping[str, str]) -> None:
        self.name = name
        self.version = klog_version()
        self.folder = folder
        self.port = free_port()
        self.options = dict(settings)
        self._zookeeper_port = free_port()
        self._zookeeper: Process | None = None
        self._broker: Process | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def prepare(self) -> None:
        pass

    def _run(self, what: str, *arguments: str) -> Process:
        command = [sys.executable, "-m", "klog", *arguments]
        return Process(f"{self.name}'s {what}", command, self.folder / f"{what}.log", ENVIRONMENT)

    def start(self, first_topic: str) -> None:
        if self._zookeeper is None or not self._zookeeper.running:
            port = str(self._zookeeper_port)
            self._zookeeper = self._run("zookeeper", "zookeeper", "start", "--dir", f"{self.folder}/zk", "--port", port)
            wait_for_port(self._zookeeper_port, self._zookeeper, START_TIMEOUT_S)
        self._broker = self._run(
            "broker",
            *("broker", "start", "--id", "1", "--dir", f"{self.folder}/data", "--listen", f"127.0.0.1:{self.port}"),
            *("-z", f"127.0.0.1:{self._zookeeper_port}/klog"),
            *(part for name, value in self.options.items() for part in ("-X", f"{name}={value}")),
        )
        first_ack(self.port, self._broker, first_topic)

    def stop(self) -> None:
        for process in (self._broker, self._zookeeper):
            if process is not None:
                process.stop()

    def kill(self) -> None:
        if self._broker is not None:
            self._broker.kill()

    def broker_pids(self) -> Sequence[int]:
        return [self._broker.pid] if self._broker is not None and self._broker.running else []

    def helper_pids(self) -> Sequence[int]:
        if self._zookeeper is None or not self._zookeeper.running:
            return []
        return [self._zookeeper.pid, *children(self._zookeeper.pid)]


class KlogUp:
    """All of klog by one command, as a person starts it: `klog up` in the foreground."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.version = klog_version()
        self.folder = folder
        self.port = free_port()
        self.options: Mapping[str, str] = {}
        self._up: Process | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def prepare(self) -> None:
        pass

    def start(self, first_topic: str) -> None:
        command = [sys.executable, "-m", "klog", "up", "--dir", f"{self.folder}/local", "--port", str(self.port)]
        environment = {**ENVIRONMENT, "KLOG_HOME": f"{self.folder}/home"}
        self._up = Process("klog up", command, self.folder / "up.log", environment)
        first_ack(self.port, self._up, first_topic)

    def stop(self) -> None:
        if self._up is not None:
            self._up.stop()

    def kill(self) -> None:
        raise NotImplementedError("one command for all of it: there is no broker alone to kill")

    def broker_pids(self) -> Sequence[int]:
        return [self._up.pid] if self._up is not None else []

    def helper_pids(self) -> Sequence[int]:
        return children(self._up.pid) if self._up is not None else []
