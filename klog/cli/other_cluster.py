"""The other cluster of `replay`, `mirror` and `audit`: addresses, or a profile as ``@NAME``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from klog.cli.global_flags import GlobalFlags
from klog.cli.target import klog_home, profiles_here, resolve, secured

if TYPE_CHECKING:
    from klog.admin.profiles import Profile
    from klog.client.servers import Servers
    from klog.security.client_security import ClientSecurity

PROFILE: Final = "@"
METAVAR: Final = "HOST:PORT,...|@PROFILE"


async def other_servers(given: str, flag: str, timeout_s: float) -> str:
    """The servers of a second cluster. Those of a profile know how to connect, and are of the cluster that it names.

    ``flag`` names it in errors. NoSuchThing, WrongCluster, CannotConnect; UsageError for a profile that is not valid.
    """
    if not given.startswith(PROFILE):
        return given
    import asyncio  # 40 ms that `klog up` need not pay

    from klog.client.cluster import Cluster

    target = await asyncio.to_thread(secured, resolve(GlobalFlags(profile=given.removeprefix(PROFILE))))
    servers = target.bootstrap
    if servers is None:
        assert target.zookeeper is not None
        servers = await asyncio.to_thread(registered_servers, target.zookeeper, target.security, timeout_s, given)
    if target.cluster_id is not None:
        source = f"{flag} {given}"
        cluster = await Cluster.connect(
            servers, source=source, timeout_s=timeout_s, expected_cluster_id=target.cluster_id
        )
        await cluster.close()
    return servers


def profile_of_other(given: str) -> Profile | None:
    """The profile that protects the other cluster: the one that is named, or that has one of its addresses."""
    profiles = profiles_here(klog_home(), Path.cwd())
    if profiles is None:
        return None
    if given.startswith(PROFILE):
        return profiles.by_name.get(given.removeprefix(PROFILE))
    return profiles.of_addresses(given)


def registered_servers(zookeeper: str, security: ClientSecurity, timeout_s: float, source: str) -> Servers:
    """Those that ZooKeeper knows, for clients that connect so. BrokerNotAvailable; ``source`` named ZooKeeper."""
    from klog.client.cluster import CONNECT_TIMEOUT_S
    from klog.client.servers import Servers
    from klog.coordination import brokers
    from klog.coordination.zookeeper import ZooKeeper
    from klog.coordination.zookeeper_access import access_of

    session = ZooKeeper(zookeeper, operation_timeout_s=timeout_s)
    session.start(CONNECT_TIMEOUT_S, patient=False)
    try:
        return Servers(brokers.bootstrap_of(session, security.protocol), security, access_of(zookeeper))
    finally:
        session.stop()
