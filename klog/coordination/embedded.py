"""A ZooKeeper server from the jars in the pyspark wheel, as a separate process.

    DIR/zoo.cfg          its configuration (`klog.coordination.server_settings`), written at each start
    DIR/data/            snapshots and transaction logs
    DIR/zookeeper.log    output of the Java process
    DIR/zookeeper.pid    the process to signal
    DIR/lock             locked (flock) by the server's own open descriptor

Strategy: the Java process inherits the lock's descriptor, so the lock is held exactly as long as the server lives,
however either process ends: ZooKeeper itself does not lock its data, and two servers on one dataDir destroy it. The pid
file only names the process to signal; if it is missing or stale the process is found by its configuration's path on its
command line.

The class path is minimal (no log provider, no jetty), the JVM has flags for a fast start, and its classes are kept in
an archive (`klog.coordination.class_archive`).
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import random
import re
import socket
import subprocess
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from klog.coordination import process
from klog.coordination.class_archive import NONE, open_archive
from klog.coordination.connect_string import four_letter_word, mode_in
from klog.coordination.java import Java, find_java
from klog.coordination.process import ProcessId
from klog.coordination.server_settings import (
    LOOPBACK,
    Member,
    ServerSettings,
    TlsListener,
    data_of,
    default_heap_bytes,
    jvm_heap_flags,
    settings_of,
)
from klog.errors import HostError, PortInUse, Refused, TimedOut
from klog.names import host_port

ALONE = "org.apache.zookeeper.server.ZooKeeperServerMain"
IN_ENSEMBLE = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
JARS = (
    "zookeeper",
    "zookeeper-jute",
    "slf4j-api",
    "metrics-core",
    "snappy-java",
    "commons-io",
    "netty-handler",
    "netty-common",
    "netty-buffer",
    "netty-transport",
    "netty-transport-classes-epoll",
    "netty-transport-native-unix-common",
    "netty-resolver",
    "netty-codec-base",
)
LOGGER_JARS = ("log4j-slf4j2-impl", "log4j-api", "log4j-core")
MARK = "-Djava.awt.headless=true"
"""An argument of every server that klog starts."""
JVM_FLAGS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-XX:+ExitOnOutOfMemoryError",
    "-Xshare:auto",
    MARK,
    "-Dzookeeper.cnxTimeout=1000",  # of the tries to reach others for an election, one after the other
)
PORTS = (20_000, 32_000)
"""Below Linux's range for outgoing connections: none of those takes the server's port while it is down."""
PORT_TRIES = 50
CLIENT_PORT = 2181
START_TIMEOUT_S = 120.0
"""Unless the process ends before: reading a million nodes takes a quarter of a minute."""
LOCK_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 10.0
REASON_TIMEOUT_S = 10.0
PROBE_PAUSE_S = 0.004
"""A probe costs 0.2 ms on either side; a boot takes 200 ms."""
LOG_TAIL_BYTES = 2000


@dataclass(frozen=True, slots=True)
class ZooKeeperServer:
    """A server that was started on `directory`; each method checks again whether it is alive."""

    directory: Path
    settings: ServerSettings
    identity: ProcessId

    @property
    def port(self) -> int:
        """The port for processes on this machine, and for clients without TLS."""
        return self.settings.port

    @property
    def address(self) -> str:
        """The address for processes on this machine."""
        return host_port(self.settings.reached_at, self.port)

    @property
    def listens_at(self) -> str:
        """The address for clients."""
        listener = self.settings.tls or self.settings
        return host_port(listener.host, listener.port)

    @property
    def log_file(self) -> Path:
        return log_file(self.directory)

    def is_serving(self) -> bool:
        """Whether a server answers there and is the one of this directory."""
        try:
            if self.mode() is None:
                return False
            tls = self.settings.tls
            if tls is not None:  # Java opens it after the other
                socket.create_connection((ServerSettings(0, tls.host).reached_at, tls.port), 1.0).close()
            return f"dataDir={data_of(self.directory)}" in self._asked(b"conf", 1.0)
        except OSError:
            return False

    def mode(self, timeout_s: float = 1.0) -> str | None:
        """`standalone`, `leader`, `follower`; None if it answers but does not serve. Raises OSError if it does not
        answer."""
        return mode_in(self._asked(b"srvr", timeout_s))

    def _asked(self, word: bytes, timeout_s: float) -> str:
        return four_letter_word(self.settings.reached_at, self.port, word, timeout_s)

    def _is_answering(self) -> bool:
        try:
            self.mode()
        except OSError:
            return False
        return True

    def await_serving(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until requests succeed; for a server of an ensemble until it listens, since it serves only with a
        majority of them. Raises HostError if the server ends; TimedOut."""
        is_up = self.is_serving if self.settings.server_id is None else self._is_answering
        deadline = time.monotonic() + timeout_s
        while not is_up():
            if not self.identity.is_alive():
                printed = _reason(self.directory) or tail(self.log_file) or "it printed nothing"
                raise HostError(
                    f"ZooKeeper on {self.directory} ended while starting: {printed}",
                    hint=f"its log: {self.log_file}",
                )
            if time.monotonic() >= deadline:
                raise TimedOut(
                    f"ZooKeeper at {self.address} does not serve after {timeout_s:g} s; log: {self.log_file}"
                )
            time.sleep(PROBE_PAUSE_S)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """SIGTERM, wait, SIGKILL; False if it had to be killed. Does nothing if it is not running."""
        if not self.identity.is_alive():
            return True
        ended = self.identity.end(timeout_s)
        try:
            os.waitpid(self.identity.pid, os.WNOHANG)  # if it was our own child, leave no zombie
        except ChildProcessError:
            pass
        return ended


