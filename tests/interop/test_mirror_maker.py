"""MirrorMaker 2 between two klog clusters: every message of a topic, once, and where its groups are."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.maven import JavaTools
from tests.broker_fixture import RunningBroker
from tests.cluster.load import produce, read
from tests.interop.confluent import ConfluentKafka
from tests.interop.kit import PATIENCE_S, cleanup_policy
from tests.tools.verbs import make_topic
from tests.until import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long(
        "a JVM and two clusters; witness that stays in the default tier: tests/server/test_cleanup_policy.py"
    ),
]

MIRROR_MAKER = "org.apache.kafka.connect.mirror.MirrorMaker"
STARTS_WITHIN_S = 3 * PATIENCE_S
MESSAGES = 300
HALF = MESSAGES // 2


def consume_in_group(bootstrap: str, topic: str, group: str, count: int) -> list[bytes]:
    """The next ``count`` messages of the group, which are committed."""
    return [value for _, value in ConfluentKafka().consume_in_group(bootstrap, topic, group, count)]


def test_messages_and_offsets_of_groups_arrive(
    make_broker: Callable[..., RunningBroker], topic: str, framework_tools: JavaTools, tmp_path: Path
) -> None:
    here = make_broker().start()
    there = make_broker(2, chroot=f"{here.zookeeper}-there").start()
    make_topic(here.bootstrap, topic)
    sent = [b"message %d" % number for number in range(MESSAGES)]
    produce(here.bootstrap, topic, sent)
    assert consume_in_group(here.bootstrap, topic, "half", HALF) == sent[:HALF]
    assert consume_in_group(here.bootstrap, topic, "all", MESSAGES) == sent

    replicas = ("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic", "offset.storage", "status.storage")
    settings = {
        "clusters": "here, there",
        "here.bootstrap.servers": here.bootstrap,
        "there.bootstrap.servers": there.bootstrap,
        "here->there.enabled": "true",
        "here->there.topics": topic,
        "there->here.enabled": "false",
        **{f"{one}.replication.factor": "1" for one in (*replicas, "config.storage")},
        "replication.factor": "1",
        "sync.topic.acls.enabled": "false",
        "sync.group.offsets.enabled": "true",
        "offset.lag.max": "0",
        **{f"{one}.interval.seconds": "1" for one in ("sync.group.offsets", "emit.checkpoints", "refresh.groups")},
    }
    given = tmp_path / "mirror.properties"
    given.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    log_path = tmp_path / "mirror.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            framework_tools.command(MIRROR_MAKER, str(given)), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    copy = f"here.{topic}"
    admin = AdminClient({"bootstrap.servers": there.bootstrap})

    def copied() -> list[bytes]:
        assert process.poll() is None, log_path.read_text()
        if copy not in admin.list_topics(timeout=PATIENCE_S).topics:
            return []
        return [value for _, value in read(there.bootstrap, copy)[0]]

    def offset_there(group: str) -> int:
        """Where the group is in the copy; below 0 where it has no offset."""
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(copy, 0)])
        (offset,) = admin.list_consumer_group_offsets([wanted])[group].result(PATIENCE_S).topic_partitions
        return offset.offset

    try:
        until(lambda: len(copied()) >= MESSAGES, f"all is copied; its log is {log_path}", STARTS_WITHIN_S)
        end = read(there.bootstrap, copy)[0][-1][0] + 1
        until(lambda: offset_there("all") == end, "one group is at the end of the copy", STARTS_WITHIN_S)
        until(lambda: offset_there("half") > 0, "the other has an offset", STARTS_WITHIN_S)
        late = b"after the groups"
        produce(here.bootstrap, topic, [late])
        until(lambda: len(copied()) > MESSAGES, "what came late is copied", STARTS_WITHIN_S)
    finally:
        process.kill()
        process.wait()
    found = read(there.bootstrap, copy)[0]
    assert [value for _, value in found] == [*sent, late]
    # MirrorMaker knows where a few messages of each lie, and takes the last of these that the group has read.
    unread = [value for offset, value in found if offset >= offset_there("half")]
    assert unread[-HALF - 1 :] == [*sent[HALF:], late]
    assert consume_in_group(there.bootstrap, copy, "all", 1) == [late]
    assert cleanup_policy(there.bootstrap, "mm2-configs.here.internal") == "compact"
