"""`klog up` and `klog down`: start what is missing of a cluster on this machine, stop what is there.

Parts are started side by side: a broker imports and checks its logs while ZooKeeper boots, and waits for it. Two
servers never share data, as each holds a lock that ends with it. klog.admin.local_state has what is known of clusters.

These functions block: `up` is to be first acknowledged within a second, and an event loop's import alone is 40 ms of
it. For the same reason nothing is imported here that starting processes does not need.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from klog.admin.local_broker import StartingBroker, await_serving, controller_of
from klog.admin.local_state import (
    CLIENT_SETTINGS,
    LocalCluster,
    Part,
    Plan,
    forget_cluster,
    load_plan,
    locked,
    look,
    note_cluster,
    restart_command,
    running_clusters,
    save_plan,
    security_folder,
    the_running_cluster,
)
from klog.admin.zookeeper import check_folder, check_heap
from klog.coordination import embedded
from klog.errors import HostError, NoSuchThing, PortInUse, Refused
from klog.render.columns import MayFail
from klog.security.client_security import OPEN, ClientSecurity

__all__ = ["LocalCluster", "Part", "Started", "Stopped", "await_end", "down", "look", "running_clusters", "up"]

START_TIMEOUT_S = 120.0
"""A broker may have a long log to check; it is waited for as long as it lives, up to this."""
STOP_TIMEOUT_S = 30.0
SETTLE_PAUSE_S = 0.02
END_PAUSE_S = 0.25
"""Between two looks at what runs in the foreground."""
PORT_MAX = 65535


@dataclass(frozen=True, slots=True)
class Started(MayFail):
    """One part after `up`. `state`: "started" now, "running" already, or "failed": why is in `error` and `message`."""

    kind: str
    id: int | None
    address: str
    state: str
    pid: int | None
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
    processes: int | None = None,
    port: int | None = None,
    zookeeper_port: int | None = None,
    zookeeper_heap_bytes: int | None = None,
    properties: Mapping[str, str] | None = None,
    secure: bool = False,
    timeout_s: float = START_TIMEOUT_S,
) -> tuple[LocalCluster, list[Started]]:
    """Everything runs and the first request would succeed: what is missing is started, what runs is left alone.

    `directory` None is HOME/local. Options that are None are those of the last `up` on the directory, else one broker
    on port 9092. `processes`: so many brokers under one parent, which keeps them alive. `secure`: closed from its first
    start on, by what `klog.admin.security_files` writes into DIR/security. Refused when a running part
    would have to change; PortInUse, JavaMissing; HostError with the end of its log when ZooKeeper ends while it starts,
    or every broker. After an error everything that this call started is stopped again; a broker that alone cannot start
    is a failed row, and the others stay.
    """
    home = home.resolve()
    directory = (directory or home / "local").resolve()
    check_folder(directory)
    check_heap(zookeeper_heap_bytes, "--zookeeper-heap")
    directory.mkdir(parents=True, exist_ok=True)
    with locked(directory):
        before = _settled(directory, time.monotonic() + min(timeout_s, STOP_TIMEOUT_S))
        running = [] if before is None else before.live
        last = load_plan(directory)
        plan = _plan(last, _brokers(running), brokers, processes, port, properties, secure)
        _check_ports(directory, home, plan, {part.id for part in _brokers(running)})
        save_plan(directory, plan)
        if zookeeper_port is None and before is not None and before.zookeeper and _brokers(running):
            zookeeper_port = int(before.zookeeper.rpartition(":")[2])  # they look for it there and nowhere else
        deadline = time.monotonic() + timeout_s
        cluster, rows = _start(directory, home, plan, running, zookeeper_port, zookeeper_heap_bytes, deadline)
    return replace(cluster, notes=tuple(_notes(plan, last, rows))), rows


def _settled(directory: Path, deadline: float) -> LocalCluster | None:
    """The cluster, once no broker of it is stopping, as after `klog broker stop`."""
    while True:
        found = look(directory)
        if found is None or time.monotonic() >= deadline:
            return found
        if not any(part.identity is not None and part.identity.is_stopping() for part in found.parts):
            return found
        time.sleep(SETTLE_PAUSE_S)


def _brokers(parts: Sequence[Part]) -> list[Part]:
    return [part for part in parts if part.kind == "broker"]


def _notes(plan: Plan, last: Plan | None, rows: Sequence[Started]) -> Iterator[str]:
    if plan.replication:
        said = ", ".join(f"{name}={value}" for name, value in plan.replication.items())
        yield f"{plan.brokers} brokers, so for topics made without: {said} (-X NAME=VALUE for others)"
    older = [row for row in rows if row.kind == "broker" and row.state == "running"]
    if older and last is not None and last.replication != plan.replication:
        yield (
            f"broker {', '.join(str(row.id) for row in older)} has other settings and uses these after a restart: "
            "`klog down`, `klog up`"
        )


def _plan(
    last: Plan | None,
    running: Sequence[Part],
    brokers: int | None,
    processes: int | None,
    port: int | None,
    properties: Mapping[str, str] | None,
    secure: bool,
) -> Plan:
    old = last or Plan()
    wanted = brokers if processes is None else processes
    new = Plan(
        old.brokers if wanted is None else wanted,
        old.port if port is None else port,
        old.properties if not properties else dict(properties),
        old.processes if wanted is None else processes is not None,
        old.secure or secure,
    )
    if last is not None and secure and not old.secure:
        raise Refused(
            "the cluster here is open, and `klog up` closes new ones only",
            hint="another folder: --dir DIR; docs/security.md shows how to close a running cluster",
        )
    if old.processes != new.processes and old.brokers > 1:
        was, is_now = ("--processes", "--brokers") if old.processes else ("--brokers", "--processes")
        raise Refused(
            f"the {old.brokers} brokers here were started with {was}, and with {is_now} most would not find their logs",
            hint=f"`klog up {was} N`, or another folder: --dir DIR",
        )
    if running and new.processes and new.brokers != old.brokers:
        raise Refused(
            f"{_named(running)} under one parent with --processes {old.brokers}",
            hint=f"`klog down` first, then `klog up --processes {new.brokers}`",
        )
    if running and (new.port, new.properties) != (old.port, old.properties):
        raise Refused(
            f"{_named(running)} with {_options(old)}, not with {_options(new)}",
            hint="`klog down` first, then `klog up` with the new options",
        )
    surplus = [part for part in running if part.id is not None and part.id > new.brokers]
    if surplus:
        raise Refused(
            f"{_named(surplus)}; --brokers {new.brokers} does not include {'them' if len(surplus) > 1 else 'it'}",
            hint="move what is on it to others (`klog reassign plan --remove-broker ID`), then `klog broker stop ID`",
        )
    return new


def _named(parts: Sequence[Part]) -> str:
    names = [part.name for part in parts]
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    verb = "runs" if len(names) == 1 else "run"
    return f"{listed} already {verb} in {parts[0].log_file.parent}"


def _options(plan: Plan) -> str:
    return " ".join((f"--port {plan.port}", *(f"-X {name}={value}" for name, value in plan.properties.items())))


def _check_ports(directory: Path, home: Path, plan: Plan, running: Collection[int | None]) -> None:
    """Before anything is started: a broker would say so too, but only in its log and half a second later."""
    last = plan.port + plan.brokers - 1
    if last > PORT_MAX:
        raise Refused(
            f"{plan.brokers} brokers from port {plan.port} on would need ports up to {last}; the last is {PORT_MAX}",
            hint="choose fewer (--brokers N) or lower ones (--port PORT)",
        )
    for number, address in plan.addresses():
        wanted = int(address.rpartition(":")[2])
        if number in running and plan.processes and embedded.is_free(wanted):
            raise Refused(
                f"broker {number} does not run, and its parent process does, which starts none that was asked to stop",
                hint=f"`{restart_command(directory)}` starts all of them; one that failed is started again by itself",
            )
        if number in running or embedded.is_free(wanted):
            continue
        others = [other for other in running_clusters(home) if address in other.bootstrap.split(",")]
        holder = f" by the local cluster in {others[0].directory}" if others else ""
        raise PortInUse(
            f"{address} is in use{holder}, but broker {number} needs it", hint="choose another: --port PORT"
        )


def _start(
    directory: Path,
    home: Path,
    plan: Plan,
    before: Sequence[Part],
    zookeeper_port: int | None,
    zookeeper_heap_bytes: int | None,
    deadline: float,
) -> tuple[LocalCluster, list[Started]]:
    """``before``: what runs already."""
    running = {part.name for part in before}
    begun = time.monotonic()
    ports = [int(address.rpartition(":")[2]) for _, address in plan.addresses()]
    server = embedded.start(
        directory / "zookeeper",
        port=zookeeper_port,
        heap_bytes=zookeeper_heap_bytes,
        taken=ports,
        cache=home / "cache",
    )
    bootstrap = ",".join(address for _, address in plan.addresses())
    note_cluster(home, directory, bootstrap, server.address)
    starting: list[StartingBroker] = []
    try:
        config, security = _closed(directory, server, deadline) if plan.secure else (None, OPEN)
        processes = plan.brokers if plan.processes else None
        for number, address in plan.parents():
            if f"broker {number}" not in running:
                settings = plan.settings_of(number)
                listen = f"SASL_SSL://{address}" if plan.secure else address
                starting.append(
                    StartingBroker.spawn(directory, number, listen, server.address, settings, processes, config)
                )
        took_ms, failed = _await_ready(starting, server, deadline, begun)
        if failed and not took_ms and not _brokers(before):
            raise next(iter(failed.values()))
        server.await_serving(min(embedded.START_TIMEOUT_S, max(0.1, deadline - time.monotonic())))
        took_ms["ZooKeeper"] = _ms_since(begun)
        cluster = look(directory)
        assert cluster is not None
        if _brokers(before) or plan.brokers > 1:
            begins = {broker.name: broker.log_begin for broker in starting if broker.name not in failed}
            # One that was ready, and has ended since, is among them.
            wanted = [part for part in _brokers(cluster.parts) if part.identity is not None or part.name in begins]
            await_serving(wanted, deadline, security, begins)
    except BaseException:
        for broker in starting:
            broker.identity.send(signal.SIGTERM)
        for broker in starting:
            broker.identity.end(STOP_TIMEOUT_S)
        if "ZooKeeper" not in running:
            server.stop()
        if not running:
            forget_cluster(home, directory)
        raise
    finally:
        for broker in starting:
            os.close(broker.ready)
    rows = []
    for part in cluster.parts:
        name, log_file = part.name, str(part.log_file)
        if (error := failed.get(name)) is not None:
            lines = [one for one in error.message.splitlines() if one and not one.startswith(" ")]  # without its hint
            said = f"{name} did not start: {lines[-1].removeprefix('klog broker start: ')}"
            rows.append(
                Started(
                    part.kind, part.id, part.address, "failed", None, log_file, None, error=error.code, message=said
                )
            )
        elif part.identity is not None:
            state, ms = ("running", None) if name in running else ("started", took_ms.get(name))
            rows.append(Started(part.kind, part.id, part.address, state, part.identity.pid, log_file, ms))
    return cluster, sorted(rows, key=lambda row: row.state == "failed")


def _await_ready(
    starting: Sequence[StartingBroker], server: embedded.ZooKeeperServer, deadline: float, begun: float
) -> tuple[dict[str, int], dict[str, HostError]]:
    """The milliseconds that each has taken; and why others cannot start: one bad disk does not stop a cluster."""
    took_ms: dict[str, int] = {}
    failed: dict[str, HostError] = {}
    for broker in starting:
        try:
            broker.await_ready(server.identity, server.log_file, deadline)
        except HostError as error:
            if not server.identity.is_alive():
                raise
            failed[broker.name] = error
        else:
            took_ms[broker.name] = _ms_since(begun)
    return took_ms, failed


def _closed(directory: Path, server: embedded.ZooKeeperServer, deadline: float) -> tuple[Path, ClientSecurity]:
    """The settings that close the brokers, and how to connect to them. ZooKeeper is closed then, and has the first
    users: brokers could not connect to one another before."""
    from klog.admin import security_files, users, znode_acls
    from klog.client.client_config import read_client_config
    from klog.coordination.zookeeper import ZooKeeper
    from klog.coordination.zookeeper_access import OPEN_ACCESS, ZooKeeperServers

    folder = security_folder(directory)
    if not security_files.is_there(folder):
        security_files.init(folder)
    server.await_serving(min(embedded.START_TIMEOUT_S, max(0.1, deadline - time.monotonic())))
    access = read_client_config(folder / CLIENT_SETTINGS).access or OPEN_ACCESS
    session = ZooKeeper(ZooKeeperServers(server.address, access))
    session.start(max(0.1, deadline - time.monotonic()))
    try:
        znode_acls.begin(session)
        users.write_first(session, security_files.passwords(folder))
    finally:
        session.stop()
    return folder / security_files.BROKER_SETTINGS, security_of(directory)


def security_of(directory: Path) -> ClientSecurity:
    """How the administrator of the cluster in a directory connects."""
    from klog.client.client_config import read_client_config

    path = security_folder(directory) / CLIENT_SETTINGS
    return (read_client_config(path).security if path.exists() else None) or OPEN


# --- Stopping ---------------------------------------------------------------------------------------------------------


def down(directory: Path | None, home: Path, *, timeout_s: float = STOP_TIMEOUT_S) -> list[Stopped]:
    """Stop all of the cluster: brokers side by side, the controller when the others have left, ZooKeeper.

    Leaders move before a broker leaves; with the controller last they are moved by one that knows them all.

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
        raise NoSuchThing(f"no local cluster in {directory}", hint="`klog up --dir DIR` makes one")
    with locked(directory):
        cluster = look(directory)
        assert cluster is not None
        begun = time.monotonic()
        brokers = _brokers(cluster.live)
        last = controller_of(brokers, security_of(directory)) if len(brokers) > 1 else None
        rows = []
        for group in ([part for part in brokers if part.id != last], [part for part in brokers if part.id == last]):
            rows += _end(group, timeout_s, begun)
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


def await_end(cluster: LocalCluster, timeout_s: float = math.inf) -> Part | None:
    """The first part that ends, for an `up` in the foreground; None after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        for part in cluster.live:
            assert part.identity is not None
            if not part.identity.is_alive():
                return part
        if time.monotonic() >= deadline:
            return None
        time.sleep(END_PAUSE_S)


def _ms_since(begun: float) -> int:
    return round((time.monotonic() - begun) * 1000)
