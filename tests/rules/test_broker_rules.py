"""The rules against loss that a single broker's life must obey, on real processes: R1, R7, L8, L10, Z1, and lost
sessions.

Each test states the loss that its rule prevents; without the rule the test fails.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer as Client
from confluent_kafka import TopicPartition as At

from klog.coordination import partition_states
from klog.coordination.embedded import ZooKeeperServer
from klog.names import TopicPartition
from tests.broker_fixture import RunningBroker
from tests.cluster import load
from tests.server import asking
from tests.until import until
from tests.zookeeper_fixture import session_of
from tests.zookeeper_proxy import ZooKeeperProxy

SESSION_MS = "4000"


def produce(broker: RunningBroker, topic: str) -> None:
    """To a topic that is made for it."""
    load.produce(broker.bootstrap, topic, [b"%d" % number for number in range(10)])


def end_of(broker: RunningBroker, topic: str) -> int:
    """As a stock client finds it, which asks again where nobody knows it yet."""
    client = Client({"bootstrap.servers": broker.bootstrap, "group.id": "x", "enable.auto.commit": False})
    _, high = client.get_watermark_offsets(At(topic, 0), timeout=10)
    client.close()
    return int(high)


def metadata(broker: RunningBroker, topic: str) -> Any:
    """The topic's partition 0 as the broker shows it."""
    return asking.metadata(broker.bootstrap, [topic]).topics[0].partitions[0]


def test_r1_a_restart_leads_under_a_new_epoch(make_broker: Callable[..., RunningBroker], topic: str) -> None:
    """An old incarnation's requests must be told from a new one's: its epoch never comes back."""
    broker = make_broker().start()
    produce(broker, topic)
    for end in (broker.kill, broker.stop):
        before, high = metadata(broker, topic).leader_epoch, end_of(broker, topic)
        end()
        broker.start()
        after = metadata(broker, topic)
        assert after.leader_epoch > before
        with session_of(broker.zookeeper) as session:
            (stored,) = partition_states.read_many(session, [TopicPartition(topic, 0)]).values()
        assert stored is not None and stored.leader_epoch == after.leader_epoch
        assert end_of(broker, topic) == high


def test_r1_an_emptied_dir_does_not_lead(make_broker: Callable[..., RunningBroker], topic: str) -> None:
    """A broker that comes back with an empty disk must not make everybody believe that the partition is empty."""
    broker = make_broker().start()
    produce(broker, topic)
    high = end_of(broker, topic)
    broker.stop()
    folder = broker.folder / "data" / f"{topic}-0"
    shutil.move(folder, broker.folder / "kept")
    broker.start()
    assert metadata(broker, topic).leader_id == -1
    assert broker.logged(f"{topic}-0", "broker 1", "[1]")
    assert not folder.exists()
    broker.stop()
    shutil.move(broker.folder / "kept", folder)
    broker.start()
    assert metadata(broker, topic).leader_id == 1
    assert end_of(broker, topic) == high


def test_r1_a_log_that_lacks_what_was_committed_says_so(make_broker: Callable[..., RunningBroker], topic: str) -> None:
    """What a disk has lost below the high watermark must not go unnoticed."""
    broker = make_broker(replica__high__watermark__checkpoint__interval__ms="100").start()
    produce(broker, topic)
    high = end_of(broker, topic)
    checkpoint = broker.folder / "data" / "replication-offset-checkpoint"
    until(lambda: checkpoint.exists() and re.search(rf"^{topic} 0 [1-9]", checkpoint.read_text(), re.M))
    produce(broker, topic)
    broker.kill()
    (segment,) = (broker.folder / "data" / f"{topic}-0").glob("*.log")
    os.truncate(segment, 0)
    broker.start()
    assert re.search(rf"{topic}-0 .*\b0, \d+ .*high watermark", broker.log_text)
    assert end_of(broker, topic) < high


def test_l10_another_topics_folder_is_not_served(make_broker: Callable[..., RunningBroker], topic: str) -> None:
    """The log of a topic that was deleted and made again under its name must not appear in the new one."""
    broker = make_broker().start()
    produce(broker, topic)
    produce(broker, f"{topic}-other")
    broker.stop()
    data = broker.folder / "data"
    shutil.move(data / f"{topic}-0", broker.folder / "kept")
    shutil.move(data / f"{topic}-other-0", data / f"{topic}-0")
    broker.start()
    assert metadata(broker, topic).leader_id == -1
    assert broker.logged(f"{topic}-0", "broker 1", "[1]")