def start(
    directory: Path,
    *,
    port: int | None = None,
    taken: Collection[int] = (),
    host: str | None = None,
    heap_bytes: int | None = None,
    server_id: int | None = None,
    ensemble: Mapping[int, Member] | None = None,
    tls: tuple[str, str] | None = None,
    cache: Path | None = None,
    environment: Mapping[str, str] = os.environ,
) -> ZooKeeperServer:
    """The server on `directory`: the running one, or a new one, which may not serve yet.

    An option that is None is as at the last start. Default: any free port (also if the last one is taken), loopback,
    default heap, no ensemble, no TLS. Ports in `taken` are reserved for other processes. `tls`: PEM files of the
    server's key and certificates, and of the authority; clients then connect by TLS at `host` and `port`, and plaintext
    has another port, on loopback. Raises JavaMissing, PortInUse, Refused (a server with other options runs there),
    HostError (no jars; a server runs there that cannot be found).
    """
    directory = directory.resolve()
    data_of(directory).mkdir(parents=True, exist_ok=True)
    data_of(directory).chmod(0o700)  # it has the cluster's secret, in files that an older klog made readable for all
    lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    claims: list[socket.socket] = []
    archive = NONE
    try:
        running = _lock_or_find(lock, directory)
        last = settings_of(directory) or ServerSettings(0)
        now = _wanted(last, host, heap_bytes, server_id, ensemble, tls)
        if running is not None:
            has = (running.settings.tls or running.settings).port
            if port is not None and has != port:
                raise PortInUse(f"ZooKeeper on {directory} runs already, on port {has}, not {port}")
            if now != last:
                raise Refused(
                    f"ZooKeeper on {directory} runs already, with other options",
                    hint="`klog zookeeper stop` first, then start",
                )
            return running
        java = find_java(environment)
        jars = class_path()
        is_fixed = now.server_id is not None  # clients have an ensemble server's port in their settings
        if now.tls is not None:
            wanted = port or now.tls.port or (CLIENT_PORT if is_fixed else None)
            listener = replace(now.tls, port=_free_port(wanted, now.tls.host, 0, taken, claims))
            inner = _free_port(None, now.host, last.port, (*taken, listener.port), claims)
            now = replace(now, port=inner, tls=listener)
        else:
            wanted = port or (last.port or CLIENT_PORT if is_fixed else None)
            now = replace(now, port=_free_port(wanted, now.host, last.port, taken, claims))
        now.write(directory)
        heap_flags = jvm_heap_flags(default_heap_bytes() if now.heap_bytes is None else now.heap_bytes)
        archive = open_archive(cache, "zookeeper", java, jars, f"{JVM_FLAGS} {heap_flags[:1]} {_main_class(now)}")
        with log_file(directory).open("wb") as log:
            child = subprocess.Popen(
                _command(java, [*heap_flags, *archive.flags], jars, directory),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=directory,
                env={
                    **environment,
                    "LC_ALL": "C.UTF-8",
                },  # a JVM decodes file names by its locale
                pass_fds=(lock, *archive.locks, *(claim.fileno() for claim in claims)),
                start_new_session=True,
            )
    finally:
        os.close(lock)
        archive.close()
        for claim in claims:
            claim.close()
    child.returncode = 0  # it outlives this process on purpose: no ResourceWarning; ProcessId watches its end
    identity = ProcessId.of(child.pid) or ProcessId(child.pid, "ended")
    process.record(_pid_file(directory), identity)
    return ZooKeeperServer(directory, now, identity)


def _wanted(
    last: ServerSettings,
    host: str | None,
    heap_bytes: int | None,
    server_id: int | None,
    ensemble: Mapping[int, Member] | None,
    tls: tuple[str, str] | None,
) -> ServerSettings:
    """The settings for a start with these options, with the ports of the last start."""
    now = replace(last, heap_bytes=heap_bytes or last.heap_bytes)
    if ensemble is not None:
        now = replace(now, server_id=server_id, ensemble=ensemble)
    files = tls or (None if last.tls is None else (last.tls.key_store, last.tls.trust_store))
    if files is None:
        return replace(now, host=host or last.host)
    before = last.tls or TlsListener(0, last.host, *files)
    return replace(now, host=LOOPBACK, tls=TlsListener(before.port, host or before.host, *files))


def find(directory: Path) -> ZooKeeperServer | None:
    """The running server on `directory`, whichever process started it; None if there is none."""
    directory = directory.resolve()
    found = settings_of(directory)
    if found is None:
        return None
    identity = process.recorded(_pid_file(directory), MARK, str(directory / "zoo.cfg"))
    return None if identity is None else ZooKeeperServer(directory, found, identity)


