"""A ZooKeeper connect string, ``host:port,host:port/chroot``, and whether the servers in it are ready.

Standard library only: `klog up` and clients read connect strings without paying for kazoo's import.
"""

from __future__ import annotations

import contextlib
import re
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from klog.errors import UsageError
from klog.names import host_port

if TYPE_CHECKING:
    import ssl

DEFAULT_PORT = 2181
ANSWER_BYTES_MAX = 64 * 1024
"""`srvr` answers some 200 bytes; a server that sends more is not ZooKeeper."""


@dataclass(frozen=True, slots=True)
class ConnectString:
    """`servers` as (host, port); `chroot` is "" or "/a/b" without a trailing slash."""

    servers: tuple[tuple[str, int], ...]
    chroot: str = ""

    @classmethod
    def parse(cls, text: str) -> ConnectString:
        """Raises UsageError if a host is missing, a port is not a number or the chroot is not a path."""
        hosts, slash, rest = text.strip().partition("/")
        chroot = "/" + rest.strip("/") if slash and rest.strip("/") else ""
        if "," in chroot:
            raise UsageError(
                f"ZooKeeper connect string {text!r} has its chroot in the middle",
                hint="write the chroot once, after the last server: host:2181,host:2181/chroot",
            )
        if "//" in chroot:
            raise UsageError(f"chroot {chroot!r} in ZooKeeper connect string {text!r} has an empty part")
        if {".", ".."} & set(chroot.split("/")):
            raise UsageError(f"chroot {chroot!r} in ZooKeeper connect string {text!r} has the part . or ..")
        return cls(tuple(_server(part.strip(), text) for part in hosts.split(",")), chroot)

    @property
    def servers_text(self) -> str:
        """The servers without the chroot."""
        return ",".join(host_port(host, port) for host, port in self.servers)

    def __str__(self) -> str:
        return self.servers_text + self.chroot


def _server(part: str, text: str) -> tuple[str, int]:
    host, colon, port = part.rpartition(":") if not part.endswith("]") else (part, "", "")
    if not colon:
        host, port = part, str(DEFAULT_PORT)
    host = host.strip("[]")
    is_port = port.isascii() and port.isdigit() and 0 < int(port) < 65536
    if not is_port or not host.isprintable() or not re.fullmatch(r"[^\s/@\\]+", host):
        raise UsageError(
            f"ZooKeeper connect string {text!r}: {part!r} is not HOST:PORT", hint="host:2181,host:2181/chroot"
        )
    return host, int(port)


def four_letter_word(host: str, port: int, word: bytes, timeout_s: float, context: ssl.SSLContext | None = None) -> str:
    """A ZooKeeper server's answer to an administrative word such as ``srvr``; OSError when it cannot be asked.

    With ``context`` it is asked over TLS.
    """
    with contextlib.ExitStack() as closing:
        connection: socket.socket = closing.enter_context(socket.create_connection((host, port), timeout_s))
        connection.settimeout(timeout_s)
        if context is not None:
            connection = closing.enter_context(context.wrap_socket(connection, server_hostname=host))
        connection.sendall(word)
        answer = bytearray()
        while len(answer) < ANSWER_BYTES_MAX:
            part = connection.recv(4096)
            if not part:
                break
            answer += part
    return answer.decode("utf-8", "replace")


def last_change_in(answer: str) -> int | None:
    """The zxid of the last change that the server knows, from its answer to ``srvr``; None if it has none."""
    found = re.search(r"^Zxid: 0x([0-9a-fA-F]+)", answer, re.MULTILINE)
    return int(found[1], 16) if found else None


def mode_in(answer: str) -> str | None:
    """`standalone`, `leader` or `follower` from an answer to ``srvr``; None while the server does not serve."""
    for line in answer.splitlines():
        if line.startswith("Mode:"):
            return line.partition(":")[2].strip()
    return None
