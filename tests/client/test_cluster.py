"""The cluster as a client sees it: finding it, asking whom it concerns, and what errors say."""

import asyncio
import errno
import os
import signal
import time
from collections.abc import Callable, Mapping

import pytest

from klog.admin import brokers, offsets, partitions, topics
from klog.client import leader_requests
from klog.client.bootstrap import parse_bootstrap
from klog.client.cluster import Cluster
from klog.client.positions import LATEST, parse_position
from klog.errors import (
    BrokerNotAvailable,
    CannotConnect,
    KlogError,
    NotLeader,
    TimedOut,
    UnknownTopicOrPartition,
    UsageError,
    WrongCluster,
)
from klog.names import TopicPartition
from klog.net.channel import Channel
from klog.protocol import klog_apis
from klog.protocol.apis import ApiKey
from klog.security.errors import SaslAuthenticationFailed
from tests.broker_fixture import RunningBroker
from tests.rows import each
from tests.tools.verbs import make_topic, run, send


@each(
    ("text", "servers"),
    [
        ("h:1", [("h", 1)]),
        ("a:1, b:2,", [("a", 1), ("b", 2)]),
        ("h", [("h", 9092)]),
        ("[::1]:5", [("::1", 5)]),
        ("[::1]", [("::1", 9092)]),
    ],
)
def test_lists_of_servers(text: str, servers: list[tuple[str, int]]) -> None:
    assert parse_bootstrap(text, "-B") == servers


@each("text", ["", ",", "h:x", "h:0", "h:70000", ":1", "h:"])
def test_no_lists_of_servers(text: str) -> None:
    with pytest.raises(UsageError, match="from KLOG_BOOTSTRAP_SERVER"):
        parse_bootstrap(text, "KLOG_BOOTSTRAP_SERVER")


def test_every_server_is_tried_and_the_first_to_answer_is_used(
    broker: RunningBroker, dead_address: str, silent_address: str
) -> None:
    assert run(f"{dead_address},{silent_address},{broker.bootstrap}", brokers.list_brokers)


@pytest.mark.timed
def test_a_server_that_does_not_answer_delays_the_others_little(broker: RunningBroker, silent_address: str) -> None:
    began = time.monotonic()
    assert run(f"{silent_address},{broker.bootstrap}", brokers.list_brokers)
    assert time.monotonic() - began < 2.9


