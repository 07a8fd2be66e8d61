"""Kafka 0.8.2's own ConsumerConnector in one group with `klog.Consumer`: both share by the registry alone.

It registers, counts the members, claims and lets go as the paper says, against klog's nodes. It reads nothing: the
requests that it reads with (ListOffsets 0, Fetch 0, messages of format 1) are of before what klog serves.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import maven
from klog.client.consumer import Consumer
from klog.coordination import consumers, groups, offset_changes
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import NonEmptyGroup
from klog.names import TopicPartition
from tests.broker_fixture import RunningBroker
from tests.client.stream_readers import Reading
from tests.cluster.load import produce
from tests.tools.verbs import make_topic
from tests.until import until

pytestmark = [pytest.mark.slow, pytest.mark.long("a client of 2015, fetched for it")]

ARTIFACT = ("org.apache.kafka", "kafka_2.10", "0.8.2.2")
PROGRAM = Path(__file__).parent / "OldConsumer.java"
PARTITIONS = 4


@pytest.fixture(scope="module")
def jars() -> str:
    """The class path of 0.8, with all that it came with."""
    home = maven.cache_folder() / f"kafka-{ARTIFACT[2]}"
    lib = home / "lib"
    if not lib.is_dir():
        dependency = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
        project = maven.CONNECTOR_POM.format(dependencies=dependency.format(*ARTIFACT))
        try:
            maven._fetch(f"kafka {ARTIFACT[2]}", project, home)
        except maven.PeerMissing as reason:
            pytest.skip(str(reason))
    return f"{lib}/*"


@pytest.fixture
def old(jars: str, broker: RunningBroker, topic: str) -> Iterator[subprocess.Popen[str]]:
    """It runs, and has registered; killed at the end."""
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", jars, str(PROGRAM), broker.zookeeper, topic, topic],
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        )
        assert process.stdout is not None
        try:
            if process.stdout.readline() != "registered\n":
                said.seek(0)
                raise AssertionError(said.read().decode()[-3000:])
            yield process
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def test_they_share_the_partitions_and_take_over_from_each_other(
    broker: RunningBroker, topic: str, request: pytest.FixtureRequest
) -> None:
    make_topic(broker.bootstrap, topic, PARTITIONS)
    everything = {TopicPartition(topic, number) for number in range(PARTITIONS)}
    sent: list[bytes] = []

    def send(*partitions: int) -> None:
        for number in partitions:
            values = [b"%d-%d" % (len(sent), number) for _ in range(3)]
            produce(broker.bootstrap, topic, values, number)
            sent.extend(values)

    with ZooKeeper(broker.zookeeper) as registry:
        registry.start()

        def owners() -> dict[str, set[TopicPartition]]:
            """By whose consumer it is; a stream's name ends with the number of its thread."""
            found: dict[str, set[TopicPartition]] = {}
            for name, owner in consumers.owners(registry, [topic])[topic].items():
                found.setdefault(owner.rpartition("-")[0], set()).add(name)
            return found

        def members() -> list[str]:
            return [one.consumer_id for one in consumers.live(registry, [topic])[topic]]

        ours = Consumer(
            broker.zookeeper, topic, auto_offset_reset="smallest", auto_commit_interval_ms=100, rebalance_backoff_ms=100
        )
        try:
            reading = Reading(ours.create_message_streams({topic: 1})[topic])
            send(*range(PARTITIONS))
            until(lambda: list(owners().values()) == [everything], "ours has all of them")
            (our_id,) = owners()
            until(lambda: len(reading.messages) == len(sent), "all is read")

            process = request.getfixturevalue("old")
            until(lambda: sorted(map(len, owners().values())) == [2, 2], "two for each")
            shared = owners()
            (old_id,) = shared.keys() - {our_id}
            assert sorted(shared) == sorted(members())
            assert shared[our_id] | shared[old_id] == everything
            # By Algorithm 1 of the paper, which both compute by themselves: in the order of their names.
            lower = min(our_id, old_id)
            assert shared[lower] == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
            assert sorted(one.member_id for one in groups.read(registry, topic).members) == sorted(members())
            with pytest.raises(NonEmptyGroup, match=old_id):
                offset_changes.write(registry, topic, {TopicPartition(topic, 0): None})

            send(*sorted(one.partition for one in shared[our_id]))
            until(lambda: len(reading.messages) == len(sent), "ours reads on what it has kept")
            send(*sorted(one.partition for one in shared[old_id]))
            process.kill()
            until(lambda: owners() == {our_id: everything}, "ours has all of them again")
            until(lambda: len(reading.messages) >= len(sent), "and reads on where it was committed")
            assert sorted(one.payload() for one in reading.messages) == sorted(sent)
            assert members() == [our_id]
        finally:
            ours.shutdown()
