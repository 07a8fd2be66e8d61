"""A broker behind a TCP balancer: it listens at one address and tells clients another, where something else listens."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from klog.protocol.apis import ApiKey
from klog.record.codec import Codec
from tests.broker_fixture import RunningBroker
from tests.faults.network import CLIENT, HOST, Gate, Network
from tests.interop.aio_kafka import AioKafka
from tests.interop.confluent import ConfluentKafka
from tests.interop.kafka_python import KafkaPython
from tests.interop.kit import Client, From, Where
from tests.server.asking import ask, create


class Balancer:
    """A gate that forwards each connection to the broker, byte for byte; it is told later where the broker listens."""

    def __init__(self) -> None:
        self.connections = 0
        self.network = Network(self._count)
        self.gate: Gate = self.network.add("broker", 0)
        self.address = f"{HOST}:{self.gate.port}"

    def _count(self, port: int, gate_port: int) -> str:
        self.connections += 1
        return CLIENT


@pytest.fixture
def balanced(make_broker: Callable[..., RunningBroker]) -> Iterator[tuple[RunningBroker, Balancer]]:
    balancer, broker = Balancer(), make_broker()
    broker.extra_arguments = ["--advertise", balancer.address]
    try:
        yield broker.start(), balancer
    finally:
        balancer.network.close()


def listening_address(broker: RunningBroker) -> str:
    """Where the process itself listens, by the kernel's table."""
    import psutil

    (listener,) = [one for one in psutil.Process(broker.pid).net_connections("tcp") if one.status == "LISTEN"]
    return f"{listener.laddr.ip}:{listener.laddr.port}"


CLIENTS: tuple[Callable[[], Client], ...] = (ConfluentKafka, KafkaPython, AioKafka)


def test_clients_work_through_a_balancer(balanced: tuple[RunningBroker, Balancer], topic: str) -> None:
    broker, balancer = balanced
    assert broker.bootstrap == balancer.address, "it says that it is ready at the address that clients are told"
    direct = listening_address(broker)
    assert direct != balancer.address
    balancer.gate.target_port = int(direct.rpartition(":")[2])
    found = ask(direct, ApiKey.DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=False)
    assert [f"{one.host}:{one.port}" for one in found.brokers] == [balancer.address]
    values = [b"value %d" % number for number in range(50)]
    for make_client in CLIENTS:
        client = make_client()
        name = f"{topic}-{client.name}"
        create(direct, name)
        before = balancer.connections
        client.produce(direct, name, values, Codec.NONE, idempotent=False)
        read = client.consume(direct, name, Where(From.START), len(values))
        assert [value for _, value in read.records] == values, client.name
        assert balancer.connections > before, "bootstrapped directly, the rest goes where the broker said: the balancer"