def _command(java: Java, flags: list[str], jars: list[Path], directory: Path) -> list[str]:
    cp = os.pathsep.join(map(str, jars))
    main_class = _main_class(settings_of(directory) or ServerSettings(0))
    return [str(java.executable), *JVM_FLAGS, *flags, "-cp", cp, main_class, str(directory / "zoo.cfg")]


def _main_class(of: ServerSettings) -> str:
    return ALONE if of.server_id is None else IN_ENSEMBLE


def _reason(directory: Path) -> str:
    """Why the server on the directory fails to start; "" if unknown.

    Its log is empty, because a logger costs a third of the start. So this starts it again with a logger, under its
    lock, and ends it if it serves this time.
    """
    with (directory / "lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            again = subprocess.run(
                _command(find_java(), [], class_path((*JARS, *LOGGER_JARS)), directory),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                cwd=directory,
                env={**os.environ, "LC_ALL": "C.UTF-8"},
                pass_fds=(lock.fileno(),),
                timeout=REASON_TIMEOUT_S,
                check=False,
            )
        except (OSError, HostError, subprocess.TimeoutExpired):
            return ""
    said = (again.stdout + again.stderr).decode("utf-8", "replace").splitlines()
    return next((line for line in said if re.match(r"(Caused by: )?[\w.$]+(Exception|Error)\b", line)), "")


def class_path(wanted: tuple[str, ...] = JARS) -> list[Path]:
    """The jars, in a fixed order (the class archive is bound to it); HostError when pyspark is not there."""
    found = importlib.util.find_spec("pyspark")  # looks the package up without importing it
    if found is None or found.origin is None:
        raise HostError(
            "the embedded ZooKeeper comes with pyspark, which is not installed",
            hint="pip install pyspark, or give the address of a ZooKeeper: --zookeeper HOST:PORT",
        )
    folder = Path(found.origin).parent / "jars"
    names = sorted(entry.name for entry in folder.glob("*.jar")) if folder.is_dir() else []
    jars = []
    for jar in wanted:
        matching = [name for name in names if name.startswith(jar + "-") and name[len(jar) + 1].isdigit()]
        if not matching:
            raise HostError(
                f"the embedded ZooKeeper needs {jar}-*.jar, which is not in {folder}",
                hint="reinstall pyspark, or give the address of a ZooKeeper: --zookeeper HOST:PORT",
            )
        jars.append(folder / matching[0])
    return jars


def log_file(directory: Path) -> Path:
    return directory / "zookeeper.log"


def tail(path: Path, since: int = 0, most: int = LOG_TAIL_BYTES) -> str:
    """The end of a log file after byte ``since``, so many bytes at most; "" for none."""
    try:
        with path.open("rb") as file:
            file.seek(max(since, path.stat().st_size - most))
            return file.read().decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _lock_or_find(lock: int, directory: Path) -> ZooKeeperServer | None:
    """Take the lock and return None, or return the server that holds it.

    A process that is starting a server holds it for a moment, and a killed server until the kernel has ended it.
    """
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return None
        except BlockingIOError:
            pass
        running = find(directory)
        if running is not None:
            return running
        if time.monotonic() >= deadline:
            raise HostError(
                f"another process holds {directory / 'lock'}, and no ZooKeeper of that directory can be found",
                hint="it may run under another user or in another container",
            )
        time.sleep(PROBE_PAUSE_S)


def _pid_file(directory: Path) -> Path:
    return directory / "zookeeper.pid"


def _free_port(wanted: int | None, host: str, last: int, taken: Collection[int], claims: list[socket.socket]) -> int:
    """The wanted port, else the last one (0: none) if it is free, else any. PortInUse if the wanted one is not free.

    ``claims`` gets the socket that holds any port until the server listens: other processes would take it for free.
    """
    if wanted is not None:
        if wanted in taken:
            raise PortInUse(f"ZooKeeper's port {wanted} is a broker's", hint="choose another with --zookeeper-port")
        if not is_free(wanted, host):
            raise PortInUse(
                f"ZooKeeper's port {wanted} is in use", hint="choose another with --port; in `klog up` --zookeeper-port"
            )
        return wanted
    if last and last not in taken and is_free(last):
        return last
    for _ in range(PORT_TRIES):
        port = random.randrange(*PORTS)
        claim = None if port in taken else _claimed(port)
        if claim is not None:
            claims.append(claim)
            return port
    raise PortInUse(f"no free port for ZooKeeper found in {PORT_TRIES} tries between {PORTS[0]} and {PORTS[1]}")


def _claimed(port: int) -> socket.socket | None:
    """A socket bound to the port, which the server may bind, too, and no other claim; None where it is not free."""
    claim = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        claim.bind((LOOPBACK, port))
    except OSError:
        claim.close()
        return None
    claim.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # only now: two that have it could both bind
    return claim


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Whether no process listens on this port of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does: TIME_WAIT is not a listener
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
