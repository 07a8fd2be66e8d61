"""The settings of an embedded ZooKeeper server: its ``zoo.cfg``, which also keeps those of the last start.

A server that is started again without options gets the same port, heap, address and ensemble as before. A member of an
ensemble must not start alone on the ensemble's data because an option was left out.

The heap is an upper bound; Java takes it as needed. The default is a quarter of the machine's memory, but not more than
1 GiB, or an eighth of it where that is more; at least 256 MiB, at most 4 GiB. A node takes some 300 bytes beside its
data: 100,000 groups with three partitions each and 30,000 partitions, 1.26 million nodes, take 0.5 GiB.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from klog.config.properties import read_text
from klog.errors import UsageError
from klog.host.limits import machine_memory_bytes

LOOPBACK = "127.0.0.1"
EVERYWHERE = ("0.0.0.0", "::")
MIB = 1 << 20
HEAP_MIN_BYTES = 256 * MIB
HEAP_SMALL_BYTES = 1024 * MIB
HEAP_MAX_BYTES = 4096 * MIB
HEAP_ALLOWED_MIN_BYTES = 32 * MIB
SERVER_ID_MAX = 255
NODE_BYTES = 300
"""Heap bytes of a node, beside its path and its data."""

TICK_MS = 500
"""Sessions end at the first tick after their time-out: half a second keeps a 6 s session close to 6 s."""
SESSION_TIMEOUT_MS = (1000, 60_000)
INIT_TICKS = 120
"""A minute for a server to copy the state of the ensemble's leader: half a gigabyte with many groups."""
SYNC_TICKS = 4
"""After two seconds without the others, a server of an ensemble stops serving: well within a session's time-out."""

_HEAP = "# heap.bytes"
"""For klog; a comment for ZooKeeper."""


@dataclass(frozen=True, slots=True)
class Member:
    """A server of an ensemble, by its address for the others."""

    host: str
    peer_port: int
    election_port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.peer_port}:{self.election_port}"


@dataclass(frozen=True, slots=True)
class TlsListener:
    """Clients' address by TLS, with PEM files of this server's key and certificates, and of the authority."""

    port: int
    host: str
    key_store: str
    trust_store: str


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """`heap_bytes` None: the default. `server_id`: this one's in `ensemble` (id -> member); None: standalone.

    With `tls` clients connect there, and `port` is for this machine's own processes.
    """

    port: int
    host: str = LOOPBACK
    heap_bytes: int | None = None
    server_id: int | None = None
    ensemble: Mapping[int, Member] = field(default_factory=dict)
    tls: TlsListener | None = None

    @property
    def reached_at(self) -> str:
        """The host for this machine's own processes."""
        return LOOPBACK if self.host in EVERYWHERE else self.host

    def write(self, directory: Path) -> None:
        data = data_of(directory)
        lines: dict[str, object] = {
            "tickTime": TICK_MS,
            "minSessionTimeout": SESSION_TIMEOUT_MS[0],
            "maxSessionTimeout": SESSION_TIMEOUT_MS[1],
            "dataDir": _property(str(data)),
            "clientPort": self.port,
            "clientPortAddress": self.host,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr,ruok,conf,stat,mntr,cons,wchs,dump,envi",
            "autopurge.snapRetainCount": 3,
            "autopurge.purgeInterval": 1,
            # forceSync stays at its default, yes: a write that ZooKeeper has acknowledged is on disk.
        }
        if self.server_id is not None:
            lines |= {"initLimit": INIT_TICKS, "syncLimit": SYNC_TICKS}
            lines |= {f"server.{number}": member for number, member in sorted(self.ensemble.items())}
            (data / "myid").write_text(f"{self.server_id}\n", encoding="ascii")
        if self.tls is not None:
            lines |= {
                "secureClientPort": self.tls.port,
                "secureClientPortAddress": self.tls.host,
                # Java's default class for connections has no TLS.
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
                **self._stores("ssl"),
                "ssl.clientAuth": "none",  # clients authenticate by scheme digest, not by a certificate
            }
            if self.server_id is not None:
                lines |= {"sslQuorum": "true", **self._stores("ssl.quorum")}
        if self.heap_bytes is not None:
            lines[_HEAP] = self.heap_bytes
        part = directory / "zoo.cfg.part"
        part.write_text("".join(f"{name}={value}\n" for name, value in lines.items()), encoding="ascii")
        part.replace(directory / "zoo.cfg")

    def _stores(self, prefix: str) -> dict[str, str]:
        assert self.tls is not None
        found: dict[str, str] = {}
        for store, file in (("keyStore", self.tls.key_store), ("trustStore", self.tls.trust_store)):
            found |= {f"{prefix}.{store}.location": _property(file), f"{prefix}.{store}.type": "PEM"}
        return found


def data_of(directory: Path) -> Path:
    return directory / "data"


