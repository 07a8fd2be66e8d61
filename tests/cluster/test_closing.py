"""A running open cluster of three brokers is closed by the steps of docs/security.md, while clients go on.

Before: one plain listener, no users. After: SASL_SSL with SCRAM, permissions, also between the brokers. Stock clients
produce and consume by the open listener, by the secured one as soon as it is there, and until the end. Nothing that was
acknowledged is lost or doubled, no consumer misses a message or sees one twice, and no producer gives one up.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.processes import ports_in_a_row
from klog.client.client_config import read_client_config
from klog.client.security_files import librdkafka_security
from tests.cli.runner import klog
from tests.cluster.load import judge, load, read
from tests.cluster.replica_bytes import differing, extent, folder_of, segments
from tests.cluster_fixture import RunningCluster
from tests.until import until

PARTITIONS = 3
ONE_FAILOVER_S = 10.0
"""What a dead broker may cost: its session's time-out, and an election, on a machine with other things to do."""


@contextmanager
def reader(topic: str, **settings: object) -> Iterator[dict[int, list[tuple[int, bytes]]]]:
    """A stock consumer that reads along: partition -> (offset, value)."""
    own: dict[str, object] = {
        "group.id": "along",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "log_level": 0,
    }
    consumer = Consumer({**own, **settings})
    consumer.assign([TopicPartition(topic, one, OFFSET_BEGINNING) for one in range(PARTITIONS)])
    found: dict[int, list[tuple[int, bytes]]] = {one: [] for one in range(PARTITIONS)}
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                partition, offset, value = message.partition(), message.offset(), message.value()
                assert partition is not None and offset is not None and value is not None
                found[partition].append((offset, value))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()
        consumer.close()


def wait_for(read: dict[int, list[tuple[int, bytes]]], whole: dict[int, list[tuple[int, bytes]]]) -> None:
    """Until a consumer that read along has all of it. It may have read some twice: librdkafka, whose partition has lost
    its leader, sometimes begins again where it was assigned, or resets its offset. That the log has each once, `judge`
    finds out."""
    for one, messages in whole.items():
        until(
            lambda one=one, all_=set(messages): set(read[one]) >= all_,  # type: ignore[misc]
            lambda one=one, all_=set(messages): f"{one}: {sorted(all_ - set(read[one]))[:5]}",  # type: ignore[misc]
        )
        assert set(read[one]) == set(messages)


def are_alike(cluster: RunningCluster, topic: str, partition: int) -> bool:
    """Whether every broker has the same bytes up to the same end."""
    first, *others = (segments(folder_of(cluster, one, topic, partition)) for one in cluster.brokers)
    return all(extent(one)[1] == extent(first)[1] and differing(one, first) is None for one in others)


def settings_of(path: Path) -> dict[str, object]:
    found = read_client_config(path).security
    assert found is not None
    return librdkafka_security(found)


def done(*words: object) -> str:
    """What a command that succeeds prints."""
    ran = klog(*words)
    assert ran.code == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.long("closes a running cluster by the steps of a document")
