"""`klog quota` and `klog undo` of it, `klog status` of damage: command lines against a real broker."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from klog.coordination.embedded import ZooKeeperServer
from klog.net.channel import Channel
from klog.record.records import encode_batch
from tests.broker_fixture import RunningBroker
from tests.cli.runner import Ran, act_rows, klog
from tests.security.broker_doors import unique
from tests.server.asking import produce_request, values
from tests.server.test_quotas import as_client
from tests.until import until
from tests.zookeeper_fixture import session_of

PATIENCE_S = 30.0

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("quotas")]


@pytest.fixture(scope="module")
def broker(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    chroot = f"{zookeeper.address}/{unique('quotas')}"
    with RunningBroker(tmp_path_factory.mktemp("quotas"), chroot).running() as broker:
        yield broker


def run(broker: RunningBroker, *words: str) -> Ran:
    return klog(*words, "-B", broker.bootstrap, "-z", broker.zookeeper, "-o", "json")


def quotas(broker: RunningBroker) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in run(broker, "quota", "list").rows]


def test_a_quota_is_set_shown_removed_and_brought_back(broker: RunningBroker) -> None:
    hostile = "x\x1b[31m/../<b>"
    assert (
        run(broker, "quota", "set", "producer_byte_rate=1MiB/s", "request_percentage=12.5%", "--user", "al").code == 0
    )
    assert run(broker, "quota", "set", "controller_mutation_rate=3/s", "--user", "al", "--default-client").code == 0
    assert run(broker, "quota", "set", "consumer_byte_rate=64KB", "--client", hostile).code == 0
    assert run(broker, "quota", "set", "connection_creation_rate=20/s", "--ip", "::ffff:127.0.0.9").code == 0
    assert run(broker, "quota", "set", "connection_creation_rate=3000", "--default-ip").code == 0
    everything = [
        ("al", None, 1048576, None, 12.5, None, None, None),
        ("al", "<default>", None, None, None, 3, None, None),
        (None, hostile, None, 64000, None, None, None, None),
        (None, None, None, None, None, None, "127.0.0.9", 20),
        (None, None, None, None, None, None, "<default>", 3000),
    ]
    assert quotas(broker) == everything
    table = klog("quota", "list", "-B", broker.bootstrap).stdout
    assert "\x1b" not in table
    assert len(run(broker, "quota", "list", "--user", "al").rows) == 2
    assert len(run(broker, "quota", "list", "--default-client").rows) == 1
    assert [row["request_percentage"] for row in run(broker, "quota", "remove", "--user", "al").rows] == [None]
    assert quotas(broker) == everything[1:]

    (*_, act) = [row for row in act_rows(broker.zookeeper) if row["kind"] == "quotas"]
    assert "user 'al'" in act["subject"]
    assert (act["before"], act["after"]) == ("producer_byte_rate=1048576 request_percentage=12.5", "-")
    preview = klog("undo", act["act"], "--dry-run", "-B", broker.bootstrap, "-z", broker.zookeeper, "-o", "json").rows
    assert [(row["setting"], row["now"], row["then"]) for row in preview] == [
        ("producer_byte_rate", None, "1048576"),
        ("request_percentage", None, "12.5"),
    ]
    assert run(broker, "undo", act["act"], "-y").code == 0
    assert quotas(broker) == everything
    assert any(row["act"] == act["act"] and row["undone_by"] for row in act_rows(broker.zookeeper))
    assert run(broker, "quota", "set", "producer_byte_rate=5", "--user", "al").code == 0
    moved = run(broker, "undo", act["act"], "-y")
    assert (moved.code, moved.error["code"]) == (1, "REFUSED")
    assert "producer_byte_rate is 5" in moved.error["message"]
    assert [row["connection_creation_rate"] for row in run(broker, "quota", "list", "--ip", "127.0.0.9").rows] == [20]
    for ip, value, whose in (("127.0.0.9", 20, "127.0.0.9"), ("127.0.0.1", 3000, "<default>")):
        *_, row = run(broker, "quota", "list", "--applied", "--user", "al", "--ip", ip).rows
        assert (row["quota"], row["value"], row["ip"]) == ("connection_creation_rate", value, whose)
        assert ip in row["shared_by"]
    for wrong in (("--ip", "localhost"), ("--ip", "127.0.0.9", "--user", "al"), ("--ip", "::1", "--default-ip")):
        assert run(broker, "quota", "set", "connection_creation_rate=20", *wrong).code == 2
    assert run(broker, "quota", "set", "producer_byte_rate=20", "--ip", "127.0.0.9").code == 1
    of_all = [("--ip", "127.0.0.9"), ("--default-ip",), ("--user", "al"), ("--client", hostile)]
    for whose in (*of_all, ("--user", "al", "--default-client")):
        assert run(broker, "quota", "remove", *whose).code == 0
    assert quotas(broker) == []


def test_which_quotas_apply_to_a_client(broker: RunningBroker) -> None:
    assert run(broker, "quota", "set", "producer_byte_rate=1MB/s", "--default-user").code == 0
    assert run(broker, "quota", "set", "producer_byte_rate=2MB/s", "consumer_byte_rate=5", "--user", "carol").code == 0
    assert run(broker, "quota", "set", "request_percentage=12.5", "--client", "app").code == 0
    rows = run(broker, "quota", "list", "--applied", "--user", "carol", "--client", "app").rows
    assert {row["quota"]: tuple(row.values())[1:5] for row in rows} == {
        "producer_byte_rate": (2_000_000, "bytes/s", "carol", None),
        "consumer_byte_rate": (5, "bytes/s", "carol", None),
        "request_percentage": (12.5, "percent", None, "app"),
        "controller_mutation_rate": (None, "partitions/s", None, None),
    }
    for row, name in zip(rows, ("'carol'", "'carol'", "'app'", None), strict=True):
        assert name is None if row["shared_by"] is None else name in row["shared_by"]
    first, *others = run(broker, "quota", "list", "--applied", "--user", "User:dave").rows
    assert (first["value"], first["user"], first["client"]) == (1_000_000, "<default>", None)
    assert {row["value"] for row in others} == {None}
    for whose in (("--default-user",), ("--user", "carol"), ("--client", "app")):
        assert run(broker, "quota", "remove", *whose).code == 0


def why_throttled(broker: RunningBroker, whom: str) -> list[dict[str, Any]]:
    """The rows of `klog status throttled`, once the event is among them."""

    def rows() -> list[dict[str, Any]]:
        why = run(broker, "status", "throttled", whom)
        return why.rows if why.stdout and why.code == 1 and len(why.rows) >= 3 else []

    return until(rows, "the event")


def test_why_a_client_was_throttled(broker: RunningBroker) -> None:
    assert run(broker, "topic", "create", "work").code == 0
    assert (
        run(broker, "quota", "set", "producer_byte_rate=1000", "--user", "ANONYMOUS", "--client", "e $(rin)").code == 0
    )
    records = bytes(encode_batch(values(1, 12_000)))

    async def work(channel: Channel) -> None:
        assert (await channel.request(produce_request("work", records))).throttle_time.total_seconds() > 0

    as_client(broker, "e $(rin)", work)
    told, set_by, now = why_throttled(broker, "e $(rin)")
    assert "'e $(rin)'" in told["what"] and "producer_byte_rate 1000 bytes/s" in told["evidence"]
    assert "act " in set_by["evidence"]
    assert "klog quota remove producer_byte_rate --user ANONYMOUS --client 'e $(rin)'" in now["do"]
    assert run(broker, "quota", "remove", "--user", "ANONYMOUS", "--client", "e $(rin)").code == 0
    (_, after) = run(broker, "status", "throttled").rows
    assert after["do"] is None
    assert run(broker, "status", "throttled", "frank").code == 0


def test_why_an_address_was_turned_away(broker: RunningBroker) -> None:
    host, _, port = broker.bootstrap.rpartition(":")
    assert run(broker, "quota", "set", "connection_creation_rate=2", "--ip", "127.0.0.6").code == 0
    turned_away = False
    with contextlib.ExitStack() as opened:
        for _ in range(50):
            one = opened.enter_context(socket.create_connection((host, int(port)), PATIENCE_S, ("127.0.0.6", 0)))
        with contextlib.suppress(ConnectionError):
            turned_away = one.recv(1) == b""
    assert turned_away
    told, set_by, now = why_throttled(broker, "127.0.0.6")
    assert "address 127.0.0.6" in told["what"] and "connection_creation_rate 2 connections/s" in told["evidence"]
    assert "act " in set_by["evidence"]
    assert "klog quota remove connection_creation_rate --ip 127.0.0.6" in now["do"]
    assert run(broker, "quota", "remove", "--ip", "127.0.0.6").code == 0


def test_damage_is_a_finding_and_is_not_written_over(broker: RunningBroker) -> None:
    path = "/config/users/bob"
    with session_of(broker.zookeeper, create_chroot=True) as zk:
        zk.create(path, b'{"version":1,"config":{"SCRAM-SHA-256":"salt=c2VjcmV0', parents=True)
        findings = [row for row in run(broker, "status", "topics").rows if path in row["what"]]
        assert [row["severity"] for row in findings] == ["critical"]
        assert "c2VjcmV0" not in str(findings)
        refused = run(broker, "quota", "set", "producer_byte_rate=5", "--user", "bob")
        assert refused.code == 1
        assert path in refused.error["message"]
        assert zk.get(path).data.endswith(b"c2VjcmV0")
        zk.set(path, b'{"version":1,"config":{"producer_byte_rate":"-3"}}')
        assert [row["what"] for row in run(broker, "status", "topics").rows if path in row["what"]]
        assert run(broker, "quota", "set", "producer_byte_rate=5", "--user", "bob").code == 0
        assert not [row["what"] for row in run(broker, "status", "topics").rows if path in row["what"]]
