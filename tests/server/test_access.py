"""Every request of a client: without the permission it is refused, with it and as a super user it is served.

What each request needs is written down here once more (`NEEDS`), by Kafka's documentation where Kafka has the request,
so that the broker's own table is held against something.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import Field, fields, is_dataclass
from functools import cache
from typing import Any, get_args, get_type_hints

import pytest

from klog.coordination import acls, topics
from klog.coordination.acts import Actor
from klog.coordination.schemas import SchemaRegistry
from klog.coordination.zookeeper import ZooKeeper
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.protocol.versions import request_schema
from klog.record.records import encode_batch
from klog.security.access_table import RULES
from klog.security.permissions import (
    CLUSTER_NAME,
    Acl,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    word_of_text,
)
from klog.server import handlers
from klog.server.dispatch import ROUTES
from tests.broker_fixture import RunningBroker
from tests.rows import each
from tests.server.asking import ask, create, metadata, until, values, with_channel
from tests.server.wire import RawConnection, check_log, framed, head
from tests.zookeeper_fixture import session_of

assert handlers

ME = "User:ANONYMOUS"
TEST = Actor("test", "here")
TOPIC, GROUP = "t-mine", "g-mine"
DENIED = {29, 30, 31, 40301}
PATIENCE_S = 10.0

BROKERS_ONLY = "brokers"
OPEN = "open"
HIDES = "hides"
"""Nothing is refused; rows are left out of the answer."""

NEEDS = """
Produce                     Topic:Write
Fetch                       Topic:Read
ListOffsets                 Topic:Describe
Metadata                    Topic:Describe
OffsetCommit                Group:Read Topic:Read
OffsetFetch                 Group:Describe Topic:Describe
FindCoordinator             Group:Describe
JoinGroup                   Group:Read
Heartbeat                   Group:Read
LeaveGroup                  Group:Read
SyncGroup                   Group:Read
DescribeGroups              Group:Describe
ListGroups                  hides
ApiVersions                 open
SaslHandshake               open
SaslAuthenticate            open
CreateTopics                Topic:Create
DeleteTopics                Topic:Delete
DeleteRecords               Topic:Delete
InitProducerId              Cluster:IdempotentWrite
OffsetForLeaderEpoch        Topic:Describe
DescribeAcls                Cluster:Describe
CreateAcls                  Cluster:Alter
DeleteAcls                  Cluster:Alter
DescribeConfigs             Topic:DescribeConfigs
AlterConfigs                Topic:AlterConfigs
DescribeLogDirs             Cluster:Describe
CreatePartitions            Topic:Alter
DeleteGroups                Group:Delete
ElectLeaders                Cluster:Alter
IncrementalAlterConfigs     Topic:AlterConfigs
AlterPartitionReassignments Cluster:Alter
ListPartitionReassignments  Cluster:Describe
OffsetDelete                Group:Delete Topic:Read
DescribeUserScramCredentials Cluster:Describe
AlterUserScramCredentials   Cluster:Alter
DescribeClientQuotas        Cluster:DescribeConfigs
AlterClientQuotas           Cluster:AlterConfigs
DescribeCluster             open
CountMessages               Topic:Describe
FindMessage                 Topic:Describe
StopBroker                  Cluster:Alter
RestartBroker               Cluster:Alter
LocateMessage               Topic:Describe
DescribeSelf                Cluster:Describe
ChecksumRanges              Topic:Read
ListLost                    hides
ReadLost                    Topic:Read
MessageTimes                Topic:Describe
ReadMetrics                 Cluster:Describe
ReadHistory                 Cluster:Describe
ReadLagHistory              Cluster:Describe
Greet                       open
Prove                       open
AlterReassignments          Cluster:Alter
DescribeReassignments       Cluster:Describe
ElectReplicas               Cluster:Alter
DescribeTrash               hides
RestoreTopic                Cluster:Alter
PurgeTopic                  Cluster:Alter
CheckPermission             Cluster:Describe
ProduceAt                   Topic:Write
DescribeMembers             Group:Describe
DescribeClients             Cluster:Describe
ReadSchemas                 Topic:Describe
ChangeSchemas               Topic:Alter
LeaderAndIsr                brokers
StopReplica                 brokers
UpdateMetadata              brokers
DescribeReplicas            brokers
ControlledShutdown          brokers
ReportIsr                   brokers
ReportOffline               brokers
ReplicaFetch                brokers
"""

hints_of = cache(get_type_hints)


@cache
def needs() -> dict[ApiKey, str]:
    by_name = {"".join(word.capitalize() for word in key.name.split("_")): key for key in ApiKey}
    lines = [line.split(None, 1) for line in NEEDS.strip().splitlines()]
    return {by_name[name]: what for name, what in lines if by_name[name] in ROUTES}


GUARDED = [key for key, what in needs().items() if what not in (OPEN, BROKERS_ONLY, HIDES)]
"""Requests that are refused without a permission."""
BY_NEED = sorted({what: [key for key in GUARDED if needs()[key] == what] for what in needs().values()}.items())


def versions(key: ApiKey) -> list[int]:
    route = ROUTES[key]
    return sorted({route.min_version, route.max_version})


# --- requests of any kind ---------------------------------------------------------------------------------------------

TEXTS = {
    "topic": TOPIC,
    "group": GROUP,
    "group_id": GROUP,
    "key": GROUP,
    "coordinator_keys": GROUP,
    "groups_names": GROUP,
    "groups": GROUP,
    "topic_names": TOPIC,
    "topics": TOPIC,
    "resource_name": TOPIC,
    "resource_name_filter": TOPIC,
    "subject": f"{TOPIC}-value",
    "subjects": f"{TOPIC}-value",
    "principal": ME,
    "principal_filter": ME,
    "act": "delete",
    "type": "AVRO",
    "schema": '"string"',
    "host": "*",
    "host_filter": "*",
    "protocol_type": "consumer",
    "entity_type": "user",
    "entity_name": "a-user",
    "match": "a-user",
    "member_id": "m",
    "operation": "",
}
NUMBERS = {
    "resource_type": 2,
    "resource_type_filter": 2,
    "resource_pattern_type": 3,
    "pattern_type_filter": 3,
    "operation": 3,
    "permission_type": 3,
    "permission_type_filter": 3,
    "acks": -1,
    "replica_id": -1,
    "broker_id": 99,
    "count": 5,
    "num_partitions": 1,
    "replication_factor": 1,
    "key_type": 0,
}


def body(key: ApiKey, version: int) -> Any:
    """A request that names the topic and the group of this test wherever it names any; otherwise of no great sense."""
    return codec.build(request_schema(key, version), _filled(request_schema(key, version), key))


def _filled(schema: Any, key: ApiKey) -> dict[str, Any]:
    hints = hints_of(schema)
    return {one.name: _value(one.name, hints[one.name], one.metadata.get("kafka_type"), key) for one in fields(schema)}


def _value(name: str, hint: Any, kind: str | None, key: ApiKey) -> Any:
    arms = [arm for arm in get_args(hint) if arm is not type(None) and arm is not ...]
    is_optional = type(None) in get_args(hint)
    if getattr(hint, "__origin__", None) is tuple or (arms and getattr(arms[0], "__origin__", None) is tuple):
        inner = arms[0] if getattr(hint, "__origin__", None) is tuple else get_args(arms[0])[0]
        if name in ("assignments", "configs", "replicas", "configuration_keys"):
            return None if is_optional else []
        return [_value(name, inner, kind, key)]
    if is_optional:
        if name in ("transactional_id", "topic_id", "level"):
            return None
        return _value(name, arms[0], kind, key)
    if is_dataclass(hint):
        return _filled(hint, key)
    if kind in ("records", "bytes") or hint is bytes:
        return bytes(encode_batch(values(1)))
    if kind == "uuid":
        return None
    if kind == "bool" or hint is bool:
        return False
    if kind == "string":
        return TOPIC if name == "name" else TEXTS.get(name, "x")
    return NUMBERS.get(name, 0)


def parts(answer: Any) -> Iterator[tuple[Field[Any], Any]]:
    """The fields of an answer and of all that is in it, which hold no others."""
    for one in fields(answer):
        value = getattr(answer, one.name)
        for part in value if isinstance(value, tuple) else (value,):
            if is_dataclass(part):
                yield from parts(part)
            else:
                yield one, part


def codes(answer: Any) -> set[int]:
    """All error codes in an answer."""
    return {
        getattr(part, "value", part)
        for one, part in parts(answer)
        if one.metadata.get("kafka_type") == "error_code" or (one.name == "error" and isinstance(part, int))
    }


def names(answer: Any) -> set[str]:
    """All texts in an answer."""
    return {part for _, part in parts(answer) if isinstance(part, str)}


def answer_of(broker: RunningBroker, key: ApiKey, version: int) -> Any:
    return with_channel(broker.bootstrap, lambda channel: channel.request(body(key, version), timeout_s=PATIENCE_S))


# --- ACLs as Kafka's tool writes them ---------------------------------------------------------------------------------


def pattern(kind: ResourceType, pattern_type: PatternType = PatternType.LITERAL) -> Pattern:
    name = {ResourceType.TOPIC: TOPIC, ResourceType.GROUP: GROUP, ResourceType.CLUSTER: CLUSTER_NAME}[kind]
    return Pattern(kind, name, pattern_type)


def grant(session: ZooKeeper, what: str) -> None:
    """What is written like ``Topic:Read Group:Read`` is all that anybody may do."""
    wanted: dict[Pattern, set[Acl]] = {}
    for one in what.split():
        kind, _, operation = one.partition(":")
        acl = Acl(ME, "*", word_of_text(Operation, operation), Permission.ALLOW)
        wanted.setdefault(pattern(word_of_text(ResourceType, kind)), set()).add(acl)
    every = {pattern(kind) for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER)}
    for one_pattern in every | set(acls.read_all(session).acls):
        acls.change(session, one_pattern, lambda there, p=one_pattern: wanted.get(p, set()), TEST)  # type: ignore[misc]


def await_answers(broker: RunningBroker, key: ApiKey, *, denied: bool) -> None:
    """Until the broker has taken in a change of ACLs, by what it answers."""
    until(lambda: bool(codes(answer_of(broker, key, versions(key)[-1])) & DENIED) is denied, PATIENCE_S)


@pytest.fixture(scope="module")
def _guarded(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningBroker, ZooKeeper]]:
    chroot = f"{zookeeper.address}/access-{time.monotonic_ns()}"
    settings = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:root",
        "klog.trash.retention.ms": "0",  # what is deleted is created again
    }
    with (
        RunningBroker(tmp_path_factory.mktemp("guarded"), chroot, **settings).running() as broker,
        session_of(chroot) as session,
    ):
        yield broker, session


@pytest.fixture
def guarded(_guarded: tuple[RunningBroker, ZooKeeper]) -> tuple[RunningBroker, ZooKeeper]:
    """A broker that checks permissions and has no ACLs, and a session at its ZooKeeper. The topic exists."""
    as_at_first(*_guarded)
    return _guarded


def as_at_first(broker: RunningBroker, session: ZooKeeper) -> None:
    if topics.find(session, TOPIC) is None:
        grant(session, "Cluster:Create Topic:Describe")
        await_answers(broker, ApiKey.CREATE_TOPICS, denied=False)
        until(lambda: codes(answer_of(broker, ApiKey.METADATA, 9)) == {0}, PATIENCE_S)
    grant(session, "")
    await_answers(broker, ApiKey.LIST_OFFSETS, denied=True)


def test_every_request_that_the_broker_serves_has_a_rule() -> None:
    assert {int(key) for key in RULES} >= set(ROUTES)
    assert set(map(int, needs())) == set(ROUTES)


def test_only_brokers_ask_what_only_brokers_may() -> None:
    among = {key for key, what in needs().items() if what == BROKERS_ONLY}
    assert {key for key, route in ROUTES.items() if route.of_brokers} == among - {ApiKey.REPLICA_FETCH}
    assert {key for key, rule in RULES.items() if rule.brokers} == among


@each("key", GUARDED, ids=lambda key: key.name)
def test_without_a_permission_it_is_refused(guarded: tuple[RunningBroker, ZooKeeper], key: ApiKey) -> None:
    for version in versions(key):
        found = answer_of(guarded[0], key, version)
        # Version 0 and 1 of DescribeLogDirs and the like have no place for an error: they say nothing.
        assert codes(found) & DENIED or not codes(found), (version, found)


@each(("what", "keys"), [pytest.param(*one, id=one[0]) for one in BY_NEED if one[1]])
def test_with_its_permission_it_is_served(
    guarded: tuple[RunningBroker, ZooKeeper], what: str, keys: list[ApiKey]
) -> None:
    broker, session = guarded
    as_at_first(broker, session)  # the row before may have deleted the topic
    for part in what.split() if " " in what else ():  # each of several is needed
        grant(session, part)
        await_answers(broker, keys[0], denied=True)
    grant(session, what)
    await_answers(broker, keys[0], denied=False)
    for key in keys:
        for version in versions(key):
            found = answer_of(broker, key, version)
            assert not codes(found) & DENIED, (key.name, version, found)


def test_lists_leave_out_what_may_not_be_described(guarded: tuple[RunningBroker, ZooKeeper]) -> None:
    broker, session = guarded
    for key in [key for key, what in needs().items() if what == HIDES]:
        for version in versions(key):
            assert not {TOPIC, GROUP} & names(answer_of(broker, key, version))
    everything = metadata(broker.bootstrap, None)
    assert (everything.topics, len(everything.brokers)) == ((), 1)
    assert metadata(broker.bootstrap, [], 0).topics == ()
    (named,) = metadata(broker.bootstrap, [TOPIC], 0).topics
    assert (named.name, named.error_code.value, named.partitions) == (TOPIC, 29, ())
    grant(session, "Topic:Describe")
    await_answers(broker, ApiKey.METADATA, denied=False)
    shown = metadata(
        broker.bootstrap, None, include_topic_authorized_operations=True, include_cluster_authorized_operations=True
    )
    assert [(one.name, one.topic_authorized_operations) for one in shown.topics] == [(TOPIC, 1 << Operation.DESCRIBE)]
    assert shown.cluster_authorized_operations == 0  # the cluster may not be described
    both = metadata(broker.bootstrap, ["other", TOPIC])
    assert [(one.name, one.error_code.value) for one in both.topics] == [("other", 29), (TOPIC, 0)]


def test_subjects_need_permissions_on_their_topics(guarded: tuple[RunningBroker, ZooKeeper]) -> None:
    broker, session = guarded
    mine, other = f"{TOPIC}-key", "other-value"
    unset = {"type": "AVRO", "version": 0, "permanent": False, "level": None}

    def change(act: str, subject: str | None) -> int:
        fields = {**unset, "act": act, "subject": subject, "schema": '"int"'}
        return int(ask(broker.bootstrap, ApiKey.CHANGE_SCHEMAS, 0, **fields).error)

    def listed(subjects: list[str] | None) -> list[tuple[str, int]]:
        answer = ask(broker.bootstrap, ApiKey.READ_SCHEMAS, 0, ids=[], text=None, subjects=subjects)
        return [(one.name, int(one.error)) for one in answer.subjects]

    grant(session, "Topic:Write Cluster:Alter")
    # Two nodes of ZooKeeper's permit it.
    until(lambda: not (change("register", mine) or change("level", None)), PATIENCE_S)
    assert [change("register", other), change("delete", mine), change("level", mine)] == [40301] * 3
    SchemaRegistry(session).register(other, "AVRO", '"int"', lambda *_: None)
    assert listed(None) == [(mine, 0)]
    assert listed([other, mine, "none-value"]) == [(other, 40301), (mine, 0), ("none-value", 40301)]


def test_a_topic_that_metadata_would_create_needs_create(guarded: tuple[RunningBroker, ZooKeeper]) -> None:
    broker, session = guarded
    fresh = Pattern(ResourceType.TOPIC, "fresh", PatternType.PREFIXED)
    acls.change(session, fresh, lambda _: [Acl(ME, "*", Operation.DESCRIBE, Permission.ALLOW)], TEST)

    def code(name: str, **asked: Any) -> int:
        return int(metadata(broker.bootstrap, [name], **asked).topics[0].error_code)

    until(lambda: code("fresh-1") == 3, PATIENCE_S)  # it does not exist, and may be described
    assert code("fresh-1", allow_auto_topic_creation=True) == 29
    everybody = [Acl("User:*", "127.0.0.1", one, Permission.ALLOW) for one in (Operation.CREATE, Operation.DESCRIBE)]
    acls.change(session, fresh, lambda _: everybody, TEST)
    until(lambda: code("fresh-1", allow_auto_topic_creation=True) == 0, PATIENCE_S)
    acls.change(session, fresh, lambda _: [], TEST)


def test_one_request_is_served_for_some_topics_and_refused_for_others(guarded: tuple[RunningBroker, ZooKeeper]) -> None:
    broker, session = guarded
    grant(session, "Topic:Describe")
    await_answers(broker, ApiKey.METADATA, denied=False)
    partitions = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}]
    asked = [{"name": name, "partitions": partitions} for name in ("a", TOPIC, "b")]
    answer = ask(broker.bootstrap, ApiKey.LIST_OFFSETS, 5, replica_id=-1, isolation_level=0, topics=asked)
    found = [
        (one.name, [(part.partition_index, part.error_code.value) for part in one.partitions]) for one in answer.topics
    ]
    assert found == [("a", [(0, 29)]), (TOPIC, [(0, 0)]), ("b", [(0, 29)])]


def test_a_topic_named_by_its_id_is_not_named_to_who_may_not_know_it(guarded: tuple[RunningBroker, ZooKeeper]) -> None:
    broker, session = guarded
    found = topics.find(session, TOPIC)
    assert found is not None

    def delete(topic_id: Any) -> Any:
        asked = {"topics": [{"name": None, "topic_id": topic_id}], "timeout": 1000}
        return ask(broker.bootstrap, ApiKey.DELETE_TOPICS, 6, **asked).responses[0]

    refused = delete(found.topic_id)
    assert (refused.error_code.value, refused.name) == (29, None) and TOPIC not in refused.error_message
    unknown = delete(uuid.UUID(int=7))
    assert (unknown.error_code.value, unknown.topic_id) == (100, uuid.UUID(int=7))
    grant(session, "Topic:Describe")
    await_answers(broker, ApiKey.METADATA, denied=False)
    refused = delete(found.topic_id)
    assert refused.error_code.value == 29 and TOPIC in refused.error_message
    assert topics.find(session, TOPIC) is not None
    by_id = head(ApiKey.METADATA, 10) + b"\x00\x02" + bytes(15) + b"\x07\x00\x00\x01\x00\x00\x00"
    with RawConnection(broker.bootstrap) as connection:  # its answer has no place for that
        connection.send(framed(by_id))
        assert connection.is_closed_by_broker()
    check_log(broker.log_text)


OTHERS = ((TOPIC.encode(), b"t-none"), (GROUP.encode(), b"g-none"))


def test_no_answer_tells_whether_a_topic_or_a_group_exists(guarded: tuple[RunningBroker, ZooKeeper]) -> None:
    """Every request about what exists, and the same about what does not, without a permission: the same bytes."""
    broker, session = guarded
    grant(session, "Group:Read Topic:Read")
    await_answers(broker, ApiKey.OFFSET_COMMIT, denied=False)
    partitions = [{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}]
    fields = {"generation_id_or_member_epoch": -1, "member_id": "", "retention_time": -1}
    committed = [{"name": TOPIC, "partitions": partitions}]
    answer = ask(broker.bootstrap, ApiKey.OFFSET_COMMIT, 2, group_id=GROUP, topics=committed, **fields)
    assert answer.topics[0].partitions[0].error_code.value == 0
    grant(session, "")
    for key in (ApiKey.HEARTBEAT, ApiKey.LIST_OFFSETS):  # of the group, and of the topic
        await_answers(broker, key, denied=True)
    for key in needs():
        for version in versions(key) if key is not ApiKey.REPLICA_FETCH else ():
            asked = codec.encode_request(body(key, version), 7, "test")
            other = asked
            for name, instead in OTHERS:
                assert len(name) == len(instead)
                other = other.replace(name, instead)
            told = _told(broker, asked)
            for name, instead in OTHERS:
                told = told.replace(name, instead)
            assert told == _told(broker, other), (key.name, version)


def _told(broker: RunningBroker, request: bytes) -> bytes:
    """The answer's bytes; none where the connection ends."""
    with RawConnection(broker.bootstrap) as connection:
        connection.send(request)
        try:
            return connection.answer()
        except EOFError:
            return b""


def test_an_open_broker_has_no_acls_and_says_so(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    for key in (ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS):
        assert codes(answer_of(broker, key, versions(key)[-1])) == {54}
    checked = answer_of(broker, ApiKey.CHECK_PERMISSION, 0)
    assert (checked.error_code.value, checked.is_allowed) == (0, True)
    assert "authorizer.class.name" in checked.rule
