"""A broker behind a TCP balancer: it listens at one address and tells clients another, where something else listens."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator

import pytest

from klog.protocol.apis import ApiKey
from klog.record.codec import Codec
from tests.broker_fixture import RunningBroker
from tests.interop.aio_kafka import AioKafka
from tests.interop.confluent import ConfluentKafka
from tests.interop.kafka_python import KafkaPython
from tests.interop.kit import Client, From, Where
from tests.server.asking import ask, create


class Balancer:
    """Forwards each connection to the broker, byte for byte, from a thread with a loop of its own."""

    def __init__(self) -> None:
        self.target = ""
        self.connections = 0
        self.address = ""
        self._ready = threading.Event()
        self._ending = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))

    def __enter__(self) -> Balancer:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(10)
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        self.address = "{}:{}".format(*server.sockets[0].getsockname()[:2])
        self._ready.set()
        await self._ending.wait()
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        host, _, port = self.target.rpartition(":")
        try:
            to_reader, to_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, to_writer), _copy(to_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
    finally:
        writer.close()


@pytest.fixture
def balanced(make_broker: Callable[..., RunningBroker]) -> Iterator[tuple[RunningBroker, Balancer]]:
    with Balancer() as balancer:
        broker = make_broker()
        broker.listen = "127.0.0.1:0"
        broker.extra_arguments = ["--advertise", balancer.address]
        broker.start()
        yield broker, balancer


def listening_address(broker: RunningBroker) -> str:
    """Where the process itself listens, by the kernel's table."""
    import psutil

    (listener,) = [one for one in psutil.Process(broker.pid).net_connections("tcp") if one.status == "LISTEN"]
    return f"{listener.laddr.ip}:{listener.laddr.port}"


CLIENTS: tuple[Callable[[], Client], ...] = (ConfluentKafka, KafkaPython, AioKafka)


def test_clients_work_through_a_balancer(balanced: tuple[RunningBroker, Balancer], topic: str) -> None:
    broker, balancer = balanced
    assert broker.bootstrap == balancer.address, "it says that it is ready at the address that clients are told"
    balancer.target = listening_address(broker)
    assert balancer.target != balancer.address
    found = ask(balancer.target, ApiKey.DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=False)
    assert [f"{one.host}:{one.port}" for one in found.brokers] == [balancer.address]
    values = [b"value %d" % number for number in range(50)]
    for make_client in CLIENTS:
        client = make_client()
        name = f"{topic}-{client.name}"
        create(balancer.target, name)
        before = balancer.connections
        client.produce(balancer.target, name, values, Codec.NONE, idempotent=False)
        read = client.consume(balancer.target, name, Where(From.START), len(values))
        assert [value for _, value in read.records] == values, client.name
        assert balancer.connections > before, "bootstrapped directly, the rest goes where the broker said: the balancer"
