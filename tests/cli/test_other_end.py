"""What is not a broker, or not a ZooKeeper, is named as what it is; names that are nearly right bring the right one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socketserver import BaseRequestHandler, TCPServer, ThreadingTCPServer

import pytest

from klog.admin import reassignment_file
from klog.names import TopicPartition
from tests.broker_fixture import RunningBroker
from tests.cli.runner import Ran, klog
from tests.rows import each


class Quiet(BaseHTTPRequestHandler):
    """Knows no request, and logs none."""

    def log_message(self, *arguments: object) -> None: ...


class Alert(BaseRequestHandler):
    """Knows TLS alone."""

    def handle(self) -> None:
        self.request.recv(1024)
        self.request.sendall(b"\x15\x03\x03\x00\x02\x02\x0a")


def serving(server: TCPServer) -> Iterator[str]:
    """Its address, while it serves."""
    with server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture
def http_address() -> Iterator[str]:
    """A server that speaks HTTP."""
    yield from serving(HTTPServer(("127.0.0.1", 0), Quiet))


@pytest.fixture
def tls_address() -> Iterator[str]:
    """A server that answers anything with the alert of TLS, and closes."""
    yield from serving(ThreadingTCPServer(("127.0.0.1", 0), Alert))


def refused(*words: str) -> Ran:
    ran = klog(*words, "-o", "json")
    assert (ran.code, ran.error["code"]) == (1, "CANNOT_CONNECT"), ran
    return ran


def test_a_zookeeper_where_a_broker_is_wanted(broker: RunningBroker) -> None:
    address = broker.zookeeper.partition("/")[0]
    error = refused("topic", "list", "-B", f"127.0.0.1:1,{address}").error
    assert error["message"].startswith(f"{address} ") and "ZooKeeper" in error["message"]
    assert f"--zookeeper {address}" in error["hint"]


def test_a_broker_where_a_zookeeper_is_wanted(broker: RunningBroker) -> None:
    error = refused("zk", "ls", "/", "-z", f"{broker.bootstrap}/chroot").error
    assert error["message"].startswith(f"{broker.bootstrap} ") and "ZooKeeper" in error["message"]
    assert f"--bootstrap-server {broker.bootstrap}" in error["hint"]


def test_status_names_what_answers(broker: RunningBroker) -> None:
    zookeeper = broker.zookeeper.partition("/")[0]
    for flag, address, other in (("-B", zookeeper, "--zookeeper"), ("-z", broker.bootstrap, "--bootstrap-server")):
        row, *_ = klog("status", flag, address, "-o", "json").rows
        assert row["found"].startswith(f"{address} is ") and f"{other} {address}" in row["do"], row


def test_an_error_names_the_cluster_once(broker: RunningBroker, dead_address: str) -> None:
    for words, address in (
        (["topic", "describe", "none"], broker.bootstrap),
        (["topic", "create", "many", "--replication-factor", "2"], broker.bootstrap),
        (["broker", "describe", "77"], broker.bootstrap),
        (["topic", "list"], dead_address),
    ):
        ran = klog(*words, "-B", address)
        assert ran.code == 1 and ran.stderr.count(address) == 1, ran


@each("given", [("--replication-factor", "2"), ("--replication-factor", "3", "--start-broker", "1")])
def test_too_many_replicas_name_the_live_brokers(given: tuple[str, ...], broker: RunningBroker) -> None:
    error = klog("topic", "create", "many", *given, "-B", broker.bootstrap, "-o", "json").error
    assert error["code"] == "INVALID_REPLICATION_FACTOR" and error["message"].endswith(" 1 broker is live: 1"), error
    assert "klog status brokers" in error["hint"]


def test_every_command_says_how_a_deleted_topic_comes_back(broker: RunningBroker, topic: str, tmp_path: Path) -> None:
    where, plan = ["-B", broker.bootstrap], tmp_path / "plan.json"
    reassignment_file.write(plan, {TopicPartition(topic, 0): [broker.broker_id]})
    for name in (topic, f"{topic}-there"):
        assert klog("topic", "create", name, *where).code == 0
    assert klog("topic", "delete", topic, "-y", *where).code == 0
    for words in (
        ["topic", "delete", f"{topic}-there", topic, "-y"],
        ["topic", "describe", topic],
        ["topic", "config", topic],
        ["topic", "config", topic, "retention.ms=1"],
        ["topic", "alter", topic, "-p", "9", "-y"],
        ["topic", "delete", topic, "-y"],
        ["topic", "verify", topic],
        ["offset", "list", topic],
        ["tail", topic, "-e"],
        ["produce", topic],
        ["where", topic, "-p", "0", "0"],
        ["reassign", "execute", str(plan), "-y"],
        ["reassign", "status", str(plan)],
    ):
        ran = klog(*words, *where, "--trace")
        assert ran.code != 0 and f"klog topic restore {topic}" in ran.stderr, (words, ran)
        assert words[1] != "describe" or "zookeeper /" not in ran.stderr, "which may be silent for seconds"


def test_http_and_tls(http_address: str, tls_address: str) -> None:
    assert "HTTP" in refused("topic", "list", "-B", http_address, "--timeout", "300ms").error["message"]
    assert "TLS" in refused("topic", "list", "-B", tls_address).error["message"]


@each("words", [["topic", "list"], ["zk", "ls", "/"]])
def test_http_and_tls_where_a_zookeeper_is_wanted(words: list[str], http_address: str, tls_address: str) -> None:
    error = refused(*words, "-z", f"{http_address}/chroot").error
    assert error["message"].startswith(f"{http_address} ") and "HTTP" in error["message"]
    error = refused(*words, "-z", tls_address).error
    assert error["message"].startswith(f"{tls_address} ") and "TLS" in error["message"]
    assert "zookeeper.ssl.client.enable" in error["hint"]


def test_silence_stays_silence(silent_address: str, dead_address: str) -> None:
    for address in (silent_address, dead_address):
        for flag in ("-B", "-z"):
            assert address in refused("topic", "list", flag, address, "--timeout", "300ms").error["message"]


def test_columns_without_a_cluster(dead_address: str) -> None:
    ran = klog("topic", "describe", "-o", "schema", "-B", dead_address)
    head, first, *rest = [line.split() for line in ran.stdout.splitlines()]
    assert (ran.code, ran.stderr) == (0, "")
    assert head == ["COLUMN", "KEY", "TYPE", "NULLABLE", "IN-TABLES"]
    assert first == ["TOPIC", "topic", "text", "no", "yes"]
    assert ["REPLICAS", "replicas", "list", "no", "yes"] in rest
    assert klog("--output", "schema", "topic", "describe").stdout == ran.stdout
    assert klog("man", "-o", "schema").code == 2
    assert klog("tail", "x", "-o", "schema", "-B", dead_address).code == 2, "its -o is a position"
