"""The servers of a ZooKeeper, with a client's credentials and TLS."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from klog.coordination.znode_acls import Identities, identity_of

if TYPE_CHECKING:
    import ssl


@dataclass(frozen=True, slots=True)
class ZooKeeperAccess:
    """How a session authenticates, and the ACLs of the nodes that it creates. Its repr hides secrets."""

    username: str | None = None
    """None: no authentication."""
    password: str = field(default="", repr=False)
    sets_acls: bool = False
    """Whether it sets ACLs on nodes that it creates (``zookeeper.set.acl``)."""
    owner: str | None = None
    """The identity of the nodes' owner; None: this session's own."""
    streams: str | None = None
    """The identity of the paper's consumers; None: they have no access."""
    context: ssl.SSLContext | None = field(default=None, repr=False)
    """TLS; None: plaintext."""

    @property
    def is_authenticated(self) -> bool:
        """Whether the session authenticates."""
        return self.username is not None

    @property
    def own(self) -> str | None:
        """The session's own identity."""
        return None if self.username is None else identity_of(self.username, self.password)

    @property
    def identities(self) -> Identities | None:
        """The owners of the cluster's nodes; None if nothing tells.

        A session that is not the owner's is that of the streams, unless another is given.
        """
        own = self.own
        owner = self.owner or own
        if owner is None:
            return None
        return Identities(owner, self.streams or (own if own != owner else None))


OPEN_ACCESS: Final = ZooKeeperAccess()


class ZooKeeperServers(str):
    """``host:port,.../chroot`` with its `ZooKeeperAccess`. Shown, it is the addresses only.

    It is a str since most callers pass on, show or compare the addresses, as `klog.client.servers.Servers` for brokers.
    To connect, `ZooKeeper` calls `access_of`; a plain str is an open ZooKeeper.
    """

    __slots__ = ("access",)
    access: ZooKeeperAccess

    def __new__(cls, addresses: str, access: ZooKeeperAccess = OPEN_ACCESS) -> ZooKeeperServers:
        servers = super().__new__(cls, addresses)
        servers.access = access
        return servers


def access_of(servers: str) -> ZooKeeperAccess:
    """The access of these servers."""
    return servers.access if isinstance(servers, ZooKeeperServers) else OPEN_ACCESS
