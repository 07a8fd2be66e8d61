"""From the addresses of a cluster to connections, the missing address looked up, the given ones compared."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from klog.cli.session import Address
from klog.cli.target import Target
from klog.client.cluster import CONNECT_TIMEOUT_S, Cluster
from klog.client.servers import Servers, security_of, zookeeper_of
from klog.errors import CannotConnect, KlogError, NoSuchThing, UsageError, WrongCluster
from klog.names import host_port
from klog.render.visible import for_stream

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from contextlib import AsyncExitStack

    from klog.cli.global_flags import GlobalFlags
    from klog.coordination.zookeeper import ZooKeeper
    from klog.net.peer_protocol import PeerProtocol
    from klog.security.client_security import ClientSecurity

SILENT_S = 1.0
"""A broker that answers at all has done so by then, hardly ever later."""

SERVERS_ASKED = 5
"""Of those given, what they are instead."""


class Connecting(Protocol):
    """What connecting takes of an invocation: which cluster, how patiently, and what closes the connections."""

    shared: GlobalFlags
    closing: AsyncExitStack
    session: ZooKeeper | None

    @property
    def target(self) -> Target:
        """The cluster that is meant."""
        ...

    @property
    def timeout_s(self) -> float:
        """The bound of each wait for an answer."""
        ...

    def retarget(self, found: Target) -> None:
        """Take the target with the address that was looked up."""
        ...


async def open_cluster(invocation: Connecting, *, client_id: str | None = None) -> Cluster:
    """A connection to the invocation's cluster, known to be the one that is meant."""
    bootstrap = await bootstrap_servers(invocation)
    target, kept = invocation.target, invocation.shared.session
    if kept is not None and not invocation.shared.trace:
        address = Address(bootstrap, target.source, invocation.timeout_s, client_id, target.security)
        cluster = await _or_what_answers(kept.cluster(address, target.cluster_id), bootstrap, target.source)
    else:
        connecting = Cluster.connect(
            bootstrap,
            source=target.source,
            timeout_s=invocation.timeout_s,
            trace=trace_to_stderr if invocation.shared.trace else None,
            expected_cluster_id=target.cluster_id,
            **({} if client_id is None else {"client_id": client_id}),
        )
        cluster = await _or_what_answers(connecting, bootstrap, target.source)
        invocation.closing.push_async_callback(cluster.close)
    if target.cluster_id is None and target.zookeeper is not None:
        session = await _session(invocation, target.zookeeper)
        await asyncio.to_thread(session.check_cluster)
        _compare(target, await cluster.cluster_id(), await asyncio.to_thread(_cluster_id, session))
    return cluster


async def bootstrap_servers(invocation: Connecting) -> str:
    """The addresses of brokers: those given, or those registered in the ZooKeeper that was given."""
    target = invocation.target
    if target.bootstrap is None:
        target = await _with_brokers(invocation, target)
    assert target.bootstrap is not None
    return target.bootstrap


async def open_zookeeper(invocation: Connecting) -> ZooKeeper:
    """A session with the ZooKeeper of the invocation's cluster."""
    target = invocation.target
    if target.zookeeper is None:
        target = await _with_zookeeper(invocation, target)
    elif target.bootstrap is not None and target.cluster_id is None:
        # Both were given, so both are compared, although this command would need one of them only.
        await open_cluster(invocation)
    assert target.zookeeper is not None
    session = await _session(invocation, target.zookeeper)
    if target.cluster_id is not None:
        _compare(target, target.cluster_id, await asyncio.to_thread(_cluster_id, session))
    return session


async def open_empty_zookeeper(invocation: Connecting) -> ZooKeeper:
    """A session with the ZooKeeper that was named, which need not know a cluster yet; its chroot is made."""
    if invocation.shared.zookeeper is None:
        raise UsageError(
            "no ZooKeeper given to rebuild the registries in",
            hint="give its address, with the chroot if there is one: -z HOST:PORT/CHROOT",
        )
    assert invocation.target.zookeeper is not None
    return await _session(invocation, invocation.target.zookeeper, create_chroot=True)


async def _with_brokers(invocation: Connecting, target: Target) -> Target:
    from klog.coordination import brokers

    assert target.zookeeper is not None
    session = await _session(invocation, target.zookeeper)
    addresses = await asyncio.to_thread(brokers.bootstrap_of, session, target.security.protocol)
    found = replace(
        target,
        bootstrap=Servers(addresses, target.security, session.access),
        cluster_id=await asyncio.to_thread(_cluster_id, session),
    )
    invocation.retarget(found)
    return found


async def _with_zookeeper(invocation: Connecting, target: Target) -> Target:
    from klog.admin import brokers

    cluster = await open_cluster(invocation)
    for row in await brokers.list_brokers(cluster):
        if row.zookeeper is not None:
            at = zookeeper_of(cluster.bootstrap, row.zookeeper)
            found = replace(target, zookeeper=at, cluster_id=await cluster.cluster_id())
            invocation.retarget(found)
            return found
    raise NoSuchThing(
        f"no broker of {target.bootstrap} reports its ZooKeeper: it is not a klog broker",
        hint="give the ZooKeeper: -z HOST:PORT",
    )


