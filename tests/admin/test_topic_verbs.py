"""Topics, partitions, brokers and their settings, over a real broker."""

from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace

import pytest
from confluent_kafka import Producer

from klog.admin import brokers, partitions, topics, trash
from klog.config import BROKER_SETTINGS, TOPIC_SETTINGS
from klog.coordination.topics import Deletion, Topic
from klog.errors import (
    BrokerNotAvailable,
    InvalidConfig,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidTopic,
    TopicAlreadyExists,
    UsageError,
)
from tests.broker_fixture import RunningBroker
from tests.rows import each
from tests.tools.verbs import make_topic, run, send


def test_a_topics_life(broker: RunningBroker, topic: str) -> None:
    to = broker.bootstrap
    made = run(to, lambda cluster: topics.create_topic(cluster, topic, partitions=2))
    assert made == topics.TopicCreated(topic, 2, 1, created=True)
    send(to, topic, b"one\ntwo\nthree\n")
    (row,) = run(to, lambda cluster: topics.list_topics(cluster, topic))
    assert (row.topic, row.partitions, row.replication_factor, row.messages, row.under_replicated) == (
        topic,
        2,
        1,
        3,
        0,
    )
    assert row.bytes is not None
    assert row.bytes > 0

    altered = run(to, lambda cluster: topics.alter_topic(cluster, topic, 5))
    assert altered == topics.TopicAltered(topic, 2, 5, 3)
    rows = run(to, lambda cluster: partitions.describe_topics(cluster, [topic]))
    assert [(one.topic, one.partition, one.leader, one.replicas, one.isr) for one in rows] == [
        (topic, number, broker.broker_id, (broker.broker_id,), (broker.broker_id,)) for number in range(5)
    ]
    assert sum(one.messages or 0 for one in rows) == 3
    assert all(one.log_start_offset == 0 for one in rows)
    assert all((one.log_end_offset or 0) > 0 for one in rows if one.messages)

    preview = run(to, lambda cluster: topics.preview_deletion(cluster, [topic]))
    assert [(one.topic, one.partitions, one.messages, one.error) for one in preview] == [(topic, 5, 3, None)]
    assert run(to, lambda cluster: topics.list_topics(cluster, topic)), "a preview deletes nothing"
    assert run(to, lambda cluster: topics.delete_topics(cluster, preview)) == preview
    assert run(to, lambda cluster: topics.list_topics(cluster, topic)) == []


def test_when_a_topic_was_last_written(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 3)
    (row,) = run(broker.bootstrap, lambda cluster: topics.list_topics(cluster, topic))
    assert row.last_written is None
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for partition, time_s in ((0, 1_700_000_000), (1, 1_700_000_900), (1, 1_600_000_000)):
        producer.produce(topic, b"one", partition=partition, timestamp=time_s * 1000)
        assert producer.flush(20) == 0
    (row,) = run(broker.bootstrap, lambda cluster: topics.list_topics(cluster, topic))
    assert row.last_written == datetime.fromtimestamp(1_700_000_900, UTC)


def test_of_a_deleted_topics_copies_the_one_that_deletions_of_records_reached_counts() -> None:
    deleted = Topic("t", None, {0: (1, 2)}, 0, 0)
    log = partial(SimpleNamespace, partition_index=0)
    whole, cut = (log(end_address=900, messages=count, bytes=4096) for count in (50, 48))
    short = log(end_address=800, messages=44, bytes=4000)
    for copies in ((whole, cut, short), (short, cut, whole), (cut, whole)):
        assert trash._row(deleted, Deletion(1000, "act", True, 5), copies).messages == 48


def test_which_topics_a_pattern_means(broker: RunningBroker, topic: str) -> None:
    for name in (f"{topic}.a", f"{topic}.ab", f"{topic}.b"):
        make_topic(broker.bootstrap, name)

    def names(pattern: str, regex: bool = False) -> list[str]:
        rows = run(broker.bootstrap, lambda cluster: topics.list_topics(cluster, pattern, regex=regex))
        return [row.topic.removeprefix(topic) for row in rows]

    assert names(f"{topic}.a*") == [".a", ".ab"]
    assert names(f"{topic}.a") == [".a"]
    assert names(f"{topic}[.].", regex=True) == [".a", ".b"], "anchored at both ends"
    assert names(topic) == []
    with pytest.raises(UsageError, match="regular expression"):
        names("[", regex=True)


def test_what_create_refuses(broker: RunningBroker, topic: str) -> None:
    to = broker.bootstrap
    make_topic(to, topic, 3)
    with pytest.raises(TopicAlreadyExists, match=topic):
        run(to, lambda cluster: topics.create_topic(cluster, topic))
    again = run(to, lambda cluster: topics.create_topic(cluster, topic, partitions=7, if_not_exists=True))
    assert again == topics.TopicCreated(topic, 3, 1, created=False)
    with pytest.raises(InvalidReplicationFactor, match=r"\bfactor 2\b"):
        run(to, lambda cluster: topics.create_topic(cluster, f"{topic}-b", replication_factor=2))
    with pytest.raises(InvalidTopic):
        run(to, lambda cluster: topics.create_topic(cluster, "a/b"))
    with pytest.raises(InvalidConfig, match=r"segment\.bytes"):
        run(to, lambda cluster: topics.create_topic(cluster, f"{topic}-b", settings={"segment.bytes": "x"}))
    with pytest.raises(InvalidReplicaAssignment, match="broker 77"):
        run(to, lambda cluster: topics.create_topic(cluster, f"{topic}-b", start_broker=77))
    assert run(to, lambda cluster: topics.list_topics(cluster, f"{topic}-b")) == []


