"""What clients can make ZooKeeper keep is bounded against its heap (rule P2)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from klog.client.blocking import BlockingChannel
from klog.coordination import embedded
from klog.coordination.embedded import ZooKeeperServer
from klog.coordination.server_settings import HEAP_ALLOWED_MIN_BYTES
from klog.coordination.server_size import FULL_SHARE, server_size
from klog.errors import PolicyViolation
from tests.broker_fixture import RunningBroker
from tests.server.asking import commit, create
from tests.zookeeper_fixture import klog_home

METADATA = "m" * 4000
PARTITIONS = 200


@pytest.fixture
def small(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper with the smallest heap that there is."""
    server = embedded.start(tmp_path / "zookeeper", cache=klog_home() / "cache", heap_bytes=HEAP_ALLOWED_MIN_BYTES)
    try:
        server.await_serving()
        yield server
    finally:
        server.stop()


@pytest.mark.slow
def test_metadata_of_commits_ends_before_zookeepers_heap_does(small: ZooKeeperServer, tmp_path: Path) -> None:
    broker = RunningBroker(tmp_path / "broker", f"{small.address}/c")
    host, _, port = small.address.rpartition(":")
    with contextlib.ExitStack() as stack:
        stack.callback(broker.end)
        broker.start()
        create(broker.bootstrap, "t", PARTITIONS)
        at, _, broker_port = broker.bootstrap.rpartition(":")
        channel = BlockingChannel.connect(at, int(broker_port), timeout_s=30)
        stack.callback(channel.close)
        refused = None
        for number in range(100):  # 80 MB in all, of a heap of 32
            code = commit(channel, f"g{number}", "t", PARTITIONS, METADATA)
            if code == PolicyViolation.wire:
                refused = number
                break
            assert code in (0, 15), code
        assert refused is not None
        share = server_size(host, int(port), 5.0).share()
        assert share is not None and FULL_SHARE / 2 < share < 0.8
        assert commit(channel, "g0", "t", PARTITIONS) == 0, "offsets that have nodes are committed all the same"
        broker.wait_for_log("ERROR", "zookeeper_admission")
