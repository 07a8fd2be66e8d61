"""What is compared and who is found wrong: decided without a broker."""

from __future__ import annotations

import pytest

from klog.errors import UnknownTopicOrPartition, UsageError
from klog.metrics import Count
from klog.names import TopicPartition
from klog.tools.verify_replicas import Comparison, Piece, Replica, choose_wrong, pieces, verify_replicas
from tests.broker_fixture import RunningBroker
from tests.cli.runner import klog
from tests.rows import each
from tests.tools.verbs import make_topic, run


@each(
    ("holes", "expected"),
    [
        ([], [(10, 100)]),
        ([(20, 30)], [(10, 20), (30, 100)]),
        ([(0, 10), (100, 200)], [(10, 100)]),
        ([(0, 15), (90, 200)], [(15, 90)]),
        ([(40, 50), (20, 45)], [(10, 20), (50, 100)]),
        ([(5, 200)], []),
        ([(150, 160)], [(10, 100)]),
    ],
)
def test_pieces_leave_out_what_any_replica_lacks(holes: list[tuple[int, int]], expected: list[tuple[int, int]]) -> None:
    assert pieces(10, 100, holes) == expected


@each(
    ("answers", "leader", "wrong"),
    [
        ({1: (7, True), 2: (7, True), 3: (8, True)}, 3, {3}),  # two agree, though neither leads
        ({1: (7, True), 2: (8, True)}, 2, {1}),  # as many each: the leader's stands
        ({1: (7, True), 2: (8, True)}, None, {2}),
        ({1: (7, False), 2: (8, True)}, 1, {1}),  # the leader's own batch is broken
        ({1: (7, False), 2: (7, False), 3: (8, True)}, 1, {1, 2}),
        ({1: (7, False), 2: (8, False)}, 1, {2}),
    ],
)
def test_who_is_wrong(answers: dict[int, tuple[int, bool]], leader: int | None, wrong: set[int]) -> None:
    assert choose_wrong(answers, leader) == wrong


def comparison() -> Comparison:
    replicas = {
        1: Replica(1, start=100, high_watermark=1_000),
        2: Replica(2, start=0, high_watermark=900, holes=[(300, 400)]),
        3: Replica(3, start=200, high_watermark=1_200),
    }
    return Comparison(TopicPartition("t", 0), 1, replicas)


def test_from_the_highest_start_to_the_lowest_high_watermark() -> None:
    one = comparison()
    one.plan()
    assert list(one.todo) == [(200, 300), (400, 900)]
    assert one.next_piece(64) == Piece(200, 264)
    assert one.next_piece(1_000) == Piece(264, 300)
    assert one.next_piece(1_000) == Piece(400, 900)
    assert one.next_piece(1_000) is None


def test_a_hole_is_reported_and_is_no_mismatch() -> None:
    one = comparison()
    one.plan()
    rows = one.rows()
    assert [(row.state, row.first_difference) for row in rows] == [("ok", None), ("hole", 300), ("ok", None)]
    assert not any(row.is_mismatch for row in rows)


def test_nobody_to_compare_with() -> None:
    one = comparison()
    del one.replicas[2], one.replicas[3]
    one.plan()
    assert one.next_piece(1_000) is None
    assert [(row.state, row.bytes, row.crc) for row in one.rows()] == [("alone", None, None)]


# --- With a real broker -----------------------------------------------------------------------------------------------


def test_a_replica_alone_is_said_to_be(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic, partitions=2)
    count = Count()
    rows = run(broker.bootstrap, lambda cluster: verify_replicas(cluster, [topic], count=count))
    assert [(row.partition, row.state, row.error) for row in rows] == [(0, "alone", None), (1, "alone", None)]
    assert count.done == count.total == 0
    assert klog("topic", "verify", topic, "-B", broker.bootstrap).code == 0


def test_topics_by_name_and_by_expression(broker: RunningBroker, topic: str) -> None:
    for name in (topic, f"{topic}-b", f"{topic}-bc"):
        make_topic(broker.bootstrap, name)

    def chosen(*names: str, pattern: str | None = None) -> set[str]:
        rows = run(broker.bootstrap, lambda cluster: verify_replicas(cluster, names, pattern=pattern))
        return {row.topic for row in rows}

    assert chosen(topic) == {topic}
    assert chosen(pattern=f"{topic}-.") == {f"{topic}-b"}
    assert chosen(topic, pattern=f"{topic}-.*") == {topic, f"{topic}-b", f"{topic}-bc"}
    assert chosen() >= {topic, f"{topic}-b"}
    with pytest.raises(UnknownTopicOrPartition, match="no-such-topic"):
        chosen("no-such-topic")
    with pytest.raises(UsageError, match="regular expression"):
        chosen(pattern="(")


def test_a_rate_is_of_bytes(broker: RunningBroker) -> None:
    for rate in ("5/s", "fast"):
        assert klog("topic", "verify", "--rate", rate, "-B", broker.bootstrap).code == 2
