"""The commands against a real broker, as a person or a script uses them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.broker_fixture import RunningBroker
from tests.cli.process import on_terminal, started
from tests.cli.runner import act_rows, klog


@pytest.fixture
def filled(at: list[str], topic: str) -> str:
    """A topic of three partitions with 30 messages."""
    assert klog("topic", "create", topic, "-p", "3", *at).code == 0
    lines = "".join(f"k{number}:value {number}\n" for number in range(30))
    ran = klog("produce", topic, "-K", ":", *at, input=lines)
    assert ran.code == 0, ran.stderr
    return topic


def test_a_topics_life(at: list[str], topic: str) -> None:
    created = klog("topic", "create", topic, "-p", "2", "-X", "retention.ms=3600000", "-o", "json", *at)
    assert created.code == 0, created.stderr
    assert created.rows[0] == {"topic": topic, "partitions": 2, "replication_factor": 1, "created": True}
    assert topic in [row["topic"] for row in klog("topics", "ls", "-o", "json", *at).rows]
    again = klog("topic", "create", topic, "-o", "json", *at)
    assert again.code == 1 and again.error["code"] == "TOPIC_ALREADY_EXISTS"
    assert klog("topic", "create", topic, "--if-not-exists", *at).code == 0
    described = klog("topic", "describe", topic, "-o", "json", *at).rows
    assert [row["partition"] for row in described] == [0, 1]
    assert all(row["isr"] == row["replicas"] == [row["leader"]] for row in described)
    altered = klog("topic", "alter", topic, "-p", "4", "-y", "-o", "json", *at)
    assert altered.code == 0 and altered.rows[0]["partitions"] == 4
    settings = klog("topic", "config", topic, "retention.ms=60000", "--delete", "retention.bytes", "-o", "json", *at)
    assert settings.code == 0, settings.stderr
    assert {row["name"]: row["value"] for row in settings.rows}["retention.ms"] == "60000"
    deleted = klog("topic", "delete", topic, "-y", "-o", "json", *at)
    assert deleted.code == 0 and deleted.rows[0]["topic"] == topic
    gone = klog("topic", "describe", topic, "-o", "json", *at)
    assert gone.code == 1 and gone.error["code"] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert klog("topic", "delete", topic, "-y", "--if-exists", *at).code == 0


def test_a_topic_like_another(at: list[str], topic: str) -> None:
    assert klog("topic", "create", topic, "-p", "3", "-X", "retention.ms=60000", *at).code == 0
    assert klog("topic", "create", f"{topic}-b", "--like", topic, "-X", "segment.bytes=65536", *at).code == 0
    assert klog("topic", "create", f"{topic}-plain", *at).code == 0

    own = {row["topic"]: row for row in klog("topic", "list", "--overrides", "-o", "json", *at).rows}
    assert own[topic]["settings"] == "retention.ms=60000"
    assert own[f"{topic}-b"]["partitions"] == 3
    assert set(own[f"{topic}-b"]["settings"].split()) == {"retention.ms=60000", "segment.bytes=65536"}
    assert f"{topic}-plain" not in own
    missing = klog("topic", "create", f"{topic}-c", "--like", f"{topic}-no", "-o", "json", *at)
    assert missing.code == 1 and missing.error["code"] == "UNKNOWN_TOPIC_OR_PARTITION"


def test_internal_topics_are_left_out_unless_asked_for(at: list[str]) -> None:
    name = "klog.audit"
    # The brokers are shared: an audit makes it, too.
    assert klog("topic", "create", name, "--if-not-exists", *at).code == 0

    def listed(*words: str) -> list[str]:
        return [row["topic"] for row in json.loads(klog("topic", "list", *words, "-o", "json", *at).stdout)["rows"]]

    assert name not in listed()
    assert name in listed("--internal")
    assert listed(name) == [name]
    refused = klog("topic", "delete", name, "-y", *at)
    assert refused.code == 2
    assert "--internal" in refused.stderr
    assert klog("topic", "delete", name, "--internal", "-y", *at).code == 0
    assert name not in listed("--internal")


def test_one_missing_topic_of_two_is_a_failed_row(at: list[str], topic: str) -> None:
    klog("topic", "create", topic, *at)
    ran = klog("topic", "delete", topic, f"{topic}-no", "-y", "-o", "json", *at)
    assert ran.code == 1
    failed = [row for row in ran.rows if row["error"]]
    assert [row["topic"] for row in failed] == [f"{topic}-no"] and failed[0]["message"]
    assert topic not in klog("topic", "list", *at).stdout


def test_a_person_is_asked_with_a_preview(at: list[str], filled: str) -> None:
    with on_terminal("topic", "delete", filled, *at) as (process, terminal):
        shown = terminal.wait_for("[y/N] ")
        assert "MESSAGES" in shown and filled in shown and at[1] in shown and "flag -B" in shown
        terminal.type("n\n")
        assert process.wait(20) == 1
    assert klog("topic", "describe", filled, *at).code == 0
    with on_terminal("topic", "delete", filled, *at) as (process, terminal):
        terminal.wait_for("[y/N] ")
        terminal.type("y\n")
        assert process.wait(20) == 0
    assert klog("topic", "describe", filled, *at).code == 1


def test_ctrl_c_at_a_question_is_a_no(at: list[str], filled: str) -> None:
    with on_terminal("topic", "delete", filled, *at) as (process, terminal):
        terminal.wait_for("[y/N] ")
        terminal.type("\x03")
        assert process.wait(20) == 130
    with on_terminal("shell", *at) as (process, terminal):
        terminal.wait_for(f"cluster {at[1]}")
        terminal.type(f"topic delete {filled}\r")
        terminal.wait_for("[y/N] ")
        terminal.type("\x03")
        terminal.wait_for("exit 130")  # the toolbar of the next prompt
        terminal.type("exit\r")
        assert process.wait(20) == 130
    assert klog("topic", "describe", filled, *at).code == 0


def test_the_receipt_goes_to_stderr_with_the_line_that_shows_it(at: list[str], filled: str) -> None:
    ran = klog("produce", filled, *at, input="one more\n")
    assert ran.stdout == "" and "1 message," in ran.stderr and f"klog tail {filled}" in ran.stderr
    assert klog("produce", filled, "-q", *at, input="and one\n").stderr == ""


def test_positions_and_formats(at: list[str], filled: str) -> None:
    end = {row["partition"]: row["offset"] for row in klog("offset", "list", filled, "-o", "json", *at).rows}
    start = {
        row["partition"]: row["offset"]
        for row in klog("offset", "list", filled, "--at", "start", "-o", "json", *at).rows
    }
    assert set(end) == {0, 1, 2} and start == {0: 0, 1: 0, 2: 0} and sum(end.values()) >= 30
    partition, last = max(end.items(), key=lambda item: item[1])
    shown = klog("tail", filled, "-p", partition, "-o", f"{last - 1}:{last}", "-f", "%t %p %o\\n", *at)
    assert shown.stdout == f"{filled} {partition} {last - 1}\n"
    place = klog("where", filled, last - 1, "-p", partition, "-o", "json", *at)
    assert place.code == 0 and place.rows[0]["file"].endswith(".log")


def test_tables_are_for_people_and_tsv_for_cut(at: list[str], filled: str) -> None:
    table = klog("topic", "describe", filled, *at).stdout.splitlines()
    assert table[0].split()[:3] == ["TOPIC", "PARTITION", "LEADER"] and len(table) == 4
    bare = klog("topic", "describe", filled, "--no-header", *at).stdout.splitlines()
    assert [line.split() for line in bare] == [line.split() for line in table[1:]]
    tsv = klog("topic", "describe", filled, "-o", "tsv", *at).stdout.splitlines()
    assert tsv[0].split("\t")[:3] == ["TOPIC", "PARTITION", "LEADER"] and len(tsv) == 4


def test_trace_shows_each_request_with_milliseconds(at: list[str]) -> None:
    ran = klog("topic", "list", "--trace", *at)
    lines = [line for line in ran.stderr.splitlines() if line.startswith("trace")]
    assert any("Metadata" in line and " ms " in line and at[1] in line for line in lines)


def test_zookeeper_alone_is_enough_and_so_is_a_broker(broker: RunningBroker) -> None:
    by_zookeeper = klog("broker", "list", "-z", broker.zookeeper, "-o", "json")
    assert by_zookeeper.code == 0, by_zookeeper.stderr
    assert [f"{row['host']}:{row['port']}" for row in by_zookeeper.rows] == [broker.bootstrap]
    by_broker = klog("zk", "brokers", "-B", broker.bootstrap, "-o", "json")  # the words of the version before
    assert by_broker.code == 0, by_broker.stderr
    _, registered = by_broker.rows
    assert registered["path"] == f"/brokers/ids/{broker.broker_id}"
    assert f"port={broker.bootstrap.rpartition(':')[2]}" in registered["entry"].split()
    both = klog("zk", "controller", "-B", broker.bootstrap, "-z", broker.zookeeper, "-o", "json")
    assert both.code == 0 and f"brokerid={broker.broker_id}" in both.rows[0]["entry"].split()
    for words in (["ls"], ["tree", "/brokers"], ["get", "/cluster/id"], ["stat", "/controller"]):
        assert klog("zk", *words, "-z", broker.zookeeper).code == 0


def test_addresses_of_two_clusters_are_an_error(broker: RunningBroker, zk_chroot: str) -> None:
    from klog.coordination.cluster import ensure_cluster
    from klog.coordination.zookeeper import ZooKeeper

    with ZooKeeper(zk_chroot) as session:
        session.start()
        ensure_cluster(session)
    for words in (["topic", "list"], ["zk", "tree"]):
        ran = klog(*words, "-B", broker.bootstrap, "-z", zk_chroot, "-o", "json")
        assert ran.code == 1 and ran.error["code"] == "WRONG_CLUSTER"
        assert broker.bootstrap in ran.error["message"] and zk_chroot in ran.error["message"]


def test_a_missing_chroot_is_an_error_and_stays_missing(broker: RunningBroker) -> None:
    address = f"{broker.zookeeper.partition('/')[0]}/never-made"
    for _ in range(2):
        ran = klog("zk", "ls", "/", "-z", address, "-o", "json")
        assert ran.code == 1 and ran.error["code"] == "ZOOKEEPER_NO_NODE" and "never-made" in ran.error["message"]
    status = klog("status", "-o", "json", "-z", address)
    (found,) = (row for row in status.rows if row["kind"] == "no-zookeeper")
    assert broker.zookeeper.partition("/")[0] in found["do"]


def test_status_and_broker_commands(broker: RunningBroker, at: list[str]) -> None:
    status = klog("status", "-o", "json", *at)
    assert status.about["controller"] == broker.broker_id and status.about["verdict"] != "DOWN"
    assert klog("broker", "describe", broker.broker_id, *at).code == 0
    unknown = klog("broker", "describe", 99, "-o", "json", *at)
    assert unknown.code == 1 and "99" in unknown.error["message"]
    settings = {row["name"]: row for row in klog("broker", "config", broker.broker_id, "-o", "json", *at).rows}
    assert settings["broker.id"]["value"] == str(broker.broker_id)
    assert all(row["doc"] for row in settings.values())


def test_an_export_is_planned_without_spark(at: list[str], filled: str, tmp_path: Path) -> None:
    root = tmp_path / "export"
    planned = klog("export", "run", filled, "--to", root, "--dry-run", "-o", "json", *at)
    assert planned.code == 0, planned.stderr
    assert sum(row["messages"] for row in planned.rows) == 30 and not root.exists()
    none = klog("export", "status", root, "-o", "json", *at)
    assert none.code == 1 and none.error["code"] == "NOT_FOUND" and str(root) in none.error["message"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").touch()
    refused = klog("export", "run", filled, "--to", tmp_path / "other", "-o", "json", *at)
    assert refused.code == 1 and refused.error["code"] == "REFUSED"
    assert klog("export", "run", filled, "--to", root, "--from", "5:x", *at).code == 2
    beyond = klog("export", "run", filled, "--to", root, "--from", "99999999", *at)
    assert beyond.code == 2 and f"{filled}-0 " in beyond.stderr and not root.exists()


# --- Streams and signals ---------------------------------------------------------------------------------------------


def test_tail_notices_that_its_reader_has_gone_although_nothing_comes(at: list[str], filled: str) -> None:
    with started("tail", filled, "-o", "start", "-q", *at) as process:
        assert process.stdout is not None and process.stderr is not None
        for _ in range(30):
            process.stdout.readline()
        process.stdout.close()  # it now waits for messages that never come
        assert process.wait(20) == 0
        assert process.stderr.read() == b""


def test_broker_stop_stops_it(make_broker: object) -> None:
    broker = make_broker()  # type: ignore[operator]
    broker.start()
    ran = klog("broker", "stop", broker.broker_id, "-B", broker.bootstrap, "-o", "json")
    assert ran.code == 0 and ran.rows[0]["stopped"] is True
    assert broker.process.wait(20) == 0
    (act,) = (row for row in act_rows(broker.zookeeper) if row["kind"] == "broker-stop")
    assert (act["subject"], act["client"]) == (f"broker {broker.broker_id}", "klog")
    ran = klog("undo", act["act"], "-y", "-z", broker.zookeeper, "-o", "json")
    assert ran.code == 1 and "klog broker start" in ran.error["message"]
