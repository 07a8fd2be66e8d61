"""Real brokers for tests: processes of this checkout's `klog broker start`, on free ports, against a real ZooKeeper.

`broker`        one broker for all tests of a worker; use topics of your own (`topic` gives a name)
`make_broker`   brokers of the test's own, with its settings, to be killed and started again

Every process is ended by its id when the fixture ends, whatever the test did to it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.broker_settings import arguments
from klog.coordination import embedded
from klog.coordination.embedded import ZooKeeperServer
from klog.coordination.zookeeper import ZooKeeper
from tests.processes import COLD, ROOT, klog_process
from tests.until import until
from tests.zookeeper_fixture import klog_home, session_of

__all__ = [
    "ROOT",
    "RunningBroker",
    "at",
    "broker",
    "dead_address",
    "make_broker",
    "registry",
    "silent_address",
    "topic",
]


class RunningBroker:
    """One broker process. `start` may be called again after `kill` or `stop`; the port stays the same."""

    def __init__(self, folder: Path, zookeeper: str, broker_id: int = 1, **settings: str) -> None:
        self.folder = folder
        self.zookeeper = zookeeper
        self.broker_id = broker_id
        self.settings = settings
        self.listen = "127.0.0.1:0"
        """ "": a file of `--config` says it."""
        self.bootstrap = ""
        self.process: subprocess.Popen[bytes] | None = None
        self.extra_arguments: list[str] = []
        self.wrapper: list[str] = []
        """What the command is run by, and replaced with: ``prlimit --nofile=99``."""
        self.is_cold = False
        """Started by Python and not forked: for what judges memory or the start itself."""

    @property
    def log_path(self) -> Path:
        return self.folder / "broker.log"

    @property
    def log_text(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self, *, expect_ready: bool = True) -> RunningBroker:
        """Start it and wait until the first request would succeed; AssertionError with its log if it does not."""
        with os.fdopen(self.start_in_background()) as ready:
            line = ready.readline()  # the end of the pipe comes with the end of the process at the latest
        if line.startswith("ready "):
            self.bootstrap = line.split()[1]
            self.listen = self.listen and self.bootstrap
        elif expect_ready:
            raise AssertionError(f"the broker did not start; its log:\n{self.log_text}")
        return self

    def start_in_background(self) -> int:
        """Start it, and wait for nothing; the file descriptor on which it will say that it is ready."""
        self.folder.mkdir(parents=True, exist_ok=True)
        read_end, write_end = os.pipe()
        words = [
            *("broker", "start"),
            *("--id", str(self.broker_id), "--dir", str(self.folder / "data")),
            *(("--listen", self.listen) if self.listen else ()),
            *("-z", self.zookeeper, "--ready-fd", str(write_end)),
            *arguments({name.replace("__", "."): value for name, value in self.settings.items()}, self.folder),
            *self.extra_arguments,
        ]
        with self.log_path.open("ab") as log:
            options: dict[str, Any] = {"cwd": ROOT, "stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            if self.wrapper:
                command = [*self.wrapper, sys.executable, "-m", "klog", *words]
                self.process = subprocess.Popen(command, pass_fds=(write_end,), **options)
            else:
                self.process = klog_process(words, cold=self.is_cold, pass_fds=(write_end,), **options)
        os.close(write_end)
        return read_end

    @contextlib.contextmanager
    def running(self) -> Iterator[RunningBroker]:
        """Started, and ended whatever happens: the broker of a fixture that many tests share."""
        try:
            yield self.start()
        finally:
            self.end()

    def send(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self, timeout_s: float = 20.0) -> int:
        """Controlled shutdown; the exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(timeout_s)

    def end(self) -> None:
        """Whatever state it is in: gone afterwards. Killed, since nobody looks at how it leaves; a process that is
        measured, or that has others of its own, is asked to stop."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGCONT)
        if COLD in os.environ or "--processes" in self.extra_arguments:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(10)
        self.process.kill()
        self.process.wait()

    def logged(self, *parts: str) -> bool:
        """Whether a line of the broker's log has all of ``parts``: level, logger, names, numbers; not its sentence."""
        return any(all(part in line for part in parts) for line in self.log_text.splitlines())

    def wait_for_log(self, *parts: str, timeout_s: float = 20.0) -> None:
        """Until the broker has logged a line with all of ``parts``."""
        until(lambda: self.logged(*parts), lambda: f"a line with {parts} in the log:\n{self.log_text}", timeout_s)


@contextlib.contextmanager
def own_broker(folder: Path) -> Iterator[RunningBroker]:
    """For runs by hand: a broker, not started, and a ZooKeeper of its own, both below the folder."""
    zookeeper = embedded.start(folder / "zookeeper", cache=klog_home() / "cache")
    running = RunningBroker(folder / "broker", f"{zookeeper.address}/own")
    try:
        zookeeper.await_serving()
        yield running
    finally:
        running.end()
        zookeeper.stop()


@pytest.fixture(scope="session")
def broker(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One broker for all tests of this worker, with its own chroot."""
    chroot = f"{zookeeper.address}/shared-{secrets.token_hex(4)}"
    with RunningBroker(tmp_path_factory.mktemp("broker"), chroot).running() as broker:
        yield broker


@pytest.fixture
def at(broker: RunningBroker) -> list[str]:
    """The flags that name the broker."""
    return ["-B", broker.bootstrap]


@pytest.fixture
def registry(broker: RunningBroker) -> Iterator[ZooKeeper]:
    """A session with its ZooKeeper."""
    with session_of(broker.zookeeper) as session:
        yield session


@pytest.fixture
def topic() -> str:
    """A topic name that no other test has."""
    return f"t-{secrets.token_hex(6)}"


@pytest.fixture
def dead_address() -> Iterator[str]:
    """An address at which nobody listens: it is taken, so that nobody else will."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture
def silent_address() -> Iterator[str]:
    """An address at which connections are taken and nothing is ever answered."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(16)
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def make_broker(zookeeper: ZooKeeperServer, tmp_path: Path) -> Iterator[Callable[..., RunningBroker]]:
    """Makes brokers (not started) of this test's own, in a chroot of the test's own."""
    made: list[RunningBroker] = []
    chroot = f"{zookeeper.address}/own-{secrets.token_hex(4)}"

    def make(broker_id: int = 1, *, chroot: str = chroot, folder: Path | None = None, **settings: str) -> RunningBroker:
        one = RunningBroker(folder or tmp_path / f"broker-{broker_id}", chroot, broker_id, **settings)
        made.append(one)
        return one

    yield make
    for one in made:
        one.end()
