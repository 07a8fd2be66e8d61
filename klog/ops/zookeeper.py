"""The embedded ZooKeeper alone: start it, stop it, ask how it is. These functions block."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from klog.coordination import embedded
from klog.coordination.connect_string import four_letter_word, mode_in
from klog.coordination.embedded import ZooKeeperServer
from klog.ops.local_notes import running_clusters

PROBE_TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True)
class ZooKeeperRow:
    """One embedded server. `state`: started, running, stopped, killed, down; `mode` as the server says, None if it
    does not answer."""

    address: str
    state: str
    mode: str | None
    pid: int | None
    dir: str
    log: str | None = field(default=None, metadata={"wide": True})


def default_directory(home: Path) -> Path:
    return home / "zookeeper"


def start(directory: Path | None, home: Path, *, port: int | None = None) -> ZooKeeperRow:
    """A server on the directory that serves; the one that runs there stays as it is.

    JavaMissing, PortInUse, SurroundingsError, TimedOut.
    """
    directory = directory or default_directory(home)
    before = embedded.find(directory)
    server = embedded.start(directory, port=port, cache=home / "cache")
    try:
        server.await_serving()
    except BaseException:
        if before is None:
            server.stop()
        raise
    return _row(server, "running" if before is not None else "started")


def stop(directory: Path | None, home: Path) -> list[ZooKeeperRow]:
    """The server on the directory is gone; no row when none ran there."""
    server = embedded.find(directory or default_directory(home))
    if server is None:
        return []
    state = "stopped" if server.stop() else "killed"
    return [ZooKeeperRow(server.address, state, None, None, str(server.directory), str(server.log_file))]


def status(directory: Path | None, home: Path) -> list[ZooKeeperRow]:
    """The server on the directory; without one named, the one on its own and those of local clusters.

    A directory that was started once and does not run now is a row `down`.
    """
    if directory is not None:
        directories = [directory]
    else:
        directories = [default_directory(home), *(one.directory / "zookeeper" for one in running_clusters(home))]
    rows = []
    for one in directories:
        server, port = embedded.find(one), embedded.configured_port(one)
        if server is not None:
            rows.append(_row(server, "running" if server.is_serving() else "starting"))
        elif port is not None:
            address = f"{embedded.HOST}:{port}"
            rows.append(ZooKeeperRow(address, "down", None, None, str(one), str(embedded.log_file(one))))
    return rows


def _row(server: ZooKeeperServer, state: str) -> ZooKeeperRow:
    try:
        mode = mode_in(four_letter_word(embedded.HOST, server.port, b"srvr", PROBE_TIMEOUT_S))
    except OSError:
        mode = None
    return ZooKeeperRow(server.address, state, mode, server.identity.pid, str(server.directory), str(server.log_file))
