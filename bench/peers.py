"""Apache Kafka as a peer: 4.1 with KRaft, 3.9 with the ZooKeeper of its own artifacts.

    python -m bench.peers kafka-4.1 [--port P] [--flush] [-X name=value]...

starts one in the foreground on a temporary folder, prints its bootstrap address when it acknowledges messages, and
stops on Ctrl-C or SIGTERM. Every port listens on 127.0.0.1 alone.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from bench import maven, wire
from bench.maven import JavaTools, PeerMissing, java_tools
from bench.processes import Process, StartFailed, free_port, wait_for_port

START_TIMEOUT_S = 60.0

KAFKA_JVM = (
    *("-Xmx1g", "-Xms1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
"""What Kafka's own start scripts pass; only the log level differs, and it spares Kafka work."""

ZOOKEEPER_JVM = ["-Xmx512m", "-XX:+UseG1GC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]

FLUSH_EACH_MESSAGE = {"log.flush.interval.messages": "1"}


class System(Protocol):
    """What is measured: a broker and whatever it needs, startable again on the same data."""

    name: str
    version: str
    port: int
    folder: Path
    """Of its data, among others."""

    @property
    def options(self) -> Mapping[str, str]:
        """Settings set apart from its defaults for the measurement."""

    def prepare(self) -> None:
        """What is done once, before the first start ever, and is no part of a start."""

    def start(self, first_topic: str) -> None:
        """Returns when the broker has acknowledged a message to that topic."""

    def stop(self) -> None: ...

    def kill(self) -> None:
        """kill -9 of the broker alone."""

    def broker_pids(self) -> Sequence[int]: ...

    def helper_pids(self) -> Sequence[int]:
        """Processes that the broker cannot do without: its ZooKeeper."""


class _Kafka:
    """What both lines share: the folder, the properties, the life of the broker's process."""

    main_class = "kafka.Kafka"

    def __init__(self, name: str, tools: JavaTools, folder: Path, port: int, settings: Mapping[str, str]) -> None:
        self.name = name
        self.version = tools.version
        self.tools = tools
        self.folder = folder
        self.port = port or free_port()
        self.options = dict(settings)
        self._broker: Process | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def properties(self) -> dict[str, str]:
        """Everything not here is Kafka's default."""
        return {
            # Deleted topics go soon, not after a minute: their unwritten pages would weigh on whoever comes next.
            "log.segment.delete.delay.ms": "100",
            "log.dirs": str(self.folder / "data"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self.options,
        }

    def write_properties(self, file_name: str, properties: Mapping[str, str]) -> Path:
        path = self.folder / file_name
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        return path

    def run_broker(self, first_topic: str) -> None:
        config = self.write_properties("server.properties", self.properties())
        command = ["java", *KAFKA_JVM, "-cp", self.tools.class_path, self.main_class, str(config)]
        self._broker = Process(self.name, command, self.folder / "broker.log")
        first_ack(self.port, self._broker, first_topic)

    def prepare(self) -> None:
        pass

    def start(self, first_topic: str) -> None:
        self.run_broker(first_topic)

    def stop(self) -> None:
        if self._broker is not None:
            self._broker.stop()

    def kill(self) -> None:
        if self._broker is not None:
            self._broker.kill()

    def broker_pids(self) -> Sequence[int]:
        return [self._broker.pid] if self._broker is not None and self._broker.running else []

    def helper_pids(self) -> Sequence[int]:
        return []


class KafkaKraft(_Kafka):
    """Kafka 4.x: broker and controller in one process, as its quick start has it."""

    def __init__(self, name: str, tools: JavaTools, folder: Path, port: int, settings: Mapping[str, str]) -> None:
        super().__init__(name, tools, folder, port, settings)
        self.controller_port = free_port()

    def properties(self) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            **super().properties(),
        }

    def prepare(self) -> None:
        """Formats the storage: writes its identity."""
        if (self.folder / "data" / "meta.properties").exists():
            return
        config = self.write_properties("server.properties", self.properties())
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # With an equals sign: an id may begin with a hyphen, and would be taken for another option.
        arguments = ("format", f"--cluster-id={cluster_id}", "-c", str(config))
        command = self.tools.command("kafka.tools.StorageTool", *arguments)
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False)
        if done.returncode != 0:
            raise StartFailed(f"{self.name}: the storage could not be formatted:\n{done.stdout}{done.stderr}")


