"""A stranger at the client port who speaks as if he were a controller or a broker (rule R10)."""

from __future__ import annotations

import secrets
from typing import Any

from klog.protocol import replica_fetch
from klog.protocol.apis import ApiKey
from tests.cli.runner import klog
from tests.cluster.load import judge, load
from tests.cluster_fixture import RunningCluster
from tests.server.wire import RawConnection

EPOCH = 0x7FFF_FFFF
"""Above any that a controller will ever have."""


def test_nine_forged_requests_change_nothing(three: RunningCluster) -> None:
    """Three to each broker: who are you; delete your replica; obey me. Then the real controller deletes and makes a
    topic, dies, and is succeeded, and what was acknowledged is read.
    """
    run = secrets.token_hex(4)
    topic = three.create(f"forged-{run}")
    with load(three.bootstrap, topic) as running:
        running.wait_for_more(100)
        before = {one: _incarnation(three, one) for one in three.brokers}
        topic_id = _topic_id(three, topic)
        for broker_id in three.brokers:
            error, message, incarnation = _open(three, broker_id)
            assert (error, message, incarnation) == (31, "CLUSTER_AUTHORIZATION_FAILED", -1)
            head = {"controller_id": 9, "controller_epoch": EPOCH, "incarnation": before[broker_id]}
            stop = [{"partition_index": 0, "leader_epoch": -2, "delete": True}]
            stops = [
                {"name": topic, "topic_id": None, "partitions": stop},
                {"name": topic, "topic_id": topic_id, "partitions": stop},
            ]
            answer = three.ask(broker_id, ApiKey.STOP_REPLICA, 0, **head, topics=stops)
            assert int(answer.error_code) == 31
            answer = three.ask(
                broker_id, ApiKey.UPDATE_METADATA, 0, **head, is_full=True, brokers=[], topics=[], slots=[]
            )
            assert int(answer.error_code) == 31
        running.wait_for_more(100)
        for broker in three.brokers.values():
            assert (broker.folder / "data" / f"{topic}-0").is_dir()
        # The real controller is obeyed: a topic is made everywhere and deleted everywhere.
        other = three.create(f"after-{run}")
        assert klog("topic", "delete", other, "--purge", "-y", "-B", three.bootstrap).code == 0
        for broker in three.brokers.values():
            three.wait_until(lambda broker=broker: not (broker.folder / "data" / f"{other}-0").exists(), "it is gone")
            broker.wait_for_log("replicas.removal", f"{other}-0")
            assert not broker.logged("replicas.removal", f"{topic}-0")
        old = three.controller()
        three.kill(old)
        three.wait_until(lambda: three.controller() not in (-1, old), "another controller")
        three.wait_for_leader(topic, other_than=old)
        running.wait_for_more(100)
        three.start(old)
    three.wait_in_sync(topic)
    judge(running, three.bootstrap)


def _incarnation(cluster: RunningCluster, broker_id: int) -> int:
    return int(cluster.ask(broker_id, ApiKey.DESCRIBE_SELF, 0).incarnation)


def _cluster_id(cluster: RunningCluster) -> str:
    return str(cluster.metadata(topics=[]).cluster_id)


def _topic_id(cluster: RunningCluster, topic: str) -> Any:
    answer = cluster.ask(
        cluster.answering[0],
        ApiKey.METADATA,
        12,
        topics=[{"topic_id": None, "name": topic}],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    return answer.topics[0].topic_id


def _open(cluster: RunningCluster, broker_id: int) -> tuple[int, str, int]:
    """Replication opened as another broker of an incarnation long gone: error, message, incarnation told."""
    other = next(one for one in cluster.brokers if one != broker_id)
    with RawConnection(cluster.brokers[broker_id].bootstrap) as stranger:
        stranger.send(replica_fetch.open_request(_cluster_id(cluster), other, 1, broker_id))
        answer = replica_fetch.read_opened(memoryview(stranger.answer()))
        return answer.error_code, answer.message, answer.incarnation