def settings_of(directory: Path) -> ServerSettings | None:
    """The settings of the last start on the directory, running or not; None if there was none."""
    try:
        parted = (line.partition("=") for line in read_text(directory / "zoo.cfg").splitlines())
        values = {name: value for name, _, value in parted}
        members = {name.removeprefix("server."): one for name, one in values.items() if name.startswith("server.")}
        tls = None
        if "secureClientPort" in values:
            stores = (_text(values[f"ssl.{store}.location"]) for store in ("keyStore", "trustStore"))
            tls = TlsListener(int(values["secureClientPort"]), values["secureClientPortAddress"], *stores)
        return ServerSettings(
            int(values["clientPort"]),
            values.get("clientPortAddress", LOOPBACK),
            int(values[_HEAP]) if _HEAP in values else None,
            int((data_of(directory) / "myid").read_text("ascii")) if members else None,
            {int(number): parse_member(one) for number, one in members.items()},
            tls,
        )
    except (OSError, ValueError, KeyError, UsageError):
        return None


def parse_ensemble(text: str) -> dict[int, Member]:
    """``1=a:2888:3888,2=b:2888:3888,3=c:2888:3888``. Raises UsageError."""
    found: dict[int, Member] = {}
    for part in text.split(","):
        number, _, member = part.strip().partition("=")
        if not number.isdecimal() or not 0 < int(number) <= SERVER_ID_MAX or int(number) in found:
            raise _no_ensemble(text, f"{part!r} does not begin with a unique id, 1 to {SERVER_ID_MAX}")
        found[int(number)] = parse_member(member)
    # A server whose port is taken answers, but the ensemble has no leader once it is elected, and logs nothing.
    listeners = [(one.host, port) for one in found.values() for port in (one.peer_port, one.election_port)]
    for (host, port), times in Counter(listeners).items():
        if times > 1:
            raise _no_ensemble(
                text, f"port {port} of {host} is named {times} times, and each server needs two of its own"
            )
    if len(found) < 2:
        raise _no_ensemble(text, "it names one server: leave it out for a server alone")
    return found


def parse_member(text: str) -> Member:
    """``host:2888:3888``. Raises UsageError."""
    host, peer, election = [*text.rsplit(":", 2), "", ""][:3]
    host = host.strip("[]")
    if not host or any(not port.isdecimal() or not 0 < int(port) < 65536 for port in (peer, election)):
        raise _no_ensemble(text, "expected HOST:PORT:PORT")
    if any(char.isspace() or char in ",=|;" for char in host):
        raise _no_ensemble(text, f"{host!r} is not a host")
    return Member(host, int(peer), int(election))


def _no_ensemble(text: str, why: str) -> UsageError:
    return UsageError(f"--ensemble {text!r}: {why}", hint="1=a:2888:3888,2=b:2888:3888,3=c:2888:3888")


def default_heap_bytes(memory_bytes: int | None = None) -> int:
    """The default heap for a machine with this much memory (default: this machine's); whole MiB."""
    memory = machine_memory_bytes() if memory_bytes is None else memory_bytes
    wanted = max(min(memory // 4, HEAP_SMALL_BYTES), memory // 8)
    return min(max(wanted, HEAP_MIN_BYTES), HEAP_MAX_BYTES) // MIB * MIB


def heap_needed_bytes(nodes: int, data_bytes: int) -> int:
    """The heap that a server with this many nodes needs, as measured; `data_bytes` includes the paths."""
    return nodes * NODE_BYTES + data_bytes


_JAVA_OPTIONS: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_COLLECTOR: Final = re.compile(r"-XX:\+Use\w+GC\b")


def jvm_heap_flags(heap_bytes: int) -> list[str]:
    """Flags for the heap and its collector: G1 from a gigabyte on, which pauses the server for tenths of a second where
    the serial collector takes seconds. No collector if the environment chooses one for all JVMs: Java does not start
    with two."""
    if any(_COLLECTOR.search(os.environ.get(name, "")) for name in _JAVA_OPTIONS):
        return [f"-Xmx{heap_bytes // MIB}m"]
    collector = "-XX:+UseG1GC" if heap_bytes >= HEAP_SMALL_BYTES else "-XX:+UseSerialGC"
    return [collector, f"-Xmx{heap_bytes // MIB}m"]


def _property(text: str) -> str:
    """A value in a Java properties file, which is read as Latin-1 with escapes."""
    units = text.replace("\\", "\\\\").encode("utf-16-be", "surrogatepass")
    codes = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return "".join(chr(code) if 32 <= code < 127 else f"\\u{code:04x}" for code in codes)


def _text(value: str) -> str:
    """The inverse of `_property`."""
    return value.encode("ascii").decode("unicode_escape").encode("utf-16", "surrogatepass").decode("utf-16")
