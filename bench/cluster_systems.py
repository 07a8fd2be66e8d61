"""Three brokers of one system on this machine, or as many as are asked for: klog and Kafka 3.9 with one ZooKeeper, and
Kafka 4.1, whose first broker is the controller too.

Replication factor 3, ``min.insync.replicas`` 2; everything else is each system's default, but for Kafka's heap, which
three times 1 GB of would not leave the machine its page cache.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from bench.broker_settings import arguments
from bench.cluster_load import await_ack
from bench.klog_system import environment, klog_version
from bench.maven import JavaTools, java_tools
from bench.peers import KAFKA_JVM, START_TIMEOUT_S, ZOOKEEPER_JVM
from bench.processes import Process, StartFailed, free_port, wait_for_port

BROKERS = 3
SETTINGS = {"default.replication.factor": "3", "min.insync.replicas": "2"}
KAFKA_HEAP = ("-Xmx768m", "-Xms768m")


class Cluster(Protocol):
    """What is measured: brokers that can be stopped, killed, paused and started again one by one."""

    name: str
    version: str
    ports: list[int]

    @property
    def options(self) -> Mapping[str, str]: ...
    def start(self) -> None:
        """All of it; returns when a message with acks=all has been acknowledged."""

    def start_broker(self, number: int) -> None:
        """Its process only; returns at once."""

    def broker(self, number: int) -> Process: ...
    def stop(self) -> None: ...
    def broker_pids(self) -> Sequence[int]: ...
    def helper_pids(self) -> Sequence[int]: ...


class _Brokers:
    """What all share: processes at ports of their own. Numbers begin at 0, broker ids at 1."""

    def __init__(self, name: str, folder: Path, brokers: int, settings: Mapping[str, str]) -> None:
        self.name = name
        self.folder = folder
        self.ports = [free_port() for _ in range(brokers)]
        self.options: Mapping[str, str] = settings
        self._running: dict[int, Process] = {}
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def broker(self, number: int) -> Process:
        return self._running[number]

    def broker_pids(self) -> Sequence[int]:
        return [one.pid for one in self._running.values() if one.running]

    def await_first_ack(self) -> None:
        await_ack(self.bootstrap, "first", START_TIMEOUT_S)

    def stop_brokers(self) -> None:
        for one in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGCONT)
            one.stop()


class KlogCluster(_Brokers):
    """Brokers by `klog broker start`, ZooKeeper by `klog zookeeper start`."""

    def __init__(
        self,
        folder: Path,
        *,
        metrics: bool = False,
        brokers: int = BROKERS,
        settings: Mapping[str, str] = SETTINGS,
    ) -> None:
        super().__init__(f"klog x {brokers}", folder, brokers, settings)
        self.version = klog_version()
        self.metrics_ports = [free_port() for _ in range(brokers)] if metrics else []
        self._zookeeper_port = free_port()
        self._environment = environment(folder)

    def start(self) -> None:
        self._zookeeper("start", "--port", str(self._zookeeper_port))
        for number in range(len(self.ports)):
            self.start_broker(number)
        self.await_first_ack()

    def start_broker(self, number: int) -> None:
        command = [
            *(sys.executable, "-m", "klog", "broker", "start", "--id", str(number + 1)),
            *("--dir", f"{self.folder}/data-{number + 1}", "--listen", f"127.0.0.1:{self.ports[number]}"),
            *("-z", f"127.0.0.1:{self._zookeeper_port}/klog"),
            *arguments(self.options, self.folder),
            *(("--metrics-port", str(self.metrics_ports[number])) if self.metrics_ports else ()),
        ]
        log = self.folder / f"broker-{number + 1}.log"
        self._running[number] = Process(f"{self.name}: broker {number + 1}", command, log, self._environment)

    def _zookeeper(self, verb: str, *arguments: str) -> None:
        command = [sys.executable, "-m", "klog", "zookeeper", verb, "--dir", f"{self.folder}/zookeeper", *arguments]
        env = {**os.environ, **self._environment}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False)
        if done.returncode != 0:
            raise StartFailed(f"{self.name}: klog zookeeper {verb}: {done.stderr}")

    def stop(self) -> None:
        self.stop_brokers()
        self._zookeeper("stop")

    def helper_pids(self) -> Sequence[int]:
        with contextlib.suppress(OSError, ValueError):
            return [json.loads((self.folder / "zookeeper" / "zookeeper.pid").read_text())["pid"]]
        return []


class _KafkaBrokers(_Brokers):
    """What both of Kafka's lines share. PeerMissing where the jars cannot be had."""

    def __init__(self, line: str, folder: Path, cache: Path | None, brokers: int, settings: Mapping[str, str]) -> None:
        super().__init__(f"{line} x {brokers}", folder, brokers, settings)
        self._tools: JavaTools = java_tools(line, cache)
        self.version = self._tools.version

    def _properties(self, number: int, properties: Mapping[str, str]) -> Path:
        """The file of a broker's settings: these, and those that all have."""
        return self._write(
            f"server-{number + 1}.properties",
            {
                **properties,
                "log.dirs": f"{self.folder}/data-{number + 1}",
                "log.segment.delete.delay.ms": "100",
                "offsets.topic.num.partitions": "1",
                "offsets.topic.replication.factor": str(min(BROKERS, len(self.ports))),
                "group.initial.rebalance.delay.ms": "0",
                **self.options,
            },
        )

    def _run(self, number: int, properties: Mapping[str, str]) -> None:
        config = self._properties(number, properties)
        jvm = (*KAFKA_JVM, *KAFKA_HEAP)  # of an option given twice the last one counts
        command = ["java", *jvm, "-cp", self._tools.class_path, "kafka.Kafka", str(config)]
        log = self.folder / f"broker-{number + 1}.log"
        self._running[number] = Process(f"{self.name}: broker {number + 1}", command, log)

    def _write(self, file_name: str, properties: Mapping[str, str]) -> Path:
        path = self.folder / file_name
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        return path


