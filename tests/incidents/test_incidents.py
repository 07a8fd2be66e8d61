"""The incidents of docs/runbook.md: each is brought about, found, mended and taken back, by klog alone."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from klog.coordination import committed
from klog.names import TopicPartition
from tests.admin.group_registry import commit, registry_of
from tests.cluster_fixture import RunningCluster
from tests.faults.cluster import can_mount
from tests.incidents.operator import Operator, runbook_lines


def test_a_broker_dies(operator: Operator, topic: str) -> None:
    """A broker dies: klog names it and what depends on it; it is started again, and leads what it led.

    What is taken back is the election: the death itself leaves nothing to undo.
    """
    cluster = operator.cluster
    cluster.create(topic, assignment=[[2, 1, 3]])
    operator.text("produce", topic, input="1\n2\n3\n")
    cluster.kill(2)
    cluster.wait_for_leader(topic, other_than=2)

    findings = operator.runbook("klog status")
    assert findings.code != 0 and any("2" in str(row["what"]) for row in findings.rows), findings
    cause = operator.cause("partition", f"{topic}-0", until=lambda row: "is dead" in row["what"])
    assert "broker 2" in cause["what"] and "start broker 2" in cause["do"]
    assert operator.runbook("klog status broker 2").code == 1
    short = operator.runbook("klog topic describe --under-replicated").rows
    assert (topic, 0) in {(row["topic"], row["partition"]) for row in short}
    assert operator.values(topic) == ["1", "2", "3"]  # the others serve it

    operator.start("klog broker start", 2)
    cluster.wait_in_sync(topic)
    assert operator.rows("topic", "describe", topic, "--under-replicated") == []
    (elected,) = operator.runbook("klog topic elect orders-0", orders=topic).rows
    cluster.wait_until(lambda: cluster.leader_of(topic) == 2, "the preferred replica leads")
    if elected["old"] != elected["new"]:  # else the automatic balance was faster, and it is not an act
        operator.runbook("klog undo ACT", ACT=operator.act(kind="election", subject=f"topic {topic}")["act"])
        cluster.wait_for_leader(topic, other_than=2)

    def is_told() -> bool:  # the topic of events is created some seconds after the first start
        told = operator.run("events", "broker", "2", "--kind", "broker-down")
        return told.code == 0 and any("stopped answering" in str(row["reason"]) for row in told.rows)

    cluster.wait_until(is_told, "klog events says so")
    operator.runbook("klog events broker 2")


@pytest.mark.long("a document that is walked")
def test_a_hung_broker(operator: Operator, topic: str) -> None:
    """A broker hangs: it is not taken for a dead one, goes on when it can, and loses nothing.

    There is nothing to take back: the process goes on, and klog has changed nothing.
    """
    cluster = operator.cluster
    cluster.create(topic, assignment=[[3, 1, 2]])
    operator.text("produce", topic, input="1\n2\n3\n")
    cluster.pause(3)
    cluster.wait_for_leader(topic, other_than=3)

    # Until its address is in the events, which may have been led by this very broker, it is "dead or hangs".
    cause = operator.cause("broker", 3, until=lambda row: "kill -CONT" in (row["do"] or ""))
    assert operator.runbook("klog status broker 3").code == 1
    findings = operator.run("status")
    assert findings.code != 0 and any("hangs" in str(row["found"]) for row in findings.rows), findings
    operator.text("produce", topic, input="4\n")

    advice = "kill -CONT PID"
    assert advice in runbook_lines() and advice.rpartition(" ")[0] in cause["do"]
    subprocess.run(shlex.split(advice.replace("PID", str(cluster.brokers[3].pid))), check=True)
    cluster.paused.discard(3)
    cluster.wait_in_sync(topic)
    assert sorted(operator.values(topic)) == ["1", "2", "3", "4"]
    operator.runbook("klog topic verify orders", orders=topic)


@pytest.mark.long("a document that is walked")
def test_too_few_in_sync_replicas(operator: Operator, topic: str) -> None:
    """A broker is away and acks=all is refused: klog names it, accepts less for a while, and takes that back."""
    cluster = operator.cluster
    cluster.create(topic, assignment=[[1, 2]], min_insync_replicas="2")
    operator.text("produce", topic, input="before\n")
    at_limit = operator.runbook("klog topic describe --at-min-isr").rows
    assert topic in {row["topic"] for row in at_limit}
    cluster.kill(2)
    cluster.wait_until(lambda: cluster.isr_of(topic) == {1}, "broker 2 is out of the ISR")
    refused = operator.run("produce", topic, "--give-up-after", "2s", input="refused\n")
    assert refused.code == 1, refused

    under = operator.runbook("klog topic describe --under-min-isr").rows
    assert topic in {row["topic"] for row in under}
    cause = operator.cause(f"{topic}-0", until=lambda row: "broker 2" in row["what"])
    assert cause["do"]
    assert operator.runbook("klog status orders-0", orders=topic).code == 1

    operator.runbook("klog topic config orders min.insync.replicas=1", orders=topic)
    operator.text("produce", topic, input="alone\n")
    operator.runbook("klog undo ACT", ACT=operator.act(kind="topic-settings", subject=f"topic {topic}")["act"])
    assert operator.run("produce", topic, "--give-up-after", "2s", input="refused\n").code == 1

    operator.start("klog broker start", 2)
    cluster.wait_in_sync(topic)
    operator.text("produce", topic, input="after\n")
    assert [one for one in operator.values(topic) if one != "refused"] == ["before", "alone", "after"]


DISK_BYTES = 48 * 1024 * 1024


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    missing = can_mount()
    folder = tmp_path / "small"
    folder.mkdir()
    ran = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if missing or ran.returncode:
        pytest.skip(missing or "a file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=False)


@pytest.mark.long("a document that is walked")
def test_a_full_disk(make_cluster: Callable[..., RunningCluster], small_disk: Path, topic: str) -> None:
    """A broker's disk fills up: producers are refused, nothing is lost; room is made by retention, and they go on."""
    cluster = make_cluster(
        1, log__retention__check__interval__ms="500", log__segment__bytes="1048576", log__roll__hours="1"
    )
    cluster.brokers[1].extra_arguments = ["--dir", str(small_disk)]
    cluster.start()
    operator = Operator(cluster)
    cluster.create(topic, factor=1)
    operator.text("produce", topic, input="first\n")
    chunk = "".join(f"{number:0100}\n" for number in range(10_000))
    for _ in range(100):
        ran = operator.run("produce", topic, "--give-up-after", "1s", input=chunk)
        # The chunk that fills the disk may run out of its second before the broker has said why: the next one hears it.
        if ran.code and any(word in ran.stderr.lower() for word in ("disk", "room", "storage")):
            break
    else:
        pytest.fail(f"the disk has room for everything, or nobody says that it has not: {ran}")

    cause = operator.cause("broker", 1, until=lambda row: "full" in row["what"])
    assert cause["do"]
    assert operator.runbook("klog status broker 1").code == 1
    findings = operator.runbook("klog status")
    assert findings.code != 0, findings

    less = {"orders": topic, "50000000": 5_000_000}
    operator.runbook("klog topic config orders retention.bytes=50000000", **less)
    cluster.wait_until(
        lambda: operator.run("produce", topic, "--give-up-after", "1s", input="again\n").code == 0, "room is made"
    )
    assert operator.values(topic)[-1] == "again"
    operator.runbook("klog undo ACT", ACT=operator.act(subject=f"topic {topic}")["act"])  # not the messages
    settings = {row["name"]: row["value"] for row in operator.rows("topic", "config", topic)}
    assert settings["retention.bytes"] != "5000000"


