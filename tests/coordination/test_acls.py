"""ACLs in ZooKeeper: Kafka's form both ways, notices, acts, damage, and writers that race."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from klog.coordination import acls, acts, config_notices, paths
from klog.coordination.acts import Actor
from klog.coordination.zookeeper import WatchEvent, ZooKeeper
from klog.errors import InvalidRequest, ZooKeeperError
from klog.security.permissions import Acl, Operation, Pattern, PatternType, Permission, ResourceType
from tests.hand_clock import HandClock

ALICE = Acl("User:alice", "*", Operation.READ, Permission.ALLOW)
BOB = Acl("User:bob", "10.0.0.7", Operation.DESCRIBE_CONFIGS, Permission.DENY)
ORDERS = Pattern(ResourceType.TOPIC, "orders")
PREFIX = Pattern(ResourceType.TRANSACTIONAL_ID, "tx-", PatternType.PREFIXED)
ME = Actor("test", "here", "User:admin")


def nothing(event: WatchEvent) -> None:
    pass


def put(session: ZooKeeper, pattern: Pattern, *those: Acl) -> None:
    acls.change(session, pattern, lambda _: those, ME)


def test_kafkas_tools_find_what_is_written(zk: ZooKeeper) -> None:
    put(zk, ORDERS, ALICE, BOB)
    put(zk, PREFIX, ALICE)
    assert zk.get("/kafka-acl/Topic/orders").data == (
        b'{"version":1,"acls":['
        b'{"principal":"User:alice","permissionType":"Allow","operation":"Read","host":"*"},'
        b'{"principal":"User:bob","permissionType":"Deny","operation":"DescribeConfigs","host":"10.0.0.7"}]}'
    )
    assert [*map(zk.children, ("/kafka-acl", "/kafka-acl-extended/prefixed"))] == [
        sorted(["Cluster", "DelegationToken", "Group", "Topic", "TransactionalId"])
    ] * 2
    assert zk.children("/kafka-acl-extended/prefixed/TransactionalId") == ["tx-"]
    (notice,) = zk.children("/kafka-acl-changes")
    assert (notice, zk.get(f"/kafka-acl-changes/{notice}").data) == ("acl_changes_0000000000", b"TOPIC:orders")
    (notice,) = zk.children("/kafka-acl-extended-changes")
    assert json.loads(zk.get(f"/kafka-acl-extended-changes/{notice}").data) == {
        "version": 1,
        "resourceType": "TRANSACTIONAL_ID",
        "name": "tx-",
        "patternType": "PREFIXED",
    }


def test_what_kafkas_tools_write_is_read(zk: ZooKeeper) -> None:
    acls.ensure_folders(zk)
    one = {"principal": "User:alice", "permissionType": "Allow", "operation": "Read", "host": "*"}
    later = {**one, "operation": "CreateTokens"}  # of a Kafka that knows more
    zk.create("/kafka-acl/Topic/orders", json.dumps({"version": 1, "acls": [one, later]}).encode())
    zk.create("/kafka-acl/Group/*", json.dumps({"version": 1, "acls": [one]}).encode())
    zk.create("/kafka-acl/Topic/empty", b"")
    found = acls.read_all(zk)
    every = Pattern(ResourceType.GROUP, "*")
    empty = Pattern(ResourceType.TOPIC, "empty")
    assert (found.acls, found.damage) == (
        {ORDERS: frozenset({ALICE}), every: frozenset({ALICE}), empty: frozenset()},
        {},
    )
    for data in (b"Topic:orders", b"TOPIC:orders"):  # as Kafka before and since 2.0 writes it
        zk.multi([acls.Create("/kafka-acl-changes/acl_changes_", data, sequence=True)])
    assert acls.notices(zk, {}, nothing).patterns == {ORDERS}


@pytest.mark.parametrize("name", ["a/b", "%2F", "..", "grün", "*", "with space"])
def test_any_groups_name_can_have_acls(zk: ZooKeeper, name: str) -> None:
    pattern = Pattern(ResourceType.GROUP, name)
    put(zk, pattern, ALICE)
    assert acls.read_all(zk).acls == {pattern: frozenset({ALICE})}
    assert acls.notices(zk, {}, nothing).patterns == {pattern}
    put(zk, pattern)
    assert acls.read_all(zk).acls == {}


def test_the_last_acl_takes_the_node_with_it(zk: ZooKeeper) -> None:
    put(zk, ORDERS, ALICE)
    put(zk, ORDERS)
    assert zk.children("/kafka-acl/Topic") == []
    assert len(zk.children(paths.ACL_CHANGES)) == 2
    put(zk, ORDERS)  # nothing to do: no notice and no act
    assert len(zk.children(paths.ACL_CHANGES)) == len(acts.list_ids(zk)) == 2


def test_a_change_is_an_act_that_names_the_principal(zk: ZooKeeper) -> None:
    put(zk, ORDERS, ALICE)
    put(zk, ORDERS, ALICE, BOB)
    *_, last = acts.read(zk, acts.list_ids(zk))
    assert (last.kind, last.actor, last.acl) == (acls.ACL_ACT, ME, "topic:orders")
    assert acls.read_act_state(last.before) == (ORDERS, frozenset({ALICE}))
    assert acls.read_act_state(last.after) == (ORDERS, frozenset({ALICE, BOB}))
    assert last.event()["principal"] == "User:admin"


@pytest.mark.parametrize(
    "data",
    [b"{", b"[]", b'{"acls":5}', b'{"acls":[5]}', b'{"acls":[{"operation":"Read"}]}',
     b'{"acls":[{"principal":"User:a","host":"*","operation":"Read","permissionType":"Perhaps"}]}'],
)  # fmt: skip
def test_a_node_that_cannot_be_read_is_damage_and_is_not_written_over(zk: ZooKeeper, data: bytes) -> None:
    put(zk, PREFIX, ALICE)
    zk.create("/kafka-acl/Topic/orders", data)
    found = acls.read_all(zk)
    assert found.acls == {PREFIX: frozenset({ALICE})}
    assert "/kafka-acl/Topic/orders" in found.damage[ORDERS]
    with pytest.raises(ZooKeeperError):
        put(zk, ORDERS, ALICE)
    assert zk.get("/kafka-acl/Topic/orders").data == data


def test_notices_name_what_changed_and_old_ones_go(zk: ZooKeeper) -> None:
    fired = threading.Event()
    put(zk, ORDERS, ALICE)
    first = acls.notices(zk, {}, lambda event: fired.set())
    assert (first.patterns, first.count) == ({ORDERS}, 1)
    put(zk, PREFIX, ALICE)
    assert fired.wait(5)
    second = acls.notices(zk, first.last, nothing)
    assert second.patterns == {PREFIX}
    assert acls.notices(zk, second.last, nothing).patterns == set()
    zk.multi([acls.Create("/kafka-acl-changes/acl_changes_", b"what is this", sequence=True)])
    assert acls.notices(zk, second.last, nothing).patterns is None  # everything must be read
    acls.forget_notices(zk)
    assert acls.notices(zk, {}, nothing).count == 3
    zk.clock = HandClock(now_ms=zk.get("/kafka-acl-changes").stat.created_ms + config_notices.KEPT_MS + 60_000)
    acls.forget_notices(zk)
    assert acls.notices(zk, {}, nothing).count == 0


def test_writers_that_race_lose_nothing(zk: ZooKeeper) -> None:
    names = [Acl(f"User:{number}", "*", Operation.READ, Permission.ALLOW) for number in range(6)]

    def add(acl: Acl) -> None:
        acls.change(zk, ORDERS, {acl}.union, ME)

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(add, names))
    assert acls.read(zk, [ORDERS]).acls[ORDERS] == frozenset(names)
    assert len(acts.list_ids(zk)) == len(names)


def test_a_pattern_has_so_many_acls_as_a_node_can_hold(zk: ZooKeeper) -> None:
    many = [Acl(f"User:{number:0200}", "*", Operation.READ, Permission.ALLOW) for number in range(1_000)]
    with pytest.raises(InvalidRequest):
        put(zk, ORDERS, *many)
    assert acls.read_all(zk).acls == {}
