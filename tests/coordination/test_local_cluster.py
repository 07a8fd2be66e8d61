"""`klog up` and `klog down` with real processes: what is missing is started, what lives is found, whatever dies."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.processes import free_port, ports_in_a_row
from klog.admin import local_cluster, local_state
from klog.admin import zookeeper as zookeeper_verbs
from klog.admin.health.findings import causes
from klog.admin.health.snapshot import Where
from klog.admin.health.verdict import broker_states, verdict
from klog.admin.local_broker import await_serving
from klog.admin.local_cluster import LocalCluster, Started
from klog.admin.local_state import Part
from klog.client.blocking import BlockingChannel
from klog.coordination import embedded
from klog.coordination.process import ProcessId
from klog.errors import HostError, NoSuchThing, PortInUse, Refused
from klog.tools.status import Answer, look
from tests.rows import each
from tests.zookeeper_fixture import klog_home

pytestmark = pytest.mark.filterwarnings(
    r"ignore:subprocess \d+ is still running:ResourceWarning"  # its servers are to outlive whoever started them
)

Up = Callable[..., "tuple[LocalCluster, list[Started]]"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A KLOG_HOME of the test's own, with the class archive that there is."""
    home = tmp_path / "home"
    home.mkdir()
    if (klog_home() / "cache").is_dir():
        (home / "cache").symlink_to(klog_home() / "cache")
    return home


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def up(home: Path, port: int) -> Iterator[Up]:
    """`local_cluster.up`; what runs in the end in any directory it was used on is stopped."""
    used: set[Path | None] = {None}

    def started(directory: Path | None = None, **options: object) -> tuple[LocalCluster, list[Started]]:
        used.add(directory)
        return local_cluster.up(directory, home, **{"port": port, **options})  # type: ignore[arg-type]

    yield started
    for directory in used:
        if local_state.look(directory or home / "local") is not None:
            local_cluster.down(directory or home / "local", home, timeout_s=20)


def part_of(cluster: LocalCluster, kind: str) -> ProcessId:
    (found,) = [part.identity for part in cluster.parts if part.kind == kind]
    assert found is not None
    return found


def serves(cluster: LocalCluster) -> bool:
    host, _, port = cluster.bootstrap.rpartition(":")
    BlockingChannel.connect(host, int(port)).close()
    return True