class KraftCluster(_KafkaBrokers):
    """Kafka 4.1: the first broker is the quorum's only controller."""

    def __init__(
        self,
        folder: Path,
        cache: Path | None = None,
        *,
        brokers: int = BROKERS,
        settings: Mapping[str, str] = SETTINGS,
    ) -> None:
        super().__init__("kafka-4.1", folder, cache, brokers, settings)
        self._controller_port = free_port()

    def start(self) -> None:
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        for number in range(len(self.ports)):
            config = self._properties(number, self._quorum(number))
            arguments = ("format", f"--cluster-id={cluster_id}", "-c", str(config))
            command = self._tools.command("kafka.tools.StorageTool", *arguments)
            done = subprocess.run(command, capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False)
            if done.returncode != 0:
                raise StartFailed(f"{self.name}: the storage could not be formatted:\n{done.stdout}{done.stderr}")
        for number in range(len(self.ports)):
            self.start_broker(number)
        self.await_first_ack()

    def start_broker(self, number: int) -> None:
        self._run(number, self._quorum(number))

    def _quorum(self, number: int) -> dict[str, str]:
        listener = f"PLAINTEXT://127.0.0.1:{self.ports[number]}"
        controller = f",CONTROLLER://127.0.0.1:{self._controller_port}" if number == 0 else ""
        return {
            "process.roles": "broker,controller" if number == 0 else "broker",
            "node.id": str(number + 1),
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "listeners": listener + controller,
            "advertised.listeners": listener,
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }

    def stop(self) -> None:
        for number in reversed(range(1, len(self.ports))):  # the controller last: the others ask it to let them go
            if number in self._running:
                self._running[number].stop()
        self.stop_brokers()

    def helper_pids(self) -> Sequence[int]:
        return []


class KafkaCluster(_KafkaBrokers):
    """Kafka 3.9 with ZooKeeper."""

    def __init__(
        self,
        folder: Path,
        cache: Path | None = None,
        *,
        brokers: int = BROKERS,
        settings: Mapping[str, str] = SETTINGS,
    ) -> None:
        super().__init__("kafka-3.9", folder, cache, brokers, settings)
        self._zookeeper_port = free_port()
        self._zookeeper: Process | None = None

    def start(self) -> None:
        config = self._write(
            "zookeeper.properties",
            {
                "dataDir": f"{self.folder}/zookeeper",
                "clientPort": str(self._zookeeper_port),
                "clientPortAddress": "127.0.0.1",
                "admin.enableServer": "false",
                "maxClientCnxns": "0",
            },
        )
        main_class = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = ["java", *ZOOKEEPER_JVM, "-cp", self._tools.class_path, main_class, str(config)]
        self._zookeeper = Process(f"{self.name}: ZooKeeper", command, self.folder / "zookeeper.log")
        wait_for_port(self._zookeeper_port, self._zookeeper, START_TIMEOUT_S)
        for number in range(len(self.ports)):
            self.start_broker(number)
        self.await_first_ack()

    def start_broker(self, number: int) -> None:
        listener = f"PLAINTEXT://127.0.0.1:{self.ports[number]}"
        self._run(
            number,
            {
                "broker.id": str(number + 1),
                "listeners": listener,
                "advertised.listeners": listener,
                "zookeeper.connect": f"127.0.0.1:{self._zookeeper_port}/kafka",
            },
        )

    def stop(self) -> None:
        self.stop_brokers()
        if self._zookeeper is not None:
            self._zookeeper.stop()

    def helper_pids(self) -> Sequence[int]:
        return [self._zookeeper.pid] if self._zookeeper is not None and self._zookeeper.running else []