@pytest.mark.timeout(300)
def test_by_the_steps_of_the_documentation(
    make_cluster: Callable[..., RunningCluster],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = make_cluster(3, default__replication__factor="3", min__insync__replicas="2")
    first = ports_in_a_row(6)
    files = [tmp_path / f"server-{one}.properties" for one in cluster.brokers]
    for port, file, broker in zip(range(first, first + 3), files, cluster.brokers.values(), strict=True):
        file.write_text(f"listeners=PLAINTEXT://127.0.0.1:{port}\n")
        broker.listen, broker.extra_arguments = "", ["--config", str(file)]
    cluster.start()
    for topic in ("old", "new"):
        cluster.create(topic, PARTITIONS)
    opened = ",".join(f"127.0.0.1:{port}" for port in range(first, first + 3))
    secured = ",".join(f"127.0.0.1:{port}" for port in range(first + 3, first + 6))
    folder = tmp_path / "security"
    administrator = ("--profile", "closed")
    monkeypatch.setenv("KLOG_HOME", str(tmp_path / "home"))

    with ExitStack() as old, ExitStack() as new:
        producing = old.enter_context(load(opened, "old", PARTITIONS))
        reading = old.enter_context(reader("old", **{"bootstrap.servers": opened}))
        begun = time.monotonic()

        # 1. Files and users.
        done("security", "init", "--dir", folder)
        done("security", "users", "--dir", folder, "-z", cluster.zookeeper)
        # 2. The secured listener beside the open one.
        for port, file in enumerate(files, first + 3):
            done("security", "add", file, "--dir", folder, "--port", port)
        done("broker", "restart", "--all", "-B", opened)
        producing.wait_for_more(20 * PARTITIONS)
        record_property("s_to_both", round(time.monotonic() - begun, 3))

        # 3. Users and permissions; clients move.
        done("profile", "add", "closed", "-B", secured, "--client-config", folder / "client.properties")
        password = done("user", "add", "alice", "--generate", *administrator).strip()
        done("acl", "add", "alice", "read,write", "topic:new", *administrator)
        done("acl", "add", "alice", "read", "group:along", *administrator)
        alice = {
            **settings_of(folder / "client.properties"),
            "sasl.username": "alice",
            "sasl.password": password,
        }
        moved = new.enter_context(load(secured, "new", PARTITIONS, **alice))
        moved_reading = new.enter_context(reader("new", **{"bootstrap.servers": secured, **alice}))
        producing.wait_for_more(20 * PARTITIONS)
        others = old.enter_context(reader("new", **{"bootstrap.servers": opened}))
        moved.wait_for_more(20 * PARTITIONS)
        record_property("longest_s_without_ack_open", round(producing.longest_gap_s(), 3))
        assert producing.longest_gap_s() < ONE_FAILOVER_S
        producing.stop()
        wait_for(reading, read(opened, "old", PARTITIONS))
        judge(producing, opened)
        cluster.wait_until(lambda: any(others.values()), "what came by one listener goes out by the other")
        old.pop_all().close()

        # 4. Only the secured listener.
        begun = time.monotonic()
        moved.forget_gaps()
        for file in files:
            done("security", "close", file, "--dir", folder)
        done("broker", "restart", "--all", *administrator)
        # 5. The nodes of ZooKeeper.
        done("security", "zookeeper", *administrator, "-y")
        moved.wait_for_more(20 * PARTITIONS)
        record_property("s_to_closed", round(time.monotonic() - begun, 3))
        record_property("longest_s_without_ack_secured", round(moved.longest_gap_s(), 3))
        assert moved.longest_gap_s() < ONE_FAILOVER_S
        moved.stop()
        wait_for(moved_reading, read(secured, "new", PARTITIONS, **alice, **{"group.id": "along"}))
    judge(moved, secured, **alice, **{"group.id": "along"})
    for topic in ("old", "new"):
        for partition in range(PARTITIONS):
            cluster.wait_until(lambda on=(topic, partition): are_alike(cluster, *on), "the replicas are the same")

    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": opened, "log_level": 0}).list_topics(timeout=1)
    denied = klog("topic", "delete", "new", "-y", "-B", secured, "--client-config", client_of(tmp_path, alice))
    assert denied.code == 1 and "TOPIC_AUTHORIZATION_FAILED" in denied.stdout


def client_of(folder: Path, settings: dict[str, object]) -> Path:
    path = folder / "alice.properties"
    pem = folder / "ca.pem"
    pem.write_text(str(settings["ssl.ca.pem"]))
    shown = {name: value for name, value in settings.items() if name != "ssl.ca.pem"}
    path.write_text("\n".join(f"{name}={value}" for name, value in {**shown, "ssl.ca.location": pem}.items()))
    return path