async def test_where_nobody_answers_everyone_tried_is_named(
    dead_address: str, silent_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("klog.client.cluster.CONNECT_TIMEOUT_S", 0.3)
    with pytest.raises(CannotConnect) as caught:
        await Cluster.connect(f"{dead_address},{silent_address}", source="the profile p")
    message = caught.value.message
    assert f"{dead_address}: {os.strerror(errno.ECONNREFUSED)}" in message
    assert f"{silent_address}: " in message
    assert "klog status" in (caught.value.hint or "")


async def test_another_cluster_than_expected(broker: RunningBroker) -> None:
    async with await Cluster.connect(broker.bootstrap) as cluster:
        cluster_id = await cluster.cluster_id()
        assert cluster_id
        await cluster.check_id(cluster_id)
        with pytest.raises(WrongCluster, match=rf"{cluster_id}\b.*\bother\b"):
            await cluster.check_id("other")


async def test_metadata_is_asked_for_once_and_the_trace_tells_of_each_request(
    broker: RunningBroker, topic: str
) -> None:
    await asyncio.to_thread(make_topic, broker.bootstrap, topic, 2)
    seen: list[tuple[str, str, float]] = []
    async with await Cluster.connect(broker.bootstrap, trace=lambda *request: seen.append(request)) as cluster:
        await cluster.topic(topic)
        await cluster.brokers()
        await partitions.describe_topics(cluster, [topic])
        await offsets.list_offsets(cluster, topic, parse_position("start"))
    asked = [what for what, _, _ in seen]
    assert asked[:2] == ["ApiVersions v3", "Metadata v12"]
    assert not {"ApiVersions v3", "Metadata v12"} & {*asked[2:]}, "one connection, and each once"
    assert {where for _, where, _ in seen} == {broker.bootstrap}
    assert all(0 < ms < 10_000 for _, _, ms in seen)


def test_a_leader_that_moves_is_followed(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic)
    answers = []

    async def not_me_at_first(
        channel: Channel, share: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, leader_requests.FoundOffset | KlogError]:
        answers.append(share)
        if len(answers) < 3:
            return dict.fromkeys(share, NotLeader("not me"))
        return await leader_requests.list_offsets(channel, share)

    one = TopicPartition(topic, 0)
    found = run(broker.bootstrap, lambda cluster: cluster.to_leader(one, LATEST, not_me_at_first))
    assert found == leader_requests.FoundOffset(0, None)
    assert len(answers) == 3


def test_what_can_be_retried_is_until_the_time_out(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic)

    async def never_me(
        channel: Channel, share: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, leader_requests.FoundOffset | KlogError]:
        return dict.fromkeys(share, NotLeader("not me"))

    began = time.monotonic()
    with pytest.raises(NotLeader):
        run(
            broker.bootstrap,
            lambda cluster: cluster.to_leader(TopicPartition(topic, 0), LATEST, never_me),
            timeout_s=0.5,
        )
    assert 0.3 < time.monotonic() - began < 10


def test_partitions_that_are_not_there(broker: RunningBroker, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 2)
    wanted = {TopicPartition(topic, number): LATEST for number in (0, 1, 2)}
    found = run(broker.bootstrap, lambda cluster: cluster.to_leaders(wanted, leader_requests.list_offsets))
    assert found[TopicPartition(topic, 0)] == found[TopicPartition(topic, 1)] == leader_requests.FoundOffset(0, None)
    missing = found[TopicPartition(topic, 2)]
    assert isinstance(missing, UnknownTopicOrPartition)
    assert topic in missing.message and missing.message.endswith(" 2") and "(0 to 1)" in missing.message


async def test_a_broker_that_went_away_is_replaced(make_broker: Callable[..., RunningBroker]) -> None:
    one = make_broker().start()
    async with await Cluster.connect(one.bootstrap) as cluster:
        before = await cluster.cluster_id()
        one.kill()
        await asyncio.to_thread(one.start)
        assert (await cluster.metadata(fresh=True)).cluster_id == before
        (row,) = await brokers.list_brokers(cluster)
        assert row.since is not None


async def test_a_broker_that_hangs_is_given_up_in_time(make_broker: Callable[..., RunningBroker]) -> None:
    one = make_broker().start()
    async with await Cluster.connect(one.bootstrap, timeout_s=0.5) as cluster:
        one.send(signal.SIGSTOP)
        with pytest.raises(TimedOut, match=rf"{one.bootstrap}: .*Metadata.* 0\.5 s"):
            await cluster.metadata(fresh=True)


def test_a_broker_that_the_cluster_does_not_list(broker: RunningBroker) -> None:
    with pytest.raises(BrokerNotAvailable, match="broker 42"):
        run(broker.bootstrap, lambda cluster: cluster.to_broker(42, ApiKey.METADATA, 9))


def test_against_a_plain_broker_what_only_klog_tells_is_unknown(
    broker: RunningBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(broker.bootstrap, topic, 1)
    send(broker.bootstrap, topic, b"one\ntwo\n")
    assert run(broker.bootstrap, _is_klog)
    monkeypatch.setattr(klog_apis, "SOFTWARE_NAME", "somebody-else")  # then a broker lists no requests of klog's own
    assert not run(broker.bootstrap, _is_klog)
    (row,) = run(broker.bootstrap, lambda cluster: topics.list_topics(cluster, topic))
    assert (row.messages, row.bytes) == (None, None)
    (partition,) = run(broker.bootstrap, lambda cluster: partitions.describe_topics(cluster, [topic]))
    assert (partition.log_start_offset, partition.log_end_offset, partition.messages) == (0, 2, None)
    (live,) = run(broker.bootstrap, brokers.list_brokers)
    assert (live.since, live.incarnation) == (None, None)
    (last,) = run(broker.bootstrap, lambda cluster: offsets.list_offsets(cluster, topic, parse_position("-1")))
    assert last.offset == 1


def test_a_login_that_a_broker_refuses_is_not_silence(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(*_: object, **__: object) -> None:
        raise SaslAuthenticationFailed("no")

    async def ask(cluster: Cluster) -> None:
        monkeypatch.setattr(cluster, "to_broker", refused)
        for asking in (brokers.list_brokers(cluster), brokers.describe_self(cluster, 1)):
            with pytest.raises(SaslAuthenticationFailed):
                await asking

    run(broker.bootstrap, ask)


async def _is_klog(cluster: Cluster) -> bool:
    return cluster.is_klog


async def test_an_answer_that_is_lost_is_not_asked_for_again(
    make_broker: Callable[..., RunningBroker], topic: str
) -> None:
    one = make_broker().start()
    async with await Cluster.connect(one.bootstrap) as cluster:
        await cluster.brokers()
        one.send(signal.SIGSTOP)
        creating = asyncio.ensure_future(topics.create_topic(cluster, topic))
        await asyncio.sleep(0)  # the request is written
        one.send(signal.SIGKILL)
        with pytest.raises(CannotConnect, match="closed"):
            await creating


async def test_requests_that_are_given_up_leave_the_connection_usable(broker: RunningBroker) -> None:
    async with await Cluster.connect(broker.bootstrap) as cluster:
        for pause in range(40):
            asked = asyncio.ensure_future(cluster.metadata([], fresh=True))
            for _ in range(pause):
                await asyncio.sleep(0)
            asked.cancel()
            await asyncio.wait([asked])
        assert (await cluster.metadata([], fresh=True)).brokers
