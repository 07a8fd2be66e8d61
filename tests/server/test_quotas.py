"""Quotas of a real broker: written by Kafka's requests, kept where Kafka has them, obeyed by its answers."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from klog.coordination import acts, paths, scram_credentials
from klog.coordination.embedded import ZooKeeperServer
from klog.coordination.zookeeper import Create
from klog.net.channel import Channel
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.record.records import encode_batch
from klog.security.scram import ScramMechanism
from tests.broker_fixture import RunningBroker
from tests.cli.runner import klog
from tests.security.broker_doors import add_user, unique
from tests.server.asking import (
    ask,
    create,
    error,
    new_topic,
    offsets,
    produce,
    produce_request,
    values,
    with_channel,
)
from tests.server.wire import fetch_request
from tests.until import until
from tests.zookeeper_fixture import session_of

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("quotas")]

WINDOWS = {"quota.window.num": "2", "controller.quota.window.num": "1"}
PATIENCE_S = 10.0
THROTTLED = 89


@pytest.fixture(scope="module")
def broker(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """After a silence a client may take at once what its quota allows for one second."""
    chroot = f"{zookeeper.address}/{unique('quotas')}"
    with RunningBroker(tmp_path_factory.mktemp("quotas"), chroot, **WINDOWS).running() as one:
        yield one


def entity(user: str | None = None, client: str | None = None, **default: bool) -> list[dict[str, Any]]:
    """``user=True`` among ``default`` is that of all users."""
    found = [{"entity_type": "user", "entity_name": user}] if user is not None or default.get("users") else []
    if client is not None or default.get("clients"):
        found.append({"entity_type": "client-id", "entity_name": client})
    return found


def address(ip: str | None) -> list[dict[str, Any]]:
    """None: the default address."""
    return [{"entity_type": "ip", "entity_name": ip}]


def alter(broker: RunningBroker, whose: list[dict[str, Any]], **quotas: float | None) -> tuple[int, str | None]:
    ops = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in quotas.items()]
    answer = ask(
        broker.bootstrap, ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[{"entity": whose, "ops": ops}], validate_only=False
    )
    (entry,) = answer.entries
    return error(entry), entry.error_message


def described(broker: RunningBroker, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    asked = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
    answer = ask(broker.bootstrap, ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, components=asked, strict=strict)
    assert error(answer) == 0, answer
    return [
        ({one.entity_type: one.entity_name for one in entry.entity}, {one.key: one.value for one in entry.values})
        for entry in answer.entries
    ]


@contextmanager
def limited(broker: RunningBroker, whose: list[dict[str, Any]], **quotas: float) -> Iterator[None]:
    assert alter(broker, whose, **quotas) == (0, None)
    try:
        yield
    finally:
        assert alter(broker, whose, **dict.fromkeys(quotas)) == (0, None)


def as_client(broker: RunningBroker, client_id: str, work: Callable[[Channel], Any]) -> Any:
    return with_channel(broker.bootstrap, work, client_id=client_id, timeout_s=60)


def throttled_ms(answer: Any) -> float:
    return float(answer.throttle_time.total_seconds() * 1000)


@pytest.mark.parametrize("version", [3, 9])
def test_a_producer_is_told_to_wait_and_not_read_from_before(broker: RunningBroker, topic: str, version: int) -> None:
    create(broker.bootstrap, topic)
    records = bytes(encode_batch(values(1, 50_000)))

    async def work(channel: Channel) -> list[tuple[float, float]]:
        """For each request how long the client is to wait, and how long that request and the next took together."""
        found = []
        before_s = time.monotonic()
        for _ in range(10):
            began_s = time.monotonic()
            answer = await channel.request(produce_request(topic, records, version=version))
            assert error(answer.responses[0].partition_responses[0]) == 0
            found.append((throttled_ms(answer) / 1000, time.monotonic() - before_s))
            before_s = began_s
        return found

    with limited(broker, entity(client=topic), producer_byte_rate=200_000):
        answers = as_client(broker, topic, work)
        others = as_client(broker, "other", work)
    assert {wait_s for wait_s, _ in others} == {0.0}
    waits = [wait_s for wait_s, _ in answers]
    assert waits[0] == 0.0
    assert 0.1 < sum(waits) < 5
    for wait_s, (_, took_s) in zip(waits, answers[1:], strict=False):
        assert took_s >= wait_s - 0.02, answers
    assert offsets(broker.bootstrap, topic)[1] > 0


def test_a_consumer_gets_an_empty_answer_and_all_messages_in_the_end(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, [values(1, 60_000) for _ in range(6)])
    stored_bytes = 6 * len(encode_batch(values(1, 60_000)))
    end = offsets(broker.bootstrap, topic)[1]

    def fetch(offset: int) -> Any:
        return fetch_request(topic, offset, max_wait_ms=100)

    async def work(channel: Channel) -> tuple[list[int], list[float], float]:
        sizes, waits, offset, began_s = [], [], 0, time.monotonic()
        while offset < end:
            answer = await channel.request(fetch(offset))
            waits.append(throttled_ms(answer) / 1000)
            if not answer.responses:
                assert waits[-1] > 0
                continue
            (one,) = answer.responses[0].partitions
            assert error(one) == 0
            size = len(one.records)
            sizes.append(size)
            offset += size  # an offset is a byte address
        return sizes, waits, time.monotonic() - began_s

    with limited(broker, entity(client="slow"), consumer_byte_rate=150_000):
        sizes, waits, took_s = as_client(broker, "slow", work)
        _, free_waits, free_s = as_client(broker, "other", work)
    assert sum(sizes) == stored_bytes
    assert max(sizes) <= 150_000
    assert any(waits)
    assert took_s >= (stored_bytes - 2 * 150_000) / 150_000 * 0.85
    assert not any(free_waits)
    assert free_s < took_s
    with limited(broker, entity(client="tiny"), consumer_byte_rate=1000):  # a batch is more than all windows allow
        answer = as_client(broker, "tiny", lambda channel: channel.request(fetch(0)))
        assert len(answer.responses[0].partitions[0].records) > 60_000
        assert throttled_ms(answer) == 0
        refused = as_client(broker, "tiny", lambda channel: channel.request(fetch(0)))
        assert (len(refused.responses), throttled_ms(refused) > 0) == (0, True)


def test_time_of_the_loop_is_counted(broker: RunningBroker) -> None:
    asked = codec.request(ApiKey.DESCRIBE_CONFIGS, 1, resources=[_settings_of(1)], include_synonyms=True)

    async def work(channel: Channel, most: int = 400) -> list[float]:
        found: list[float] = []
        for _ in range(most):
            found.append(throttled_ms(await channel.request(asked)))
            if found[-1]:
                break
        return found

    with limited(broker, entity(users=True, client="busy"), request_percentage=0.1):
        (*before, last) = as_client(broker, "busy", work)
        assert not any(as_client(broker, "other", lambda channel: work(channel, 20)))
    assert not any(before)
    assert 0 < last <= 1000, "not longer than a window"


def _settings_of(broker_id: int) -> dict[str, Any]:
    return {"resource_type": 4, "resource_name": str(broker_id), "configuration_keys": None}


def test_topics_beyond_the_quota_are_refused_or_waited_for(broker: RunningBroker, topic: str) -> None:
    """Capacity is one second's: 4 partitions. It may be overdrawn once."""
    later = [f"{topic}-later-{number}" for number in range(3)]

    def creation(version: int, *names: str) -> Any:
        topics = [new_topic(name, 3) for name in names]
        return codec.request(ApiKey.CREATE_TOPICS, version, topics=topics, timeout_ms=5000, validate_only=False)

    async def strict(channel: Channel) -> Any:
        return await channel.request(creation(6, *(f"{topic}-{number}" for number in range(20))))

    async def patient(channel: Channel) -> tuple[Any, float, Any]:
        first = await channel.request(creation(5, *later))
        began_s = time.monotonic()
        topics = [{"name": later[0], "count": 4, "assignments": None}]
        second = await channel.request(
            codec.request(ApiKey.CREATE_PARTITIONS, 3, topics=topics, timeout=5000, validate_only=False)
        )
        return first, time.monotonic() - began_s, second

    with limited(broker, entity(client="maker"), controller_mutation_rate=4):
        answer = as_client(broker, "maker", strict)
        codes = [error(one) for one in answer.topics]
        assert 2 <= codes.count(0) < 20  # a busy machine takes seconds for them, and each second gives four more
        assert set(codes) == {0, THROTTLED}
        assert codes == sorted(codes)
        assert throttled_ms(answer) <= 1500  # 0 where the topics that were made took as long
    with limited(broker, entity(client="waiter"), controller_mutation_rate=4):
        first, second_s, second = as_client(broker, "waiter", patient)
    assert [error(one) for one in first.topics] == [0, 0, 0]
    assert throttled_ms(first) > 500
    assert second_s >= throttled_ms(first) / 1000 - 0.02
    assert error(second.results[0]) == 0
    with limited(broker, entity(client="deleter"), controller_mutation_rate=0.5):
        names = later[:2]
        answer = as_client(
            broker,
            "deleter",
            lambda channel: channel.request(codec.request(ApiKey.DELETE_TOPICS, 5, topic_names=names, timeout=5000)),
        )
    assert [error(one) for one in answer.responses] == [0, THROTTLED]