async def _or_what_answers(connecting: Coroutine[Any, Any, Cluster], bootstrap: str, source: str) -> Cluster:
    """The connection; CannotConnect names what listens there instead of a broker.

    Where nothing has answered for `SILENT_S`, that is asked meanwhile: else it would take half a second more.
    """
    connection = asyncio.ensure_future(connecting)
    asking: asyncio.Future[list[tuple[str, int, PeerProtocol | None]]] | None = None
    try:
        await asyncio.wait([connection], timeout=SILENT_S)
        if not connection.done():
            asking = asyncio.ensure_future(_other_ends(bootstrap, source))
        return await connection
    except CannotConnect as error:
        found = await (asking or _other_ends(bootstrap, source))
        raise _by_what_answers(found, error, security_of(bootstrap)) from None
    finally:
        for task in (connection, asking):
            if task is not None:
                task.cancel()


async def _other_ends(bootstrap: str, source: str) -> list[tuple[str, int, PeerProtocol | None]]:
    """The servers, each with what it says that it is, if not a broker."""
    from klog.client.bootstrap import parse_bootstrap
    from klog.net.peer_protocol import peer_protocol

    servers = parse_bootstrap(bootstrap, source)[:SERVERS_ASKED]
    found = await asyncio.gather(*(peer_protocol(host, port) for host, port in servers))
    return [(host, port, what) for (host, port), what in zip(servers, found, strict=True)]


def _by_what_answers(
    found: Sequence[tuple[str, int, PeerProtocol | None]], error: CannotConnect, security: ClientSecurity
) -> CannotConnect:
    """``security``: how this client connects."""
    from klog.net.peer_protocol import PeerProtocol

    for host, port, what in found:
        at = host_port(host, port)
        if what is PeerProtocol.TLS:
            if security.is_encrypted:  # the error says why it fails
                continue
            return CannotConnect(
                f"{at} speaks TLS, and this client does not",
                hint="--client-config FILE with security.protocol=SSL or SASL_SSL; see docs/security.md",
            )
        if what is not None:
            use = f"use --zookeeper {at}" if what is PeerProtocol.ZOOKEEPER else "brokers speak Kafka's protocol"
            return CannotConnect(f"{at} is {what}, not a broker", hint=use)
    return error


async def _not_a_zookeeper(address: str, error: CannotConnect) -> CannotConnect:
    """The error; one that names what listens there instead of a ZooKeeper, where that says what it is."""
    from klog.coordination.connect_string import ConnectString
    from klog.coordination.zookeeper_access import access_of

    is_encrypted = access_of(address).context is not None
    servers = ConnectString.parse(address).servers[:SERVERS_ASKED]
    found = await asyncio.gather(*(_instead_of_a_zookeeper(host, port, is_encrypted) for host, port in servers))
    return next((one for one in found if one is not None), error)


async def _instead_of_a_zookeeper(host: str, port: int, is_encrypted: bool) -> CannotConnect | None:
    """``is_encrypted``: this client speaks TLS."""
    from klog.net.channel import Channel
    from klog.net.peer_protocol import ASKED_S, PeerProtocol, peer_protocol

    at = host_port(host, port)
    try:
        channel = await Channel.connect(host, port, connect_timeout_s=ASKED_S, timeout_s=ASKED_S)
    except KlogError:
        what = await peer_protocol(host, port)
    else:
        await channel.close()
        return CannotConnect(f"{at} is a broker, not a ZooKeeper", hint=f"use --bootstrap-server {at}")
    if what is PeerProtocol.HTTP:
        return CannotConnect(
            f"{at} is {what}, not a ZooKeeper", hint="the usual port of ZooKeeper is 2181: -z HOST:2181"
        )
    if what is PeerProtocol.TLS and not is_encrypted:
        return CannotConnect(
            f"{at} speaks TLS, and this client does not",
            hint="--client-config FILE with zookeeper.ssl.client.enable=true; see docs/security.md",
        )
    return None


async def _session(invocation: Connecting, address: str, *, create_chroot: bool = False) -> ZooKeeper:
    """A started session, closed when the command ends; one a command."""
    from klog.coordination.zookeeper import ZooKeeper

    known = invocation.session
    if known is not None:
        return known

    kept = invocation.shared.session
    if kept is not None and not invocation.shared.trace and not create_chroot:
        try:
            invocation.session = await kept.zookeeper(address, invocation.timeout_s, CONNECT_TIMEOUT_S)
        except CannotConnect as error:
            raise await _not_a_zookeeper(address, error) from None
        return invocation.session
    session = ZooKeeper(
        address,
        operation_timeout_s=invocation.timeout_s,
        trace=(lambda operation, path, ms: trace_to_stderr(operation, f"zookeeper {path}", ms))
        if invocation.shared.trace
        else None,
    )
    try:
        await asyncio.to_thread(session.start, CONNECT_TIMEOUT_S, patient=False, create_chroot=create_chroot)
    except CannotConnect as error:
        raise await _not_a_zookeeper(address, error) from None
    invocation.closing.push_async_callback(asyncio.to_thread, session.stop)
    invocation.session = session
    return session


def trace_to_stderr(what: str, where: str, ms: float) -> None:
    """One request answered or znode touched, for ``--trace``; called from the thread that asked."""
    sys.stderr.write(for_stream(f"trace {ms:9.1f} ms  {what}  {where}\n", sys.stderr))


def _cluster_id(session: ZooKeeper) -> str | None:
    from klog.coordination import cluster

    return cluster.cluster_id(session)


def _compare(target: Target, by_broker: str | None, by_zookeeper: str | None) -> None:
    """WrongCluster unless both say the same; one that is not known cannot disagree."""
    if by_broker is not None and by_zookeeper is not None and by_broker != by_zookeeper:
        raise WrongCluster(
            f"{target.bootstrap} belongs to cluster {by_broker}, but ZooKeeper {target.zookeeper} to cluster "
            f"{by_zookeeper} (both from {target.source})",
            hint="give only one of the two addresses; klog looks up the other",
        )
