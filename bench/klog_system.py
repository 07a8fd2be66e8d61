"""klog as a measured system: its own commands and defaults, ZooKeeper and the broker each a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from confluent_kafka import Producer

import klog
from bench.broker_settings import arguments
from bench.maven import PeerMissing
from bench.peers import START_TIMEOUT_S, first_ack
from bench.processes import Process, StartFailed, children, free_port, ports_in_a_row

REPOSITORY = Path(klog.__file__).parents[1]

FIRST, LAST = "klog-0.1.0", "klog-0.2.0"
RELEASES = {FIRST: "3ceb4bf", LAST: "020a43d3"}
"""Earlier klogs that a run may measure beside this one, by the commit of each."""


def release(name: str, folder: Path) -> Path:
    """The sources of an earlier klog, taken from the repository's history into ``folder``; PeerMissing without it."""
    folder.mkdir(parents=True)
    archive = ["git", "-C", str(REPOSITORY), "archive", RELEASES[name], "klog"]
    done = subprocess.run(archive, capture_output=True, check=False)
    if done.returncode:
        raise PeerMissing(f"{name} is commit {RELEASES[name]}: {done.stderr.decode(errors='replace').strip()}")
    subprocess.run(["tar", "-x", "-C", str(folder)], input=done.stdout, check=True)
    return folder


COMPILED = "klog-compiled"


def compiled(folder: Path) -> Path:
    """A copy of these sources in ``folder`` with the modules of setup.py compiled; PeerMissing where that fails."""
    shutil.copytree(REPOSITORY / "klog", folder / "klog", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "pyproject.toml", "README.md"):
        shutil.copy(REPOSITORY / name, folder)
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", "."],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "KLOG_COMPILE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise PeerMissing(f"klog cannot be compiled here: {(done.stdout + done.stderr).strip()[-500:]}")
    return folder


def environment(folder: Path, sources: Path = REPOSITORY) -> dict[str, str]:
    """klog from these sources, its home beside the systems' folders: what a first start leaves there serves the next.

    (ZooKeeper's archive of loaded classes is such a thing; a person's second `klog up` finds it too.) So does Python's
    bytecode, which an installation has from the beginning: without it half a second of every command is compiling.
    """
    return {
        "PYTHONPATH": str(sources),
        "PYTHONSAFEPATH": "1",  # klog is not what the working directory has
        "KLOG_HOME": str(folder.parent / "klog-home"),
        "PYTHONDONTWRITEBYTECODE": "",
    }


def klog_version() -> str:
    try:
        return version("klog")
    except PackageNotFoundError:
        return "source"


class Klog:
    """A broker and the embedded ZooKeeper, started by `klog zookeeper start` and `klog broker start [--processes]`."""

    def __init__(
        self,
        name: str,
        folder: Path,
        settings: Mapping[str, str],
        *,
        processes: int = 1,
        sources: Path = REPOSITORY,
        program: Sequence[str] = ("-m", "klog"),
    ) -> None:
        """``program``: what Python runs a broker by."""
        self.name = name
        self.version = RELEASES.get(name) or klog_version()
        self.folder = folder
        self.port = ports_in_a_row(processes)
        self.options = dict(settings)
        self._processes = processes
        self._program = program
        self._zookeeper_port = free_port()
        self._zookeeper_folder = folder / "zookeeper"
        self._environment = environment(folder, sources)
        self._broker: Process | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def zookeeper(self) -> str:
        """Its connection string."""
        return f"127.0.0.1:{self._zookeeper_port}/klog"

    def prepare(self) -> None:
        pass

    def start(self, first_topic: str) -> None:
        """ZooKeeper's command leaves its server in the background, and does nothing where one runs."""
        self._zookeeper("start", "--port", str(self._zookeeper_port))
        command = [
            *(sys.executable, *self._program, "broker", "start", "--id", "1", "--dir", f"{self.folder}/data"),
            *(() if "listeners" in self.options else ("--listen", f"127.0.0.1:{self.port}")),
            *("-z", f"127.0.0.1:{self._zookeeper_port}/klog"),
            *arguments(self.options, self.folder),
        ]
        if self._processes > 1:
            command += ["--processes", str(self._processes)]
        self._broker = Process(f"{self.name}'s broker", command, self.folder / "broker.log", self._environment)
        if self._processes == 1:
            first_ack(self.port, self._broker, first_topic)
        else:
            self._first_ack_of_one(first_topic)

    def _first_ack_of_one(self, topic: str) -> None:
        """Any of the processes may lead the topic: a client finds out which."""
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{self.port}", "acks": "all", "log_level": 0})
        producer.produce(topic, b"first")
        if producer.flush(START_TIMEOUT_S):
            raise StartFailed(f"{self.name}: no acknowledgement within {START_TIMEOUT_S:g} s")

    def _zookeeper(self, verb: str, *arguments: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "klog", "zookeeper", verb, "--dir", str(self._zookeeper_folder), *arguments],
            env={**os.environ, **self._environment},
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise StartFailed(f"{self.name}: klog zookeeper {verb}: {done.stderr}")

    def stop(self) -> None:
        if self._broker is not None:
            self._broker.stop()
        self._zookeeper("stop")

    def kill(self) -> None:
        if self._broker is not None:
            self._broker.kill()

    def broker_pids(self) -> Sequence[int]:
        if self._broker is None or not self._broker.running:
            return []
        return [self._broker.pid] if self._processes == 1 else children(self._broker.pid)

    def helper_pids(self) -> Sequence[int]:
        with contextlib.suppress(OSError, ValueError):
            return [json.loads((self._zookeeper_folder / "zookeeper.pid").read_text())["pid"]]
        return []


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
        self._up = Process("klog up", command, self.folder / "up.log", environment(self.folder))
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