def test_quotas_are_described_by_filters(broker: RunningBroker) -> None:
    whose = {
        "u": entity("u-1"),
        "uc": entity("u-1", "c-1"),
        "ud": entity("u-1", clients=True),
        "c": entity(client="c-1"),
        "d": entity(users=True),
        "i": address("127.0.0.9"),
        "id": address(None),
    }
    for number, (kind, one) in enumerate(whose.items(), 1):
        rate = {"connection_creation_rate" if kind.startswith("i") else "producer_byte_rate": number * 1000}
        assert alter(broker, one, **rate) == (0, None)
    names = {kind: {one["entity_type"]: one["entity_name"] for one in them} for kind, them in whose.items()}

    def matching(*components: tuple[str, int, str | None], strict: bool = False) -> set[str]:
        found = described(broker, *components, strict=strict)
        return {kind for kind, them in names.items() if them in [entity for entity, _ in found]}

    assert matching() == {"u", "uc", "ud", "c", "d", "i", "id"}
    assert matching(("ip", 2, None)) == matching(("ip", 2, None), strict=True) == {"i", "id"}
    assert matching(("ip", 0, "127.0.0.9")) == {"i"}
    assert matching(("ip", 1, None)) == {"id"}
    assert matching(("user", 0, "u-1")) == {"u", "uc", "ud"}
    assert matching(("user", 0, "u-1"), strict=True) == {"u"}
    assert matching(("user", 1, None)) == {"d"}
    assert matching(("user", 2, None), ("client-id", 2, None)) == {"uc", "ud"}
    assert matching(("client-id", 1, None)) == {"ud"}
    assert matching(("client-id", 0, "c-1"), strict=True) == {"c"}
    assert (names["c"], {"producer_byte_rate": 4000.0}) in described(broker)
    for wrong, code in (
        ([("user", 0, None)], 42),
        ([("user", 7, None)], 42),
        ([("user", 2, None), ("user", 1, None)], 42),
        ([("ip", 2, None), ("user", 1, None)], 42),
        ([("host", 2, None)], 35),
    ):
        asked = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in wrong]
        answer = ask(broker.bootstrap, ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, components=asked, strict=False)
        assert (error(answer), answer.entries) == (code, None)
    for kind, one in whose.items():
        alter(broker, one, **{"connection_creation_rate" if kind.startswith("i") else "producer_byte_rate": None})
    assert described(broker) == []


