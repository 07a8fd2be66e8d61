"""Rule L7: a broker whose clock falls ten days behind knows it, clients may retry, an event and `status` name it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from confluent_kafka import KafkaError, Producer

from klog.admin.health.rules import judge
from klog.admin.health.snapshot import Snapshot
from klog.client.metadata import Metadata
from klog.names import EVENTS_TOPIC
from klog.server.peer_clocks import odd_by_ms
from klog.storage.retention import CLOCKS_APART_MS_MAX as APART_MS
from tests.cli.runner import klog
from tests.cluster_fixture import RunningCluster
from tests.rows import each
from tests.tools.verbs import read

DAY_MS = 86_400_000
SHIFTED = """
import pathlib, time
time_ns, seconds, ahead = time.time_ns, time.time, pathlib.Path({!r})
time.time_ns = lambda: time_ns() + int(ahead.read_text()) * 1_000_000
time.time = lambda: seconds() + int(ahead.read_text()) / 1000
"""
SOON_S = 15.0
"""Less than the time between two looks at the others' clocks."""


def test_messages_wait_for_a_broker_whose_clock_is_wrong(
    make_cluster: Callable[..., RunningCluster], topic: str, tmp_path: Path
) -> None:
    ahead_ms = tmp_path / "ahead_ms"

    def shift(by_ms: int) -> None:
        (tmp_path / "next").write_text(str(by_ms))
        (tmp_path / "next").replace(ahead_ms)

    shift(0)
    (tmp_path / "sitecustomize.py").write_text(SHIFTED.format(str(ahead_ms)))
    cluster = make_cluster(3)
    cluster.brokers[3].wrapper = ["env", f"PYTHONPATH={tmp_path}"]
    cluster.start()
    cluster.create(topic, assignment=[[3, 1, 2]])

    def outcome() -> int | None:
        """Of a message of now: None, or the error."""
        codes: list[int | None] = []
        settings = {"bootstrap.servers": cluster.bootstrap, "message.timeout.ms": 3000, "enable.idempotence": True}
        producer = Producer(settings)
        producer.produce(topic, b"now", on_delivery=lambda error, _: codes.append(error and error.code()))
        assert producer.flush(20) == 0
        return codes[0]

    assert outcome() is None
    shift(-10 * DAY_MS)
    assert outcome() == KafkaError.INVALID_TIMESTAMP, "as if the message were of the future"
    cluster.brokers[3].wait_for_log("clock", "behind", timeout_s=SOON_S)
    assert outcome() == KafkaError._MSG_TIMED_OUT, "no final error: they may retry"
    cluster.wait_until(lambda: cluster.partitions(EVENTS_TOPIC), "the topic of events is there")
    cluster.wait_until(
        lambda: b'"clock-skew"' in read(cluster.bootstrap, EVENTS_TOPIC, last=1000, until_end=True)[0], "the event"
    )
    found = klog("status", "brokers", "-B", cluster.bootstrap, "-o", "json").rows
    assert [row["what"] for row in found if row["kind"] == "clock-skew"] == ["broker 3"]
    assert len(klog("events", "--kind", "clock-skew", "-B", cluster.bootstrap, "-o", "json").rows) == 1, (
        "it is of today"
    )
    (cause,) = [row for row in klog("status", topic, "-B", cluster.bootstrap, "-o", "json").rows if row["do"]]
    assert "clock" in cause["what"] and "3" in cause["what"]
    shift(0)
    cluster.brokers[3].wait_for_log("clock agrees", timeout_s=SOON_S)
    assert outcome() is None


@each(
    ("others_ms", "ahead_ms"),
    [
        ([], 0),
        ([DAY_MS], 0),  # of two nobody knows which one is right
        ([DAY_MS, DAY_MS + 5], -DAY_MS),
        ([-DAY_MS, -DAY_MS], DAY_MS),
        ([0, DAY_MS], 0),
        ([3, -7], 0),
        ([APART_MS, APART_MS], 0),
        ([DAY_MS, -DAY_MS], 0),
        ([DAY_MS, 2 * DAY_MS, 3 * DAY_MS], 0),
    ],
)
def test_the_odd_one_differs_from_most(others_ms: list[int], ahead_ms: int) -> None:
    assert odd_by_ms(others_ms) == ahead_ms


@each(
    ("clocks", "named"),
    [({1: 0, 2: 5}, []), ({1: 0}, []), ({1: 0, 2: DAY_MS, 3: 9}, [2]), ({1: 0, 2: DAY_MS}, [1, 2])],
)
def test_check_names_the_broker(clocks: dict[int, int], named: list[int]) -> None:
    snapshot = Snapshot(metadata=Metadata("c", 1, {}, {}, {}), clocks=clocks)
    assert [one.what for one in judge(snapshot) if one.kind == "clock-skew"] == [f"broker {one}" for one in named]
