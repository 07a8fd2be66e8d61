"""The ACLs of klog's nodes in a secured ZooKeeper.

Kafka's rules (`ZkData.defaultAcls`), except for groups: the cluster's owner, as which its brokers authenticate, may do
everything; everybody may read, and no other client may write. Secrets and credentials are for the owner alone. Kafka's
``/consumers`` is open to everybody; here the nodes of groups have a second identity, the streams': the paper's
consumers write them, and nothing else.

ZooKeeper checks the right to create or delete a node at its *parent*, so a node without children is not safe under an
open parent: the root of the chroot is included.

An identity is a user with a password, in ZooKeeper's scheme ``digest``: ``NAME:`` and the base64 of the SHA-1 of
``NAME:PASSWORD``. The digest is in every node's ACL, which the server shows only to those who may change it.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from klog.coordination import paths
from klog.errors import UsageError

READ: Final = 1
WRITE: Final = 2
CREATE: Final = 4
DELETE: Final = 8
ADMIN: Final = 16
ALL: Final = 31
_LETTERS: Final = ((CREATE, "c"), (DELETE, "d"), (READ, "r"), (WRITE, "w"), (ADMIN, "a"))

NAME_CHARS_MAX: Final = 16
"""Of an identity's name; it limits the size of an ACL in a request (`znodes.size_bytes`)."""
_IDENTITY: Final = re.compile(r"[A-Za-z0-9._-]{1,16}:[A-Za-z0-9+/]{27}=")

SENSITIVE: Final = (paths.SECRET, paths.USER_CONFIGS)
"""Nodes of the cluster's secret and the users' credentials."""
OF_STREAMS: Final = (paths.CONSUMERS, paths.GROUPS, paths.CLAIMS, paths.COMMITS)
"""Nodes that the paper's consumers write."""


class Acl(NamedTuple):
    """An entry of an ACL."""

    permissions: int
    scheme: str
    identity: str

    def __str__(self) -> str:
        """As zkCli prints it: ``digest:klog:...:cdrwa``."""
        return f"{self.scheme}:{self.identity}:{letters(self.permissions)}"


EVERYBODY_ALL: Final = Acl(ALL, "world", "anyone")
EVERYBODY_READ: Final = Acl(READ, "world", "anyone")
OPEN: Final[Sequence[Acl]] = (EVERYBODY_ALL,)


def letters(permissions: int) -> str:
    """zkCli's letters: ``cdrwa`` is everything."""
    return "".join(letter for bit, letter in _LETTERS if permissions & bit)


def identity_of(name: str, password: str) -> str:
    """A user's identity in scheme ``digest``."""
    digest = hashlib.sha1(f"{name}:{password}".encode(), usedforsecurity=False).digest()
    return f"{name}:{base64.b64encode(digest).decode()}"


def check_identity(text: str, where: str) -> str:
    """Return the identity in a setting. Raises UsageError."""
    if not _IDENTITY.fullmatch(text):
        raise UsageError(
            f"{where}: {text!r} is not an identity of ZooKeeper's scheme digest",
            hint=f"NAME:DIGEST, with a name of at most {NAME_CHARS_MAX} letters, digits, '.', '_', '-', and the base64 "
            "of the SHA-1 of NAME:PASSWORD; `klog security init` writes it",
        )
    return text


def is_name(name: str) -> bool:
    """Whether an identity can have that name."""
    return re.fullmatch(r"[A-Za-z0-9._-]{1,16}", name) is not None


@dataclass(frozen=True, slots=True)
class Identities:
    """The owner of the cluster's nodes, and that of the paper's consumers; None: these have no access."""

    owner: str
    streams: str | None = None


def acls_of(path: str, identities: Identities) -> Sequence[Acl]:
    """A node's ACL, by its path in the chroot."""
    owner = Acl(ALL, "digest", identities.owner)
    if _below(path, SENSITIVE):
        return (owner,)
    if identities.streams is not None and _below(path, OF_STREAMS):
        return (owner, Acl(ALL & ~ADMIN, "digest", identities.streams), EVERYBODY_READ)
    return (owner, EVERYBODY_READ)


def is_open(acls: Sequence[Acl]) -> bool:
    """Whether everybody may change the node, or what is below it."""
    return any(one.scheme == "world" and one.permissions & ~READ for one in acls)


def is_sensitive(path: str) -> bool:
    """Whether only the owner may read the node."""
    return _below(path, SENSITIVE)


def _below(path: str, tops: Sequence[str]) -> bool:
    return any(path == top or path.startswith(top + "/") for top in tops)
