"""Permissions in clusters: brokers need none, changes reach every broker, an outage of ZooKeeper changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from klog.coordination import acls, acts
from klog.coordination.acts import Actor
from klog.coordination.embedded import ZooKeeperServer
from klog.coordination.zookeeper import ZooKeeper
from klog.protocol.apis import ApiKey
from klog.security import permissions
from klog.security.permissions import Acl, Operation, Pattern, Permission
from tests.broker_fixture import RunningBroker
from tests.cluster_fixture import RunningCluster
from tests.server.asking import ask, error, metadata, produce, values
from tests.until import until
from tests.zookeeper_fixture import session_of
from tests.zookeeper_proxy import ZooKeeperProxy

GUARDED = {"authorizer.class.name": "klog", "super.users": "User:root"}
ME = "User:ANONYMOUS"
TEST = Actor("test", "here")
TOPIC = Pattern(permissions.ResourceType.TOPIC, "t")
WITHIN_S = 20.0


def allow(session: ZooKeeper, pattern: Pattern, *operations: Operation) -> None:
    acls.change(session, pattern, lambda _: [Acl(ME, "*", one, Permission.ALLOW) for one in operations], TEST)


def code_of_metadata(broker: RunningBroker, topic: str) -> int:
    return error(metadata(broker.bootstrap, [topic]).topics[0])


def test_brokers_need_no_permission_and_changes_reach_all_of_them(
    make_cluster: Callable[..., RunningCluster],
) -> None:
    cluster = make_cluster(3, **{name.replace(".", "__"): value for name, value in GUARDED.items()}).start()
    with session_of(cluster.zookeeper) as session:
        brokers = list(cluster.brokers.values())
        assert {code_of_metadata(one, "t") for one in brokers} == {29}
        allow(session, TOPIC, Operation.CREATE, Operation.WRITE)
        until(lambda: {code_of_metadata(one, "t") for one in brokers} == {3})
        for number, broker in enumerate(brokers):  # one of them is the controller, the others forward it
            allow(session, TOPIC._replace(name=f"t{number}"), Operation.CREATE, Operation.WRITE)
            until(lambda b=broker, n=number: code_of_metadata(b, f"t{n}") == 3)  # type: ignore[misc]
            assert cluster.try_create(f"t{number}", broker_id=broker.broker_id) == 0
        leader = cluster.wait_for_leader("t0")
        produce(cluster.brokers[leader].bootstrap, "t0", [values(3)])  # acks=all: three brokers replicate it
        cluster.wait_in_sync("t0")
        cluster.kill(leader)
        other = cluster.brokers[cluster.wait_for_leader("t0", other_than=leader)]
        produce(other.bootstrap, "t0", [values(3)])
        assert error(ask(other.bootstrap, ApiKey.STOP_BROKER, 0, broker_id=other.broker_id)) == 31
        assert other.stop() == 0  # a signal of its own host needs no permission
    assert not any(broker.logged("denied", "ControlledShutdown") for broker in brokers)


@pytest.fixture
def apart(
    zookeeper: ZooKeeperServer, make_broker: Callable[..., RunningBroker]
) -> Iterator[tuple[ZooKeeperProxy, RunningBroker, str]]:
    """A guarded broker that reaches ZooKeeper through a proxy; and the address without it."""
    proxy = ZooKeeperProxy(("127.0.0.1", zookeeper.port))
    chroot = f"/apart-{time.monotonic_ns()}"
    try:
        yield proxy, make_broker(chroot=f"{proxy.address}{chroot}", **GUARDED), f"{zookeeper.address}{chroot}"
    finally:
        proxy.close()


def test_while_zookeeper_is_away_a_broker_decides_by_what_it_knows(
    apart: tuple[ZooKeeperProxy, RunningBroker, str],
) -> None:
    proxy, broker, address = apart
    broker.start()
    with session_of(address) as session:
        allow(session, TOPIC, Operation.DESCRIBE)
        until(lambda: code_of_metadata(broker, "t") == 3)
        with proxy.silent():
            allow(session, TOPIC._replace(name="u"), Operation.DESCRIBE)
            acls.change(session, TOPIC, lambda _: [], TEST)
            assert code_of_metadata(broker, "t") == 3
            assert code_of_metadata(broker, "u") == 29
        until(lambda: code_of_metadata(broker, "t") == 29)
        assert code_of_metadata(broker, "u") == 3
        zookeeper_path = acls.path_of(TOPIC)
        session.create(zookeeper_path, b"{")  # by hand, without a notice: read at the next change of its ACLs
        allow(session, TOPIC._replace(name="v"), Operation.DESCRIBE)
        until(lambda: code_of_metadata(broker, "v") == 3)
        allow_all = Pattern(permissions.ResourceType.TOPIC, "*")
        allow(session, allow_all, Operation.DESCRIBE)
        until(lambda: code_of_metadata(broker, "w") == 3)
    broker.kill()
    broker.start()  # it reads everything: what cannot be read is denied, whatever * allows
    assert (code_of_metadata(broker, "t"), code_of_metadata(broker, "w")) == (29, 3)
    assert broker.logged("ERROR", acls.path_of(TOPIC))


def test_a_stock_client_manages_acls(make_broker: Callable[..., RunningBroker]) -> None:
    broker = make_broker(**{**GUARDED, "super.users": ME}).start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topic, group = ResourceType.TOPIC, ResourceType.GROUP
    literal, prefixed = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
    to_read, all_of = (AclOperation.READ, AclPermissionType.ALLOW), (AclOperation.ALL, AclPermissionType.DENY)
    anything = (None, None, AclOperation.ANY, AclPermissionType.ANY)
    made = [
        AclBinding(topic, "orders", prefixed, "User:alice", "*", *to_read),
        AclBinding(group, "g", literal, "User:alice", "10.0.0.7", *all_of),
    ]
    for future in admin.create_acls(made).values():
        future.result(WITHIN_S)
    every = AclBindingFilter(ResourceType.ANY, None, ResourcePatternType.ANY, *anything)
    assert set(admin.describe_acls(every).result(WITHIN_S)) == set(made)
    matching = AclBindingFilter(topic, "orders-7", ResourcePatternType.MATCH, *anything)
    assert admin.describe_acls(matching).result(WITHIN_S) == made[:1]
    (removed,) = admin.delete_acls([matching]).values()
    assert removed.result(WITHIN_S) == made[:1]
    assert admin.describe_acls(every).result(WITHIN_S) == made[1:]
    with pytest.raises(KafkaException, match="User:alice"):
        bad = AclBinding(topic, "t", literal, "alice", "*", *to_read)
        next(iter(admin.create_acls([bad]).values())).result(WITHIN_S)
    with session_of(broker.zookeeper) as session:
        kept = acts.read(session, acts.list_ids(session))
        named = ["topic:orders* (prefixed)", "group:g", "topic:orders* (prefixed)"]
        assert [one.acl for one in kept if one.kind == acls.ACL_ACT] == named
