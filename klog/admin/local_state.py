"""What is known about the clusters on this machine: where they are, what is to run there, what runs.

    DIR/cluster.json        what the last `up` asked for
    DIR/up.lock             held (flock) while parts are started or stopped
    DIR/zookeeper/          the embedded ZooKeeper (klog.coordination.embedded)
    DIR/broker-N/           the log dir of broker N
    DIR/broker-N.log .pid   its output, and the process to signal
    DIR/security/           what `up --secure` closes the brokers with (klog.admin.security_files)
    HOME/running/X.json     one note a cluster: where it is and its addresses; HOME is KLOG_HOME, or ~/.klog

A note is a hint, the processes are the truth: each is known by its id and start time, or found by its arguments, so
that whatever was killed at whatever moment, what lives is found and what does not live is not believed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shlex
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from klog.config.properties import read_properties
from klog.coordination import embedded, process
from klog.coordination.process import ProcessId
from klog.coordination.server_settings import settings_of
from klog.errors import NoSuchThing, Refused

HOST = "127.0.0.1"
DEFAULT_PORT = 9092
LOCK_TIMEOUT_S = 10.0
CLIENT_SETTINGS, AUTHORITY, ZOOKEEPER_CERTIFICATE = "client.properties", "ca.pem", "zookeeper.pem"
"""Files of DIR/security (klog.admin.security_files)."""


@dataclass(frozen=True, slots=True)
class Part:
    """One process of a local cluster. `identity` None: it does not run."""

    kind: str  # "zookeeper" or "broker"
    id: int | None
    address: str
    log_file: Path
    identity: ProcessId | None

    @property
    def name(self) -> str:
        return "ZooKeeper" if self.kind == "zookeeper" else f"broker {self.id}"


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """A cluster in a directory. Which of its parts live was true when it was looked at. `notes`: sentences of `up`."""

    directory: Path
    bootstrap: str
    zookeeper: str
    cluster_id: str | None
    parts: tuple[Part, ...] = ()
    client_config: Path | None = None
    """How clients connect, where the cluster is closed."""
    notes: tuple[str, ...] = ()

    @property
    def live(self) -> list[Part]:
        return [part for part in self.parts if part.identity is not None]

    @property
    def missing(self) -> list[Part]:
        return [part for part in self.parts if part.identity is None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to run in a directory: `cluster.json`."""

    brokers: int = 1
    port: int = DEFAULT_PORT
    properties: Mapping[str, str] = field(default_factory=dict)
    processes: bool = False
    """The brokers are processes of one `klog broker start --processes`."""
    secure: bool = False
    """The brokers are closed by what lies in DIR/security."""

    @property
    def replication(self) -> dict[str, str]:
        """What several brokers are for, where the user has not said otherwise. A topic lives on when one broker dies:
        two replicas with two brokers, three with more; and with three, two must have what is acknowledged. Several
        processes are for throughput.
        """
        if self.brokers < 2 or self.processes:
            return {}
        wanted = {"default.replication.factor": str(min(3, self.brokers))}
        if self.brokers > 2:
            wanted["min.insync.replicas"] = "2"
        return {name: value for name, value in wanted.items() if name not in self.properties}

    def settings_of(self, number: int) -> dict[str, str]:
        """A broker's settings. What is a port of its own counts up with the brokers, as their ports do."""
        settings = {**self.replication, **self.properties}
        for name in ("metrics.port", "schema.registry.port"):
            port = settings.get(name, "")
            if port.isdecimal() and int(port) > 0:
                settings[name] = str(int(port) + number - 1)
        return settings

    def parents(self) -> list[tuple[int, str]]:
        """The processes to start, each with the id and the address of its first broker."""
        return self.addresses()[:1] if self.processes else self.addresses()

    def addresses(self) -> list[tuple[int, str]]:
        return [(number, f"{HOST}:{self.port + number - 1}") for number in range(1, self.brokers + 1)]


def running_clusters(home: Path) -> list[LocalCluster]:
    """The local clusters of which any part lives, by directory."""
    return [one for one in recorded_clusters(home) if one.live]


def recorded_clusters(home: Path) -> list[LocalCluster]:
    """The local clusters that were last run here, by directory: noted, or in the default folder. Running or not."""
    noted = (_load(note).get("directory") for note in (home / "running").glob("*.json"))
    folders = {Path(one).resolve() for one in noted if isinstance(one, str)} | {(home / "local").resolve()}
    return [found for one in sorted(folders) if (found := look(one)) is not None]


