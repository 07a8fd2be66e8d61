"""The throttle time in encoded answers of every request, and the time that a request takes of the loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import fields
from typing import Any

import pytest

from klog.config import BrokerConfig
from klog.net.connection import Connection, Reply
from klog.protocol import codec, fetch, produce
from klog.protocol.apis import OWN_KEYS_FROM, ApiKey, api_name
from klog.protocol.codec import RequestHead
from klog.protocol.refusals import refusal
from klog.protocol.versions import response_schema
from klog.security.principal import Principal
from klog.security.quotas import Entity, QuotaKey, QuotaTable, ThrottlingQuotaExceeded
from klog.server import handlers
from klog.server.dispatch import ROUTES, Route
from klog.server.event_limits import SAME_EVERY_S
from klog.server.throttling import MeteredReply, Throttling, throttle_at, with_throttle
from tests.rows import each

assert handlers

KAFKAS = [route for key, route in sorted(ROUTES.items()) if key < OWN_KEYS_FROM]
WITHOUT = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
MS = 0x01020304


def answer(head: RequestHead) -> tuple[Any, ...]:
    """What the handlers send."""
    if head.key == ApiKey.PRODUCE:
        parts = [produce.PartitionAnswer("t", 0, 0, 5, 0), produce.PartitionAnswer("t", 1, 7, -1, -1, "a message")]
        return (produce.write_response(head, parts),)
    if head.key == ApiKey.FETCH:
        return tuple(fetch.write_response(head, [fetch.FetchedPartition("t", 0, 0, 5, 0, (), 0)]))
    return (codec.encode_response(head, codec.response(*head[:2], **refusal(response_schema(*head[:2]), None))),)


@each("route", KAFKAS, ids=lambda route: api_name(route.key))
def test_the_throttle_time_is_where_the_protocol_has_it(route: Route) -> None:
    for version in range(route.min_version, route.max_version + 1):
        check(route.key, version)


def check(key: int, version: int) -> None:
    head = RequestHead(key, version, 77, "c", 0)
    plain = answer(head)
    has_one = "throttle_time" in {one.name for one in fields(response_schema(key, version))} and key not in WITHOUT
    assert (throttle_at(key, version) is not None) == has_one, api_name(key)
    throttled = with_throttle(head, plain, MS)
    if not has_one:
        assert throttled is plain
        return
    before, after = (codec.decode_response(b"".join(one)[4:], key, version) for one in (plain, throttled))
    assert (before[0], after[0]) == (77, 77)
    assert before[1].throttle_time.total_seconds() == 0
    assert round(after[1].throttle_time.total_seconds() * 1000) == MS
    for one in fields(before[1]):
        if one.name != "throttle_time":
            assert getattr(before[1], one.name) == getattr(after[1], one.name)


def test_klogs_own_answers_have_none() -> None:
    head = RequestHead(ApiKey.REPLICA_FETCH, 0, 1, "c", 0)
    assert with_throttle(head, (b"whatever",), 5) == (b"whatever",)


class Peer:
    """A connection that is only muted."""

    principal = Principal.user("alice")
    address = "10.0.0.7"

    closed = False

    def __init__(self) -> None:
        self.muted_s: list[float] = []

    def mute(self, seconds: float) -> None:
        self.muted_s.append(seconds)


class Sent(Reply):
    __slots__ = ("sent",)

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []

    def send(self, *parts: Any) -> None:
        self.sent.append(parts)


class Hand:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


TOLD: list[dict[str, Any]] = []
"""The events."""


@pytest.fixture(autouse=True)
def nothing_told() -> None:
    TOLD.clear()


def throttling(clock: Hand, **quotas: float) -> Throttling:
    made = Throttling(BrokerConfig.parse({}), clock, {}, lambda kind, facts: TOLD.append({"kind": kind, **facts}))
    made.table = QuotaTable({Entity("alice"): {QuotaKey(name): rate for name, rate in quotas.items()}})
    return made


def begun(by: Throttling, key: int, version: int, frame_bytes: int = 100) -> tuple[MeteredReply, Sent, Peer]:
    sent, peer = Sent(), Peer()
    connection: Connection = peer  # type: ignore[assignment]
    return by.begin(RequestHead(key, version, 77, "c", 0), frame_bytes, sent, connection), sent, peer


def test_produce_without_an_answer_mutes_all_the_same() -> None:
    by = throttling(Hand(), producer_byte_rate=1)
    reply, sent, peer = begun(by, ApiKey.PRODUCE, 9, 1000)
    reply.nothing()
    assert sent.sent == [()]
    assert peer.muted_s == [pytest.approx(990)]
    assert (by.measured["producer_byte_rate"].answers, by.measured["producer_byte_rate"].seconds) == (
        1,
        pytest.approx(990),
    )


def test_a_fetch_after_a_silence_is_sent_whatever_its_size() -> None:
    clock = Hand()
    by = throttling(clock, consumer_byte_rate=100)
    reply, _, peer = begun(by, ApiKey.FETCH, 11)
    assert reply.fetch_bytes_max(50_000_000) == 1000
    assert not reply.refuses(0)
    assert not reply.refuses(5000)
    assert not peer.muted_s
    assert reply.refuses(1)
    assert peer.muted_s == [pytest.approx(40.01)]
    clock.now_s += 11
    assert not reply.refuses(5000)


def test_each_has_a_purse_of_its_own_as_the_entity_says() -> None:
    by = throttling(Hand())
    by.table = QuotaTable({Entity(""): {QuotaKey.PRODUCER_BYTE_RATE: 1.0}})
    assert by.count(QuotaKey.PRODUCER_BYTE_RATE, "alice", "a", 1000) > 0
    assert by.count(QuotaKey.PRODUCER_BYTE_RATE, "bob", "a", 5) == 0
    assert by.count(QuotaKey.PRODUCER_BYTE_RATE, "alice", "b", 0) > 0
    assert len(by.measured["producer_byte_rate"].meters) == 2


def test_only_what_the_loop_does_is_counted() -> None:
    by = throttling(Hand(), request_percentage=50)
    reply, sent, peer = begun(by, ApiKey.HEARTBEAT, 4)
    spent: list[str] = []

    async def work() -> None:
        for _ in range(3):
            end_s = time.perf_counter() + 0.02
            while time.perf_counter() < end_s:
                pass
            await asyncio.sleep(0.05)
            spent.append("a step")
        reply.send(*answer(RequestHead(ApiKey.HEARTBEAT, 4, 77, "c", 0)))

    reply.handled()
    asyncio.run(reply.timed(work()))
    assert len(spent) == 3
    assert len(sent.sent) == 1
    assert not peer.muted_s
    counted = by._rates[QuotaKey.REQUEST_PERCENTAGE].of(
        by.table.limit(QuotaKey.REQUEST_PERCENTAGE, "alice", "c").scope, 1000.0
    )  # type: ignore[union-attr]
    assert counted.counted(1000.0) >= 3 * 0.02 * 100


@each("is_cancelled", [True, False])
async def test_work_hears_of_its_end(is_cancelled: bool) -> None:
    by = throttling(Hand(), request_percentage=50)
    reply, _, _ = begun(by, ApiKey.HEARTBEAT, 4)
    heard: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60 if is_cancelled else 0)
            raise ValueError("of the work")
        except (asyncio.CancelledError, ValueError) as error:
            heard.append(type(error).__name__)
            raise

    coroutine: Coroutine[Any, Any, None] = reply.timed(work())
    task = asyncio.ensure_future(coroutine)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    if is_cancelled:
        task.cancel()
    await asyncio.wait([task])
    assert task.cancelled() == is_cancelled
    assert is_cancelled or isinstance(task.exception(), ValueError)
    assert heard == ["CancelledError" if is_cancelled else "ValueError"]


def test_of_clients_that_share_a_quota_there_is_one_event_a_minute() -> None:
    clock = Hand()
    by = throttling(clock, producer_byte_rate=1, request_percentage=1e-9)
    for _ in range(20):
        reply, *_ = begun(by, ApiKey.PRODUCE, 9, 1000)
        reply.nothing()
    assert [one["quota"] for one in TOLD] == ["producer_byte_rate", "request_percentage"]
    assert TOLD[0] == {
        "kind": "throttled",
        "quota": "producer_byte_rate",
        "entity": "users/alice",
        "limit": 1,
        "user": "alice",
        "client": "c",
        "host": "10.0.0.7",
        "throttle_ms": 990_000,
    }
    clock.now_s += SAME_EVERY_S
    begun(by, ApiKey.PRODUCE, 9, 1000)
    assert TOLD[-1]["same_before"] == 19
    assert by.measured["producer_byte_rate"].answers == 21


def test_a_quota_that_is_removed_meanwhile_leaves_no_event() -> None:
    by = throttling(Hand(), producer_byte_rate=1)
    reply, *_ = begun(by, ApiKey.PRODUCE, 9, 10)
    by.table = QuotaTable()
    reply.throttle(QuotaKey.PRODUCER_BYTE_RATE, 1.0)
    assert (by.measured["producer_byte_rate"].answers, TOLD) == (1, [])


def test_mutations_are_refused_or_owed() -> None:
    clock = Hand()
    by = throttling(clock, controller_mutation_rate=2)
    strict = by.mutations("User:alice", "c", "10.0.0.7", is_strict=True)
    strict.take(1000)  # the last one may overdraw: Kafka's
    assert strict.throttle_ms() == (1000 - 22) * 1000 / 2
    with pytest.raises(ThrottlingQuotaExceeded):
        strict.take(1)
    patient = by.mutations("User:alice", "c", "10.0.0.7", is_strict=False)
    patient.take(2)
    assert patient.throttle_ms() == (1000 + 2 - 22) * 1000 / 2
    assert by.mutations("", "c", "10.0.0.7", is_strict=True).throttle_ms() == 0
    (told,) = TOLD
    assert (told["quota"], told["throttle_ms"]) == ("controller_mutation_rate", (1000 - 22) * 1000 / 2)
    clock.now_s += 490
    strict.take(1)


def test_what_the_controller_says_mutes_the_client_of_another_broker() -> None:
    by = throttling(Hand(), producer_byte_rate=5)
    for version in range(2, 8):
        reply, sent, peer = begun(by, ApiKey.CREATE_TOPICS, version)
        forwarded = codec.response(ApiKey.CREATE_TOPICS, version, throttle_time=1500, topics=[])
        reply.send(codec.encode_response(RequestHead(ApiKey.CREATE_TOPICS, version, 77, "c", 0), forwarded))
        assert peer.muted_s == [1.5]
        ((answered,),) = sent.sent
        assert codec.decode_response(bytes(answered[4:]), ApiKey.CREATE_TOPICS, version)[1] == forwarded
