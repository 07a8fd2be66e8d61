"""An ensemble of three embedded ZooKeepers: one killed, one cut off, under load, and nothing is lost."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.processes import ports_in_a_row
from klog.admin.zookeeper import status
from klog.coordination import embedded
from klog.coordination.embedded import ZooKeeperServer
from klog.coordination.server_settings import Member
from klog.errors import KlogError, SessionLost
from tests.cluster.load import judge, load
from tests.cluster_fixture import RunningCluster
from tests.zookeeper_fixture import klog_home, session_of

IDS = (1, 2, 3)


class Ensemble:
    """Three servers on this machine, each with ports of its own."""

    def __init__(self, folder: Path, ports: list[int]) -> None:
        self.folder = folder
        self.ports = dict(zip(IDS, ports[:3], strict=True))
        self.members = {one: Member("127.0.0.1", ports[one * 2 + 1], ports[one * 2 + 2]) for one in IDS}
        self.servers: dict[int, ZooKeeperServer] = {}

    @property
    def address(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def directory(self, one: int) -> Path:
        return self.folder / f"zookeeper-{one}"

    def start(self, one: int, *, again: bool = False) -> None:
        options = {} if again else {"port": self.ports[one], "server_id": one, "ensemble": self.members}
        self.servers[one] = embedded.start(self.directory(one), cache=klog_home() / "cache", **options)  # type: ignore[arg-type]
        self.servers[one].await_serving()

    def start_all(self) -> None:
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(self.start, IDS))
        for server in self.servers.values():
            server.await_serving()

    def mode(self, one: int) -> str | None:
        try:
            return self.servers[one].mode()
        except OSError:
            return None

    @property
    def leader(self) -> int:
        return next(one for one in IDS if self.mode(one) == "leader")

    def end(self) -> None:
        for one in IDS:
            server = embedded.find(self.directory(one))
            if server is not None:
                server.identity.send(signal.SIGCONT)
                server.stop()


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[Ensemble]:
    first = ports_in_a_row(9)
    made = Ensemble(tmp_path, list(range(first, first + 9)))
    yield made
    made.end()


@pytest.mark.long("an ensemble of ZooKeeper")
def test_one_killed_and_one_cut_off_under_load(ensemble: Ensemble, tmp_path: Path) -> None:
    ensemble.start(1)
    assert not ensemble.servers[1].is_serving()  # one of three serves nobody
    (row,) = status(ensemble.directory(1), tmp_path)
    assert (row.state, row.mode) == ("starting", None)
    ensemble.start_all()
    assert sorted(str(ensemble.mode(one)) for one in IDS) == ["follower", "follower", "leader"]
    cluster = RunningCluster(tmp_path / "cluster", f"{ensemble.address}/klog", 3, min__insync__replicas="2")
    try:
        cluster.start()
        cluster.create("t", 3)
        made: list[str] = []

        def goes_on(what: str) -> None:
            """Topics are made, so the ensemble writes; the load goes on, so no broker has lost its place."""
            cluster.wait_until(lambda: tried(lambda: cluster.try_create(what, broker_id=1)) in (0, 36), what)
            made.append(what)
            running.wait_for_more(100)

        with load(cluster.bootstrap, "t", 3) as running:
            killed = ensemble.leader
            ensemble.servers[killed].identity.send(signal.SIGKILL)
            goes_on("one-is-killed")
            ensemble.start(killed, again=True)  # with what it knew: the ensemble, its id, its port
            cluster.wait_until(lambda: ensemble.mode(killed) == "follower", "it is one of the three again")
            silent = ensemble.leader
            assert silent != killed
            ensemble.servers[silent].identity.send(signal.SIGSTOP)
            goes_on("one-is-cut-off")
            ensemble.servers[silent].identity.send(signal.SIGCONT)
            cluster.wait_until(lambda: ensemble.mode(silent) == "follower", "it follows the others")
            goes_on("all-are-there")
        assert running.failed == []
        judge(running, cluster.bootstrap)
        for one in IDS:  # each has all of it
            with session_of(f"127.0.0.1:{ensemble.ports[one]}/klog") as session:
                session.sync("/brokers/topics")
                assert set(session.children("/brokers/topics")) >= {"t", *made}
    finally:
        cluster.end()


def tried(attempt: Callable[[], int]) -> int | None:
    try:
        return attempt()
    except (KlogError, SessionLost):
        return None