def the_recorded_folder(home: Path) -> Path | None:
    """The folder of the one cluster that was last run here, running or not; None where there is none. Refused, naming
    them, where there are several: none of them is started by chance, and no empty one beside them."""
    here = recorded_clusters(home)
    if len(here) > 1:
        listed = "; ".join(f"{one.directory} ({'running' if one.live else 'down'})" for one in here)
        raise Refused(f"{len(here)} local clusters are here: {listed}", hint="say which: --dir DIR")
    return here[0].directory if here else None


def look(directory: Path) -> LocalCluster | None:
    """The cluster in a directory, running or not; None where `up` never was."""
    directory = directory.resolve()
    plan = load_plan(directory)
    if plan is None:
        return None
    home = directory / "zookeeper"
    settings, server = settings_of(home), embedded.find(home)
    address = f"{HOST}:{settings.port}" if settings else ""
    parts = [Part("zookeeper", None, address, embedded.log_file(home), server.identity if server else None)]
    for number, listen in plan.addresses():
        parent = 1 if plan.processes else number
        parts.append(Part("broker", number, listen, log_file(directory, parent), find_broker(directory, parent)))
    return LocalCluster(
        directory,
        ",".join(address for _, address in plan.addresses()),
        address,
        _cluster_id(directory),
        tuple(parts),
        client_config=security_folder(directory) / CLIENT_SETTINGS if plan.secure else None,
    )


def the_running_cluster(home: Path, hint: str = "say which: --dir DIR") -> LocalCluster | None:
    """The one that runs, None when none does; Refused, naming them, when several do."""
    running = running_clusters(home)
    if len(running) > 1:
        listed = "; ".join(f"{cluster.bootstrap} in {cluster.directory}" for cluster in running)
        raise Refused(f"{len(running)} local clusters are running: {listed}", hint=hint)
    return running[0] if running else None


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """One `up` or `down` at a time on a directory; the kernel lets go of it when its holder ends, however it ends."""
    lock = os.open(directory / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        deadline = time.monotonic() + LOCK_TIMEOUT_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise Refused(
                        f"another `klog up` or `klog down` is running on {directory}", hint="wait until it is done"
                    ) from None
                time.sleep(0.05)
        yield
    finally:
        os.close(lock)


def restart_command(directory: Path) -> str:
    """What stops all of a local cluster and starts it again."""
    where = f"--dir {shlex.quote(str(directory))}"
    return f"klog down {where} && klog up --detach {where}"


def security_folder(directory: Path) -> Path:
    return directory / "security"


def log_dir(directory: Path, number: int) -> str:
    return str(directory / f"broker-{number}")


def log_file(directory: Path, number: int) -> Path:
    return directory / f"broker-{number}.log"


def pid_file(directory: Path, number: int) -> Path:
    return directory / f"broker-{number}.pid"


def find_broker(directory: Path, number: int) -> ProcessId | None:
    return process.recorded(pid_file(directory, number), "broker", "start", log_dir(directory, number))


def _cluster_id(directory: Path) -> str | None:
    """As the first broker's log dir has it; None before it has ever served."""
    try:
        return read_properties(Path(log_dir(directory, 1), "meta.properties")).get("cluster.id") or None
    except NoSuchThing:
        return None


def why_not_here(host: str) -> str | None:
    """Why no socket of this machine can have the address; None: one can."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(address)
    except (OSError, UnicodeError) as error:
        return str(getattr(error, "strerror", None) or error)
    return None


def load_plan(directory: Path) -> Plan | None:
    fields = _load(directory / "cluster.json")
    try:
        return Plan(
            int(fields["brokers"]),
            int(fields["port"]),
            {str(k): str(v) for k, v in fields["properties"].items()},
            bool(fields.get("processes", False)),
            bool(fields.get("secure", False)),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def save_plan(directory: Path, plan: Plan) -> None:
    _write(directory / "cluster.json", {"version": 1, **asdict(plan)})


def note_cluster(home: Path, directory: Path, bootstrap: str, zookeeper: str) -> None:
    note = _note_file(home, directory)
    note.parent.mkdir(parents=True, exist_ok=True)
    _write(note, {"version": 1, "directory": str(directory), "bootstrap": bootstrap, "zookeeper": zookeeper})


def forget_cluster(home: Path, directory: Path) -> None:
    _note_file(home, directory).unlink(missing_ok=True)


def _note_file(home: Path, directory: Path) -> Path:
    name = hashlib.sha256(str(directory).encode()).hexdigest()[:16]
    return home / "running" / f"{name}.json"


def _load(path: Path) -> dict[str, Any]:
    """{} for what is missing, cut off or no object: a note is only a hint."""
    try:
        fields = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _write(path: Path, fields: Mapping[str, Any]) -> None:
    """Whole or not at all for a reader meanwhile. Not durable, nor need it be: after a power cut nothing runs."""
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps(fields, indent=1), encoding="utf-8")
    part.replace(path)