def test_hostile_entities_and_values_change_nothing(broker: RunningBroker) -> None:
    """One of each kind; `tests/security/test_quotas.py` has all."""
    for whose, quotas, code in (
        ([], {"producer_byte_rate": 1.0}, 42),
        (entity(""), {"producer_byte_rate": 1.0}, 42),
        (entity(".."), {"producer_byte_rate": 1.0}, 42),
        (entity("a") + entity("b"), {"producer_byte_rate": 1.0}, 42),
        (address("127.0.0.9"), {"connection_creation_rate": 0.5}, 42),
        (address("127.0.0.9"), {"producer_byte_rate": 1.0}, 42),
        (address("localhost"), {"connection_creation_rate": 1.0}, 42),
        (address("127.0.0.9") + entity("a"), {"connection_creation_rate": 1.0}, 42),
        (entity("a"), {"connection_creation_rate": 1.0}, 42),
        ([{"entity_type": "host", "entity_name": "a"}], {"producer_byte_rate": 1.0}, 35),
        (entity("a"), {"SCRAM-SHA-256": 1.0}, 42),
        (entity("a"), {"producer_byte_rate": float("nan")}, 42),
    ):
        found, message = alter(broker, whose, **quotas)
        assert found == code, (whose, quotas)
        assert message
    one = {"entity": entity("twice"), "ops": [{"key": "producer_byte_rate", "value": 5.0, "remove": False}]}
    answer = ask(broker.bootstrap, ApiKey.ALTER_CLIENT_QUOTAS, 0, entries=[one, one], validate_only=False)
    assert [error(entry) for entry in answer.entries] == [42, 42]
    answer = ask(broker.bootstrap, ApiKey.ALTER_CLIENT_QUOTAS, 0, entries=[one], validate_only=True)
    assert [error(entry) for entry in answer.entries] == [0]
    for name in ("../../klog/secret", "<default>", "a\nb", "\x1b[31m"):
        with limited(broker, entity(name, name), producer_byte_rate=1):
            assert described(broker) == [({"user": name, "client-id": name}, {"producer_byte_rate": 1.0})]
    assert described(broker) == []


