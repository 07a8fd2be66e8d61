"""Rule Z2 where it takes too long: the answers to a controller's write are lost, until nobody waits any more."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable

from klog.coordination import brokers
from klog.coordination.embedded import ZooKeeperServer
from klog.coordination.zookeeper import ZooKeeper
from klog.protocol.apis import ApiKey
from klog.record.records import encode_batch
from tests.broker_fixture import RunningBroker
from tests.server.asking import ask, create, error, produce_request, values, with_channel
from tests.zookeeper_proxy import MULTI, ZooKeeperProxy

SESSION_MS = 4000
LED_WITHIN_S = 60.0


def test_what_was_written_unknown_to_the_controller_is_gone_on_with(
    zookeeper: ZooKeeperServer, make_broker: Callable[..., RunningBroker]
) -> None:
    """The same controller, in the same session, finds its own write when answers come again."""
    proxy = ZooKeeperProxy(("127.0.0.1", zookeeper.port))
    chroot = f"/lost-{secrets.token_hex(4)}"
    over = threading.Event()

    def lose() -> None:
        if not over.is_set():
            proxy.lose_answer_of(frozenset({MULTI}), then=lose)

    try:
        broker = make_broker(chroot=f"{proxy.address}{chroot}", **{"zookeeper.session.timeout.ms": str(SESSION_MS)})
        broker.start()
        create(broker.bootstrap, "clicks")
        before = registration(zookeeper, chroot)
        lose()
        asked = [{"name": "clicks", "count": 3, "assignments": None}]
        (refused,) = ask(
            broker.bootstrap, ApiKey.CREATE_PARTITIONS, 3, topics=asked, timeout=30_000, validate_only=False
        ).results
        assert error(refused) != 0, "the answer was lost: nobody can say that it is done"
        assert proxy.lost
        over.set()
        proxy.lose_answer_of(frozenset())
        deadline = time.monotonic() + LED_WITHIN_S
        while led(broker.bootstrap) != [0, 1, 2]:
            assert time.monotonic() < deadline, broker.log_text
            time.sleep(0.05)  # the broker tells nobody when it leads
        # Metadata names the leader before that one's session is confirmed, and until then it refuses.
        while refusal := produce_error(broker.bootstrap, partition=2):
            assert time.monotonic() < deadline, (refusal, broker.log_text)
            time.sleep(0.05)
        assert registration(zookeeper, chroot) == before
    finally:
        proxy.close()


def registration(zookeeper: ZooKeeperServer, chroot: str) -> brokers.Registration | None:
    with ZooKeeper(f"{zookeeper.address}{chroot}") as session:
        session.start()
        return brokers.find(session, 1)


def produce_error(bootstrap: str, partition: int) -> int:
    """The wire code that a message is answered with; 0 when it is acknowledged by all."""
    batch = bytes(encode_batch(values(1)))
    answer = with_channel(bootstrap, lambda channel: channel.request(produce_request("clicks", batch, partition)))
    return error(answer.responses[0].partition_responses[0])


def led(bootstrap: str) -> list[int]:
    answer = ask(bootstrap, ApiKey.METADATA, 4, topics=[{"name": "clicks"}], allow_auto_topic_creation=False)
    return sorted(one.partition_index for one in answer.topics[0].partitions if one.leader_id == 1)