def test_its_life(up: Up, home: Path, port: int) -> None:
    """Two `up` at once make one cluster; it is looked at, stopped and started again; what was killed is started and
    the rest left alone; a broker that hangs is killed in the end."""
    properties = {"num.partitions": "3"}
    found: list[tuple[LocalCluster, list[Started]]] = []
    threads = [threading.Thread(target=lambda: found.append(up(properties=properties))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    (cluster, rows), (same, other_rows) = found
    assert same == cluster and len(cluster.live) == 2
    states = {(one.kind, one.id): {one.state, other.state} for one, other in zip(rows, other_rows, strict=True)}
    assert states == {("zookeeper", None): {"started", "running"}, ("broker", 1): {"started", "running"}}
    assert (cluster.directory, cluster.bootstrap) == (home / "local", f"127.0.0.1:{port}")
    assert serves(cluster)
    for options in ({"port": port + 1}, {"properties": {"num.partitions": "4"}}):
        with pytest.raises(Refused, match=r"\bruns\b"):
            up(**options)
    check_status(cluster, home)
    assert cluster.cluster_id is not None
    assert local_cluster.running_clusters(home) == [cluster]

    again, rows = up(port=None)
    assert again == cluster
    assert [row.state for row in rows] == ["running", "running"]

    stopped = local_cluster.down(None, home)
    assert [(row.kind, row.id, row.state) for row in stopped] == [
        ("zookeeper", None, "stopped"),
        ("broker", 1, "stopped"),
    ]
    assert not part_alive(cluster)
    assert local_cluster.running_clusters(home) == []
    assert local_cluster.down(None, home) == []
    assert [row.state for row in local_cluster.down(home / "local", home)] == ["not running", "not running"]

    check_down(cluster, home)

    back, _ = up(port=None)
    assert (back.bootstrap, back.zookeeper, back.cluster_id) == (
        cluster.bootstrap,
        cluster.zookeeper,
        cluster.cluster_id,
    )
    back = check_kills(up, home, back)
    part_of(back, "broker").send(signal.SIGSTOP)
    rows = local_cluster.down(None, home, timeout_s=0.5)
    assert {row.kind: row.state for row in rows} == {"zookeeper": "stopped", "broker": "killed"}
    assert not part_alive(back)


def part_alive(cluster: LocalCluster) -> bool:
    return any(part.identity is not None and part.identity.is_alive() for part in cluster.parts)


def check_kills(up: Up, home: Path, cluster: LocalCluster) -> LocalCluster:
    assert local_cluster.await_end(cluster, 0.05) is None
    for kind, kept in (("broker", "zookeeper"), ("zookeeper", "broker")):
        victim = part_of(cluster, kind)
        victim.send(signal.SIGKILL)
        assert victim.wait(20)
        ended = local_cluster.await_end(cluster, 20)  # as the foreground learns it
        assert ended is not None and ended.kind == kind
        (found,) = local_cluster.running_clusters(home)
        assert [part.kind for part in found.missing] == [kind]
        again, rows = up(port=None)
        assert {row.kind: row.state for row in rows} == {kind: "started", kept: "running"}
        assert again.zookeeper == cluster.zookeeper  # a broker that lives looks for it there
        assert part_of(again, kept) == part_of(cluster, kept)
        assert serves(again)
        cluster = again
    return cluster


def answer(home: Path, bootstrap: str | None, zookeeper: str | None, local: Path | None = None) -> Answer:
    return asyncio.run(look(Where(bootstrap, zookeeper, "the test", home, local)))


def check_status(cluster: LocalCluster, home: Path) -> None:
    for found in (answer(home, cluster.bootstrap, None, cluster.directory), answer(home, None, cluster.zookeeper)):
        assert verdict(*found).word == "OK" and found.findings == []
        assert broker_states(found.snapshot) == [(1, "up", cluster.bootstrap)]
        assert [one.mode for one in found.snapshot.servers] == ["standalone"]
    assert [row.state for row in zookeeper_verbs.status(None, home)] == ["running"]


def check_down(cluster: LocalCluster, home: Path) -> None:
    down = answer(home, cluster.bootstrap, cluster.zookeeper, cluster.directory)
    assert verdict(*down).word == "DOWN" and broker_states(down.snapshot) == [(1, "dead", cluster.bootstrap)]
    (cause,) = causes(down.findings)
    assert "klog up" in cause.do, "one command starts all of it"
    assert verdict(*answer(home, None, cluster.zookeeper)).word == "DOWN"


def test_an_up_that_is_killed_anywhere_is_gone_on_with(up: Up, home: Path, port: int) -> None:
    """The parts it has started may live or not, noted or not: the next `up` ends with one of each, `down` with none."""
    program = (
        "import sys; from pathlib import Path; from klog.admin import local_cluster\n"
        "print('go', flush=True); local_cluster.up(None, Path(sys.argv[1]), port=int(sys.argv[2]))"
    )
    child = subprocess.Popen([sys.executable, "-c", program, str(home), str(port)], stdout=subprocess.PIPE)
    with child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            child.wait(0.2)
        except subprocess.TimeoutExpired:
            child.kill()
    cluster, _ = up()
    assert len(cluster.live) == 2
    assert serves(cluster)
    assert {row.state for row in local_cluster.down(None, home)} == {"stopped"}
    assert not part_alive(cluster)


@each("content", [b"", b"{", b"[]", b"{}", b"\xff"])
def test_a_note_cut_off_is_ignored(home: Path, content: bytes) -> None:
    (home / "running").mkdir(parents=True)
    (home / "running" / "x.json").write_bytes(content)
    assert local_cluster.running_clusters(home) == []
    (home / "local").mkdir()
    (home / "local" / "cluster.json").write_bytes(content)
    assert local_state.look(home / "local") is None
    with pytest.raises(NoSuchThing):
        local_cluster.down(home / "local", home)


@pytest.mark.long("a second cluster; test_its_life has one")
def test_several_clusters_must_be_told_apart(up: Up, home: Path, tmp_path: Path) -> None:
    first, _ = up(tmp_path / "a")
    with pytest.raises(PortInUse, match=f"{first.bootstrap} .*{first.directory}"):
        up(tmp_path / "b")
    assert local_state.look(tmp_path / "b") is None
    second, _ = up(tmp_path / "b", port=free_port())
    assert first.cluster_id != second.cluster_id
    with pytest.raises(Refused, match=r"\b2 .*/a; .*/b"):
        local_cluster.down(None, home)
    local_cluster.down(tmp_path / "a", home)
    assert local_cluster.running_clusters(home) == [second]
    local_cluster.down(None, home)


def test_one_that_ends_keeps_the_others_from_being_waited_for(tmp_path: Path, port: int) -> None:
    """Broker 1 lives and will never know broker 2: that is said at once, with what broker 2 logged in this run."""
    log = tmp_path / "broker-2.log"
    log.write_text("earlier\nREASON\n")
    alive = ProcessId.of(os.getpid())
    parts = [
        Part("broker", 1, f"127.0.0.1:{port}", tmp_path / "broker-1.log", alive),
        Part("broker", 2, f"127.0.0.1:{port}", log, None),
    ]
    with pytest.raises(HostError, match="broker 2 ended") as caught:
        await_serving(parts, time.monotonic() + 60, log_begins={"broker 2": len("earlier\n")})
    assert "REASON" in caught.value.message and "earlier" not in caught.value.message


def test_a_port_in_use_is_told_before_anything_starts(up: Up, home: Path) -> None:
    first = ports_in_a_row(2)
    taken = f"127.0.0.1:{first + 1}"
    with socket.create_server(("127.0.0.1", first + 1)), pytest.raises(PortInUse, match=f"{taken}.*broker 2"):
        up(port=first, brokers=2)
    assert embedded.find(home / "local" / "zookeeper") is None
    assert not (home / "local" / "broker-1.log").exists()


@pytest.mark.long("a cluster of its own")
def test_zookeeper_and_a_broker_never_share_a_port(up: Up, home: Path, port: int) -> None:
    """Also where the port that ZooKeeper had last, remembered in its folder, is a broker's now."""
    with pytest.raises(PortInUse, match=f"ZooKeeper's port {port} is a broker's"):
        up(zookeeper_port=port)
    folder = home / "local" / "zookeeper"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "zoo.cfg").write_text(f"clientPort={port}\n")
    cluster, _ = up()
    assert cluster.bootstrap == f"127.0.0.1:{port}" and cluster.zookeeper != f"127.0.0.1:{port}"


def test_a_broker_that_cannot_start_leaves_the_others(up: Up, home: Path) -> None:
    first = ports_in_a_row(2)
    blocked = home / "local" / "broker-2" / "meta.properties"
    blocked.parent.mkdir(parents=True)
    blocked.write_text("version=0\nbroker.id=7\n")
    _, rows = up(port=first, brokers=2)
    assert {(row.kind, row.id): row.state for row in rows} == {
        ("zookeeper", None): "started", ("broker", 1): "started", ("broker", 2): "failed",
    }  # fmt: skip
    (failed,) = [row for row in rows if row.error is not None]
    assert failed.pid is None and "broker 2" in (failed.message or "") and "7" in (failed.message or "")
    BlockingChannel.connect("127.0.0.1", first).close()
    blocked.unlink()
    _, rows = up(port=first)
    assert {row.id: row.state for row in rows if row.kind == "broker"} == {1: "running", 2: "started"}
    local_cluster.down(None, home)
    for number in (1, 2):
        path = home / "local" / f"broker-{number}" / "meta.properties"
        path.write_text(path.read_text().replace(f"broker.id={number}", "broker.id=9"))
    with pytest.raises(HostError, match="broker") as caught:
        up(port=first)
    assert "9" in caught.value.message and str(home / "local" / "broker-") in str(caught.value.hint)
    assert local_cluster.running_clusters(home) == [], "without any broker nothing stays"
    assert embedded.find(home / "local" / "zookeeper") is None


def test_the_verbs_of_zookeeper_alone(home: Path, tmp_path: Path) -> None:
    assert zookeeper_verbs.status(None, home) == zookeeper_verbs.stop(None, home) == []
    row = zookeeper_verbs.start(None, home)
    try:
        assert (row.state, row.mode, row.dir) == ("started", "standalone", str(home / "zookeeper"))
        assert zookeeper_verbs.start(None, home).state == "running"
        assert [(one.address, one.state) for one in zookeeper_verbs.status(None, home)] == [(row.address, "running")]
    finally:
        stopped = zookeeper_verbs.stop(None, home)
    assert [one.state for one in stopped] == ["stopped"]
    assert [one.state for one in zookeeper_verbs.status(None, home)] == ["down"]
    assert zookeeper_verbs.status(tmp_path / "never", home) == []


def test_brokers_share_no_port_of_metrics() -> None:
    plan = local_state.Plan(3, 9092, {"metrics.port": "9404", "num.partitions": "4"})
    assert [plan.settings_of(number)["metrics.port"] for number in (1, 2, 3)] == ["9404", "9405", "9406"]
    assert {plan.settings_of(number)["num.partitions"] for number in (1, 2, 3)} == {"4"}
    assert "metrics.port" not in local_state.Plan(3).settings_of(2)
    plan = local_state.Plan(3, 9092, {"schema.registry.port": "8081"})
    assert [plan.settings_of(number)["schema.registry.port"] for number in (1, 2, 3)] == ["8081", "8082", "8083"]
    assert local_state.Plan(3, 9092, {"metrics.port": "0"}).settings_of(2)["metrics.port"] == "0"
