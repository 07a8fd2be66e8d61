"""Rule Z2 where it takes too long: the answer to a controller's write is lost, and ZooKeeper stays away after that."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from klog.coordination import embedded
from klog.coordination.connect_string import ConnectString
from klog.coordination.embedded import ZooKeeperServer
from klog.protocol.apis import ApiKey
from klog.record.records import encode_batch
from tests.broker_fixture import RunningBroker
from tests.server.asking import ask, create, error, produce_request, values, with_channel
from tests.zookeeper_fixture import klog_home
from tests.zookeeper_proxy import MULTI, ZooKeeperProxy

SESSION_MS = 4000
LED_WITHIN_S = 60.0


@pytest.fixture
def own_zookeeper(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    server = embedded.start(tmp_path / "zk", cache=klog_home() / "cache")
    server.await_serving()
    yield server
    left = embedded.find(tmp_path / "zk")
    if left is not None:
        left.stop()


def test_what_was_written_unknown_to_the_controller_is_gone_on_with(
    own_zookeeper: ZooKeeperServer, make_broker: Callable[..., RunningBroker], tmp_path: Path
) -> None:
    """ZooKeeper dies with the answer and comes back, its sessions with it, when nobody waits any more."""
    (address,) = ConnectString.parse(own_zookeeper.address).servers
    proxy = ZooKeeperProxy(address)
    try:
        broker = make_broker(chroot=f"{proxy.address}/lost", **{"zookeeper.session.timeout.ms": str(SESSION_MS)})
        broker.start()
        create(broker.bootstrap, "clicks")
        proxy.lose_answer_of(frozenset({MULTI}), then=lambda: own_zookeeper.identity.send(signal.SIGKILL))
        asked = [{"name": "clicks", "count": 3, "assignments": None}]
        (refused,) = ask(
            broker.bootstrap, ApiKey.CREATE_PARTITIONS, 3, topics=asked, timeout=30_000, validate_only=False
        ).results
        assert error(refused) != 0, "the answer was lost: nobody can say that it is done"
        assert proxy.lost == 1
        embedded.start(tmp_path / "zk", port=address[1], cache=klog_home() / "cache").await_serving()
        deadline = time.monotonic() + LED_WITHIN_S
        while led(broker.bootstrap) != [0, 1, 2]:
            assert time.monotonic() < deadline, broker.log_text
            time.sleep(0.05)  # the broker tells nobody when it leads
        # Metadata names the leader before that one's session is confirmed, and until then it refuses.
        while refusal := produce_error(broker.bootstrap, partition=2):
            assert time.monotonic() < deadline, (refusal, broker.log_text)
            time.sleep(0.05)
        broker.end()  # in order it ends with a ZooKeeper only
    finally:
        proxy.close()


def produce_error(bootstrap: str, partition: int) -> int:
    """The wire code that a message is answered with; 0 when it is acknowledged by all."""
    batch = bytes(encode_batch(values(1)))
    answer = with_channel(bootstrap, lambda channel: channel.request(produce_request("clicks", batch, partition)))
    return error(answer.responses[0].partition_responses[0])


def led(bootstrap: str) -> list[int]:
    answer = ask(bootstrap, ApiKey.METADATA, 4, topics=[{"name": "clicks"}], allow_auto_topic_creation=False)
    return sorted(one.partition_index for one in answer.topics[0].partitions if one.leader_id == 1)
