"""Who may do what to each of klog's nodes in a ZooKeeper that is closed.

Kafka's rules (`ZkData.defaultAcls`), but for groups: the cluster's owner, which its brokers come as, may do everything;
everybody may read, and no other client may write. What brokers and users prove themselves by is for the owner alone. In
place of Kafka's ``/consumers``, which is open to everybody, the nodes of groups have a second identity, the streams':
the paper's consumers write them, and may write nothing else.

ZooKeeper asks for the right to create or delete a node at its *parent*, so a node without children is not safe under a
parent that is open: the root of the chroot belongs to it.

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
"""Of an identity's name: what a node's ACL takes in a request is bounded by it (`znodes.size_bytes`)."""
_IDENTITY: Final = re.compile(r"[A-Za-z0-9._-]{1,16}:[A-Za-z0-9+/]{27}=")

SENSITIVE: Final = (paths.SECRET, paths.USER_CONFIGS)
"""Where the cluster's secret and the users' credentials are."""
OF_STREAMS: Final = (paths.CONSUMERS, paths.GROUPS, paths.CLAIMS, paths.COMMITS)
"""What the paper's consumers write."""


class Acl(NamedTuple):
    """One entry of a node's list."""

    permissions: int
    scheme: str
    identity: str

    def __str__(self) -> str:
        """As zkCli has it: ``digest:klog:...:cdrwa``."""
        return f"{self.scheme}:{self.identity}:{letters(self.permissions)}"


EVERYBODY_ALL: Final = Acl(ALL, "world", "anyone")
EVERYBODY_READ: Final = Acl(READ, "world", "anyone")
OPEN: Final[Sequence[Acl]] = (EVERYBODY_ALL,)


def letters(permissions: int) -> str:
    """zkCli's letters: ``cdrwa`` is everything."""
    return "".join(letter for bit, letter in _LETTERS if permissions & bit)


def identity_of(name: str, password: str) -> str:
    """The identity in scheme ``digest`` of a user."""
    digest = hashlib.sha1(f"{name}:{password}".encode(), usedforsecurity=False).digest()
    return f"{name}:{base64.b64encode(digest).decode()}"


def check_identity(text: str, where: str) -> str:
    """The identity as it is given in settings; UsageError."""
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
    """The owner of the cluster's nodes, and that of the paper's consumers for theirs; None: they are not let in."""

    owner: str
    streams: str | None = None


def acls_of(path: str, identities: Identities) -> Sequence[Acl]:
    """What a node's list is to be, by its path in the chroot."""
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
