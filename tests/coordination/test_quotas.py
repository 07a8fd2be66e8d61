"""Quotas in a real ZooKeeper: beside credentials, under any name, damaged, written by several at once."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from klog.coordination import acts, config_notices, paths, quotas, scram_credentials
from klog.coordination.acts import Actor
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import ZooKeeperError
from klog.security.quotas import DEFAULT, Entity, QuotaKey
from klog.security.scram import ScramCredential, ScramMechanism

PRODUCE, CONSUME = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
ME = Actor("test", "here", "User:admin")
ALICE = Entity("alice")
SHA_256 = ScramMechanism.SHA_256
CREDENTIAL = ScramCredential.of_password(SHA_256, "secret", b"a salt of some bytes")


def test_a_change_leaves_a_notice_and_an_act(zk: ZooKeeper) -> None:
    entity = Entity("alice", "app")
    assert quotas.change(zk, entity, {PRODUCE: 1024.0, QuotaKey.REQUEST_PERCENTAGE: 12.5}, ME) == (
        {},
        {PRODUCE: 1024.0, QuotaKey.REQUEST_PERCENTAGE: 12.5},
    )
    node = zk.get("/config/users/alice/clients/app")
    assert node.data == b'{"version":1,"config":{"producer_byte_rate":"1024","request_percentage":"12.5"}}'
    (notice,) = zk.children(paths.CONFIG_CHANGES)
    assert zk.get(f"{paths.CONFIG_CHANGES}/{notice}").data == b'{"version":2,"entity_path":"users/alice/clients/app"}'
    (act,) = acts.read(zk, acts.list_ids(zk))
    assert (act.kind, act.quota, act.actor, act.before) == ("quotas", "users/alice/clients/app", ME, {})
    assert quotas.read_act_state(act.after) == {PRODUCE: 1024.0, QuotaKey.REQUEST_PERCENTAGE: 12.5}
    assert quotas.change(zk, entity, {PRODUCE: 1024.0, CONSUME: None}, ME)[0] == {
        PRODUCE: 1024.0,
        QuotaKey.REQUEST_PERCENTAGE: 12.5,
    }
    assert len(zk.children(paths.CONFIG_CHANGES)) == len(acts.list_ids(zk)) == 1  # nothing was to be changed
    quotas.change(zk, entity, {PRODUCE: None, QuotaKey.REQUEST_PERCENTAGE: None}, ME)
    assert zk.exists("/config/users/alice/clients/app") is None
    assert quotas.read_all(zk).quotas == {ALICE: {}}
    found = config_notices.read(zk, -1)
    assert quotas.noticed(found) == {entity}
    assert found.topics == []
    assert (found.last, found.damage) == (1, {})


def test_credentials_and_quotas_of_a_user_keep_each_other(zk: ZooKeeper) -> None:
    scram_credentials.write(zk, "alice", {SHA_256: CREDENTIAL}, ME)
    quotas.change(zk, ALICE, {PRODUCE: 1.0}, ME)
    quotas.change(zk, Entity("alice", DEFAULT), {CONSUME: 2.0}, ME)
    assert scram_credentials.read(zk, "alice") == {SHA_256: CREDENTIAL}
    assert scram_credentials.write(zk, "alice", {SHA_256: None}, ME)
    assert not scram_credentials.write(zk, "alice", {SHA_256: None}, ME)
    assert quotas.read_all(zk).quotas == {ALICE: {PRODUCE: 1.0}, Entity("alice", DEFAULT): {CONSUME: 2.0}}
    scram_credentials.write(zk, "alice", {SHA_256: CREDENTIAL}, ME)
    quotas.change(zk, ALICE, {PRODUCE: None}, ME)
    assert scram_credentials.read(zk, "alice") == {SHA_256: CREDENTIAL}
    assert scram_credentials.write(zk, "alice", {SHA_256: None}, ME)  # the last setting, above the quota of a client id
    assert quotas.read_all(zk).quotas == {ALICE: {}, Entity("alice", DEFAULT): {CONSUME: 2.0}}
    assert scram_credentials.names(zk) == ["alice"]


def test_a_node_made_for_those_below_has_no_data_and_is_no_damage(zk: ZooKeeper) -> None:
    quotas.change(zk, Entity("alice", "app"), {PRODUCE: 1.0}, ME)
    assert zk.get("/config/users/alice").data == b""
    assert scram_credentials.read(zk, "alice") == {}
    assert scram_credentials.write(zk, "alice", {SHA_256: CREDENTIAL}, ME)
    assert quotas.read_all(zk).damage == {}


def test_the_default_user_is_no_user(zk: ZooKeeper) -> None:
    quotas.change(zk, Entity(DEFAULT), {PRODUCE: 1.0}, ME)
    quotas.change(zk, Entity("<default>"), {PRODUCE: 2.0}, ME)
    assert zk.children(paths.USER_CONFIGS) == ["%3Cdefault%3E", "<default>"]
    assert scram_credentials.names(zk) == ["<default>"]
    assert quotas.read_all(zk).quotas == {Entity(DEFAULT): {PRODUCE: 1.0}, Entity("<default>"): {PRODUCE: 2.0}}


@pytest.mark.parametrize(
    "name", ["a/b", "../../brokers", "*", "~", "é€😀", " ", "a\nb\x00", "<default>", "%2F", "a+b", "x" * 1000]
)
def test_any_name_is_one_node(zk: ZooKeeper, name: str) -> None:
    for entity in (Entity(name), Entity(client=name), Entity(name, name)):
        quotas.change(zk, entity, {PRODUCE: 7.0}, ME)
    assert quotas.read_all(zk).quotas == {
        entity: {PRODUCE: 7.0} for entity in (Entity(name), Entity(client=name), Entity(name, name))
    }
    assert quotas.noticed(config_notices.read(zk, -1)) == {Entity(name), Entity(client=name), Entity(name, name)}
    assert zk.children("/") == ["config", "klog"]


def test_damage_limits_no_client_and_is_not_written_over(zk: ZooKeeper) -> None:
    secret = b'{"version":1,"config":{"SCRAM-SHA-256":"salt=c2VjcmV0'
    for name, data in {
        "half": secret,
        "list": b'{"version":1,"config":["a"]}',
        "text": b'{"version":1,"config":{"producer_byte_rate":"fast","consumer_byte_rate":"5","other":"x"}}',
        "below": b'{"version":1,"config":{"producer_byte_rate":"-1"}}',
        "null": b"null",
        "deep": b"[" * 100_000,
    }.items():
        zk.create(f"/config/users/{name}", data, parents=True)
    found = quotas.read_all(zk)
    assert set(found.damage) == {f"/config/users/{one}" for one in ("half", "list", "text", "below", "null", "deep")}
    assert not any("c2VjcmV0" in one for one in found.damage.values())
    assert {entity: one for entity, one in found.quotas.items() if one} == {Entity("text"): {CONSUME: 5.0}}
    with pytest.raises(ZooKeeperError):
        quotas.change(zk, Entity("half"), {PRODUCE: 1.0}, ME)
    with pytest.raises(ZooKeeperError):
        scram_credentials.write(zk, "half", {SHA_256: CREDENTIAL}, ME)
    assert zk.get("/config/users/half").data == secret
    quotas.change(zk, Entity("text"), {PRODUCE: 1.0}, ME)  # a value is replaced, the rest stays
    assert zk.get("/config/users/text").data == (
        b'{"version":1,"config":{"consumer_byte_rate":"5","other":"x","producer_byte_rate":"1"}}'
    )


def test_writers_at_the_same_time_lose_nothing(connect: Callable[..., ZooKeeper]) -> None:
    keys = [key for key in QuotaKey if not key.is_of_addresses]

    def write(session: ZooKeeper, number: int) -> None:
        for round_ in range(1, 9):
            if number == len(keys):
                scram_credentials.write(session, "alice", {SHA_256: CREDENTIAL}, ME)
            else:
                quotas.change(session, ALICE, {keys[number]: float(round_)}, ME)

    threads = [threading.Thread(target=write, args=(connect(), number)) for number in range(len(keys) + 1)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    zk = connect()
    assert quotas.read_all(zk).quotas == {ALICE: dict.fromkeys(keys, 8.0)}
    assert scram_credentials.read(zk, "alice") == {SHA_256: CREDENTIAL}


def test_an_address_has_its_quota_at_kafkas_place_and_nonsense_is_damage(zk: ZooKeeper) -> None:
    key, entity = QuotaKey.CONNECTION_CREATION_RATE, Entity(ip="2001:db8::1")
    quotas.change(zk, entity, {key: 20.0}, ME)
    path = "/config/ips/2001%3Adb8%3A%3A1"
    assert zk.get(path).data == b'{"version":1,"config":{"connection_creation_rate":"20"}}'
    assert quotas.read(zk, [entity]).quotas == {entity: {key: 20.0}}
    content = b'{"version":1,"config":{"connection_creation_rate":"5","producer_byte_rate":"5"}}'
    for name in ("localhost", "::ffff:10.0.0.7", "10.0.0.8"):
        zk.create(f"/config/ips/{name}", content, parents=True)
    found = quotas.read_all(zk)
    assert found.quotas[Entity(ip="10.0.0.8")] == {key: 5.0}
    assert {path.rpartition("/")[2] for path in found.damage} == {"localhost", "%3A%3Affff%3A10.0.0.7"}
    zk.create("/config/users/bob", content, parents=True)
    assert quotas.read(zk, [Entity("bob")]).quotas == {Entity("bob"): {PRODUCE: 5.0}}
