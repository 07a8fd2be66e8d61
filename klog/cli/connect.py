"""From the addresses of a cluster to connections, the missing address looked up, the given ones compared."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from klog.cli.flags import GlobalFlags
from klog.cli.session import Session
from klog.cli.target import PROFILE_SIGN, Target, resolve, secured
from klog.client.cluster import Cluster
from klog.client.other_ends import instead_of_a_zookeeper, instead_of_brokers
from klog.client.servers import Servers, zookeeper_of
from klog.errors import CannotConnect, NoSuchThing, WrongCluster

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from klog.coordination.zookeeper import ZooKeeper

SILENT_S = 1.0
"""A broker that answers at all has done so by then, hardly ever later."""


class Connection:
    """The way of one command to the cluster that is meant. Event loop only, but for ``target``."""

    def __init__(self, target: Target, timeout_s: float, session: Session) -> None:
        """``timeout_s``: the bound of each wait for an answer. ``session`` keeps what is opened."""
        self.target = target
        """With the address that was looked up, once it was needed."""
        self._timeout_s = timeout_s
        self._session = session
        self._zookeeper: ZooKeeper | None = None
        """One a command."""

    async def cluster(self, client_id: str | None = None) -> Cluster:
        """A connection, known to be to the cluster that is meant."""
        bootstrap, target = await self.bootstrap_servers(), self.target
        connecting = self._session.cluster(
            bootstrap, target.source, self._timeout_s, client_id or "klog", target.cluster_id
        )
        cluster = await _or_what_answers(connecting, bootstrap, target.source)
        if target.cluster_id is None and target.zookeeper is not None:
            session = await self._opened(target.zookeeper)
            await asyncio.to_thread(session.check_cluster)
            _compare(target, await cluster.cluster_id(), await _cluster_id(session))
        return cluster

    async def bootstrap_servers(self) -> str:
        """The addresses of brokers: those given, or those registered in the ZooKeeper that was given."""
        if self.target.bootstrap is None:
            from klog.coordination import brokers

            assert self.target.zookeeper is not None
            session = await self._opened(self.target.zookeeper)
            addresses = await asyncio.to_thread(brokers.bootstrap_of, session, self.target.security.protocol)
            found = Servers(addresses, self.target.security, session.access)
            known = await _cluster_id(session)
            _compare(self.target, self.target.cluster_id, known)
            self.target = replace(self.target, bootstrap=found, cluster_id=known)
        assert self.target.bootstrap is not None
        return self.target.bootstrap

    async def zookeeper(self) -> ZooKeeper:
        """A session with the ZooKeeper of the cluster."""
        if self.target.zookeeper is None:
            await self._look_zookeeper_up()
        elif self.target.bootstrap is not None and self.target.cluster_id is None:
            # Both were given, so both are compared, although this command would need one of them only.
            await self.cluster()
        assert self.target.zookeeper is not None
        session = await self._opened(self.target.zookeeper)
        if self.target.cluster_id is not None:
            _compare(self.target, self.target.cluster_id, await _cluster_id(session))
        return session

    async def empty_zookeeper(self) -> ZooKeeper:
        """A session with the ZooKeeper that was named, which need not know a cluster yet; its chroot is made."""
        assert self.target.zookeeper is not None
        return await self._opened(self.target.zookeeper, create_chroot=True)

    async def _look_zookeeper_up(self) -> None:
        from klog.admin import brokers

        cluster = await self.cluster()
        for row in await brokers.list_brokers(cluster):
            if row.zookeeper is not None:
                at = zookeeper_of(cluster.bootstrap, row.zookeeper)
                self.target = replace(self.target, zookeeper=at, cluster_id=await cluster.cluster_id())
                return
        raise NoSuchThing("no broker reports its ZooKeeper: this is not a klog cluster", hint="give it: -z HOST:PORT")

    async def _opened(self, address: str, *, create_chroot: bool = False) -> ZooKeeper:
        if self._zookeeper is None:
            try:
                self._zookeeper = await self._session.zookeeper(address, self._timeout_s, create_chroot=create_chroot)
            except CannotConnect as error:
                raise await instead_of_a_zookeeper(address) or error from None
        return self._zookeeper


async def other_servers(given: str, flag: str, timeout_s: float, session: Session) -> str:
    """The servers of a second cluster. Those of a profile know how to connect, and are of the cluster that it names.

    ``flag`` names it in errors. NoSuchThing, WrongCluster, CannotConnect; UsageError for a profile that is not valid.
    """
    if not given.startswith(PROFILE_SIGN):
        return given
    flags = GlobalFlags(profile=given.removeprefix(PROFILE_SIGN))
    target = replace(await asyncio.to_thread(secured, resolve(flags)), source=f"{flag} {given}")
    connection = Connection(target, timeout_s, session)
    if target.cluster_id is not None:
        await connection.cluster()
    return await connection.bootstrap_servers()


async def _or_what_answers(connecting: Coroutine[Any, Any, Cluster], bootstrap: str, source: str) -> Cluster:
    """The connection; CannotConnect names what listens there instead of a broker.

    Where nothing has answered for `SILENT_S`, that is asked meanwhile: else it would take half a second more.
    """
    connection = asyncio.ensure_future(connecting)
    asking: asyncio.Future[CannotConnect | None] | None = None
    try:
        await asyncio.wait([connection], timeout=SILENT_S)
        if not connection.done():
            asking = asyncio.ensure_future(instead_of_brokers(bootstrap, source))
        return await connection
    except CannotConnect as error:
        raise await (asking or instead_of_brokers(bootstrap, source)) or error from None
    finally:
        for task in (connection, asking):
            if task is not None:
                task.cancel()


def _compare(target: Target, by_broker: str | None, by_zookeeper: str | None) -> None:
    """WrongCluster unless both say the same; one that is not known cannot disagree."""
    if by_broker is not None and by_zookeeper is not None and by_broker != by_zookeeper:
        raise WrongCluster(
            f"{target.bootstrap or target.source} belongs to cluster {by_broker}, but ZooKeeper {target.zookeeper} to "
            f"cluster {by_zookeeper} (both from {target.source})",
            hint="give only one of the two addresses; klog looks up the other",
        )


async def _cluster_id(session: ZooKeeper) -> str | None:
    from klog.coordination.cluster import cluster_id

    return await asyncio.to_thread(cluster_id, session)
