"""`klog up` and `klog down`: start what is missing of a cluster on this machine, stop what is there.

Parts are started side by side: a broker imports and checks its logs while ZooKeeper boots, and waits for it. Two
servers never share data, as each holds a lock that ends with it. What is known of clusters is in klog.ops.local_notes.

These functions block: `up` is to be first acknowledged within a second, and an event loop's import alone is 40 ms of
it. For the same reason nothing is imported here that starting processes does not need.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from klog.coordination import embedded, process
from klog.coordination.process import ProcessId
from klog.errors import NoSuchThing, PortInUse, Refused, SurroundingsError, TimedOut
from klog.ops.local_notes import (
    LocalCluster,
    Part,
    Plan,
    forget_cluster,
    load_plan,
    locked,
    log_dir,
    log_file,
    look,
    note_cluster,
    pid_file,
    running_clusters,
    save_plan,
    the_running_cluster,
)

__all__ = ["LocalCluster", "Part", "Started", "Stopped", "await_end", "down", "look", "running_clusters", "up"]

START_TIMEOUT_S = 120.0
"""A broker may have a long log to check; it is waited for as long as it lives, up to this."""
STOP_TIMEOUT_S = 30.0
READY_LINE_BYTES_MAX = 1024
SERVING_PAUSE_S = 0.05
ZOOKEEPER_LOOK_S = 0.2
"""A broker goes on looking for ZooKeeper for seconds: so look now and then whether that has ended."""


@dataclass(frozen=True, slots=True)
class Started:
    """One part after `up`. `state`: "started" now, or "running" already."""

    kind: str
    id: int | None
    address: str
    state: str
    pid: int
    log_file: str
    ms: int | None = field(metadata={"wide": True})


@dataclass(frozen=True, slots=True)
class Stopped:
    """One part after `down`. `state`: "stopped" in order, "killed" after it did not stop, "not running"."""

    kind: str
    id: int | None
    address: str
    state: str
    ms: int | None


# --- Starting ---------------------------------------------------------------------------------------------------------


def up(
    directory: Path | None,
    home: Path,
    *,
    brokers: int | None = None,
    port: int | None = None,
    zookeeper_port: int | None = None,
    properties: Mapping[str, str] | None = None,
    timeout_s: float = START_TIMEOUT_S,
) -> tuple[LocalCluster, list[Started]]:
    """Everything runs and the first request would succeed: what is missing is started, what runs is left alone.

    `directory` None is HOME/local. Options that are None are those of the last `up` on the directory, else one broker
    on port 9092. Refused when a running part would have to change; PortInUse, JavaMissing; SurroundingsError with the
    end of its log when a part ends while it starts. After an error everything that this call started is stopped again.
    """
    home = home.resolve()
    directory = (directory or home / "local").resolve()
    if brokers is not None and brokers > 1:
        raise Refused(
            f"--brokers {brokers}: this version runs one broker a cluster", hint="several come with replication"
        )
    directory.mkdir(parents=True, exist_ok=True)
    with locked(directory):
        before = look(directory)
        plan = _plan(load_plan(directory), before, brokers, port, properties)
        _check_ports(directory, home, plan, before)
        save_plan(directory, plan)
        return _start(directory, home, plan, before, zookeeper_port, time.monotonic() + timeout_s)


def _plan(
    last: Plan | None,
    before: LocalCluster | None,
    brokers: int | None,
    port: int | None,
    properties: Mapping[str, str] | None,
) -> Plan:
    old = last or Plan()
    new = Plan(
        old.brokers if brokers is None else brokers,
        old.port if port is None else port,
        old.properties if not properties else dict(properties),
    )
    running = [part.name for part in before.live if part.kind == "broker"] if before is not None else []
    if running and new != old:
        raise Refused(
            f"{' and '.join(running)} in {before.directory if before else ''} already runs with port {old.port} and "
            f"settings {dict(old.properties)}, not with port {new.port} and settings {dict(new.properties)}",
            hint="`klog down` first, then `klog up` with the new options",
        )
    return new


def _check_ports(directory: Path, home: Path, plan: Plan, before: LocalCluster | None) -> None:
    """Before anything is started: a broker would say so too, but only in its log and half a second later."""
    running = {part.id for part in before.live if part.kind == "broker"} if before is not None else set()
    for number, address in plan.addresses():
        wanted = int(address.rpartition(":")[2])
        if number in running or embedded.is_free(wanted):
            continue
        others = [other for other in running_clusters(home) if address in other.bootstrap.split(",")]
        holder = f" by the local cluster in {others[0].directory}" if others else ""
        raise PortInUse(f"{address} is in use{holder}; broker {number} needs it", hint="choose another: --port PORT")


def _start(
    directory: Path,
    home: Path,
    plan: Plan,
    before: LocalCluster | None,
    zookeeper_port: int | None,
    deadline: float,
) -> tuple[LocalCluster, list[Started]]:
    running = {(part.kind, part.id): part for part in before.live} if before is not None else {}
    begun = time.monotonic()
    brokers_run = any(kind == "broker" for kind, _ in running)
    if zookeeper_port is None and brokers_run and before is not None and before.zookeeper:
        zookeeper_port = int(before.zookeeper.rpartition(":")[2])  # they look for it there and nowhere else
    server = embedded.start(directory / "zookeeper", port=zookeeper_port, cache=home / "cache")
    bootstrap = ",".join(address for _, address in plan.addresses())
    note_cluster(home, directory, bootstrap, server.address)
    starting: list[_StartingBroker] = []
    took_ms: dict[tuple[str, int | None], int] = {}
    try:
        for number, address in plan.addresses():
            if ("broker", number) not in running:
                starting.append(_StartingBroker.spawn(directory, number, address, server.address, plan.properties))
        for broker in starting:
            broker.await_ready(server.identity, server.log_file, deadline)
            took_ms["broker", broker.number] = _ms_since(begun)
        server.await_serving(min(embedded.START_TIMEOUT_S, max(0.1, deadline - time.monotonic())))
        took_ms["zookeeper", None] = _ms_since(begun)
        for part in running.values():
            if part.kind == "broker":
                _await_serving(part, deadline)
    except BaseException:
        for broker in starting:
            broker.identity.end(STOP_TIMEOUT_S)
        if ("zookeeper", None) not in running:
            server.stop()
        if not running:
            forget_cluster(home, directory)
        raise
    finally:
        for broker in starting:
            os.close(broker.ready)
    cluster = look(directory)
    assert cluster is not None
    rows = [
        Started(
            part.kind,
            part.id,
            part.address,
            "running" if (part.kind, part.id) in running else "started",
            part.identity.pid,
            str(part.log_file),
            None if (part.kind, part.id) in running else took_ms.get((part.kind, part.id)),
        )
        for part in cluster.parts
        if part.identity is not None
    ]
    return cluster, rows


@dataclass(frozen=True, slots=True)
class _StartingBroker:
    """A broker's process between its start and its line `ready HOST:PORT`, which it writes to a pipe we read."""

    number: int
    identity: ProcessId
    ready: int
    log_file: Path
    child: Any

    @classmethod
    def spawn(
        cls, directory: Path, number: int, address: str, zookeeper: str, properties: Mapping[str, str]
    ) -> _StartingBroker:
        log = log_file(directory, number)
        receive, send = os.pipe()
        # klog need not be installed: what runs here is what runs there. -P keeps the folder we are in out of it.
        package = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
        command = [
            *(sys.executable, "-P", "-m", "klog", "broker", "start"),
            *("--id", str(number), "--dir", log_dir(directory, number), "--listen", address, "-z", zookeeper),
            *("--ready-fd", str(send)),
        ]
        for name, value in properties.items():
            command += ["-X", f"{name}={value}"]
        try:
            with log.open("ab") as output:
                child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=directory,
                    env={**os.environ, "PYTHONPATH": path},
                    pass_fds=(send,),
                    start_new_session=True,
                )
        except BaseException:
            os.close(receive)
            raise
        finally:
            os.close(send)
        identity = ProcessId.of(child.pid) or ProcessId(child.pid, "ended")
        process.record(pid_file(directory, number), identity)
        return cls(number, identity, receive, log, child)

    def await_ready(self, zookeeper: ProcessId, zookeeper_log: Path, deadline: float) -> None:
        """Return at its line; SurroundingsError when it, or ZooKeeper under it, ends without; TimedOut."""
        line = b""
        while True:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimedOut(f"broker {self.number} is not ready; its log: {self.log_file}")
            if select.select([self.ready], [], [], min(left_s, ZOOKEEPER_LOOK_S))[0]:
                part = os.read(self.ready, READY_LINE_BYTES_MAX)
                line += part
                if b"\n" in line:
                    return
                if not part or len(line) > READY_LINE_BYTES_MAX:
                    self.child.wait()
                    raise _ended(f"broker {self.number}", self.log_file)
            elif not zookeeper.is_alive():
                raise _ended("ZooKeeper", zookeeper_log)


