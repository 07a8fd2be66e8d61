"""The servers of a cluster as a client is given them: their addresses, and how to connect to them."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from klog.client.security_files import librdkafka_security
from klog.coordination.zookeeper_access import OPEN_ACCESS, ZooKeeperAccess, ZooKeeperServers
from klog.security.client_security import OPEN, ClientSecurity


class Servers(str):
    """``host:port,...`` with the `ClientSecurity` that its brokers want. Shown, it is the addresses alone.

    It is a text since most callers pass on, show or compare the addresses. To connect, ask `security_of`; a plain text
    is of an open cluster. To add addresses, use `more_servers`.

    Brokers tell where their ZooKeeper is; ``access`` is how to come in there, `zookeeper_of` puts both together. It
    does not go with a pickled value: Spark's tasks ask brokers alone.
    """

    __slots__ = ("access", "security")
    security: ClientSecurity
    access: ZooKeeperAccess

    def __new__(cls, addresses: str, security: ClientSecurity = OPEN, access: ZooKeeperAccess = OPEN_ACCESS) -> Servers:
        servers = super().__new__(cls, addresses)
        servers.security = security
        servers.access = access
        return servers

    def __reduce__(self) -> tuple[type[Servers], tuple[str, ClientSecurity]]:
        return Servers, (str(self), self.security)


def security_of(servers: str) -> ClientSecurity:
    """How to connect to them."""
    return servers.security if isinstance(servers, Servers) else OPEN


def zookeeper_of(servers: str, address: str) -> ZooKeeperServers:
    """The ZooKeeper of a cluster, whose address its brokers have told."""
    return ZooKeeperServers(address, servers.access if isinstance(servers, Servers) else OPEN_ACCESS)


def more_servers(servers: str, addresses: Iterable[str]) -> Servers:
    """The same cluster by further addresses, each once."""
    access = servers.access if isinstance(servers, Servers) else OPEN_ACCESS
    return Servers(",".join(dict.fromkeys([*servers.split(","), *addresses])), security_of(servers), access)


def librdkafka_servers(servers: str) -> dict[str, Any]:
    """confluent-kafka's settings of which cluster it is, and how to connect to it."""
    return {"bootstrap.servers": str(servers), **librdkafka_security(security_of(servers))}


def silent_logger() -> logging.Logger:
    """librdkafka's own lines go to the log ``klog.librdkafka``, which is silent unless a program adds a handler."""
    logger = logging.getLogger("klog.librdkafka")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger


def properties_of(servers: str) -> dict[str, str]:
    """Kafka's client properties of which cluster it is, and how to connect to it: texts, which may travel."""
    return {"bootstrap.servers": str(servers), **security_of(servers).properties()}
