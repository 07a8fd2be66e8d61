"""How far groups are behind, as a real broker counts it: in messages, bytes and time."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from itertools import pairwise

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Assigned

from klog.admin import group_lag
from klog.admin.group_lag import LagRow
from klog.client import leader_requests
from klog.client.cluster import Cluster
from klog.client.positions import EARLIEST
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import GroupIdNotFound, UnknownTopicOrPartition
from klog.names import TopicPartition
from tests.admin.group_registry import assignment, commit, enter, join, member
from tests.broker_fixture import RunningBroker
from tests.cli.runner import klog
from tests.tools.verbs import delete_before, delete_topic, make_topic, run, send, send_at

TIMES_MS = [1_700_000_000_000 + 1000 * number + number % 7 for number in range(30)]


def lag(broker: RunningBroker, registry: ZooKeeper, *groups: str, **options: object) -> list[LagRow]:
    return run(broker.bootstrap, lambda cluster: group_lag.lag(cluster, registry, groups, **options))  # type: ignore[arg-type]


@pytest.fixture
def offsets(broker: RunningBroker, topic: str) -> list[int]:
    """Thirty messages of known times in partition 0 of two, in batches of four; their offsets."""
    make_topic(broker.bootstrap, topic, 2, retention_ms="-1")
    send_at(broker.bootstrap, topic, TIMES_MS, in_batches_of=4)
    found = run(broker.bootstrap, lambda cluster: _offsets(cluster, topic))
    assert len(found) == 30
    assert found[-1] > 30, "addresses, not counts"
    return found


async def _offsets(cluster: Cluster, topic: str) -> list[int]:
    name = TopicPartition(topic, 0)
    return [await cluster.to_leader(name, (EARLIEST, number), leader_requests.find_message) for number in range(30)]  # type: ignore[misc]


def test_the_lag_behind_every_message_is_exact(
    broker: RunningBroker, registry: ZooKeeper, topic: str, offsets: list[int]
) -> None:
    """Also in the middle of a batch, whose messages have times of their own."""
    end = offsets[-1] + 1
    for number, offset in enumerate([*offsets, end]):
        commit(registry, f"{topic}-{number:02}", {TopicPartition(topic, 0): offset})
    before_ms = time.time_ns() // 1_000_000
    rows = lag(broker, registry, *(f"{topic}-{number:02}" for number in range(31)))
    after_ms = time.time_ns() // 1_000_000
    assert [row.lag for row in rows] == [30 - number for number in range(31)]
    sizes = [row.lag_bytes for row in rows]
    assert sizes[-1] == 0
    assert all(a is not None and b is not None and a > b for a, b in pairwise(sizes))
    assert sizes[0] is not None
    assert [sizes[0] - (size or 0) for size in sizes[:-1]] == offsets, "differences of addresses"
    for row, when in zip(rows, TIMES_MS, strict=False):
        assert row.lag_ms is not None
        assert before_ms - when <= row.lag_ms <= after_ms - when
    assert rows[-1].lag_ms == 0
    assert {(row.log_start_offset, row.log_end_offset) for row in rows} == {(0, end)}


def test_where_the_lag_goes(broker: RunningBroker, registry: ZooKeeper, topic: str, offsets: list[int]) -> None:
    commit(registry, topic, {TopicPartition(topic, 0): offsets[10]})
    ran = klog("lag", topic, "--trend", "-o", "json", "-B", broker.bootstrap)
    ((name, lag_now, trend),) = [(row["group"], row["lag"], row["trend"]) for row in ran.rows]
    assert (name, lag_now) == (topic, 20)
    assert trend in ("unknown", "growing", "steady"), "it depends on how long the broker has known the partition"
    refused = klog("lag", "--trend", "--total", "-B", broker.bootstrap)
    assert refused.code == 2 and "--trend" in refused.stderr


def test_offsets_past_either_end(broker: RunningBroker, registry: ZooKeeper, topic: str, offsets: list[int]) -> None:
    delete_before(broker.bootstrap, topic, offsets[10])
    for group, offset in (("below", offsets[2]), ("behind", offsets[-1] + 5000)):
        commit(registry, f"{topic}-{group}", {TopicPartition(topic, 0): offset})
    (below,) = lag(broker, registry, f"{topic}-below")
    assert (below.current_offset, below.log_start_offset, below.lag) == (offsets[2], offsets[10], 20)
    assert below.is_outside
    (behind,) = lag(broker, registry, f"{topic}-behind")
    assert (behind.lag, behind.lag_bytes, behind.lag_ms) == (0, 0, 0)
    assert behind.is_outside
    assert any(one.startswith("2 offsets") for one in group_lag.remarks([below, behind]))


def test_who_reads_what_and_what_nobody_has_committed(
    broker: RunningBroker, registry: ZooKeeper, topic: str, offsets: list[int]
) -> None:
    group = f"{topic}-g"
    commit(registry, group, {TopicPartition(topic, 0): offsets[3]})
    owner = enter(registry, group, topic, TopicPartition(topic, 0), TopicPartition(topic, 1))
    read, unread = lag(broker, registry, group)
    assert (read.owner, read.lag) == (f"{owner}-0", 27)
    assert (unread.owner, unread.partition) == (f"{owner}-0", 1)
    assert (unread.current_offset, unread.lag, unread.lag_bytes, unread.lag_ms) == (None, 0, 0, 0)
    assert unread.log_end_offset == 0


def test_members_of_the_protocol_own_what_they_were_given(registry: ZooKeeper, topic: str) -> None:
    from klog.coordination import groups

    names = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    join(registry, topic, member("m-2", instance="i-2"), member("m-1", *names))
    found = groups.read(registry, topic)
    assert [(one.member_id, one.partitions, one.instance_id) for one in found.members] == [
        ("m-1", tuple(names), None),
        ("m-2", (), "i-2"),
    ]
    assert (found.phase, found.protocol) == ("Stable", "range")
    assert str(found.members[0]) == "m-1 (client the-client, host 10.0.0.7)"
    assert assignment() != b""


def test_a_topic_that_is_gone_and_one_that_never_was(broker: RunningBroker, registry: ZooKeeper, topic: str) -> None:
    group = f"{topic}-g"
    commit(registry, group, {TopicPartition(f"{topic}-no", 3): 7})
    (row,) = lag(broker, registry, group)
    assert (row.current_offset, row.log_end_offset, row.lag, row.error) == (7, None, None, None)
    assert row.has_no_topic
    assert any(one.startswith("1 offset") for one in group_lag.remarks([row]))
    enter(registry, f"{topic}-r", f"{topic}-no", TopicPartition(f"{topic}-no", 4))
    (row,) = lag(broker, registry, f"{topic}-r")
    assert (row.current_offset, group_lag.remarks([row])) == (None, []), "of what nobody has committed"
    with pytest.raises(UnknownTopicOrPartition):
        lag(broker, registry, group, topics=[f"{topic}-no"])
    with pytest.raises(GroupIdNotFound, match=r"'a-typo'.*'another'"):
        lag(broker, registry, "a-typo", group, "another")


def test_a_deleted_topic_has_no_lag(broker: RunningBroker, registry: ZooKeeper, topic: str) -> None:
    make_topic(broker.bootstrap, topic)
    commit(registry, f"{topic}-g", {TopicPartition(topic, 0): 0})
    delete_topic(broker.bootstrap, topic)
    assert lag(broker, registry, f"{topic}-g") == []


def test_each_leader_is_asked_twice_however_many_groups_there_are(
    broker: RunningBroker, registry: ZooKeeper, topic: str
) -> None:
    make_topic(broker.bootstrap, topic, 5)
    send(broker.bootstrap, topic, b"\n".join(b"%d" % number for number in range(200)))
    groups = [f"{topic}-{number:02}" for number in range(12)]
    for at, group in enumerate(groups):
        commit(registry, group, {TopicPartition(topic, partition): at for partition in range(5)})
    asked: Counter[str] = Counter()

    async def look() -> list[LagRow]:
        def trace(what: str, where: str, ms: float) -> None:
            asked[what.split()[0]] += 1

        async with await Cluster.connect(broker.bootstrap, trace=trace) as cluster:
            return await group_lag.lag(cluster, registry, groups)

    rows = asyncio.run(look())
    assert len(rows) == 60
    assert sum(row.lag or 0 for row in rows if row.group == groups[0]) == 200
    assert (asked["CountMessages"], asked["MessageTimes"]) == (1, 1)


# --- sums and orders ---


def row(group: str, topic: str, partition: int, lag: int | None, size: int | None, ms: int | None) -> LagRow:
    return LagRow(group, topic, partition, 0, 0, 9, lag, size, ms, None)


ROWS = [
    row("a", "t", 0, 5, 50, 900),
    row("a", "t", 1, 0, 0, 0),
    row("a", "u", 0, None, None, None),
    row("b", "t", 0, 7, 20, None),
]


def test_sums_by_topic_by_group_and_of_all() -> None:
    found = [
        (one.group, one.topic, one.partition, one.lag, one.lag_bytes, one.lag_ms) for one in group_lag.totals(ROWS)
    ]
    assert found == [
        ("a", "t", None, 5, 50, 900),
        ("a", "u", None, None, None, None),
        ("a", None, None, 5, 50, 900),
        ("b", None, None, 7, 20, None),
        (None, None, None, 12, 70, 900),
    ]
    assert group_lag.totals([]) == []
    assert group_lag.in_words(ROWS).startswith(
        "2 groups, 4 partitions; lag: 12 messages, 70 bytes"
    ) and "900 ms" in group_lag.in_words(ROWS)
    assert group_lag.in_words([]) == "0 groups, 0 partitions; lag: unknown"


def test_the_worst_first() -> None:
    def order(by: group_lag.Order) -> list[int | None]:
        return [one.lag for one in group_lag.in_order(ROWS, by)]

    assert order("name") == [5, 0, None, 7]
    assert order("lag") == [7, 5, 0, None]
    assert order("bytes") == [5, 7, 0, None]
    assert order("time") == [5, 0, None, 7]
    assert [one.lag for one in group_lag.lagging(ROWS)] == [5, 7]


def test_a_sum_over_what_could_not_be_asked_has_failed() -> None:
    failed = LagRow("b", "t", 1, 3, error="LEADER_NOT_AVAILABLE", message="no leader")
    *_, group, whole = group_lag.totals([*ROWS, failed])
    assert (group.group, group.lag, group.error) == ("b", 7, "LEADER_NOT_AVAILABLE")
    assert whole.error == "LEADER_NOT_AVAILABLE"
    assert group_lag.lagging([failed]) == [failed]
    assert group_lag.in_words([*ROWS, failed]).partition("900 ms; ")[2].startswith("1 partition")


def test_what_was_never_committed_lags_from_the_start_and_describe_shows_heartbeats(
    broker: RunningBroker, topic: str
) -> None:
    make_topic(broker.bootstrap, topic, 2)
    send(broker.bootstrap, topic, b"".join(b"%d\n" % number for number in range(10)), partition=1)
    at = ["-B", broker.bootstrap]
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": topic, "enable.auto.commit": False, "client.id": "idle one"}
    )
    consumer.subscribe([topic])
    try:
        while not consumer.assignment():
            consumer.poll(0.1)
        rows = klog("lag", topic, "--only-lagging", "-o", "json", *at).rows
        assert [(row["partition"], row["current_offset"], row["lag"]) for row in rows] == [(1, None, 10)]
        assert rows[0]["lag_bytes"] > 0 and rows[0]["lag_ms"] >= 0
        (whole,) = klog("lag", topic, "--total", "-o", "json", *at).rows
        assert whole["lag"] == 10
        rows = klog("group", "describe", topic, "-o", "json", *at).rows
        assert {row["committed"] for row in rows} == {None}
        assert all(0 <= row["heartbeat_ms"] < 60_000 for row in rows)
        consumer.commit(offsets=[Assigned(topic, 1, 0)], asynchronous=False)
        rows = klog("group", "describe", topic, "-o", "json", *at).rows
        assert [(row["partition"], row["committed_offset"]) for row in rows if row["committed"]] == [(1, 0)]
    finally:
        consumer.close()


def test_members_that_have_never_committed_are_told() -> None:
    never = LagRow("g", "t", 0, None, 0, 9, owner="member")
    idle = LagRow("g", "t", 1, None, 9, 9, owner="member")
    assert (never.has_committed_nothing, idle.has_committed_nothing) == (True, False)
    assert group_lag.lagging([never, idle]) == [never]
    assert any("committed" in text for text in group_lag.remarks([never, idle]))
