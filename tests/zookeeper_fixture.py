"""Fixtures with a real ZooKeeper: `zookeeper` (one server a run) and `zk_chroot` (an empty chroot a test).

Imported by tests/conftest.py.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from klog.coordination import embedded, server_settings
from klog.coordination.connect_string import ConnectString
from klog.coordination.embedded import ZooKeeperServer
from klog.coordination.zookeeper import ZooKeeper
from tests.zookeeper_proxy import ZooKeeperProxy

TICK_MS = 100
"""Tests wait for the ends of sessions: they come so soon after their time-outs, and not after half a second."""
_chroots = itertools.count(1)


def klog_home() -> Path:
    """Where the class archive is kept between runs, as `klog up` does."""
    return Path(os.environ.get("KLOG_HOME") or Path.home() / ".klog")


def of_run(config: pytest.Config) -> Path:
    """The folder of the server of this run: all workers of a run have the same."""
    own: Path = config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    return (own.parent if is_worker(config) else own) / "zookeeper"


def is_worker(config: pytest.Config) -> bool:
    """Whether another process runs the tests, and this one some of them."""
    return hasattr(config, "workerinput")


def end_of_run(config: pytest.Config) -> None:
    """End the server, if a test has asked for it; workers leave it to the process that started them."""
    running = None if is_worker(config) else embedded.find(of_run(config))
    if running is not None:
        running.stop()


@pytest.fixture(scope="session")
def zookeeper(pytestconfig: pytest.Config) -> ZooKeeperServer:
    """A real ZooKeeper server; `.address` is its HOST:PORT. All tests of a run share it: use `zk_chroot`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server_settings, "TICK_MS", TICK_MS)
        server = embedded.start(of_run(pytestconfig), cache=klog_home() / "cache")  # or the one that runs
    server.await_serving()
    return server


@contextmanager
def session_of(address: str, *, create_chroot: bool = False) -> Iterator[ZooKeeper]:
    """A started session: `broker.zookeeper` is the address of a broker's."""
    with ZooKeeper(address) as session:
        session.start(create_chroot=create_chroot)
        yield session


@pytest.fixture
def zk_chroot(zookeeper: ZooKeeperServer) -> str:
    """A connect string with a chroot of the test's own, which exists and is empty."""
    chroot = f"/test-{os.getpid()}-{next(_chroots)}"
    with session_of(zookeeper.address + chroot, create_chroot=True):
        return zookeeper.address + chroot


@pytest.fixture
def connect(zk_chroot: str) -> Iterator[Callable[..., ZooKeeper]]:
    """`connect(**options)`: a started session on the test's chroot, ended after the test."""
    sessions: list[ZooKeeper] = []

    def connected(**options: object) -> ZooKeeper:
        session = ZooKeeper(zk_chroot, **options)  # type: ignore[arg-type]
        sessions.append(session)
        session.start()
        return session

    yield connected
    for session in sessions:
        session.stop()


@pytest.fixture
def zk(connect: Callable[..., ZooKeeper]) -> ZooKeeper:
    """One session on an empty chroot."""
    return connect()


@pytest.fixture
def proxy(zk_chroot: str) -> Iterator[ZooKeeperProxy]:
    made = ZooKeeperProxy(ConnectString.parse(zk_chroot).servers[0])
    yield made
    made.close()


@pytest.fixture
def through(proxy: ZooKeeperProxy, zk_chroot: str) -> Iterator[Callable[..., ZooKeeper]]:
    """`through(**options)`: a started session on the test's chroot, through the proxy."""
    sessions: list[ZooKeeper] = []

    def connected(**options: object) -> ZooKeeper:
        session = ZooKeeper(proxy.address + ConnectString.parse(zk_chroot).chroot, **options)  # type: ignore[arg-type]
        sessions.append(session)
        session.start()
        return session

    yield connected
    proxy.cut()
    for session in sessions:
        session.stop()
