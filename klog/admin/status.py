"""`klog status`: is it up? A row for each ZooKeeper server, each broker, the controller, and the partitions' health.

It looks at a cluster that may be half dead, so whatever cannot be asked is a row `down` that says why, not an error.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from klog.client.servers import zookeeper_of
from klog.coordination.connect_string import ConnectString, four_letter_word, mode_in
from klog.coordination.zookeeper_access import access_of
from klog.errors import KlogError
from klog.names import host_port
from klog.render.counts import counted
from klog.security.client_security import OPEN, ClientSecurity

if TYPE_CHECKING:
    import ssl

    from klog.admin.brokers import BrokerRow
    from klog.admin.local_state import LocalCluster, Part
    from klog.client.cluster import Cluster
    from klog.client.metadata import Metadata

PROBE_TIMEOUT_S = 2.5
UP = frozenset({"running", "active", "ok"})


@dataclass(frozen=True, slots=True)
class StatusRow:
    """`state`: running, active (controller), ok (partitions). Anything else is wrong: down, none, degraded, offline;
    of a ZooKeeper that serves, empty (its data are lost) and another (cluster's)."""

    kind: str
    id: int | None
    address: str | None
    state: str
    detail: str | None

    @property
    def is_up(self) -> bool:
        return self.state in UP


def anything_down(rows: Sequence[StatusRow]) -> bool:
    """Whether the command fails."""
    return not all(row.is_up for row in rows)


async def status(
    bootstrap: str | None,
    zookeeper: str | None,
    local: LocalCluster | None = None,
    *,
    source: str = "the caller",
    timeout_s: float = 10.0,
    security: ClientSecurity = OPEN,
) -> list[StatusRow]:
    """The state of a cluster whose addresses, at least one of them, are given; `local` is it if it is a local one.

    ``source`` names the addresses' source in errors; ``security``: how to connect to brokers that ZooKeeper names.

    Only addresses that cannot be parsed are errors (UsageError).
    """
    from klog.client.cluster import Cluster

    cluster: Cluster | None = None
    cluster_id: str | None = None
    failure: KlogError | None = None
    # At the same time: where both are silent, they are waited for once.
    asking = None if zookeeper is None else asyncio.ensure_future(_of_zookeeper(zookeeper, local))
    try:
        if bootstrap is None and zookeeper is not None:
            bootstrap, failure = await _brokers_in(zookeeper, security, timeout_s)
        if bootstrap is not None:
            try:
                cluster = await Cluster.connect(bootstrap, source=source, timeout_s=timeout_s)
                rows, zookeeper_said = await _of_cluster(cluster, local)
                cluster_id = await cluster.cluster_id()
                zookeeper = zookeeper or zookeeper_said
            except KlogError as error:
                if error.exit_code != 1:
                    raise
                rows = _all_down(bootstrap, local, error)
        else:
            rows = _all_down("", local, failure)
        servers = await (asking or _of_zookeeper(zookeeper, local))
    finally:
        if asking is not None:
            asking.cancel()
        if cluster is not None:
            await cluster.close()
    if zookeeper is not None and cluster_id is not None and any(one.is_up for one in servers):
        servers += await asyncio.to_thread(_registries, zookeeper, cluster_id)
    return [*servers, *rows]


async def _of_cluster(cluster: Cluster, local: LocalCluster | None) -> tuple[list[StatusRow], str | None]:
    from klog.admin import brokers

    listed = await brokers.list_brokers(cluster, wait_s=min(cluster.timeout_s, PROBE_TIMEOUT_S))
    metadata = await cluster.metadata()
    parts = {part.id: part for part in (local.parts if local is not None else ()) if part.kind == "broker"}
    rows = [_broker(row, parts.get(row.broker)) for row in listed]
    known = {row.broker for row in listed}
    rows += [
        StatusRow("broker", part.id, part.address, "down", _why_down(part.identity is not None, str(part.log_file)))
        for part in parts.values()
        if part.id not in known
    ]
    rows.sort(key=lambda row: row.id or 0)
    rows += [_controller(metadata), _partitions(metadata)]
    return rows, next((zookeeper_of(cluster.bootstrap, row.zookeeper) for row in listed if row.zookeeper), None)


def _broker(row: BrokerRow, part: Part | None) -> StatusRow:
    from klog.admin.brokers import DEAD, NO_ANSWER

    address = part.address if part is not None else None
    if row.host is not None and row.port is not None:
        address = host_port(row.host, row.port)
    if row.state in (DEAD, NO_ANSWER):
        reason = (
            f"not alive, holds {counted(row.replicas, 'partition')}"
            if row.state == DEAD
            else "registered, but does not answer"
        )
        if part is not None:
            reason = f"{_why_down(part.identity is not None, str(part.log_file))}; {reason}"
        return StatusRow("broker", row.broker, address, "down", reason)
    said = [row.state or "not klog", f"leads {row.leaders} of {counted(row.replicas, 'partition')}"]
    if row.version is not None:
        said.append(f"klog {row.version}")
    return StatusRow("broker", row.broker, address, "running", ", ".join(said))


def _controller(metadata: Metadata) -> StatusRow:
    node = metadata.brokers.get(metadata.controller_id) if metadata.controller_id is not None else None
    if node is None:
        return StatusRow("controller", metadata.controller_id, None, "none", "no active controller")
    return StatusRow("controller", node.broker_id, node.address, "active", None)


def _partitions(metadata: Metadata) -> StatusRow:
    partitions = [one for topic in metadata.topics.values() for one in topic.partitions.values()]
    leaderless = [one for one in partitions if one.leader is None or one.leader < 0]
    offline = len(leaderless)
    behind = sum(one.is_under_replicated for one in partitions)
    state = "offline" if offline else "degraded" if behind else "ok"
    detail = f"{len(partitions)} in {counted(len(metadata.topics), 'topic')}, {behind} not in sync, {offline} offline"
    waited_for = sorted({broker for one in leaderless for broker in one.isr if broker not in metadata.brokers})
    if waited_for:
        detail += f", waiting for {', '.join(map(str, waited_for))}, in sync last"
    return StatusRow("partitions", None, None, state, detail)


def _all_down(bootstrap: str, local: LocalCluster | None, error: KlogError | None) -> list[StatusRow]:
    reason = error.message if error is not None else None
    if local is not None:
        rows = [
            StatusRow("broker", part.id, part.address, "down", _why_down(part.identity is not None, str(part.log_file)))
            for part in local.parts
            if part.kind == "broker"
        ]
    else:
        rows = [StatusRow("broker", None, address, "down", reason) for address in bootstrap.split(",") if address]
    return [
        *rows,
        StatusRow("controller", None, None, "none", reason if not rows else "no broker answers"),
        StatusRow("partitions", None, None, "offline", "no broker answers"),
    ]


def _why_down(alive: bool, log_file: str) -> str:
    return f"its process runs but does not answer; log {log_file}" if alive else f"not running; log {log_file}"


async def _brokers_in(
    zookeeper: str, security: ClientSecurity, timeout_s: float
) -> tuple[str | None, KlogError | None]:
    """Where the brokers registered there are; why not."""
    from klog.client.servers import Servers
    from klog.coordination import brokers
    from klog.coordination.zookeeper import ZooKeeper

    session = ZooKeeper(zookeeper, operation_timeout_s=timeout_s)

    def ask() -> str:
        with session:
            session.start(PROBE_TIMEOUT_S, patient=False)
            return brokers.bootstrap_of(session, security.protocol)

    try:
        return Servers(await asyncio.to_thread(ask), security), None
    except KlogError as error:
        return None, error


async def _of_zookeeper(zookeeper: str | None, local: LocalCluster | None) -> list[StatusRow]:
    if zookeeper is None:
        return []
    servers, context = ConnectString.parse(zookeeper).servers, access_of(zookeeper).context
    log_file = next((str(part.log_file) for part in local.parts if part.kind == "zookeeper"), None) if local else None
    return list(
        await asyncio.gather(*(asyncio.to_thread(_server, host, port, log_file, context) for host, port in servers))
    )


def _registries(zookeeper: str, cluster_id: str) -> list[StatusRow]:
    """A row where ZooKeeper serves and does not know the brokers' cluster."""
    from klog.coordination import cluster
    from klog.coordination.zookeeper import ZooKeeper
    from klog.errors import NoNode

    session = ZooKeeper(zookeeper, operation_timeout_s=PROBE_TIMEOUT_S)
    try:
        with session:
            session.start(PROBE_TIMEOUT_S, patient=False)
            found = cluster.cluster_id(session)
    except NoNode:  # not even the chroot
        found = None
    except KlogError as error:
        return [StatusRow("zookeeper", None, zookeeper, "down", error.message)]
    if found == cluster_id:
        return []
    if found is not None:
        said = f"has cluster {found}, the brokers belong to cluster {cluster_id}"
    else:
        said = f"it has lost its data and does not know cluster {cluster_id}; to restore it: klog registry rebuild"
    return [StatusRow("zookeeper", None, zookeeper, "empty" if found is None else "another", said)]


def _server(host: str, port: int, log_file: str | None, context: ssl.SSLContext | None) -> StatusRow:
    address = host_port(host, port)
    try:
        answer = four_letter_word(host, port, b"srvr", PROBE_TIMEOUT_S, context)
    except OSError as error:
        reason = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        return StatusRow("zookeeper", None, address, "down", reason + (f"; log {log_file}" if log_file else ""))
    mode = mode_in(answer)
    if mode is None and "whitelist" not in answer:
        return StatusRow("zookeeper", None, address, "down", answer.strip()[:120] or "closed the connection")
    said = [mode] if mode else []
    for pattern, words in ((r"version: ([^,\s-]+)", "ZooKeeper {}"), (r"Connections: (\d+)", "{} connections")):
        found = re.search(pattern, answer)
        if found:
            said.append(words.format(found[1]))
    return StatusRow("zookeeper", None, address, "running", ", ".join(said) or None)
