"""The examples that last until they are ended, or need servers of their own: each is run as it stands.

Hosts, ports and folders become those of the test. What serves is ended by a signal, as an operator ends it.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.processes import free_port, ports_in_a_row
from tests.broker_fixture import RunningBroker
from tests.cli.example_lines import example
from tests.cli.process import on_terminal, started
from tests.cli.runner import klog
from tests.cli.screen import on_screen
from tests.tools.verbs import make_topic, send

pytestmark = pytest.mark.long("each example that serves, as a process: other tests start the same commands")

ENDED_WITHIN_S = 40


def line_with(process: subprocess.Popen[bytes], text: str) -> str:
    """The first line on stderr that has the text: what a command says when it serves."""
    assert process.stderr is not None
    seen = b""
    for line in process.stderr:
        seen += line
        if text in line.decode():
            return line.decode()
    raise AssertionError(f"it has ended, without {text!r}: {seen.decode()}")


@pytest.fixture
def local(home: Path) -> Iterator[Path]:
    """The home of local clusters, which are down afterwards."""
    yield home
    klog("down")


def test_a_local_cluster(local: Path) -> None:
    up = klog(*example("klog up --brokers 3 -d"), "--port", ports_in_a_row(3), "-o", "json")
    assert up.code == 0, up.stderr
    assert [row["kind"] for row in up.rows].count("broker") == 3
    logged = klog(*example("klog broker log 1 -n 50"))
    assert logged.code == 0 and "broker 1 serves" in logged.stdout
    down = klog(*example("klog down"), "-o", "json")
    assert down.code == 0 and {row["state"] for row in down.rows} == {"stopped"}


@pytest.mark.parametrize("line", ["klog up --processes 4", "klog up --dir /tmp/try --port 19092"])
def test_a_local_cluster_in_the_foreground(line: str, local: Path, tmp_path: Path) -> None:
    if "--dir" in line:
        words = example(line, **{"/tmp/try": tmp_path / "try", "19092": free_port()})
    else:
        words = [*example(line), "--port", str(ports_in_a_row(4))]
    with started(*words, "-X", "num.io.threads=1") as process:
        line_with(process, "Ctrl-C")
        process.send_signal(signal.SIGINT)
        assert process.wait(ENDED_WITHIN_S) == 0


@pytest.mark.parametrize(
    "line",
    [
        "klog broker start --id 1 --dir /var/lib/klog --zookeeper zk1:2181/klog",
        "klog broker start --config server.properties",
        "klog broker start --processes 4 --id 1 --dir /var/lib/klog --zookeeper zk1:2181/klog",
    ],
)
def test_brokers(line: str, zk_chroot: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    if "--config" in line:
        (tmp_path / "server.properties").write_text(
            f"broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={data}\nzookeeper.connect={zk_chroot}\n"
        )
        words = example(line, **{"server.properties": tmp_path / "server.properties"})
    else:
        words = [*example(line, **{"/var/lib/klog": data, "zk1:2181/klog": zk_chroot}), "--listen", "127.0.0.1:0"]
    read_end, write_end = os.pipe()
    with started(*words, "--ready-fd", str(write_end), pass_fds=(write_end,), stderr=None) as process:
        os.close(write_end)
        with os.fdopen(read_end) as ready:
            assert ready.readline().startswith("ready ")
        process.send_signal(signal.SIGTERM)
        assert process.wait(ENDED_WITHIN_S) == 0


def test_brokers_that_stop_and_restart(make_broker: Callable[..., RunningBroker]) -> None:
    broker = make_broker(broker_id=3).start()
    broker.stop()
    broker.start()  # on a port that is named, as it restarts with the same words
    at = ("-B", broker.bootstrap, "-o", "json")
    by_host = example("klog broker restart --host kafka-1", **{"kafka-1": "127.0.0.1"})
    for words in (by_host, example("klog broker restart --all --wait 5m")):
        (row,) = klog(*words, *at).rows
        assert (row["broker"], row["restarted"], row["error"]) == (3, True, None)
    assert klog(*example("klog broker stop 3 --dry-run"), *at).code == 0
    assert broker.process is not None and broker.process.poll() is None
    (row,) = klog(*example("klog broker stop 3"), *at).rows
    assert row["stopped"] and broker.process is not None and broker.process.wait(ENDED_WITHIN_S) == 0


def test_registries_are_rebuilt(make_broker: Callable[..., RunningBroker], zk_chroot: str) -> None:
    broker = make_broker().start()
    make_topic(broker.bootstrap, "clicks", 2)
    broker.stop()
    words = example("klog zookeeper rebuild --dir data --dry-run", data=broker.folder / "data")
    ran = klog(*words, "-z", f"{zk_chroot}/new", "-o", "json")
    assert ran.code == 0 and "clicks" in {row["name"] for row in ran.rows}, ran


def test_zookeeper(tmp_path: Path) -> None:
    folder = {"/var/lib/zookeeper": tmp_path / "zk"}
    assert klog("security", "init", "--dir", tmp_path / "closed").code == 0
    by_tls = example(
        "klog zookeeper start --dir /var/lib/zookeeper --listen 0.0.0.0 --tls closed",
        **folder,
        closed=tmp_path / "closed",
    )
    try:
        for words in (example("klog zookeeper start --dir /var/lib/zookeeper", **folder), by_tls):
            assert klog(*words).code == 0
            shown = klog(*example("klog zookeeper status"), "--dir", tmp_path / "zk", "-o", "json")
            assert shown.code == 0, shown
            assert klog(*example("klog zookeeper stop --dir /var/lib/zookeeper", **folder)).code == 0
    finally:
        klog("zookeeper", "stop", "--dir", tmp_path / "zk")


def test_messages_as_they_come(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 1)
    with started(*example("klog tail clicks", clicks=topic), "-B", broker.bootstrap) as process:
        assert process.stdout is not None
        while not select.select([process.stdout], [], [], 0.1)[0]:  # the first message may come before it reads
            send(broker.bootstrap, topic, b"click\n")
        process.send_signal(signal.SIGINT)
        assert process.wait(ENDED_WITHIN_S) in (0, 130)


def test_the_schema_registry(broker: RunningBroker) -> None:
    words = example("klog schema serve --port 8081", **{"8081": free_port()})
    with started(*words, "-B", broker.bootstrap) as process:
        line_with(process, f":{words[-1]}")
        process.send_signal(signal.SIGTERM)
        assert process.wait(ENDED_WITHIN_S) == 0


def test_a_mirror(broker: RunningBroker, make_broker: Callable[..., RunningBroker], topic: str) -> None:
    target = make_broker().start()
    make_topic(broker.bootstrap, topic, 1)
    send(broker.bootstrap, topic, b"click\n")
    at = {"dc1:9092": broker.bootstrap, "dc2:9092": target.bootstrap}
    once = "klog mirror --source dc1:9092 --target dc2:9092 --topic '.*' --rate 20MB/s --once"
    assert klog(*example(once, **at, **{".*": topic})).code == 0
    assert klog("tail", topic, "-o", "start", "-e", "-B", target.bootstrap).stdout == "click\n"
    lasting = "klog mirror --source dc1:9092 --target dc2:9092 --topic 'clicks|orders'"
    with started(*example(lasting, **at, clicks=topic)) as process:
        send(broker.bootstrap, topic, b"click\n")
        assert klog("tail", topic, "-o", "start", "-c", 2, "-B", target.bootstrap).stdout == "click\nclick\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(ENDED_WITHIN_S) in (0, 130)


def test_the_shell_and_top(broker: RunningBroker) -> None:
    at = ("-B", broker.bootstrap)
    with on_terminal(*example("klog shell"), *at) as (process, terminal):
        terminal.wait_to_show("1/1 urp:")
        terminal.type("exit\r")
        assert process.wait(ENDED_WITHIN_S) == 0
    assert klog(*example("klog shell -e 'topic list; group list'"), *at).code == 0
    with on_screen(*example("klog top"), *at) as (process, screen):
        screen.wait_for("BROKER")
        screen.type("q")
        assert screen.read_to_end(process) == 0
