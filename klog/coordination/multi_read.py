"""ZooKeeper's multi-read (opcode 22, server 3.6 and later), which kazoo does not have: many nodes in one request.

    request    for each node: header (type, not done, -1), path, watch flag 0; then header (-1, done, -1)
    response   for each node: header (type), data and stat, or names; or header (-1), error; then header (-1, done, -1)

The type is 4 for a node's data, 8 for its children.

A request per node costs kazoo some 0.1 ms and the server as much, and a starting broker reads several nodes per
partition. A server that does not know the request ends the session, so the client must ask for its version first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from kazoo.exceptions import EXCEPTIONS, NoNodeError
from kazoo.protocol.serialization import (
    GetChildren,
    GetData,
    MultiHeader,
    int_struct,
    read_buffer,
    read_string,
    stat_struct,
    write_string,
)
from kazoo.protocol.states import ZnodeStat

NODES_MAX = 1000
"""Per request: its answer has a few hundred KB."""
PATHS_CHARS_MAX = 128 * 1024
"""Of all paths of a request: at four bytes per character half of what a server accepts. A server disconnects a client
whose request is larger."""
SINCE = (3, 6)
DATA: int = GetData.type
CHILDREN: int = GetChildren.type
_ERROR = -1


def parts_of(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    """The paths in order, in requests that a server accepts; a longer path is alone in its own."""
    begin = chars = 0
    for at, path in enumerate(paths):
        if at > begin and (at - begin >= NODES_MAX or chars + len(path) > PATHS_CHARS_MAX):
            yield paths[begin:at]
            begin, chars = at, 0
        chars += len(path)
    if begin < len(paths):
        yield paths[begin:]


class MultiRead:
    """A request for kazoo; its result is a list of (data, stat) or of names, None for a missing node, an exception for
    a node that may not be read."""

    type = 22

    def __init__(self, paths: Sequence[str], what: int) -> None:
        """Whole paths, chroot included; `what` is DATA or CHILDREN."""
        self.paths = paths
        self.what = what

    def serialize(self) -> bytearray:
        """The body of the request."""
        body = bytearray()
        for path in self.paths:
            body += MultiHeader(self.what, False, _ERROR).serialize() + write_string(path) + b"\0"
        body += MultiHeader(_ERROR, True, _ERROR).serialize()
        return body

    @classmethod
    def deserialize(cls, body: bytes, offset: int) -> list[Any]:
        """An error other than "no such node" is kazoo's exception, in the node's place."""
        found: list[Any] = []
        while True:
            header, offset = MultiHeader.deserialize(body, offset)
            if header.done:
                return found
            if header.type == CHILDREN:
                names, offset = _names(body, offset)
                found.append(names)
                continue
            if header.type == DATA:
                data, offset = read_buffer(body, offset)
                found.append((data, ZnodeStat._make(stat_struct.unpack_from(body, offset))))
                offset += stat_struct.size
                continue
            (code,) = int_struct.unpack_from(body, offset)
            offset += int_struct.size
            found.append(None if code == NoNodeError.code else EXCEPTIONS[code]())


def _names(body: bytes, offset: int) -> tuple[list[str], int]:
    (count,) = int_struct.unpack_from(body, offset)
    offset += int_struct.size
    names = []
    for _ in range(count):
        name, offset = read_string(body, offset)
        names.append(name)
    return names, offset


def is_known_to(srvr: str) -> bool:
    """Whether the server with this answer to ``srvr`` knows the request; False if the answer has no version."""
    version = re.search(r"version: (\d+)\.(\d+)", srvr)
    return version is not None and (int(version[1]), int(version[2])) >= SINCE
