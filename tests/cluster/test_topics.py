"""Topics on several brokers: made, grown, changed and deleted through any of them, with some of them down."""

from __future__ import annotations

from confluent_kafka import KafkaError
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.cluster.load import produce, try_produce
from tests.cluster_fixture import RunningCluster

ANSWER_S = 20.0


def admin(cluster: RunningCluster, broker_id: int | None = None) -> AdminClient:
    servers = cluster.bootstrap if broker_id is None else cluster.brokers[broker_id].bootstrap
    return AdminClient({"bootstrap.servers": servers, "log_level": 0})


def test_made_through_every_broker(three: RunningCluster, topic: str) -> None:
    for broker_id in (three.controller(), next(one for one in three.brokers if one != three.controller())):
        name = f"{topic}-{broker_id}"
        assert three.try_create(name, 3, broker_id=broker_id) == 0
        three.wait_in_sync(name)
        leaders = [part.leader_id for part in three.partitions(name).values()]
        assert sorted(leaders) == [1, 2, 3], "leaders are spread"
        produce(three.bootstrap, name, [b"there"])
        produce(three.brokers[broker_id].bootstrap, f"{name}-auto", [b"made for a producer that asks"])
        three.wait_in_sync(f"{name}-auto")
        assert len(three.partitions(f"{name}-auto")[0].replica_nodes) == 3, "the brokers' default factor"


def test_a_setting_holds_at_once_on_every_broker(three: RunningCluster, topic: str) -> None:
    """Each partition is led by another broker; the change is asked of one of them."""
    three.create(topic, assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    large = b"x" * 5000
    for partition in range(3):
        produce(three.bootstrap, topic, [large], partition)
    entry = ConfigEntry("max.message.bytes", "1000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    asking = admin(three, 2)
    for future in asking.incremental_alter_configs([resource]).values():
        future.result(ANSWER_S)
    for partition in range(3):
        three.wait_until(
            lambda partition=partition: (
                [  # type: ignore[misc]
                    one.code() for one in try_produce(three.bootstrap, topic, [large], partition)[1]
                ]
                == [KafkaError.MSG_SIZE_TOO_LARGE]
            ),
            f"partition {partition} refuses what is too large now",
        )
