"""ZooKeeper's nodes, their metadata and the operations of a multi, as plain values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

_T = TypeVar("_T")

ANY_VERSION = -1
MULTI_BYTES_MAX = 512 * 1024
"""Half of ZooKeeper's default jute.maxbuffer of 1 MB (rule Z3): the server counts its own framing too."""


class Stat(NamedTuple):
    """A node's metadata; zkCli's words: dataVersion, cversion, aclVersion, cZxid, mZxid, pZxid, ctime, mtime ..."""

    version: int
    children_version: int
    acl_version: int
    created_zxid: int
    modified_zxid: int
    children_zxid: int
    created_ms: int
    modified_ms: int
    owner_session: int  # 0: persistent
    data_bytes: int
    children: int


class ZNode(NamedTuple):
    data: bytes
    stat: Stat


class WatchEvent(NamedTuple):
    """`kind`: CREATED, DELETED, CHANGED, CHILD, or NONE when the connection, and the watch with it, was lost."""

    kind: str
    path: str


class Create(NamedTuple):
    """With `sequence` the server appends ten digits to the path."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


class SetData(NamedTuple):
    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Fails the whole multi unless the node exists at this version."""

    path: str
    version: int


Operation = Create | SetData | Delete | Check


def put(path: str, data: bytes, node: ZNode | None) -> Create | SetData:
    """The operation that creates a node, or replaces it as it was read."""
    return Create(path, data) if node is None else SetData(path, data, node.stat.version)


def size_bytes(operation: Operation, chroot: str = "") -> int:
    """An estimate of an operation's bytes in a request: path, data, and 64 for head, lengths and flags.

    A created node has 32 more. Its ACL, two identities of scheme digest and the world's, takes up to 126 more than that
    of an open one: the limit has room for them.
    """
    data = operation.data if isinstance(operation, Create | SetData) else b""
    return (96 if isinstance(operation, Create) else 64) + len(chroot) + len(operation.path.encode()) + len(data)


def is_left_by(operation: Create | SetData | Delete, node: ZNode | None) -> bool:
    """Whether a node is as an operation leaves it: with its data, at the next version."""
    if isinstance(operation, Delete):
        return node is None
    if node is None or node.data != operation.data:
        return False
    if isinstance(operation, Create):
        return node.stat.version == 0
    return operation.version == ANY_VERSION or node.stat.version == operation.version + 1


def batches(groups: Iterable[Sequence[_T]], size_of: Callable[[_T], int], limit: int) -> Iterator[list[_T]]:
    """Concatenate groups, in order, into lists of at most `limit` bytes; a group is never split.

    A group above the limit is alone in its list, and `ZooKeeper.multi` refuses it.
    """
    batch: list[_T] = []
    filled = 0
    for group in groups:
        size = sum(map(size_of, group))
        if batch and filled + size > limit:
            yield batch
            batch, filled = [], 0
        batch.extend(group)
        filled += size
    if batch:
        yield batch
