"""Look-ups by time hold up nobody but one another, however many strangers ask for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from klog.protocol import codec
from klog.protocol.apis import ApiKey
from tests.cluster_fixture import RunningCluster
from tests.hung_disk import HungDisk
from tests.server.asking import FIRST_MS, ask, error, produce, values
from tests.server.wire import RawConnection

STRANGERS = 80


def by_time(topic: str) -> bytes:
    """ListOffsets, framed."""
    asked = {"partition_index": 0, "timestamp": FIRST_MS}
    entity = codec.request(ApiKey.LIST_OFFSETS, 1, replica_id=-1, topics=[{"name": topic, "partitions": [asked]}])
    return codec.encode_request(entity, correlation_id=1, client_id="stranger")


@pytest.mark.long("a crowd and a fault; test_crowds.py has the crowd")
def test_full_of_look_ups_a_broker_still_takes_over(
    make_cluster: Callable[..., RunningCluster], tmp_path: Path
) -> None:
    cluster = make_cluster(2, min__insync__replicas="1")
    survivor = cluster.brokers[1]
    disk = HungDisk(tmp_path, survivor.folder / "data" / "slow-0")
    disk.to(survivor)
    cluster.start()
    cluster.create("slow", assignment=[[1]])
    cluster.create("led", assignment=[[2, 1]])
    produce(survivor.bootstrap, "slow", [values(5)])
    produce(cluster.brokers[2].bootstrap, "led", [values(5)])

    disk.hang("R")
    strangers = [RawConnection(survivor.bootstrap) for _ in range(STRANGERS)]
    try:
        for one in strangers:
            one.send(by_time("slow"))
        cluster.kill(2)
        assert cluster.wait_for_leader("led", other_than=2) == 1
        produce(survivor.bootstrap, "led", [values(5)])
        cluster.create("new", assignment=[[1]])  # the survivor is the controller by now, too
    finally:
        for one in strangers[1:]:
            one.socket.close()
        disk.heal()
    with strangers[0] as one:
        assert one.answer(), "who stayed is answered when the disk is"
    asked = {"partition_index": 0, "timestamp": FIRST_MS}
    answer = ask(
        survivor.bootstrap, ApiKey.LIST_OFFSETS, 1, replica_id=-1, topics=[{"name": "slow", "partitions": [asked]}]
    )
    assert error(answer.topics[0].partitions[0]) == 0
