"""Several real brokers and a real ZooKeeper, each reachable through the runner's proxies alone.

    FOLDER/zookeeper/       the embedded ZooKeeper
    FOLDER/b<id>/data/      a broker's log dir; a small file system of its own where the cluster has small disks
    FOLDER/b<id>/broker.log what it says

A broker advertises its gate, to clients and to other brokers, and speaks to ZooKeeper through a gate of its own. Nodes
are called ``b<id>``, ``zookeeper`` and ``client``.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError

from bench.processes import free_port
from klog.admin import security_files, users
from klog.admin.local_state import CLIENT_SETTINGS
from klog.client.client_config import read_client_config
from klog.client.security_files import librdkafka_security
from klog.coordination import embedded
from klog.coordination.embedded import ZooKeeperServer
from klog.coordination.zookeeper import ZooKeeper
from tests import faulty_libc
from tests.broker_fixture import RunningBroker
from tests.faults.network import CLIENT, HOST, Gate, Network, owner_of_port
from tests.faulty_libc import FaultyLibc
from tests.zookeeper_fixture import klog_home

ZOOKEEPER = "zookeeper"
CHROOT = "/faults"
DISK_BYTES = 96 * 1024 * 1024
"""Of a small disk: room for some minutes of load."""
USER, PASSWORD = "load", "what load logs in with"
"""Of clients that are no administrators."""
POLL_S = 0.05
logging.getLogger("kazoo").setLevel(logging.CRITICAL)  # that ZooKeeper is away is what is being done to it


@dataclass
class Node:
    """A broker with what stands around it."""

    broker: RunningBroker
    gate: Gate
    zookeeper_gate: Gate
    libc: FaultyLibc | None
    lock: threading.RLock
    """Held by whoever starts or stops the process."""
    is_wanted: bool = False
    """It is to run: when it does not, it ended by itself."""
    is_paused: bool = False
    mounted: bool = False

    @property
    def name(self) -> str:
        return f"b{self.broker.broker_id}"

    @property
    def runs(self) -> bool:
        return self.broker.process is not None and self.broker.process.poll() is None


class FaultCluster:
    """Thread-safe. A context manager: everything that was started has ended when it is left."""

    def __init__(
        self,
        folder: Path,
        brokers: int = 3,
        *,
        settings: Mapping[str, str] | None = None,
        faulty_disks: bool = False,
        small_disks: bool = False,
        secure: bool = False,
    ) -> None:
        """``faulty_disks``: flushes can be made late and clocks be stepped; ``small_disks``: disks can be filled.

        Each needs something of the machine: `can_fault_disks`, `can_mount`. ``secure``: closed from its first start on,
        as `klog up --secure` does it.
        """
        self.folder = folder
        self.network = Network(self._owner_of)
        self.nodes: dict[int, Node] = {}
        self._settings = dict(settings or {})
        self._count = brokers
        self._faulty_disks, self._small_disks = faulty_disks, small_disks
        self._security = folder / "security" if secure else None
        self._zookeeper: ZooKeeperServer | None = None
        self._zk: KazooClient | None = None
        self._known: dict[str, bytes] = {}

    def __enter__(self) -> FaultCluster:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def start(self) -> None:
        cache = klog_home() / "cache"
        self._zookeeper = embedded.start(self.folder / "zookeeper", cache=cache)
        self._zookeeper.await_serving()
        if self._security is not None:
            security_files.init(self._security)
            self._add_users(security_files.passwords(self._security))
        library = faulty_libc.build(self.folder) if self._faulty_disks else None
        for broker_id in range(1, self._count + 1):
            self.nodes[broker_id] = self._make(broker_id, library)
        self.start_brokers(self.nodes)
        self._zk = KazooClient(self._zookeeper.address + CHROOT, timeout=6)  # the brokers have made its root
        self._zk.start(15)

    def close(self) -> None:
        self.network.heal()
        if self._zk is not None:
            with contextlib.suppress(KazooException, OSError):
                self._zk.stop()
                self._zk.close()
        with ThreadPoolExecutor() as pool:
            list(pool.map(self._end, self.nodes.values()))
        if self._zookeeper is not None:
            self._zookeeper.stop()
        self.network.close()

    def _end(self, node: Node) -> None:
        node.is_wanted = False
        node.broker.end()
        if node.libc is not None:
            node.libc.close()
        if node.mounted:
            subprocess.run(["umount", str(node.broker.folder / "data")], check=False)

    def _make(self, broker_id: int, library: Path | None) -> Node:
        assert self._zookeeper is not None
        folder = self.folder / f"b{broker_id}"
        (folder / "data").mkdir(parents=True)
        port = free_port()
        gate = self.network.add(f"b{broker_id}", port)
        zookeeper_gate = self.network.add(ZOOKEEPER, self._zookeeper.port, source=f"b{broker_id}")
        broker = RunningBroker(folder, f"{HOST}:{zookeeper_gate.port}{CHROOT}", broker_id)
        broker.settings = dict(self._settings)
        broker.extra_arguments = ["--advertise", f"{self._protocol}{HOST}:{gate.port}"]
        if self._security is not None:
            broker.extra_arguments += ["--config", str(self._security / security_files.BROKER_SETTINGS)]
        libc = None
        if library is not None:
            libc = FaultyLibc(library, folder / "faults")
            broker.wrapper = libc.wrapper
        node = Node(broker, gate, zookeeper_gate, libc, threading.RLock())
        if self._small_disks:
            target = str(folder / "data")
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", target], check=True)
            node.mounted = True
        return node

    # --- Who may what -------------------------------------------------------------------------------------------

    @property
    def _protocol(self) -> str:
        return "" if self._security is None else "SASL_SSL://"

    @property
    def _administrator(self) -> dict[str, str]:
        """librdkafka's settings of the administrator."""
        found = read_client_config(self._security / CLIENT_SETTINGS).security if self._security is not None else None
        return {"bootstrap.servers": self.bootstrap, **(librdkafka_security(found) if found is not None else {})}

    def admit(self, topic: str) -> dict[str, str]:
        """Make a user for clients of this topic in groups of any name, with that and no other permission; how it logs
        in, without the addresses."""
        self._add_users({USER: PASSWORD})
        admin = AdminClient({**self._administrator, "log_level": 0})
        wanted = [(ResourceType.TOPIC, topic, one) for one in (AclOperation.READ, AclOperation.WRITE)]
        wanted.append((ResourceType.GROUP, "*", AclOperation.READ))
        literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
        acls = [AclBinding(kind, name, literal, f"User:{USER}", "*", one, allow) for kind, name, one in wanted]
        for future in admin.create_acls(acls, request_timeout=20).values():
            future.result(25)
        found = {**self._administrator, "sasl.username": USER, "sasl.password": PASSWORD}
        del found["bootstrap.servers"]
        return found

    def _add_users(self, passwords: Mapping[str, str]) -> None:
        assert self._zookeeper is not None
        session = ZooKeeper(self._zookeeper.address + CHROOT)
        session.start(create_chroot=True)
        try:
            users.write_first(session, passwords)
        finally:
            session.stop()

    # --- Processes ----------------------------------------------------------------------------------------------

    def start_broker(self, broker_id: int) -> None:
        """Start it unless it runs, and wait until it serves."""
        node = self.nodes[broker_id]
        with node.lock:
            if node.runs:
                return
            self.network.open(node.gate)
            node.broker.listen = (
                f"{self._protocol}{HOST}:{node.gate.target_port}"  # what a start reads as its address is the gate's
            )
            try:
                node.broker.start()
            except AssertionError:
                self.network.shut(node.gate)
                raise
            node.is_wanted = True

    def start_brokers(self, brokers: Iterable[int]) -> None:
        """All at once."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(self.start_broker, brokers))

    def kill_broker(self, broker_id: int) -> None:
        """kill -9; from then on its address refuses."""
        node = self.nodes[broker_id]
        with node.lock:
            node.is_wanted = node.is_paused = False
            if node.runs:
                assert node.broker.process is not None
                node.broker.process.kill()
                self.network.shut(node.gate)
                node.broker.process.wait()

    def stop_broker(self, broker_id: int, timeout_s: float = 30.0) -> int | None:
        """Controlled shutdown; its exit code, None if it did not run."""
        node = self.nodes[broker_id]
        with node.lock:
            node.is_wanted = False
            if not node.runs:
                return None
            code = node.broker.stop(timeout_s)
            self.network.shut(node.gate)
            return code

    def pause_broker(self, broker_id: int) -> None:
        node = self.nodes[broker_id]
        if node.runs:
            node.is_paused = True
            node.broker.send(signal.SIGSTOP)

    def resume_broker(self, broker_id: int) -> None:
        node = self.nodes[broker_id]
        if node.runs:
            node.broker.send(signal.SIGCONT)
        node.is_paused = False

    def kill_zookeeper(self) -> None:
        assert self._zookeeper is not None
        os.kill(self._zookeeper.identity.pid, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while self._zookeeper.identity.is_alive():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._zookeeper.identity.pid, os.WNOHANG)
            assert time.monotonic() < deadline, "ZooKeeper does not end"
            time.sleep(0.01)

    def start_zookeeper(self) -> None:
        assert self._zookeeper is not None
        port = self._zookeeper.port
        self._zookeeper = embedded.start(self.folder / "zookeeper", port=port, cache=klog_home() / "cache")
        self._zookeeper.await_serving()

    def ended_by_themselves(self) -> list[int]:
        """Brokers that nobody stopped and that do not run."""
        return [broker_id for broker_id, node in self.nodes.items() if node.is_wanted and not node.runs]

    def _owner_of(self, port: int, gate_port: int) -> str:
        processes = {
            node.name: node.broker.process.pid
            for node in self.nodes.values()
            if node.runs and node.broker.process is not None
        }
        return owner_of_port(port, gate_port, processes)

    # --- What is where ------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{node.gate.port}" for node in self.nodes.values())

    @property
    def zookeeper(self) -> KazooClient:
        assert self._zk is not None
        return self._zk

    def controller(self) -> int | None:
        """As ZooKeeper says, or said when it could last be asked."""
        found = self._read("/controller")
        return None if found is None else int(json.loads(found)["brokerid"])

    def state(self, topic: str, partition: int) -> tuple[int, list[int]]:
        """(leader, ISR); leader -1 where there is none."""
        found = self._read(f"/brokers/topics/{topic}/partitions/{partition}/state")
        if found is None:
            return -1, []
        fields = json.loads(found)
        return int(fields["leader"]), [int(one) for one in fields["isr"]]

    def topic_entry(self, topic: str) -> dict[str, Any]:
        """The topic's node, {} where there is none."""
        found = self._read(f"/brokers/topics/{topic}")
        return {} if found is None else dict(json.loads(found))

    def replicas(self, topic: str, partition: int) -> list[int]:
        return [int(one) for one in self.topic_entry(topic).get("partitions", {}).get(str(partition), [])]

    def _read(self, path: str) -> bytes | None:
        try:
            data, _ = self.zookeeper.get_async(path).get(timeout=2)
            self._known[path] = data
        except NoNodeError:
            self._known.pop(path, None)
        except Exception:
            pass  # ZooKeeper is away: what was last known
        return self._known.get(path)

    def registered(self) -> set[int]:
        try:
            return {int(one) for one in self.zookeeper.get_children_async("/brokers/ids").get(timeout=2)}
        except Exception:
            return set()

    def create_topic(self, topic: str, assignment: list[list[int]], config: Mapping[str, str]) -> None:
        """Durable and led by the first replica of each partition when this returns. KafkaException."""
        admin = AdminClient({**self._administrator, "log_level": 0})
        wanted = NewTopic(topic, num_partitions=len(assignment), replica_assignment=assignment, config=dict(config))
        admin.create_topics([wanted], operation_timeout=20, request_timeout=25)[topic].result(30)

    def unhealed(self, topic: str, partitions: int) -> list[str]:
        """What keeps the topic from being whole: partitions without a leader or with replicas out of sync."""
        found = []
        for partition in range(partitions):
            leader, isr = self.state(topic, partition)
            replicas = self.replicas(topic, partition)
            if leader not in isr or set(isr) != set(replicas):
                found.append(f"{topic}-{partition}: leader {leader}, ISR {isr} of {replicas}")
        return found

    def await_whole(self, topic: str, partitions: int, timeout_s: float) -> list[str]:
        """Until every replica is in sync; what was not, when the time is up."""
        deadline = time.monotonic() + timeout_s
        while True:
            missing = self.unhealed(topic, partitions)
            if not missing or time.monotonic() > deadline:
                return missing
            time.sleep(POLL_S)

    def partition_folder(self, broker_id: int, topic: str, partition: int) -> Path:
        return self.nodes[broker_id].broker.folder / "data" / f"{topic}-{partition}"

    def links(self, brokers: Iterable[int], others: Iterable[str]) -> list[tuple[str, str]]:
        """From each of the brokers to each of the others, itself left out."""
        return [(f"b{one}", other) for one in brokers for other in others if other != f"b{one}"]

    @property
    def names(self) -> list[str]:
        """Of all nodes."""
        return [*(node.name for node in self.nodes.values()), ZOOKEEPER, CLIENT]


def can_fault_disks() -> str:
    """ "" if flushes can be made late and clocks be stepped here, else what is missing."""
    return "" if faulty_libc.compiler() else "no C compiler"


def can_mount() -> str:
    """ "" if a small file system can be mounted here, else what is missing."""
    return "" if os.geteuid() == 0 and Path("/proc/self/mounts").exists() else "mounting needs root"
