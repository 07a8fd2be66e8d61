"""Stock clients against a klog broker, unchanged: each through the same tests."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest

from klog.protocol.apis import ApiKey
from klog.record.codec import Codec
from klog.record.records import Record, encode_batch
from tests.broker_fixture import RunningBroker
from tests.interop.aio_kafka import AioKafka
from tests.interop.confluent import ConfluentKafka
from tests.interop.java import JavaClient
from tests.interop.kafka_python import KafkaPython
from tests.interop.kcat import Kcat
from tests.interop.kit import Client, From, Missing, Where, stored_batches
from tests.server.asking import FIRST_MS, ask, create, error, offsets, produce, produce_request, values, with_channel

CLIENTS: dict[str, Callable[[], Client]] = {
    "confluent-kafka": ConfluentKafka,
    "kcat": Kcat,
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
    "java-4.1": partial(JavaClient, "kafka-4.1"),
}
VALUES = [b"value %d of some text that can be compressed" % number for number in range(300)]


@pytest.fixture(scope="session")
def made() -> Iterator[dict[str, Client]]:
    """Clients by name, each made once: some are processes."""
    clients: dict[str, Client] = {}
    yield clients
    for one in clients.values():
        if isinstance(one, JavaClient):
            one.close()


PARAMS = [
    pytest.param(name, marks=[pytest.mark.xdist_group(name)] * name.startswith("java"))  # its tests share one JVM
    for name in CLIENTS
]


@pytest.fixture(params=PARAMS)
def client(request: pytest.FixtureRequest, made: dict[str, Client]) -> Client:
    name = request.param
    if name not in made:
        try:
            made[name] = CLIENTS[name]()
        except Missing as reason:
            pytest.skip(str(reason))
    return made[name]


# --- Producing ---


def test_produce_with_every_codec(broker: RunningBroker, topic: str, client: Client) -> None:
    for codec in Codec:
        name = f"{topic}-{codec.label}"
        create(broker.bootstrap, name)
        client.produce(broker.bootstrap, name, VALUES, codec, idempotent=False)
        stored = stored_batches(broker.bootstrap, name)
        # A client may leave a batch of a few as it is, where it would not become smaller.
        codecs = {batch.codec for batch in stored if batch.count >= 5}
        assert codecs == {codec}, "it was not told that this codec may be used"
        assert sum(batch.count for batch in stored) == len(VALUES), codec
        read = client.consume(broker.bootstrap, name, Where(From.START), len(VALUES))
        assert [value for _, value in read.records] == VALUES, codec
        assert read.position == read.end == offsets(broker.bootstrap, name)[1], codec


def test_produce_idempotently(broker: RunningBroker, topic: str, client: Client) -> None:
    create(broker.bootstrap, topic)
    for _ in range(2):
        client.produce(broker.bootstrap, topic, VALUES, Codec.NONE, idempotent=True)
    stored = stored_batches(broker.bootstrap, topic)
    assert all(batch.producer_id >= 0 for batch in stored), "it was not idempotent"
    assert len({batch.producer_id for batch in stored}) == 2
    read = client.consume(broker.bootstrap, topic, Where(From.START), 2 * len(VALUES))
    assert [value for _, value in read.records] == VALUES * 2


def test_transactions_are_refused_at_once(broker: RunningBroker, client: Client) -> None:
    """By an error that the client does not try again after: trying would end with its time-out, and say that."""
    said = client.transact(broker.bootstrap)
    assert "transactional" in said.lower(), said
    assert "authorization" in said.lower(), said


# --- Consuming ---


class Log(NamedTuple):
    """A topic with three batches: ten records a second apart, many alike under zstd, and ten more."""

    topic: str
    records: list[tuple[int, bytes]]
    bases: list[int]

    def since(self, offset: int) -> list[tuple[int, bytes]]:
        return [one for one in self.records if one[0] >= offset]

    @property
    def end(self) -> int:
        return self.records[-1][0] + 1


ALIKE_MS, LAST_MS = FIRST_MS + 20_000, FIRST_MS + 30_000
ALIKE = 4000


@pytest.fixture(scope="module")
def filled(broker: RunningBroker) -> Log:
    topic = f"filled-{secrets.token_hex(6)}"
    create(broker.bootstrap, topic)
    first = [Record(n, FIRST_MS + 1000 * n, None, b"first %d" % n, ()) for n in range(10)]
    alike = [Record(n, ALIKE_MS, None, b"same", ()) for n in range(ALIKE)]
    last = [Record(n, LAST_MS + 1000 * n, None, b"last %d" % n, ()) for n in range(10)]
    batches = [encode_batch(first), encode_batch(alike, codec=Codec.ZSTD), encode_batch(last)]

    async def send(channel: Any) -> list[int]:
        bases = []
        for batch in batches:
            answer = await channel.request(produce_request(topic, bytes(batch)))
            bases.append(answer.responses[0].partition_responses[0].base_offset)
        return bases

    bases = with_channel(broker.bootstrap, send)
    records = [
        (base + record.offset, record.value or b"")
        for base, batch in zip(bases, (first, alike, last), strict=True)
        for record in batch
    ]
    return Log(topic, records, bases)


PLACES: dict[str, Callable[[Log], tuple[From, int, int]]] = {
    "start": lambda log: (From.START, 0, 0),
    "in the first batch": lambda log: (From.OFFSET, log.bases[0] + 4, log.bases[0] + 4),
    "in a compressed batch": lambda log: (From.OFFSET, log.bases[1] + 2500, log.bases[1] + 2500),
    "in the last batch": lambda log: (From.OFFSET, log.bases[2] + 5, log.bases[2] + 5),
    "the hole behind the first batch": lambda log: (From.OFFSET, log.bases[0] + 10, log.bases[1]),
    "the last of more records than bytes": lambda log: (From.OFFSET, log.bases[2] - 1, log.bases[2] - 1),
    "the last record": lambda log: (From.OFFSET, log.end - 1, log.end - 1),
    "time before all": lambda log: (From.TIME, FIRST_MS - 5, log.bases[0]),
    "time in the first batch": lambda log: (From.TIME, FIRST_MS + 2500, log.bases[0] + 3),
    "time of the compressed batch": lambda log: (From.TIME, ALIKE_MS, log.bases[1]),
    "time of the last record": lambda log: (From.TIME, LAST_MS + 9000, log.bases[2] + 9),
}
"""Where it begins to read, and the first offset that it reads then."""


def test_consume_from(broker: RunningBroker, filled: Log, client: Client) -> None:
    wrong = []
    for name, place in PLACES.items():
        kind, at, first = place(filled)
        expected = filled.since(first)
        read = client.consume(broker.bootstrap, filled.topic, Where(kind, at), len(expected))
        if read.records != expected:
            wrong.append(name)
        elif not read.position == read.end == filled.end:
            wrong.append(f"{name}: it never comes to its end")
    assert wrong == []


def test_consume_from_the_end(broker: RunningBroker, topic: str, client: Client) -> None:
    create(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, [values(10), values(10)])
    new: list[int] = []

    def more() -> None:
        new.extend(produce(broker.bootstrap, topic, [values(1)]))

    read = client.consume(broker.bootstrap, topic, Where(From.END), 1, when_there=more)
    assert [offset for offset, _ in read.records] == new
    assert read.position == read.end == new[0] + 1


def test_consume_in_a_group(broker: RunningBroker, topic: str, client: Client) -> None:
    """The second time it goes on where the first has committed; what is committed is there for anybody to see."""
    create(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, [values(10), values(10)])
    everything = client.consume(broker.bootstrap, topic, Where(From.START), 20).records
    group = f"group-of-{topic}"
    for first, last in ((0, 8), (8, 20)):
        read = client.consume_in_group(broker.bootstrap, topic, group, last - first)
        assert read == everything[first:last]
        assert committed_offset(broker.bootstrap, group, topic) == read[-1][0] + 1


def committed_offset(bootstrap: str, group: str, topic: str) -> int:
    wanted = [{"name": topic, "partition_indexes": [0]}]
    answer = ask(bootstrap, ApiKey.OFFSET_FETCH, 5, group_id=group, topics=wanted)
    assert error(answer) == 0
    offset: int = answer.topics[0].partitions[0].committed_offset
    return offset


# --- Topics ---


def test_make_and_delete_a_topic(broker: RunningBroker, topic: str, client: Client) -> None:
    if not client.has_admin:
        pytest.skip(f"{client.name} has no admin API")
    client.create_topic(broker.bootstrap, topic, 3, {"retention.ms": "1234"})
    resource = {"resource_type": 2, "resource_name": topic, "configuration_keys": ["retention.ms"]}
    (found,) = ask(broker.bootstrap, ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource]).results
    assert [one.value for one in found.configs] == ["1234"]
    for number in range(3):
        assert offsets(broker.bootstrap, topic, number) == (0, 0)
    client.delete_topic(broker.bootstrap, topic)
    (gone,) = ask(broker.bootstrap, ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource]).results
    assert error(gone) == 3