def test_placement_by_hand(broker: RunningBroker, topic: str) -> None:
    number = broker.broker_id
    made = run(broker.bootstrap, lambda cluster: topics.create_topic(cluster, topic, assignment=[[number], [number]]))
    assert made.partitions == 2
    plain = run(
        broker.bootstrap,
        lambda cluster: topics.create_topic(cluster, f"{topic}-b", partitions=3, start_broker=number),
    )
    assert plain.partitions == 3


@each(
    ("live", "count", "replicas", "start", "expected"),
    [
        ([1, 2, 3], 4, 2, 1, [[1, 2], [2, 3], [3, 1], [1, 2]]),
        ([3, 1, 2], 3, 3, 2, [[2, 3, 1], [3, 1, 2], [1, 2, 3]]),
        ([5], 2, 1, 5, [[5], [5]]),
    ],
)
def test_rotation(live: list[int], count: int, replicas: int, start: int, expected: list[list[int]]) -> None:
    assert topics.rotate(live, count, replicas, start) == expected


def test_partitions_cannot_be_taken_away(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 3)
    for count in (3, 2):
        with pytest.raises(UsageError, match=topic):
            run(broker.bootstrap, partial(topics.alter_topic, name=topic, partitions=count))


def test_settings_of_a_topic(broker: RunningBroker, topic: str) -> None:
    to = broker.bootstrap
    make_topic(to, topic, retention_ms="1000")
    rows = {row.name: row for row in run(to, lambda cluster: topics.topic_settings(cluster, topic))}
    assert rows.keys() == TOPIC_SETTINGS.keys()
    assert (rows["retention.ms"].value, rows["retention.ms"].source) == ("1000", "topic")
    assert (rows["retention.ms"].default, rows["segment.bytes"].source) == ("604800000", "default")
    changed = run(
        to, lambda cluster: topics.set_topic_settings(cluster, topic, {"segment.bytes": "4096"}, ["retention.ms"])
    )
    assert {row.name: row.value for row in changed if row.source == "topic"} == {"segment.bytes": "4096"}
    with pytest.raises(InvalidConfig, match=r"flush\.messages"):
        run(to, lambda cluster: topics.set_topic_settings(cluster, topic, {"flush.messages": "0"}))
    with pytest.raises(InvalidConfig, match=r"no\.such\.setting"):
        run(to, lambda cluster: topics.set_topic_settings(cluster, topic, {"no.such.setting": "0"}))


def test_filters_of_partitions(broker: RunningBroker, topic: str) -> None:
    to = broker.bootstrap
    make_topic(to, topic, 2, min_insync_replicas="2")
    make_topic(to, f"{topic}-b")

    def chosen(**filters: bool) -> list[tuple[str, int]]:
        rows = run(to, lambda cluster: partitions.list_partitions(cluster, [topic, f"{topic}-b"], **filters))
        return [(row.topic, row.partition) for row in rows]

    assert chosen() == [(topic, 0), (topic, 1), (f"{topic}-b", 0)]
    assert chosen(under_replicated=True) == []
    assert chosen(offline=True) == []
    assert chosen(under_min_isr=True, offline=True) == []  # the only replica is all that can be in sync


def test_brokers(broker: RunningBroker) -> None:
    to = broker.bootstrap
    (row,) = run(to, brokers.list_brokers)
    assert (row.broker, f"{row.host}:{row.port}", row.controller) == (broker.broker_id, to, True)
    assert row.since is not None
    assert row.since.tzinfo is not None
    assert row.zookeeper == broker.zookeeper
    described = run(to, lambda cluster: brokers.describe_broker(cluster, broker.broker_id))
    assert described.incarnation == row.incarnation
    with pytest.raises(BrokerNotAvailable, match="broker 99") as caught:
        run(to, lambda cluster: brokers.describe_broker(cluster, 99))
    assert (caught.value.hint or "").endswith(f": {broker.broker_id}")


def test_settings_of_a_broker(broker: RunningBroker) -> None:
    rows = {row.name: row for row in run(broker.bootstrap, brokers.broker_settings)}
    assert rows.keys() == BROKER_SETTINGS.keys()
    assert (rows["broker.id"].value, rows["broker.id"].source) == (str(broker.broker_id), "start")
    assert rows["log.retention.ms"].value == "604800000"
    assert rows["num.io.threads"].effect == "none"
    assert rows["log.segment.bytes"].effect != "none"
    assert all(row.doc for row in rows.values())
