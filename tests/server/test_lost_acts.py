"""Rule Z2 where it takes too long: the answers to a controller's write are lost, until nobody waits any more."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable

from klog.coordination import brokers, topics
from klog.coordination.embedded import ZooKeeperServer
from klog.protocol.apis import ApiKey
from tests.broker_fixture import RunningBroker
from tests.server.asking import ask, create, error, metadata
from tests.until import until
from tests.zookeeper_fixture import session_of
from tests.zookeeper_proxy import MULTI, ZooKeeperProxy

SESSION_MS = 4000
KNOWN_WITHIN_S = 60.0


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
        (refused,) = ask(broker.bootstrap, ApiKey.DELETE_TOPICS, 5, topic_names=["clicks"], timeout=30_000).responses
        assert error(refused) != 0, "the answer was lost: nobody can say that it is done"
        assert proxy.lost
        over.set()
        proxy.lose_answer_of(frozenset())
        # The broker tells nobody when it has read everything.
        until(lambda: not led(broker.bootstrap), timeout_s=KNOWN_WITHIN_S)
        with session_of(f"{zookeeper.address}{chroot}") as session:
            assert topics.find_deleted(session, "clicks") is not None, "and it has not undone it"
        assert registration(zookeeper, chroot) == before
    finally:
        proxy.close()


def registration(zookeeper: ZooKeeperServer, chroot: str) -> brokers.Registration | None:
    with session_of(f"{zookeeper.address}{chroot}") as session:
        return brokers.find(session, 1)


def led(bootstrap: str) -> list[int]:
    (topic,) = metadata(bootstrap, ["clicks"]).topics
    return sorted(one.partition_index for one in topic.partitions if one.leader_id == 1)