def test_what_others_write_into_zookeeper_applies_and_damage_is_said_once(broker: RunningBroker, topic: str) -> None:
    """As Kafka's own tool writes it, with a notice; and a node that is damaged beside it."""
    add_user(broker, "carol", "of carol")
    with session_of(broker.zookeeper, create_chroot=True) as zk:
        known = json.loads(zk.get("/config/users/carol").data)
        known["config"]["producer_byte_rate"] = "1000"
        zk.set("/config/users/carol", json.dumps(known).encode())
        zk.create("/config/clients/broken", b'{"version":1,"config":{"producer_byte_rate":"many"', parents=True)
        for path in ("users/carol", "clients/broken"):
            notice = json.dumps({"version": 2, "entity_path": path}).encode()
            zk.multi([_notice(notice)])
        assert until(lambda: described(broker), timeout_s=PATIENCE_S) == [
            ({"user": "carol"}, {"producer_byte_rate": 1000.0})
        ]
        broker.wait_for_log("ERROR", "/config/clients/broken")
        code, message = alter(broker, entity(client="broken"), producer_byte_rate=5)
        assert code == -1 or code > 0
        assert message is not None and "/config/clients/broken" in message
        assert zk.get("/config/clients/broken").data.endswith(b'"many"')
        zk.delete("/config/clients/broken")
        assert alter(broker, entity("carol"), producer_byte_rate=None) == (0, None)
        assert set(scram_credentials.read(zk, "carol")) == set(ScramMechanism)
        about = [one for one in acts.read(zk, acts.list_ids(zk)) if one.quota == "users/carol"]
    assert [(one.before, one.after) for one in about] == [({"producer_byte_rate": "1000"}, {})]