def test_r7_a_killed_broker_takes_its_own_entry_over_at_once(make_broker: Callable[..., RunningBroker]) -> None:
    """Nobody waits for the session of a process that is known to be dead: it held the lock that we hold now."""
    broker = make_broker(zookeeper__session__timeout__ms="30000").start()
    broker.kill()
    began = time.monotonic()
    broker.start()
    assert time.monotonic() - began < 20  # far below the session that the dead process left


def test_r7_another_with_the_same_id_is_refused(make_broker: Callable[..., RunningBroker]) -> None:
    """Two processes with one id would both lead its partitions."""
    broker = make_broker().start()
    other = make_broker(1, folder=broker.folder.parent / "other")
    other.start(expect_ready=False)
    assert other.process is not None
    assert other.process.wait(20) == 1
    assert other.logged("broker id 1")
    assert len(asking.metadata(broker.bootstrap, []).brokers) == 1


def test_a_log_dir_in_use_is_refused(make_broker: Callable[..., RunningBroker]) -> None:
    broker = make_broker().start()
    other = make_broker(2, folder=broker.folder, chroot=broker.zookeeper + "x")
    log_before = broker.log_text
    other.start(expect_ready=False)
    assert other.process is not None
    assert other.process.wait(20) == 1
    assert "lock" in broker.log_text.removeprefix(log_before)


def test_a_log_dir_of_another_cluster_is_refused(make_broker: Callable[..., RunningBroker], topic: str) -> None:
    """Its partitions would be mixed with another cluster's of the same names; the attempt changes nothing."""
    broker = make_broker().start()
    produce(broker, topic)
    high, own = end_of(broker, topic), broker.zookeeper
    broker.stop()
    broker.zookeeper += "-another"
    broker.start(expect_ready=False)
    assert broker.process is not None
    assert broker.process.wait(20) == 1
    assert broker.logged("cluster", str(broker.folder))
    broker.zookeeper = own
    assert end_of(broker.start(), topic) == high


@pytest.mark.slow
def test_an_expired_session_is_said_reads_go_on_and_the_broker_comes_back(
    make_broker: Callable[..., RunningBroker], topic: str
) -> None:
    """A broker that was away longer than its session must not go on as if nobody could have replaced it."""
    broker = make_broker(zookeeper__session__timeout__ms=SESSION_MS).start()
    produce(broker, topic)
    before, high = metadata(broker, topic).leader_epoch, end_of(broker, topic)
    broker.send(signal.SIGSTOP)
    with session_of(broker.zookeeper) as zookeeper:
        until(lambda: zookeeper.exists("/brokers/ids/1") is None, "ZooKeeper has given the session up")
        broker.send(signal.SIGCONT)
        broker.wait_for_log("registered", "broker 1")
        assert zookeeper.exists("/brokers/ids/1") is not None
    assert broker.logged("session", "expired")
    assert metadata(broker, topic).leader_epoch > before
    assert end_of(broker, topic) == high
    produce(broker, topic)
    assert end_of(broker, topic) > high


@pytest.mark.slow
def test_r7_a_broker_that_finds_its_entry_replaced_stops(make_broker: Callable[..., RunningBroker]) -> None:
    """Two processes must not both believe to be the broker of that id."""
    broker = make_broker(zookeeper__session__timeout__ms=SESSION_MS).start()
    broker.send(signal.SIGSTOP)
    with session_of(broker.zookeeper) as zookeeper:
        until(lambda: zookeeper.exists("/brokers/ids/1") is None, "ZooKeeper has given the session up")
        other = make_broker(1, folder=broker.folder.parent / "other").start()
        broker.send(signal.SIGCONT)
        assert broker.process is not None
        assert broker.process.wait(30) == 1
        assert broker.logged("broker's id")
        assert other.process is not None
        assert other.process.poll() is None


@pytest.mark.slow
def test_zookeeper_away_for_less_than_a_session_changes_nothing(
    zookeeper: ZooKeeperServer, make_broker: Callable[..., RunningBroker], topic: str
) -> None:
    """Appends and reads need no ZooKeeper while the session may still live."""
    proxy = ZooKeeperProxy((zookeeper.settings.host, zookeeper.port))
    try:
        broker = make_broker(chroot=f"{proxy.address}/{topic}").start()
        produce(broker, topic)
        before = metadata(broker, topic).leader_epoch
        with proxy.silent():
            high = end_of(broker, topic)
            produce(broker, topic)
            assert end_of(broker, topic) > high
        produce(broker, topic)
        assert metadata(broker, topic).leader_epoch == before
    finally:
        proxy.close()
