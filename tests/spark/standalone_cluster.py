"""The wheel's own Spark as servers: a master with two workers, and a Connect server, all on 127.0.0.1."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import pyspark

from tests.spark.quick_java import spark_environment
from tests.until import until

HOME = Path(pyspark.__file__).parent
START_S = 90
HOSTS = ("127.0.0.1", "127.0.0.2")

LOCAL = ["spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1"]


def quick_settings() -> list[str]:
    """Settings for an application of this cluster's. Executors have their worker's environment too."""
    executors = ["spark.executor.memory=512m", "spark.executor.cores=1"]
    return [*LOCAL, *executors]


class Server:
    """A process of Spark's. ``found`` is what its log said when it was up."""

    def __init__(self, arguments: list[str], log: Path, up: str) -> None:
        environment = os.environ | spark_environment()
        environment |= {
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_NO_DAEMONIZE": "1",
        }
        environment.pop("PYTHONPATH", None)  # klog has to come with the application
        self.log = log
        with log.open("wb") as sink:
            self.process = subprocess.Popen(
                [str(HOME / "bin" / arguments[0]), *arguments[1:]],
                cwd=log.parent,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
            )
        self._up = re.compile(up)

    def found(self) -> re.Match[str]:
        """What its log says once it is up."""

        def match() -> re.Match[str] | None:
            has_ended = self.process.poll() is not None
            found = self._up.search(self.log.read_text(errors="replace"))
            assert found or not has_ended, self.log.read_text()[-3000:]
            return found

        return until(match, lambda: self.log.read_text()[-3000:], START_S)  # type: ignore[return-value]

    def executors(self) -> list[psutil.Process]:
        """The executors' processes, if this is a worker."""
        found = []
        for one in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.Error):  # it has ended meanwhile
                if "CoarseGrainedExecutorBackend" in " ".join(one.cmdline()):
                    found.append(one)
        return found

    def tasks(self) -> list[psutil.Process]:
        """The processes below its executors, if this is a worker: tasks run in them."""
        found = []
        for one in self.executors():
            with suppress(psutil.NoSuchProcess):
                found += one.children(recursive=True)
        return found

    def stop(self) -> None:
        below = psutil.Process(self.process.pid).children(recursive=True)
        for one in [*below, self.process]:
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                one.kill()
        self.process.wait()


class Standalone(NamedTuple):
    master: str
    workers: tuple[Server, Server]


@contextmanager
def standalone(folder: Path) -> Iterator[Standalone]:
    """A master and two workers of one core each, on hosts of two names: Spark makes no second attempt on the same."""
    servers: list[Server] = []
    try:
        class_ = "org.apache.spark.deploy"
        ports = ["--port", "0", "--webui-port", "0"]
        arguments = ["spark-class", f"{class_}.master.Master", "--host", "127.0.0.1", *ports]
        servers.append(Server(arguments, folder / "master.log", r"at (spark://[\d.:]+)"))
        url = servers[0].found()[1]
        for number, host in enumerate(HOSTS):
            arguments = ["spark-class", f"{class_}.worker.Worker", "--host", host, *ports]
            work = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{number}")]
            log = folder / f"worker-{number}.log"
            servers.append(Server([*arguments, *work, url], log, "Successfully registered"))
        for server in servers[1:]:
            server.found()
        yield Standalone(url, (servers[1], servers[2]))
    finally:
        for server in reversed(servers):
            server.stop()


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """A Connect server with two cores of this machine; its address."""
    settings = ["spark.connect.grpc.binding.port=0", "spark.connect.grpc.binding.address=127.0.0.1", *LOCAL]
    settings += ["spark.ui.enabled=false", "spark.sql.catalogImplementation=in-memory"]
    arguments = ["spark-submit", "--master", "local[2,4]", *(word for one in settings for word in ("--conf", one))]
    server = Server(
        [*arguments, "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"],
        folder / "connect.log",
        r"started at: [^\s:]*:(\d+)",
    )
    try:
        yield f"sc://127.0.0.1:{server.found()[1]}"
    finally:
        server.stop()