class KafkaZooKeeper(_Kafka):
    """Kafka 3.9 with one ZooKeeper server, both of the same artifacts."""

    def __init__(self, name: str, tools: JavaTools, folder: Path, port: int, settings: Mapping[str, str]) -> None:
        super().__init__(name, tools, folder, port, settings)
        self._zookeeper_port = free_port()
        self._zookeeper: Process | None = None

    def properties(self) -> dict[str, str]:
        return {
            "broker.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "zookeeper.connect": f"127.0.0.1:{self._zookeeper_port}/kafka",
            **super().properties(),
        }

    def start(self, first_topic: str) -> None:
        if self._zookeeper is None or not self._zookeeper.running:
            self._start_zookeeper()
        self.run_broker(first_topic)

    def _start_zookeeper(self) -> None:
        config = self.write_properties(
            "zookeeper.properties",
            {
                "dataDir": str(self.folder / "zookeeper"),
                "clientPort": str(self._zookeeper_port),
                "clientPortAddress": "127.0.0.1",
                "admin.enableServer": "false",
                "maxClientCnxns": "0",
            },
        )
        main_class = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = ["java", *ZOOKEEPER_JVM, "-cp", self.tools.class_path, main_class, str(config)]
        self._zookeeper = Process(f"{self.name}'s ZooKeeper", command, self.folder / "zookeeper.log")
        wait_for_port(self._zookeeper_port, self._zookeeper, START_TIMEOUT_S)

    def stop(self) -> None:
        super().stop()
        if self._zookeeper is not None:
            self._zookeeper.stop()

    def helper_pids(self) -> Sequence[int]:
        return [self._zookeeper.pid] if self._zookeeper is not None and self._zookeeper.running else []


def first_ack(port: int, process: Process, topic: str, timeout_s: float = START_TIMEOUT_S) -> None:
    """Returns as soon as the broker has acknowledged a message (acks=all) to the topic, made for it if missing."""
    try:
        wire.produce_until_acknowledged(port, topic, timeout_s, alive=lambda: process.running)
    except wire.NoAnswer as error:
        raise StartFailed(f"{process.name}: {error}:\n{process.log_tail()}") from None


def kafka(
    name: str, folder: Path, port: int = 0, settings: Mapping[str, str] | None = None, cache: Path | None = None
) -> KafkaKraft | KafkaZooKeeper:
    """``kafka-4.1``, ``kafka-3.9``, or either with ``-flush`` behind it; PeerMissing where its jars cannot be had."""
    line = name.removesuffix("-flush")
    if line not in maven.VERSIONS:
        raise PeerMissing(
            f"{name}: not a peer this bench knows ({', '.join(maven.VERSIONS)}, each with or without -flush)"
        )
    chosen = {**(FLUSH_EACH_MESSAGE if name.endswith("-flush") else {}), **(settings or {})}
    kind = KafkaZooKeeper if line == "kafka-3.9" else KafkaKraft
    return kind(name, java_tools(line, cache), folder, port, chosen)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description="One Apache Kafka in the foreground.")
    parser.add_argument("name", choices=[peer + flush for peer in maven.VERSIONS for flush in ("", "-flush")])
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    parser.add_argument("--dir", type=Path, help="data folder, kept; default: a temporary one, removed at the end")
    parser.add_argument("-X", dest="settings", action="append", default=[], metavar="NAME=VALUE")
    given = parser.parse_args(arguments)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    folder = given.dir or Path(tempfile.mkdtemp(prefix="klog-peer-"))
    with contextlib.ExitStack() as stack:
        if given.dir is None:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        try:
            peer = kafka(given.name, folder, given.port, dict(setting.split("=", 1) for setting in given.settings))
            stack.callback(peer.stop)
            peer.prepare()
            peer.start("first")
        except (PeerMissing, StartFailed) as error:
            print(error, file=sys.stderr)
            return 1
        print(peer.bootstrap, flush=True)
        ended.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