def _notice(data: bytes) -> Create:
    return Create(f"{paths.CONFIG_CHANGES}/config_change_", data, sequence=True)


def throttled(broker: RunningBroker, quota: str) -> float:
    """How many answers, or connections."""
    rows = klog("metrics", "klog_throttled_answers_total", "-B", broker.bootstrap, "-o", "json").rows
    return float(next(one["value"] for one in rows if one["labels"]["quota"] == quota))


def test_what_is_throttled_is_counted(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)

    before = throttled(broker, "producer_byte_rate")
    request = produce_request(topic, bytes(encode_batch(values(1, 10_000))))
    with limited(broker, entity(client="counted"), producer_byte_rate=2000):
        answer = as_client(broker, "counted", lambda channel: channel.request(request))
        assert throttled_ms(answer) > 3000
    assert throttled(broker, "producer_byte_rate") == before + 1


def test_a_muted_connection_that_ends_leaves_nothing(broker: RunningBroker, topic: str) -> None:
    """The client goes away while it is muted; meanwhile the broker serves others, and stops when it is asked to."""
    create(broker.bootstrap, topic)
    request = produce_request(topic, bytes(encode_batch(values(1, 100_000))))
    with limited(broker, entity(client="gone"), producer_byte_rate=1):
        for _ in range(5):
            assert throttled_ms(as_client(broker, "gone", lambda channel: channel.request(request))) > 10_000_000
        ask(broker.bootstrap, ApiKey.API_VERSIONS, 0)


def test_an_address_that_connects_too_often_is_turned_away(broker: RunningBroker) -> None:
    """Of a hundred connections at once some ten come in: what two windows of a second allow at most. Others do."""
    host, _, port = broker.bootstrap.rpartition(":")
    before = throttled(broker, "connection_creation_rate")
    with limited(broker, address("127.0.0.7"), connection_creation_rate=5):
        began_s = time.monotonic()
        tried = [socket.create_connection((host, int(port)), 10, ("127.0.0.7", 0)) for _ in range(100)]
        let_in = sum(is_served(one) for one in tried)
        took_s = time.monotonic() - began_s
        assert 5 <= let_in <= 5 * (2 + took_s)
        for _ in range(20):
            with socket.create_connection((host, int(port)), 10, ("127.0.0.8", 0)) as other:
                assert is_served(other)
        assert throttled(broker, "connection_creation_rate") == before + 100 - let_in
        for one in tried:
            one.close()
    with socket.create_connection((host, int(port)), 10, ("127.0.0.7", 0)) as again:
        assert is_served(again)


def test_each_address_has_the_default_quota_for_itself(broker: RunningBroker) -> None:
    host, _, port = broker.bootstrap.rpartition(":")

    async def change(channel: Channel) -> None:
        """By a connection that there is: this test's own address has the quota, too."""
        for value in (3.0, None):
            ops = [{"key": "connection_creation_rate", "value": value or 0.0, "remove": value is None}]
            entries = [{"entity": address(None), "ops": ops}]
            body = codec.request(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=entries, validate_only=False)
            (entry,) = (await channel.request(body)).entries
            assert error(entry) == 0
            if value is not None:
                await asyncio.to_thread(fill)

    def fill() -> None:
        for last in (11, 12):
            tried = [socket.create_connection((host, int(port)), 10, (f"127.0.0.{last}", 0)) for _ in range(30)]
            assert 3 <= sum(is_served(one) for one in tried) < 30
            for one in tried:
                one.close()

    as_client(broker, "changes", change)


def is_served(connection: socket.socket) -> bool:
    """Whether a request is answered; False where the broker closes the connection instead."""
    try:
        connection.sendall(struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, 7, -1))
        return len(connection.recv(100)) > 0
    except ConnectionError:
        return False