@pytest.mark.long("a document that is walked")
def test_a_stuck_group(operator: Operator, topic: str) -> None:
    """A group stands still at one message: klog shows which, skips it, and takes the skip back."""
    operator.cluster.create(topic)
    operator.text("produce", topic, input="good 1\ngood 2\npoison\ngood 3\n")
    settings = {"bootstrap.servers": operator.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    worker = Consumer({**settings, "enable.auto.commit": False})
    worker.subscribe([topic])
    while True:
        message = worker.poll(1)
        if message is None or message.error():
            continue
        if message.value() == b"poison":
            break  # it dies of it, each time
        worker.commit(message, asynchronous=False)
    worker.close()

    (row,) = operator.runbook("klog lag readers --only-lagging", readers=topic).rows
    assert row["lag"] == 2
    assert operator.runbook("klog status group readers", readers=topic).code == 1
    operator.runbook("klog group describe readers", readers=topic)
    cause = operator.cause("group", topic, until=lambda row: "member" in row["what"])
    assert cause["do"]
    (stuck,) = operator.runbook("klog group peek readers", readers=topic).rows
    assert stuck["value"] == "poison"

    behind = {"4711": stuck["offset"] + 1, "orders": topic, "readers": topic}
    operator.runbook("klog group rewind readers -t orders -p 0 --to 4711", **behind)
    (next_one,) = operator.rows("group", "peek", topic)
    assert next_one["value"] == "good 3"
    act = operator.event("klog events group readers", "act", readers=topic)
    operator.runbook("klog undo ACT", ACT=act["act"])  # the poison was wanted after all
    (again,) = operator.rows("group", "peek", topic)
    assert again["value"] == "poison"


@pytest.mark.long("a document that is walked")
def test_garbage_in_a_time_range(operator: Operator, topic: str) -> None:
    """A producer wrote garbage for a while: the range is found by time, and a clean copy is made without it.

    Taken back is the copy: the topic itself stays as it was.
    """
    clean = f"{topic}-clean"
    operator.cluster.create(topic)
    hour_ms = 3_600_000
    begin_ms = int(datetime(2026, 2, 1, 3, tzinfo=UTC).timestamp() * 1000)
    lines = [
        {"value": "garbage" if 20 <= number < 30 else f"good {number}", "timestamp": begin_ms + number * hour_ms // 10}
        for number in range(50)
    ]
    operator.text("produce", topic, "-i", "jsonl", input="\n".join(map(json.dumps, lines)) + "\n")

    begin, end = "2026-02-01T05:00:00Z", "2026-02-01T06:00:00Z"
    during = {"orders": topic, "2026-02-01T03:00:00Z": begin, "2026-02-01T04:00:00Z": end}
    line = "klog tail orders -o @2026-02-01T03:00:00Z:@2026-02-01T04:00:00Z -e --grep garbage"
    found = operator.runbook(line, "--output", "jsonl", **during).stdout.splitlines()
    offsets = [json.loads(line)["offset"] for line in found]
    assert len(offsets) == 10
    shown = operator.runbook("klog status message orders-0 4711", **{"orders": topic, "4711": offsets[0]})
    assert shown.code == 0 and len(shown.rows) > 0, "the message is there, and is served: nothing is wrong with the log"
    line = "klog offset list orders --at @2026-02-01T03:00:00Z"
    (first,) = operator.runbook(line, **{"orders": topic, "2026-02-01T03:00:00Z": begin}).rows
    (behind,) = operator.rows("offset", "list", topic, "--at", "@2026-02-01T06:00:00Z")
    assert first["offset"] == offsets[0] and behind["offset"] > offsets[-1]

    names = {"orders": topic, "orders-clean": clean, "4711": first["offset"], "9000": behind["offset"]}
    operator.runbook("klog topic create orders-clean --like orders", **{"orders": topic, "orders-clean": clean})
    before = {name: names[name] for name in ("orders", "orders-clean", "4711")}
    after = {name: names[name] for name in ("orders", "orders-clean", "9000")}
    operator.runbook("klog replay orders orders-clean --from start:4711", "--dry-run", **before)
    assert operator.values(clean) == []
    operator.runbook("klog replay orders orders-clean --from start:4711", **before)
    operator.runbook("klog replay orders orders-clean --from 9000:end", **after)
    assert operator.values(clean) == [line["value"] for line in lines if line["value"] != "garbage"]
    operator.runbook("klog topic delete orders-clean", **{"orders-clean": clean})
    assert clean not in {row["topic"] for row in operator.rows("topic", "list")}
    assert len(operator.values(topic)) == 50


@pytest.mark.long("a document that is walked")
def test_settings_changed_at_night(operator: Operator, topic: str) -> None:
    """Somebody changes a topic's retention at night: klog shows who, when and what was before, and restores that."""
    operator.cluster.create(topic)
    assert operator.run("topic", "config", topic, "retention.ms=604800000").code == 0
    entry = ConfigEntry("retention.ms", "999999999", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    client = AdminClient({"bootstrap.servers": operator.bootstrap, "client.id": "night shift"})
    client.incremental_alter_configs([resource])[resource].result(20)

    assert operator.runbook("klog status orders", orders=topic).code == 0, "the topic is well: only its settings differ"
    told = operator.event(
        "klog events orders --kind act", "act", orders=topic, until=lambda row: "night shift" in row["what"]
    )
    (changed,) = operator.runbook("klog events ACT", ACT=told["act"]).rows
    assert (changed["before"], changed["after"]) == ("retention.ms=604800000", "retention.ms=999999999")
    shown = operator.run("undo", changed["act"], "--dry-run")
    assert shown.code == 0 and shown.rows[0]["then"] == "604800000"
    operator.runbook("klog undo ACT", ACT=changed["act"])
    settings = {row["name"]: row["value"] for row in operator.rows("topic", "config", topic)}
    assert settings["retention.ms"] == "604800000"
    (changed,) = operator.rows("events", changed["act"])
    assert changed["undone_by"] == operator.act(subject=f"topic {topic}")["act"]


@pytest.mark.long("a document that is walked")
def test_a_topic_deleted_by_mistake(operator: Operator, topic: str) -> None:
    """Somebody deletes a topic that is needed: klog says who and when, and restores it with messages and offsets.

    The restoration is what takes the act back; `klog topic delete` would take that back.
    """
    cluster = operator.cluster
    cluster.create(topic, partitions=2)
    operator.text("produce", topic, input="".join(f"{number}\n" for number in range(100)))
    before = sorted(operator.values(topic))
    with registry_of(cluster.zookeeper) as session:
        commit(session, f"g-{topic}", {TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 0})
        client = AdminClient({"bootstrap.servers": operator.bootstrap, "client.id": "clean-up script"})
        client.delete_topics([topic])[topic].result(20)
        cluster.wait_until(lambda: not cluster.partitions(topic), "it is deleted")

        cause = operator.cause(topic, until=lambda row: "deleted topic" in row["what"])
        assert cause["what"].startswith("clean-up script@")
        assert operator.runbook("klog status orders", orders=topic).code == 1

        assert any(row["topic"] == topic for row in operator.runbook("klog topic list --deleted").rows)
        operator.runbook("klog topic restore orders", orders=topic)
        cluster.wait_for_leader(topic)
        assert sorted(operator.values(topic)) == before
        assert {name.partition for name in committed.read(session, f"g-{topic}")} == {0, 1}
    operator.text("produce", topic, input="after\n")
    assert len(operator.values(topic)) == 101


@pytest.mark.long("a document that is walked")
def test_a_wrong_reassignment(operator: Operator, topic: str, tmp_path: Path) -> None:
    """A plan moves all replicas to one broker: klog shows who did it, and moves them back."""
    cluster = operator.cluster
    cluster.create(topic, assignment=[[1, 2], [2, 3]], min_insync_replicas="1")
    operator.text("produce", topic, input="1\n2\n3\n")
    plan = tmp_path / "plan.json"
    partitions = [{"topic": topic, "partition": number, "replicas": [3]} for number in (0, 1)]
    plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
    assert operator.run("reassign", "execute", plan, "--yes", "--wait", "30s").code == 0

    def replicas() -> list[list[int]]:
        return [row["replicas"] for row in operator.rows("topic", "describe", topic)]

    cluster.wait_until(lambda: replicas() == [[3], [3]], "the broker that is asked knows it")

    assert operator.runbook("klog reassign status").rows == []
    steps = operator.runbook("klog status orders-0", orders=topic).rows
    assert "3" in steps[0]["what"] and "replicas 3" in steps[0]["evidence"], "well, but on one broker alone"
    told = operator.event(
        "klog events orders --kind act", "act", orders=topic, until=lambda row: "reassignment" in row["what"]
    )
    (act,) = operator.runbook("klog events ACT", ACT=told["act"]).rows
    assert act["kind"] == "reassignment"
    assert (act["before"], act["after"]) == ("0=[1, 2] 1=[2, 3]", "0=[3] 1=[3]")
    operator.runbook("klog undo ACT", ACT=act["act"])
    cluster.wait_until(lambda: replicas() == [[1, 2], [2, 3]], "moved back")
    cluster.wait_in_sync(topic)
    assert operator.runbook("klog reassign cancel").rows == []  # all have ended
    assert sorted(operator.values(topic)) == ["1", "2", "3"]
