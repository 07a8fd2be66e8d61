"""Permissions of users who log in by SASL: each gets what its ACLs say, through stock clients and klog's guard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from klog.coordination import acts, quotas
from klog.coordination.embedded import ZooKeeperServer
from klog.security.quotas import Entity, QuotaKey
from tests.broker_fixture import RunningBroker
from tests.cli.runner import klog
from tests.security.broker_doors import Doors, add_user, listen_to, pem, ports_of, unique
from tests.security.certificates import Authority
from tests.zookeeper_fixture import session_of

WITHIN_S = 15.0
LISTENER = "SASL_PLAINTEXT"


@pytest.fixture(scope="module")
def doors(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    """A broker where admin is the super user, and alice and bob have logins. Without SASL everybody is ANONYMOUS."""
    folder = tmp_path_factory.mktemp("users")
    authority = Authority(folder)
    broker = RunningBroker(folder, f"{zookeeper.address}/{unique('users')}")
    broker.listen = listen_to("PLAINTEXT", "SSL", LISTENER)
    broker.settings = {
        **pem(folder, authority),
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin",
    }
    for name in ("admin", "alice", "bob"):
        add_user(broker, name, f"of {name}")
    with broker.running():
        yield Doors(broker, ports_of(broker), authority)


def of(doors: Doors, user: str, **others: Any) -> dict[str, Any]:
    """The settings of a client that logs in; ANONYMOUS does not."""
    if user == "ANONYMOUS":
        return {**doors.librdkafka("PLAINTEXT"), **others}
    login = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": user, "sasl.password": f"of {user}"}
    return {**doors.librdkafka(LISTENER, **login), **others}


def allow(
    doors: Doors, user: str, *whats: tuple[Any, str, Any], how: Any = AclPermissionType.ALLOW, by: str = "admin"
) -> None:
    admin = AdminClient(of(doors, by))
    bindings = [
        AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, how)
        for kind, name, operation in whats
    ]
    for future in admin.create_acls(bindings).values():
        future.result(WITHIN_S)


def make_topic(doors: Doors, user: str, name: str) -> None:
    admin = AdminClient(of(doors, user))
    (future,) = admin.create_topics([NewTopic(name, 1, 1)]).values()
    future.result(WITHIN_S)


def produced(doors: Doors, user: str, topic: str) -> KafkaError | None:
    """What became of one message."""
    outcome: list[KafkaError | None] = []
    producer = Producer(of(doors, user, **{"message.timeout.ms": "10000"}))
    producer.produce(topic, b"v", on_delivery=lambda error, _: outcome.append(error))
    assert producer.flush(WITHIN_S) == 0
    return outcome[0]


def consumed(doors: Doors, user: str, topic: str, group: str) -> KafkaError | bytes | None:
    """The first thing that a member of a group hears."""
    consumer = Consumer(of(doors, user, **{"group.id": group, "auto.offset.reset": "earliest"}))
    try:
        consumer.subscribe([topic])
        message = consumer.poll(WITHIN_S)
        assert message is not None
        return message.error() or message.value()
    finally:
        consumer.close()


def test_a_user_who_may_not_describe_the_cluster_sees_what_is_left(doors: Doors) -> None:
    at = ["-B", doors.address("PLAINTEXT"), "-o", "json"]
    looked = klog("status", *at)
    assert looked.code == 1 and looked.rows, "a finding, not a wrong command"
    (row,) = klog("broker", "list", *at).rows
    assert row["zookeeper"] is None


def test_a_user_without_acls_may_do_nothing(doors: Doors) -> None:
    user = "alice"
    topic = unique("t")
    make_topic(doors, "admin", topic)
    with pytest.raises(KafkaException) as refused:
        make_topic(doors, user, unique("t"))
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    error = produced(doors, user, topic)
    assert error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    heard = consumed(doors, user, topic, unique("g"))
    assert isinstance(heard, KafkaError) and heard.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    assert topic not in AdminClient(of(doors, user)).list_topics(timeout=WITHIN_S).topics
    with pytest.raises(KafkaException) as refused:
        allow(doors, user, (ResourceType.TOPIC, topic, AclOperation.ALL), by=user)
    assert refused.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED


def test_a_user_has_what_its_acls_say_and_another_user_has_not(doors: Doors) -> None:
    topic, group = unique("t"), unique("g")
    make_topic(doors, "admin", topic)
    allow(doors, "alice", (ResourceType.TOPIC, topic, AclOperation.WRITE))
    assert produced(doors, "alice", topic) is None
    error = produced(doors, "bob", topic)
    assert error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    heard = consumed(doors, "alice", topic, group)
    assert isinstance(heard, KafkaError) and heard.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    allow(doors, "alice", (ResourceType.GROUP, group, AclOperation.READ))
    heard = consumed(doors, "alice", topic, group)  # Write is not Read
    assert isinstance(heard, KafkaError) and heard.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    allow(doors, "alice", (ResourceType.TOPIC, topic, AclOperation.READ))
    assert consumed(doors, "alice", topic, group) == b"v"
    allow(doors, "alice", (ResourceType.TOPIC, topic, AclOperation.WRITE), how=AclPermissionType.DENY)
    error = produced(doors, "alice", topic)
    assert error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert produced(doors, "admin", topic) is None
    with session_of(doors.broker.zookeeper, create_chroot=True) as session:
        about = [one for one in acts.read(session, acts.list_ids(session)) if one.acl == f"topic:{topic}"]
    assert {one.actor.principal for one in about} == {"User:admin"}
    assert [(one.kind, one.actor.host) for one in about] == [("acls", "127.0.0.1")] * 3


def test_one_user_on_several_listeners_is_known_by_its_login(doors: Doors) -> None:
    topic = unique("t")
    allow(doors, "ANONYMOUS", (ResourceType.TOPIC, topic, AclOperation.CREATE))
    make_topic(doors, "ANONYMOUS", topic)
    with pytest.raises(KafkaException):
        make_topic(doors, "bob", f"{topic}-b")


def test_a_quota_of_a_user_holds_over_all_its_clients(doors: Doors) -> None:
    topic = unique("t")
    make_topic(doors, "admin", topic)
    for user in ("alice", "bob"):
        allow(doors, user, (ResourceType.TOPIC, topic, AclOperation.WRITE))
    with session_of(doors.broker.zookeeper, create_chroot=True) as session:
        quotas.change(session, Entity("alice"), {QuotaKey.PRODUCER_BYTE_RATE: 2000.0}, acts.Actor("test", "here"))
    waits = {user: [send(doors, user, client, topic) for client in ("one", "two")] for user in ("bob", "alice")}
    assert waits["bob"] == [0, 0]
    assert waits["alice"][0] == 0 < waits["alice"][1]


def send(doors: Doors, user: str, client_id: str, topic: str) -> float:
    """A message of 15 kB, three quarters of what alice may send at once; the seconds that the client is throttled."""
    waits: list[float] = []
    settings = {"client.id": client_id, "throttle_cb": lambda event: waits.append(event.throttle_time)}
    producer = Producer(of(doors, user, **settings))
    producer.produce(topic, bytes(15_000))
    assert producer.flush(WITHIN_S) == 0
    producer.poll(0.2)
    return max(waits, default=0)
