"""What ZooKeeper says of reassignments: the topic's node, and 0.8's two queues in front of the controller."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from klog.coordination import reassignments, topics
from klog.coordination.zookeeper import Check, ZooKeeper
from klog.errors import BadVersion, ZooKeeperError
from klog.names import TopicPartition
from tests.era_tools import ask_elections, ask_reassignments

pytestmark = pytest.mark.usefixtures("made_cluster")

A, B = TopicPartition("a", 0), TopicPartition("b", 3)


def test_a_reassignment_stands_in_the_topics_node_under_kafkas_keys(zk: ZooKeeper, fence: list[Check]) -> None:
    made = topics.create(zk, "t", {0: [1, 2], 1: [2, 1]}, {}, fence)
    changed = replace(
        made,
        partitions={0: (3, 2, 1), 1: (2, 1)},
        adding={0: (3,)},
        removing={0: (1,)},
        origins={0: (1, 2)},
        throttles={0: 5000},
    )
    written = topics.replace_assignment(zk, changed, fence)
    entry = json.loads(zk.get("/brokers/topics/t").data)
    assert entry["partitions"] == {"0": [3, 2, 1], "1": [2, 1]}
    assert entry["adding_replicas"] == {"0": [3]}
    assert entry["removing_replicas"] == {"0": [1]}
    assert entry["reassigned"] == {"0": {"origin": [1, 2], "throttle": 5000}}
    assert topics.find(zk, "t") == written == replace(changed, version=1)
    with pytest.raises(BadVersion):
        topics.replace_assignment(zk, changed, fence)


def test_nothing_of_it_is_left_when_it_is_over(zk: ZooKeeper, fence: list[Check]) -> None:
    made = topics.create(zk, "t", {0: [1]}, {}, fence)
    begun = replace(made, partitions={0: (2, 1)}, adding={0: (2,)}, removing={0: (1,)}, throttles={0: 1})
    begun = topics.replace_assignment(zk, begun, fence)
    topics.replace_assignment(zk, replace(begun, partitions={0: (2,)}, adding={}, removing={}, throttles={}), fence)
    assert list(json.loads(zk.get("/brokers/topics/t").data)) == ["version", "partitions", "topic_id"]


def test_a_tool_of_kafka_writes_empty_lists_and_no_origin(zk: ZooKeeper) -> None:
    zk.create(
        "/brokers/topics/k",
        b'{"version":2,"partitions":{"0":[2,1],"1":[1]},"adding_replicas":{"0":[2],"1":[]},"removing_replicas":{}}',
    )
    found = topics.find(zk, "k")
    assert found is not None
    assert (found.adding, found.removing, found.origins, found.throttles) == ({0: (2,)}, {}, {}, {})


@pytest.mark.parametrize(
    "rest", ['"adding_replicas":[1]', '"reassigned":{"0":5}', '"reassigned":{"0":{"origin":"x"}}', '"reassigned":[]']
)
def test_nonsense_in_the_topics_node_is_named(zk: ZooKeeper, rest: str) -> None:
    zk.create("/brokers/topics/x", f'{{"version":1,"partitions":{{"0":[1]}},{rest}}}'.encode())
    with pytest.raises(ZooKeeperError, match="/brokers/topics/x"):
        topics.find(zk, "x")


def test_the_queue_has_0_8s_form_and_shrinks_as_partitions_are_done(zk: ZooKeeper, fence: list[Check]) -> None:
    assert reassignments.reassignments(zk) is None
    ask_reassignments(zk, {A: [2, 3], B: [1]})
    reassignments.finish_reassignments(zk, [A, TopicPartition("other", 0)], fence)
    queue = reassignments.reassignments(zk)
    assert queue is not None and queue.wanted == {B: (1,)}
    reassignments.finish_reassignments(zk, [B], fence)
    assert zk.exists("/admin/reassign_partitions") is None
    reassignments.finish_reassignments(zk, [B], fence)


def test_nonsense_in_a_queue_is_left_out_told_and_taken_away(zk: ZooKeeper, fence: list[Check]) -> None:
    zk.ensure_path("/admin")
    zk.create(
        "/admin/reassign_partitions",
        b'{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[2]},{"topic":"a"},{"topic":"b",'
        b'"partition":"x","replicas":[1]}]}',
    )
    queue = reassignments.reassignments(zk)
    assert queue is not None and queue.wanted == {A: (2,)} and len(queue.nonsense) == 2
    assert '{"topic": "a"}' in queue.nonsense[0]
    reassignments.finish_reassignments(zk, [], fence)
    again = reassignments.reassignments(zk)
    assert again is not None and again.wanted == {A: (2,)} and not again.nonsense
    zk.set("/admin/reassign_partitions", b"not json at all")
    broken = reassignments.reassignments(zk)
    assert broken is not None and not broken.wanted and "not json" in broken.nonsense[0]
    reassignments.finish_reassignments(zk, [], fence)
    assert zk.exists("/admin/reassign_partitions") is None


def test_a_deposed_controller_finishes_nothing(zk: ZooKeeper, fence: list[Check]) -> None:
    ask_reassignments(zk, {A: [2]})
    ask_elections(zk, [A])
    asked = reassignments.elections(zk)
    assert asked is not None
    old = [Check(fence[0].path, fence[0].version + 7)]
    with pytest.raises(BadVersion):
        reassignments.finish_reassignments(zk, [A], old)
    with pytest.raises(BadVersion):
        reassignments.finish_elections(zk, asked, old)
    assert zk.exists("/admin/reassign_partitions") and zk.exists("/admin/preferred_replica_election")


def test_elections_are_asked_for_and_the_request_goes_once_tried(zk: ZooKeeper, fence: list[Check]) -> None:
    ask_elections(zk, [A, B])
    queue = reassignments.elections(zk)
    assert queue is not None and list(queue.wanted) == [A, B]
    reassignments.finish_elections(zk, queue, fence)
    assert reassignments.elections(zk) is None
    ask_elections(zk, [B])
    reassignments.finish_elections(zk, queue, fence)
    left = reassignments.elections(zk)
    assert left is not None and list(left.wanted) == [B], "the next request is not taken for the one that was tried"
