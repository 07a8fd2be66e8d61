"""The settings that Kafka 0.8's own guides recommend, all together: what does not fit is told."""

from __future__ import annotations

from pathlib import Path

from klog.admin.health.rules import judge
from klog.admin.health.snapshot import Snapshot
from klog.client.client_config import read_client_config
from klog.client.metadata import Metadata
from klog.config import BrokerConfig
from tests.rows import each

BROKER = {
    # "A production server config" of the documentation of 0.8.1
    "num.replica.fetchers": "4",
    "replica.fetch.max.bytes": "1048576",
    "replica.fetch.wait.max.ms": "500",
    "replica.high.watermark.checkpoint.interval.ms": "5000",
    "replica.socket.timeout.ms": "30000",
    "replica.socket.receive.buffer.bytes": "65536",
    "replica.lag.time.max.ms": "10000",
    "replica.lag.max.messages": "4000",
    "controller.socket.timeout.ms": "30000",
    "controller.message.queue.size": "10",
    "num.partitions": "8",
    "message.max.bytes": "1000000",
    "auto.create.topics.enable": "true",
    "log.index.interval.bytes": "4096",
    "log.index.size.max.bytes": "10485760",
    "log.retention.hours": "168",
    "log.flush.interval.ms": "10000",
    "log.flush.interval.messages": "20000",
    "log.flush.scheduler.interval.ms": "2000",
    "log.roll.hours": "168",
    "log.cleanup.interval.mins": "30",
    "log.segment.bytes": "1073741824",
    "zookeeper.connection.timeout.ms": "6000",
    "zookeeper.sync.time.ms": "2000",
    "num.io.threads": "8",
    "num.network.threads": "8",
    "socket.request.max.bytes": "104857600",
    "socket.receive.buffer.bytes": "1048576",
    "socket.send.buffer.bytes": "1048576",
    "queued.max.requests": "16",
    "fetch.purgatory.purge.interval.requests": "100",
    "producer.purgatory.purge.interval.requests": "100",
}


@each(
    ("flush", "told"),
    [
        ({}, 0),
        ({"log.flush.interval.ms": "10001"}, 1),
        ({"log.flush.interval.ms": "9223372036854775807"}, 1),
        ({"log.flush.interval.ms": "10001", "log.flush.interval.messages": "1"}, 0),
    ],
)
def test_what_does_not_fit_is_told_at_the_start_and_by_check(flush: dict[str, str], told: int) -> None:
    config = BrokerConfig.parse({**BROKER, **flush})
    assert len([one for one in config.warnings if "log.flush.interval.ms" in one]) == told
    names = ("log.flush.interval.messages", "log.flush.interval.ms", "replica.lag.time.max.ms")
    snapshot = Snapshot(now_ms=0, metadata=Metadata("c", 1, {}, {}, {}))
    snapshot.settings = {1: {name: str(config.integer(name)) for name in names}}
    assert len([one for one in judge(snapshot) if one.kind == "rare-flushes"]) == told


def test_a_file_of_clients_with_a_large_chunk_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "consumer.properties"
    path.write_text("fetch.message.max.bytes=1073741824\n")
    assert read_client_config(path).consumer() == {"fetch.message.max.bytes": "1000000000"}
