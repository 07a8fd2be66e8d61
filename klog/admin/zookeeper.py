"""The embedded ZooKeeper alone: start it, stop it, ask how it is. These functions block."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from klog.admin.local_state import AUTHORITY, ZOOKEEPER_CERTIFICATE, running_clusters, why_not_here
from klog.coordination import embedded
from klog.coordination.embedded import ZooKeeperServer
from klog.coordination.server_settings import HEAP_ALLOWED_MIN_BYTES, parse_ensemble, settings_of
from klog.errors import HostError, NoSuchThing, UsageError
from klog.names import host_port

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


def check_heap(heap_bytes: int | None, flag: str) -> None:
    """UsageError for a heap that no Java starts with."""
    if heap_bytes is not None and heap_bytes < HEAP_ALLOWED_MIN_BYTES:
        raise UsageError(
            f"{flag} must be at least {HEAP_ALLOWED_MIN_BYTES >> 20} MiB, got {heap_bytes} bytes",
            hint=f"write for example {flag} 256MiB",
        )


def check_folder(directory: Path) -> None:
    """UsageError for a file in a folder's place."""
    if directory.exists() and not directory.is_dir():
        raise UsageError(f"--dir {directory} is a file, expected a folder", hint="a folder that is not there is made")


def start(
    directory: Path | None,
    home: Path,
    *,
    port: int | None = None,
    host: str | None = None,
    heap_bytes: int | None = None,
    server_id: int | None = None,
    ensemble: str | None = None,
    tls: Path | None = None,
) -> ZooKeeperRow:
    """A server on the directory that serves, or, of an ensemble, answers; the one that runs there stays as it is.

    `tls`: the folder of `klog security init`; clients then connect by TLS.

    JavaMissing, PortInUse, Refused, HostError, TimedOut, UsageError.
    """
    directory = directory or default_directory(home)
    members = None if ensemble is None else parse_ensemble(ensemble)
    if (server_id is None) != (members is None):
        raise UsageError("--id and --ensemble go together: which one of the ensemble is this server?")
    if members is not None and server_id not in members:
        raise UsageError(f"--id {server_id} is not in --ensemble: {', '.join(map(str, sorted(members)))}")
    check_heap(heap_bytes, "--heap")
    check_folder(directory)
    if host is not None and (reason := why_not_here(host)) is not None:  # else ZooKeeper says so, after 10 s
        raise HostError(f"cannot listen on {host}: {reason}", hint="give an address of this machine in --listen")
    before = embedded.find(directory)
    server = embedded.start(
        directory,
        port=port,
        host=host,
        heap_bytes=heap_bytes,
        server_id=server_id,
        ensemble=members,
        tls=None if tls is None else _files_of_tls(tls),
        cache=home / "cache",
    )
    try:
        server.await_serving()
    except BaseException:
        if before is None:
            server.stop()
        raise
    return _row(server, "running" if before is not None else "started")


def _files_of_tls(folder: Path) -> tuple[str, str]:
    """The key store and the trust store in the folder; NoSuchThing."""
    files = [folder.resolve() / name for name in (ZOOKEEPER_CERTIFICATE, AUTHORITY)]
    for one in files:
        if not one.is_file():
            raise NoSuchThing(f"--tls {folder}: {one.name} is missing there", hint=f"klog security init --dir {folder}")
    key_store, trust_store = map(str, files)
    return key_store, trust_store


def stop(directory: Path | None, home: Path) -> list[ZooKeeperRow]:
    """The server on the directory is gone; no row when none ran there."""
    server = embedded.find(directory or default_directory(home))
    if server is None:
        return []
    state = "stopped" if server.stop() else "killed"
    return [ZooKeeperRow(server.listens_at, state, None, None, str(server.directory), str(server.log_file))]


def running(directory: Path | None, home: Path) -> ZooKeeperRow | None:
    """The server that `stop` would stop."""
    server = embedded.find(directory or default_directory(home))
    return None if server is None else _row(server, "running")


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
        server, last = embedded.find(one), settings_of(one)
        if server is not None:
            rows.append(_row(server, "running" if server.is_serving() else "starting"))
        elif last is not None:
            listens = last.tls or last
            address = host_port(listens.host, listens.port)
            rows.append(ZooKeeperRow(address, "down", None, None, str(one), str(embedded.log_file(one))))
    return rows


def _row(server: ZooKeeperServer, state: str) -> ZooKeeperRow:
    try:
        mode = server.mode(PROBE_TIMEOUT_S)
    except OSError:
        mode = None
    return ZooKeeperRow(
        server.listens_at, state, mode, server.identity.pid, str(server.directory), str(server.log_file)
    )
