"""`klog reassign` and `klog election` against three brokers, as a person or a script types them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from klog.client.reassignments import elect_replicas
from klog.names import TopicPartition
from tests.cli.runner import Ran, act_rows, klog
from tests.cluster.load import produce
from tests.cluster.replica_bytes import assert_identical
from tests.cluster.test_reassignment import move, placed, underway, wait_done
from tests.cluster.test_why_groups import wait_for_cause
from tests.cluster_fixture import RunningCluster
from tests.tools.verbs import run

BIG = [b"x" * 50_000] * 40
"""2 MB."""
SMALL_BATCHES = {"batch.num.messages": 1}
"""A batch is what a throttle lets through or not."""


def at(cluster: RunningCluster, *words: object, form: str = "json") -> Ran:
    return klog(*words, "-B", cluster.bootstrap, "-o", form)


def replicas(path: Path) -> dict[tuple[str, int], list[int]]:
    found: dict[str, Any] = json.loads(path.read_text())
    assert found["version"] == 1
    return {(one["topic"], one["partition"]): one["replicas"] for one in found["partitions"]}


def test_a_broker_is_emptied_and_the_way_back_is_gone_too(three: RunningCluster, topic: str, tmp_path: Path) -> None:
    three.create(topic, assignment=[[1, 2], [2, 1], [2, 3]])
    produce(three.bootstrap, topic, BIG[:4])
    plan = tmp_path / "plan.json"
    planned = at(three, "reassign", "plan", "--remove-broker", 2, "--topics", topic, "--file", plan)
    assert planned.code == 0, planned
    assert [(row["partition"], row["from"], row["state"]) for row in planned.rows] == [
        (0, [1, 2], "planned"),
        (1, [2, 1], "planned"),
        (2, [2, 3], "planned"),
    ]
    assert all(2 not in row["to"] and len(row["to"]) == 2 for row in planned.rows)
    assert planned.rows[0]["bytes_left"] > 200_000, "one replica is filled from nothing"
    assert replicas(plan) == {(topic, row["partition"]): row["to"] for row in planned.rows}
    assert replicas(tmp_path / "plan.json.rollback") == {(topic, row["partition"]): row["from"] for row in planned.rows}

    unasked = at(three, "reassign", "execute", plan)
    assert unasked.code == 2 and "--yes" in unasked.error["message"]
    dry = at(three, "reassign", "execute", plan, "--dry-run")
    assert dry.code == 0 and len(dry.rows) == 3 and placed(three, topic) == (1, 2)
    done = at(three, "reassign", "execute", plan, "-y", "--wait", "30s")
    assert done.code == 0, done
    assert {(row["state"], row["percent"], row["bytes_left"]) for row in done.rows} == {("done", 100.0, 0)}
    assert placed(three, topic) == tuple(planned.rows[0]["to"])
    assert done.stderr.splitlines()[-1] == f"undo: klog undo {act_rows(three.zookeeper, topic=topic)[-1]['act']}"
    again = at(three, "reassign", "execute", plan, "-y")
    assert again.code == 0 and {row["state"] for row in again.rows} == {"done"}
    status = at(three, "reassign", "status", plan)
    assert status.code == 0 and {row["state"] for row in status.rows} == {"done"}

    back = at(three, "reassign", "execute", tmp_path / "plan.json.rollback", "-y", "--wait", "30s")
    assert back.code == 0, back
    assert [placed(three, topic, number) for number in range(3)] == [(1, 2), (2, 1), (2, 3)]


def test_progress_throttle_and_cancel(three: RunningCluster, topic: str, tmp_path: Path) -> None:
    three.create(topic, assignment=[[1, 2]])
    produce(three.bootstrap, topic, BIG, **SMALL_BATCHES)
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [3, 1]}]}))
    assert at(three, "reassign", "status", plan).rows[0]["state"] == "waiting"
    begun = at(three, "reassign", "execute", plan, "-y", "--throttle", "200KB/s")
    assert begun.code == 0, begun
    assert begun.rows[0]["state"] == "copying" and begun.rows[0]["throttle"] == 200_000
    time.sleep(1)  # bytes come at the throttle's pace
    (row,) = at(three, "reassign", "status", plan).rows
    assert row["state"] == "copying" and 0 < row["percent"] < 100 and 0 < row["bytes_left"] < 2_000_000
    assert row["eta"].endswith("Z")
    shown = at(three, "reassign", "status", form="table")
    assert f"{topic}  " in shown.stdout and "bytes" in shown.stderr
    faster = at(three, "reassign", "execute", plan, "-y", "--throttle", "300KB/s")
    assert faster.code == 0 and faster.rows[0]["throttle"] == 300_000
    cancelled = at(three, "reassign", "cancel", plan, "-y")
    assert cancelled.code == 0, cancelled
    wait_done(three, topic, (1, 2))
    assert underway(three, topic) == []
    nothing = at(three, "reassign", "cancel", plan, "-y", form="table")
    assert nothing.code == 0 and "nothing" in nothing.stderr


def test_what_a_throttle_holds_back_does_not_stand_still(three: RunningCluster, topic: str, tmp_path: Path) -> None:
    three.create(topic, assignment=[[1, 2]] * 4, max_message_bytes="1000000")
    for number in range(4):
        produce(three.bootstrap, topic, [b"x" * 900_000] * 4, partition=number, **SMALL_BATCHES)
    plan = tmp_path / "plan.json"
    moves = [{"topic": topic, "partition": number, "replicas": [1, 3]} for number in range(4)]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    assert at(three, "reassign", "execute", plan, "-y", "--throttle", "400KB/s").code == 0
    for _ in range(2):  # each batch takes over 2 s, and the partitions take turns
        findings = at(three, "check", "topics").rows
        assert len(underway(three, topic)) == 4, "it is still under way"
        assert [one for one in findings if one["kind"] == "reassignment-stalls" and topic in one["what"]] == []
    assert at(three, "reassign", "cancel", plan, "-y").code == 0
    for number in range(4):
        wait_done(three, topic, (1, 2), number)


def test_a_watch_ends_when_it_is_done(three: RunningCluster, topic: str, tmp_path: Path) -> None:
    three.create(topic, assignment=[[1, 2]])
    produce(three.bootstrap, topic, BIG[:20], **SMALL_BATCHES)
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [3, 1]}]}))
    assert at(three, "reassign", "execute", plan, "-y", "--throttle", "400KB/s").code == 0
    watched = at(three, "reassign", "status", plan, "--watch", form="jsonl")
    assert watched.code == 0, watched
    rows = [json.loads(line) for line in watched.stdout.splitlines()]
    assert len(rows) >= 2 and rows[-1]["state"] == "done"
    percents = [row["percent"] for row in rows]
    assert percents == sorted(percents)
    assert at(three, "reassign", "status", "--watch").code == 2, "many reports are no JSON document"


def test_a_stalled_one_says_why_and_goes_on_when_the_broker_is_back(
    three: RunningCluster, topic: str, tmp_path: Path
) -> None:
    three.create(topic, assignment=[[1, 2]])
    produce(three.bootstrap, topic, BIG, **SMALL_BATCHES)
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [1, 3]}]}))
    assert at(three, "reassign", "execute", plan, "-y", "--throttle", "100KB/s").code == 0
    three.kill(3)
    three.wait_until(lambda: [one.state for one in underway(three, topic)] == ["stalled"], "it is stalled")
    (row,) = at(three, "reassign", "status").rows
    assert row["state"] == "stalled" and "broker 3" in row["reason"]
    shown = at(three, "reassign", "status", form="table")
    assert "stalled" in shown.stdout and row["reason"] in shown.stderr
    waited = at(three, "reassign", "execute", plan, "-y", "--wait", "100ms")
    assert waited.code == 1, "it was not done in time"
    cause = wait_for_cause(three, ("topic", topic), ("broker 3", "is dead"))
    assert "start broker 3" in cause["do"] and "reassign cancel" in cause["do"]
    assert move(three, topic, (1, 3)) == 0, "the throttle is lifted meanwhile"
    three.start(3)
    wait_done(three, topic, (1, 3))
    assert_identical(three, topic)


def test_brokers_are_added_and_racks_spread_over(
    make_cluster: Callable[..., RunningCluster], topic: str, tmp_path: Path
) -> None:
    """Who joins is known to all at once, rules nothing, and gets replicas of what is made then, or by a plan."""
    cluster = make_cluster(0)
    cluster.add(1, broker__rack="a")
    cluster.start()
    alone = cluster.create(f"{topic}-alone", factor=1)
    produce(cluster.bootstrap, alone, [b"alone"])
    cluster.add(2, broker__rack="a")
    cluster.add(3, broker__rack="b")
    cluster.start()
    assert cluster.controller() == 1
    later = cluster.create(f"{topic}-later", partitions=3)
    assert {part.leader_id for part in cluster.partitions(later).values()} == {1, 2, 3}
    produce(cluster.brokers[3].bootstrap, later, [b"together"])

    cluster.create(topic, assignment=[[1, 2], [2, 1]])
    plan = tmp_path / "plan.json"
    planned = at(cluster, "reassign", "plan", "--topics", topic, "--file", plan)
    assert all(3 in row["to"] and len(row["to"]) == 2 for row in planned.rows) and len(planned.rows) == 2
    assert at(cluster, "reassign", "execute", plan, "-y", "--wait", "30s").code == 0
    assert all(3 in placed(cluster, topic, number) for number in range(2))


def test_what_cannot_be_planned(three: RunningCluster, topic: str) -> None:
    three.create(topic)
    for words, code, text in (
        (("--remove-broker", 9), 1, "no broker 9; there are 1, 2, 3"),
        (("--brokers", "1,8"), 1, "no broker 8"),
        (("--topics", "no-such-topic"), 1, "no-such-topic"),
        (("--brokers", "one"), 2, "--brokers 'one'"),
        (("--replication-factor", 4), 1, "at most 3"),
    ):
        ran = at(three, "reassign", "plan", *words)
        assert ran.code == code and text in ran.error["message"], ran


def test_a_plan_that_does_not_fit_the_cluster_is_not_begun(three: RunningCluster, topic: str, tmp_path: Path) -> None:
    three.create(topic, assignment=[[1, 2]])
    plan = tmp_path / "plan.json"
    good = {"topic": topic, "partition": 0, "replicas": [3, 1]}
    for wrong, text in (
        ({"topic": "no-such-topic", "partition": 0, "replicas": [1]}, "'no-such-topic'"),
        ({"topic": topic, "partition": 7, "replicas": [1]}, "has 1 partition (0 to 0), no partition 7"),
        ({"topic": topic, "partition": 0, "replicas": [1, 9]}, "broker 9"),
    ):
        entries = [wrong] if wrong["topic"] == topic and wrong["partition"] == 0 else [good, wrong]
        plan.write_text(json.dumps({"version": 1, "partitions": entries}))
        ran = at(three, "reassign", "execute", plan, "-y")
        assert ran.code == 1 and text in ran.error["message"] and str(plan) in ran.error["message"], ran
    assert placed(three, topic) == (1, 2) and underway(three, topic) == []


def test_preferred_leaders(three: RunningCluster, topic: str) -> None:
    """Of a partition and of a topic; without a name of all: `test_questions.py`."""
    three.create(topic, assignment=[[1, 2, 3], [2, 3, 1]])
    three.kill(1)
    three.wait_for_leader(topic, 0, other_than=1)
    failed = at(three, "topic", "elect", topic)
    assert failed.code == 1
    assert [(row["partition"], row["error"]) for row in failed.rows] == [
        (0, "PREFERRED_LEADER_NOT_AVAILABLE"),
        (1, None),
    ]
    three.start(1)
    three.wait_in_sync(topic)
    first = TopicPartition(topic, 0)
    for named in (str(first), topic):
        elected = at(three, "topic", "elect", named)
        assert elected.code == 0, elected
        mine = {row["partition"]: (row["old"], row["new"]) for row in elected.rows}
        assert mine[0][0] in (2, 3) and mine[0][1] == 1, named
        assert mine.get(1, (2, 2)) == (2, 2), named
        assert len(elected.rows) == 1 or named == topic
        again = at(three, "topic", "elect", topic, form="table")
        assert again.code == 0 and "preferred" in again.stderr
        assert run(three.bootstrap, lambda asked: elect_replicas(asked, {first: 2})) == {first: None}
        three.wait_until(lambda: three.leader_of(topic) == 2, "it is led by another again")
    unknown = at(three, "topic", "elect", f"{topic}-7")
    assert unknown.code == 1 and "no partition 7" in unknown.error["message"]
