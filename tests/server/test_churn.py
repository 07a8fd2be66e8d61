"""Topics that come, change and go while others read and write them."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import pytest

from klog.coordination import topics
from klog.coordination.zookeeper import ZooKeeper
from klog.names import EVENTS_TOPIC
from klog.net.channel import Channel
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.record.records import encode_batch
from tests.broker_fixture import RunningBroker
from tests.chance import seed_of
from tests.server.asking import FIRST_MS, ask, create, error, offsets, produce, produce_request, values
from tests.server.wire import RawConnection, bystander, check_log, fetch_request

FOR_S = 2.0
DONE_MIN = 100
"""So much is granted at least: a busy machine takes longer."""
WITHIN_S = 60.0
ACTORS = 6
FORESEEN = {0, 1, 3, 5, 6, 17, 36, 37, 40}
"""What may be answered to somebody whose topic comes and goes: no storage error, no unknown one."""


def test_a_long_poll_ends_when_its_topic_goes(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    with RawConnection(broker.bootstrap) as waiting:
        waiting.send(codec.encode_request(fetch_request(topic, 0, max_wait_ms=60_000), 1, "test"))
        waiting.send(codec.encode_request(codec.request(ApiKey.API_VERSIONS, 0), 2, "test"))
        ask(broker.bootstrap, ApiKey.DELETE_TOPICS, 5, timeout=10_000, topic_names=[topic])
        _, answer = codec.decode_response(waiting.answer(), ApiKey.FETCH, 11)
        assert error(answer.responses[0].partitions[0]) in (3, 6)
        assert waiting.answer()[:4] == b"\0\0\0\2"


@pytest.mark.long("each of it is a test of its own")
def test_everything_at_once(make_broker: Any) -> None:
    """Actors make, fill, read, cut, widen, change and delete the same few topics; the broker blames itself for nothing,
    and is afterwards, and after a kill, what its metadata says."""
    broker = make_broker(log__retention__check__interval__ms="100", log__flush__offset__checkpoint__interval__ms="100")
    broker.start()
    seed = seed_of("churn")
    names = [f"churn-{number}" for number in range(4)]
    answered: dict[int, int] = {}
    unforeseen: list[Any] = []

    async def actor(number: int) -> None:
        chance = random.Random(seed + number)
        host, _, port = broker.bootstrap.rpartition(":")
        channel = await Channel.connect(host, int(port), client_id="test")
        try:
            begun = time.monotonic()
            while time.monotonic() < begun + FOR_S or answered.get(0, 0) <= DONE_MIN:
                assert time.monotonic() < begun + WITHIN_S, answered
                for one in await act(channel, chance, chance.choice(names)):
                    answered[error(one)] = answered.get(error(one), 0) + 1
                    if error(one) not in FORESEEN:
                        unforeseen.append(one)
        finally:
            await channel.close()

    async def all_actors() -> None:
        await asyncio.gather(*(actor(number) for number in range(ACTORS)))

    with bystander(broker):
        asyncio.run(all_actors())
    print(answered)
    assert answered.keys() <= FORESEEN, unforeseen
    assert answered[0] > DONE_MIN

    before = settled(broker)
    broker.kill()
    broker.start()
    assert state(broker) == before
    check_log(broker.log_text)
    folders = {path.name for path in (broker.folder / "data").iterdir() if path.is_dir()}
    with ZooKeeper(broker.zookeeper) as session:
        session.start()
        deleted = {str(one) for topic, _ in topics.deleted(session).values() for one in topic.topic_partitions}
    assert {f"{name}-{number}" for name, number in before} | deleted == folders - {f"{EVENTS_TOPIC}-0"}


async def act(channel: Channel, chance: random.Random, name: str) -> list[Any]:
    """Do one thing to the topic; the parts of the answer that may hold an error."""
    match chance.choice(("make", "delete", "widen", "change", "cut", "read", "fill", "fill", "fill", "look")):
        case "make":
            new = {"name": name, "num_partitions": chance.randrange(1, 4), "replication_factor": 1}
            settings = [{"name": "segment.bytes", "value": "2000"}, {"name": "retention.bytes", "value": "10000"}]
            request = codec.request(ApiKey.CREATE_TOPICS, 7, topics=[{**new, "assignments": [], "configs": settings}])
            return list((await channel.request(request)).topics)
        case "delete":
            if chance.random() < 0.5:
                return []
            request = codec.request(ApiKey.DELETE_TOPICS, 5, topic_names=[name], timeout=10_000)
            return list((await channel.request(request)).responses)
        case "widen":
            wider = {"name": name, "count": chance.randrange(1, 6), "assignments": None}
            request = codec.request(ApiKey.CREATE_PARTITIONS, 3, topics=[wider], timeout=10_000, validate_only=False)
            return list((await channel.request(request)).results)
        case "change":
            setting = {
                "name": "retention.bytes",
                "config_operation": 0,
                "value": str(chance.choice((-1, 3000, 20_000))),
            }
            resource = {"resource_type": 2, "resource_name": name, "configs": [setting]}
            request = codec.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
            return list((await channel.request(request)).responses)
        case "cut":
            cut = {"partition_index": 0, "offset": chance.choice((-1, 0, 500, 3000))}
            request = codec.request(
                ApiKey.DELETE_RECORDS, 2, topics=[{"name": name, "partitions": [cut]}], timeout=10_000
            )
            return list((await channel.request(request)).topics[0].partitions)
        case "read":
            request = fetch_request(name, chance.choice((0, 300, 1000, 5000)), max_wait_ms=chance.choice((0, 20)))
            return list((await channel.request(request)).responses[0].partitions)
        case "look":
            asked = {"partition_index": 0, "timestamp": chance.choice((-1, -2, -3, FIRST_MS + 3))}
            request = codec.request(
                ApiKey.LIST_OFFSETS,
                7,
                replica_id=-1,
                isolation_level=0,
                topics=[{"name": name, "partitions": [asked]}],
            )
            return list((await channel.request(request)).topics[0].partitions)
        case _:
            batch = bytes(encode_batch(values(chance.randrange(1, 20))))
            request = produce_request(name, batch, chance.randrange(2), acks=chance.choice((-1, 1)))
            return list((await channel.request(request)).responses[0].partition_responses)


def settled(broker: RunningBroker) -> dict[tuple[str, int], tuple[int, int]]:
    """The state once retention and flushes have nothing more to do."""
    deadline = time.monotonic() + 20
    before = state(broker)
    while time.monotonic() < deadline:
        time.sleep(0.5)
        now = state(broker)
        if now == before:
            return now
        before = now
    raise AssertionError("the logs do not come to rest")


def state(broker: RunningBroker) -> dict[tuple[str, int], tuple[int, int]]:
    """(topic, partition) -> start and end. The topic of events grows by itself."""
    found = ask(broker.bootstrap, ApiKey.METADATA, 1, topics=None)
    return {
        (topic.name, one.partition_index): offsets(broker.bootstrap, topic.name, one.partition_index)
        for topic in found.topics
        if topic.name != EVENTS_TOPIC
        for one in topic.partitions
    }


@pytest.mark.slow
def test_a_name_again_and_again(broker: RunningBroker, topic: str) -> None:
    for round_ in range(10):
        create(broker.bootstrap, topic)
        produce(broker.bootstrap, topic, [values(round_ + 1)])
        assert offsets(broker.bootstrap, topic) == (0, round_ + 1)
        (gone,) = ask(broker.bootstrap, ApiKey.DELETE_TOPICS, 5, timeout=10_000, topic_names=[topic]).responses
        assert error(gone) == 0
