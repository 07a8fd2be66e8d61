"""The servers of a ZooKeeper as a client is given them: their addresses, and how to come in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from klog.coordination.znode_acls import Identities, identity_of

if TYPE_CHECKING:
    import ssl


@dataclass(frozen=True, slots=True)
class ZooKeeperAccess:
    """How a session is opened, and what it makes of the nodes that it creates. Shows no secret in its repr."""

    username: str | None = None
    """None: the session does not say who it is."""
    password: str = field(default="", repr=False)
    sets_acls: bool = False
    """Whether nodes that it creates are closed (``zookeeper.set.acl``)."""
    owner: str | None = None
    """The identity of who owns the nodes; None: this session's own."""
    streams: str | None = None
    """The identity of the paper's consumers; None: they are not let in."""
    context: ssl.SSLContext | None = field(default=None, repr=False)
    """TLS; None: plain text."""

    @property
    def is_authenticated(self) -> bool:
        """Whether the session says who it is."""
        return self.username is not None

    @property
    def own(self) -> str | None:
        """The identity that the session proves."""
        return None if self.username is None else identity_of(self.username, self.password)

    @property
    def identities(self) -> Identities | None:
        """Whose the cluster's nodes are; None where nothing says so.

        A session that is not the owner's is that of the streams, unless something else is given.
        """
        own = self.own
        owner = self.owner or own
        if owner is None:
            return None
        return Identities(owner, self.streams or (own if own != owner else None))


OPEN_ACCESS: Final = ZooKeeperAccess()


class ZooKeeperServers(str):
    """``host:port,.../chroot`` with the `ZooKeeperAccess` that it wants. Shown, it is the addresses alone.

    It is a text since most callers pass on, show or compare the addresses, as `klog.client.servers.Servers` for
    brokers. To connect, `ZooKeeper` asks `access_of`; a plain text is of an open ZooKeeper.
    """

    __slots__ = ("access",)
    access: ZooKeeperAccess

    def __new__(cls, addresses: str, access: ZooKeeperAccess = OPEN_ACCESS) -> ZooKeeperServers:
        servers = super().__new__(cls, addresses)
        servers.access = access
        return servers


def access_of(servers: str) -> ZooKeeperAccess:
    """How to come in."""
    return servers.access if isinstance(servers, ZooKeeperServers) else OPEN_ACCESS
