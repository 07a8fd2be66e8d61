"""Stock clients under quotas: held to a rate, told for how long they wait; others unharmed, nothing lost."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Message, Producer

from klog.coordination.embedded import ZooKeeperServer
from tests.broker_fixture import RunningBroker
from tests.cli.runner import klog
from tests.security.broker_doors import unique
from tests.server.asking import create

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("quotas")]

RATE = 200_000
VALUE = bytes(10_000)
PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def broker(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    settings = {"quota.window.num": "1"}  # with more, Kafka's way to measure lets bursts pass, now and then
    chroot = f"{zookeeper.address}/{unique('quotas')}"
    with RunningBroker(tmp_path_factory.mktemp("quotas"), chroot, **settings).running() as one:
        done = klog("quota", "set", f"producer_byte_rate={RATE}", "--client", "held-producer", "-B", one.bootstrap)
        assert done.code == 0, done.stderr
        yield one


def rate_of(times: list[tuple[float, int]]) -> float:
    """Bytes per second, without what came first; (time, bytes so far)."""
    first = next(one for one in times if one[0] > times[0][0] + 0.05)
    last = times[-1]
    return (last[1] - first[1]) / (last[0] - first[0])


def test_a_producer_is_held_to_its_rate_and_another_is_not(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    waits_ms: list[int] = []
    times: list[tuple[float, int]] = []
    lost: list[object] = []

    def on_delivery(error: object, _: Message) -> None:
        lost.extend([error] if error is not None else [])
        times.append((time.monotonic(), (len(times) + 1) * len(VALUE)))

    slow = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": "held-producer",
            "batch.num.messages": 4,
            "throttle_cb": lambda event: waits_ms.append(int(event.throttle_time * 1000)),
        }
    )
    other = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "other"})
    for _ in range(80):
        slow.produce(topic, VALUE, on_delivery=on_delivery)
    latencies = []
    while slow.flush(0.05):
        began_s = time.monotonic()
        other.produce(topic, b"small")
        assert other.flush(PATIENCE_S) == 0
        latencies.append(time.monotonic() - began_s)
    assert not lost
    assert len(times) == 80
    assert waits_ms
    assert max(waits_ms) > 0
    # A message has a head, a batch one, a request one: less than 15 % of these.
    assert rate_of(times) == pytest.approx(RATE, rel=0.15)
    assert sorted(latencies)[len(latencies) // 2] < 0.1