def _ended(what: str, log_file: Path) -> SurroundingsError:
    end = embedded.tail(log_file)
    return SurroundingsError(
        f"{what} ended while it was starting; the end of its log:\n{end or '(nothing)'}", hint=f"its log: {log_file}"
    )


def _await_serving(part: Part, deadline: float) -> None:
    """A broker that runs already; an `up` that was cut off may have started it a moment ago.

    It serves when it answers and there is a controller: it listens before it registers (rule R6).
    """
    from klog.client.blocking import BlockingChannel
    from klog.errors import CannotConnect, PeerError
    from klog.protocol import codec
    from klog.protocol.apis import ApiKey

    host, _, port = part.address.rpartition(":")
    while True:
        try:
            channel = BlockingChannel.connect(host, int(port))
            try:
                answer = channel.request(codec.request(ApiKey.METADATA, 1, topics=[]))
            finally:
                channel.close()
            if answer.controller_id >= 0:
                return
        except (CannotConnect, TimedOut, PeerError):
            pass
        if part.identity is None or not part.identity.is_alive():
            raise _ended(part.name, part.log_file)
        if time.monotonic() >= deadline:
            raise TimedOut(f"{part.name} runs at {part.address} and does not serve; its log: {part.log_file}")
        time.sleep(SERVING_PAUSE_S)


# --- Stopping ---------------------------------------------------------------------------------------------------------


def down(directory: Path | None, home: Path, *, timeout_s: float = STOP_TIMEOUT_S) -> list[Stopped]:
    """Nothing of the cluster runs any more: brokers first, in order and side by side, then ZooKeeper.

    `directory` None is the one cluster that runs; [] when none does. A part that has not stopped after `timeout_s` is
    killed, and its row says so. NoSuchThing when `up` never was in the directory.
    """
    if directory is None:
        cluster = the_running_cluster(home)
        if cluster is None:
            return []
        directory = cluster.directory
    directory = directory.resolve()
    if look(directory) is None:
        raise NoSuchThing(f"there is no local cluster in {directory}", hint="`klog up --dir DIR` makes one")
    with locked(directory):
        cluster = look(directory)
        assert cluster is not None
        begun = time.monotonic()
        brokers = [part for part in cluster.live if part.kind == "broker"]
        rows = _end(brokers, timeout_s, begun)
        server = embedded.find(directory / "zookeeper")
        if server is not None:
            state = "stopped" if server.stop(timeout_s) else "killed"
            rows.append(Stopped("zookeeper", None, server.address, state, _ms_since(begun)))
        rows += [Stopped(part.kind, part.id, part.address, "not running", None) for part in cluster.missing]
        forget_cluster(home, directory)
    return sorted(rows, key=lambda row: (row.kind != "zookeeper", row.id or 0))


def _end(parts: Sequence[Part], timeout_s: float, begun: float) -> list[Stopped]:
    deadline = time.monotonic() + timeout_s
    for part in parts:
        assert part.identity is not None
        part.identity.send(signal.SIGTERM)
    rows = []
    for part in parts:
        assert part.identity is not None
        in_order = part.identity.wait(deadline - time.monotonic())
        if not in_order:
            part.identity.send(signal.SIGKILL)
            part.identity.wait(timeout_s)
        rows.append(Stopped(part.kind, part.id, part.address, "stopped" if in_order else "killed", _ms_since(begun)))
    return rows


def await_end(cluster: LocalCluster, timeout_s: float | None = None) -> Part | None:
    """The first part that ends, for an `up` in the foreground; None after `timeout_s`."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        for part in cluster.live:
            assert part.identity is not None
            if part.identity.wait(0.0):
                return part
        left_s = None if deadline is None else deadline - time.monotonic()
        if left_s is not None and left_s <= 0:
            return None
        _wait_for_any([part.identity for part in cluster.live if part.identity is not None], left_s)


def _wait_for_any(identities: Sequence[ProcessId], timeout_s: float | None) -> None:
    handles = []
    try:
        for identity in identities:
            handles.append(os.pidfd_open(identity.pid))
        select.select(handles, [], [], timeout_s)
    except ProcessLookupError:
        pass
    except (AttributeError, OSError):  # no pidfd here
        time.sleep(0.5 if timeout_s is None else min(0.5, timeout_s))
    finally:
        for handle in handles:
            os.close(handle)


def _ms_since(begun: float) -> int:
    return round((time.monotonic() - begun) * 1000)
