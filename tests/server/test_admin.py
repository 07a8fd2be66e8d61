"""The admin requests against a real broker: each in every version that is served, and what each refuses."""

from __future__ import annotations

import asyncio
import re
import shutil
from typing import Any

import pytest

from klog.config import BROKER_SETTINGS, TOPIC_SETTINGS
from klog.coordination import acts
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from tests.broker_fixture import RunningBroker
from tests.rows import each
from tests.server.asking import (
    ask,
    borders,
    channels,
    create,
    error,
    metadata,
    new_topic,
    offsets,
    produce,
    settings_of,
    values,
)
from tests.tools.verbs import own_settings
from tests.zookeeper_fixture import session_of

UNKNOWN_TOPIC, INVALID_TOPIC, OUT_OF_RANGE = 3, 17, 1
EXISTS, BAD_PARTITIONS, BAD_FACTOR, BAD_ASSIGNMENT, BAD_CONFIG, BAD_REQUEST = 36, 37, 38, 39, 40, 42
STORAGE, DELETION_DISABLED, UNKNOWN_ID, WRONG_ENDPOINT = 56, 73, 100, 114
TOPIC, BROKER, GROUP = 2, 4, 32
FROM_TOPIC, FROM_BROKER, FROM_DEFAULT = 1, 4, 5

ILLEGAL_NAMES = ["", ".", "..", "a" * 250, "a b", "a/b", "a\0b", "gößer", "a:b", "a\\b", "a,b", "a\nb"]


def replicas(*brokers: list[int], first: int = 0) -> list[dict[str, Any]]:
    return [{"partition_index": first + index, "broker_ids": ids} for index, ids in enumerate(brokers)]


def partitions_of(bootstrap: str, *names: str) -> dict[str, Any]:
    """name -> its part of Metadata."""
    return {topic.name: topic for topic in metadata(bootstrap, names, 12).topics}


def exists(bootstrap: str, name: str) -> bool:
    return error(partitions_of(bootstrap, name)[name]) == 0


# --- CreateTopics ---


@each("version", borders(ApiKey.CREATE_TOPICS, range(2, 8)))
def test_a_topic_is_made_in_every_version(broker: RunningBroker, topic: str, version: int) -> None:
    asked = new_topic(topic, 3, 1, configs=settings_of(retention_ms="1234"))
    (made,) = ask(broker.bootstrap, ApiKey.CREATE_TOPICS, version, topics=[asked]).topics
    assert error(made) == 0, made
    assert made.name == topic
    there = partitions_of(broker.bootstrap, topic)[topic]
    assert [one.partition_index for one in there.partitions] == [0, 1, 2]
    assert all(error(one) == 0 and one.leader_id == 1 for one in there.partitions), "answered before it is led"
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (3, 1)
        by_name = {one.name: one for one in made.configs}
        assert (by_name["retention.ms"].value, by_name["retention.ms"].config_source) == ("1234", FROM_TOPIC)
        assert by_name["segment.bytes"].config_source == FROM_DEFAULT
    if version >= 7:
        assert made.topic_id == there.topic_id
        assert made.topic_id is not None


def test_the_brokers_defaults_and_assignments(broker: RunningBroker, topic: str) -> None:
    defaults, assigned = topic, topic + "-assigned"
    asked = [new_topic(defaults, -1, -1), new_topic(assigned, -1, -1, assignments=replicas([1], [1]))]
    made = ask(broker.bootstrap, ApiKey.CREATE_TOPICS, 7, topics=asked).topics
    assert [(error(one), one.num_partitions, one.replication_factor) for one in made] == [(0, 1, 1), (0, 2, 1)]


@each(
    ("asked", "code"),
    [
        (new_topic("t", 0, 1), BAD_PARTITIONS),
        (new_topic("t", -2, 1), BAD_PARTITIONS),
        (new_topic("t", 2**31 - 1, 1), BAD_PARTITIONS),
        (new_topic("t", 1, 0), BAD_FACTOR),
        (new_topic("t", 1, 2), BAD_FACTOR),
        (new_topic("t", 1, -2), BAD_FACTOR),
        (new_topic("t", -1, -1, assignments=replicas([7])), BAD_ASSIGNMENT),
        (new_topic("t", -1, -1, assignments=replicas([])), BAD_ASSIGNMENT),
        (new_topic("t", -1, -1, assignments=replicas([1, 1])), BAD_ASSIGNMENT),
        (new_topic("t", -1, -1, assignments=replicas([1], first=3)), BAD_ASSIGNMENT),
        (new_topic("t", -1, -1, assignments=[*replicas([1]), *replicas([1])]), BAD_ASSIGNMENT),
        (new_topic("t", 1, -1, assignments=replicas([1])), BAD_REQUEST),
        (new_topic("t", 1, 1, configs=settings_of(retention_ms="soon")), BAD_CONFIG),
        (new_topic("t", 1, 1, configs=settings_of(no_such_thing="1")), BAD_CONFIG),
        (new_topic("t", 1, 1, configs=settings_of(log_dirs="/tmp")), BAD_CONFIG),
        (new_topic("t", 1, 1, configs=settings_of(retention_ms=None)), BAD_REQUEST),
        (new_topic("t", 1, 1, configs=settings_of(retention_ms="1") * 2), BAD_REQUEST),
        *[(new_topic(name, 1, 1), INVALID_TOPIC) for name in ILLEGAL_NAMES],
    ],
    ids=lambda value: repr(value["name"][:9]) if isinstance(value, dict) and value["name"] != "t" else None,
)
def test_a_topic_that_cannot_be_is_refused_and_not_made(
    broker: RunningBroker, topic: str, asked: dict[str, Any], code: int
) -> None:
    if asked["name"] == "t":
        asked = {**asked, "name": topic}
    other = topic + "-other"
    refused, made = ask(broker.bootstrap, ApiKey.CREATE_TOPICS, 7, topics=[asked, new_topic(other, 1, 1)]).topics
    assert (error(refused), error(made)) == (code, 0), refused
    assert refused.error_message
    assert refused.topic_id is None
    assert not exists(broker.bootstrap, asked["name"])


def test_a_topic_that_exists_is_not_made_again(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic, 2)
    produce(broker.bootstrap, topic, [values(3)])
    (refused,) = ask(broker.bootstrap, ApiKey.CREATE_TOPICS, 7, topics=[new_topic(topic, 5, 1)]).topics
    assert (error(refused), refused.num_partitions) == (EXISTS, -1)
    assert len(partitions_of(broker.bootstrap, topic)[topic].partitions) == 2
    assert offsets(broker.bootstrap, topic)[1] == 3


def test_a_name_twice_in_one_request_is_refused_both_times(broker: RunningBroker, topic: str) -> None:
    answer = ask(broker.bootstrap, ApiKey.CREATE_TOPICS, 7, topics=[new_topic(topic, 1, 1), new_topic(topic, 2, 1)])
    assert [error(one) for one in answer.topics] == [BAD_REQUEST, BAD_REQUEST]
    assert not exists(broker.bootstrap, topic)


def test_only_validated_is_not_made(broker: RunningBroker, topic: str) -> None:
    asked = [new_topic(topic, 2, 1), new_topic(topic + "-2", 1, 9)]
    good, bad = ask(broker.bootstrap, ApiKey.CREATE_TOPICS, 7, topics=asked, validate_only=True).topics
    assert (error(good), good.num_partitions, good.topic_id) == (0, 2, None)
    assert error(bad) == BAD_FACTOR
    assert not exists(broker.bootstrap, topic)


# --- DeleteTopics ---


@pytest.mark.slow
@each("version", borders(ApiKey.DELETE_TOPICS, range(1, 7)))
def test_a_topic_is_deleted_in_every_version_and_its_name_is_free(
    broker: RunningBroker, topic: str, version: int
) -> None:
    create(broker.bootstrap, topic, 2)
    produce(broker.bootstrap, topic, [values(10)])
    named = {"topics": [{"name": topic, "topic_id": None}]} if version >= 6 else {"topic_names": [topic]}
    (gone,) = ask(broker.bootstrap, ApiKey.DELETE_TOPICS, version, timeout=10_000, **named).responses
    assert (gone.name, error(gone)) == (topic, 0)
    assert not exists(broker.bootstrap, topic)
    create(broker.bootstrap, topic, 1)
    assert offsets(broker.bootstrap, topic) == (0, 0), "the new topic has the old one's messages"


def test_a_topic_is_deleted_by_its_id(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    topic_id = partitions_of(broker.bootstrap, topic)[topic].topic_id
    asked = [{"name": None, "topic_id": topic_id}]
    (gone,) = ask(broker.bootstrap, ApiKey.DELETE_TOPICS, 6, timeout=10_000, topics=asked).responses
    assert (gone.name, gone.topic_id, error(gone)) == (topic, topic_id, 0)
    (again,) = ask(broker.bootstrap, ApiKey.DELETE_TOPICS, 6, timeout=10_000, topics=asked).responses
    assert (again.name, error(again)) == (None, UNKNOWN_ID)


def test_what_cannot_be_deleted(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    topic_id = partitions_of(broker.bootstrap, topic)[topic].topic_id
    asked = [
        {"name": topic + "-missing", "topic_id": None},
        {"name": topic, "topic_id": topic_id},
        {"name": None, "topic_id": None},
    ]
    answer = ask(broker.bootstrap, ApiKey.DELETE_TOPICS, 6, timeout=10_000, topics=asked)
    assert [error(one) for one in answer.responses] == [UNKNOWN_TOPIC, BAD_REQUEST, BAD_REQUEST]
    assert all(one.error_message for one in answer.responses)
    assert exists(broker.bootstrap, topic)


# --- CreatePartitions ---


@each("version", borders(ApiKey.CREATE_PARTITIONS, range(4)))
def test_a_topic_gets_more_partitions_in_every_version(broker: RunningBroker, topic: str, version: int) -> None:
    create(broker.bootstrap, topic, 1)
    produce(broker.bootstrap, topic, [values(3)])
    asked = [{"name": topic, "count": 3, "assignments": None}]
    (grown,) = ask(
        broker.bootstrap, ApiKey.CREATE_PARTITIONS, version, topics=asked, timeout=10_000, validate_only=False
    ).results
    assert (grown.name, error(grown)) == (topic, 0)
    partitions = partitions_of(broker.bootstrap, topic)[topic].partitions
    assert [(one.partition_index, one.leader_id, error(one)) for one in partitions] == [(0, 1, 0), (1, 1, 0), (2, 1, 0)]
    assert offsets(broker.bootstrap, topic) == (0, 3), "the partition that was there has lost its messages"
    produce(broker.bootstrap, topic, [values(1)], partition=2)


def test_what_partitions_cannot_be_added(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic, 2)

    def codes(*asked: tuple[str, int, list[list[int]] | None], validate_only: bool = False) -> list[int]:
        topics = [
            {
                "name": name,
                "count": count,
                "assignments": None if lists is None else [{"broker_ids": ids} for ids in lists],
            }
            for name, count, lists in asked
        ]
        answer = ask(
            broker.bootstrap, ApiKey.CREATE_PARTITIONS, 3, topics=topics, timeout=10_000, validate_only=validate_only
        )
        return [error(one) for one in answer.results]

    assert codes((topic, 2, None)) == [BAD_PARTITIONS]
    assert codes((topic, 1, None)) == [BAD_PARTITIONS]
    assert codes((topic, 0, None)) == [BAD_PARTITIONS]
    assert codes((topic, 2**31 - 1, None)) == [BAD_PARTITIONS]
    assert codes((topic + "-missing", 2, None)) == [UNKNOWN_TOPIC]
    assert codes((topic, 4, [[1]])) == [BAD_ASSIGNMENT]
    assert codes((topic, 3, [[9]])) == [BAD_ASSIGNMENT]
    assert codes((topic, 3, None), (topic, 4, None)) == [BAD_REQUEST, BAD_REQUEST]
    assert codes((topic, 3, None), validate_only=True) == [0]
    assert len(partitions_of(broker.bootstrap, topic)[topic].partitions) == 2
    assert codes((topic, 4, [[1], [1]])) == [0]
    assert len(partitions_of(broker.bootstrap, topic)[topic].partitions) == 4


# --- DeleteRecords ---


def delete_records(bootstrap: str, topic: str, *asked: tuple[int, int], version: int = 2) -> list[tuple[int, int]]:
    """(error, low watermark) of each (partition, offset)."""
    partitions = [{"partition_index": partition, "offset": offset} for partition, offset in asked]
    answer = ask(
        bootstrap, ApiKey.DELETE_RECORDS, version, topics=[{"name": topic, "partitions": partitions}], timeout=10_000
    )
    return [(error(one), one.low_watermark) for one in answer.topics[0].partitions]


@each("version", range(3))
def test_the_start_moves_up_in_every_version(broker: RunningBroker, topic: str, version: int) -> None:
    create(broker.bootstrap, topic)
    first, second = produce(broker.bootstrap, topic, [values(10), values(10)])
    assert delete_records(broker.bootstrap, topic, (0, first + 4), version=version) == [(0, first + 4)]
    assert offsets(broker.bootstrap, topic) == (first + 4, second + 10)
    assert delete_records(broker.bootstrap, topic, (0, 2), version=version) == [(0, first + 4)], "it went back"
    assert delete_records(broker.bootstrap, topic, (0, -1), version=version) == [(0, second + 10)]
    assert offsets(broker.bootstrap, topic) == (second + 10, second + 10)
    (third,) = produce(broker.bootstrap, topic, [values(1)])
    assert third > second


def test_a_deletion_of_records_is_an_act_one_an_hour_of_a_client_and_topic(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, [values(10)])
    for offset in (0, 4, 7):
        delete_records(broker.bootstrap, topic, (0, offset))
    with session_of(broker.zookeeper) as zookeeper:
        told = [one for one in acts.read(zookeeper, acts.list_ids(zookeeper)) if one.topic == topic]
    assert [(one.kind, one.before, one.after) for one in told if one.kind != "topic-create"] == [
        (acts.RECORDS_ACT, {"0": 0}, {"0": 4})
    ]


def test_what_records_cannot_be_deleted(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, [values(10)])
    end = offsets(broker.bootstrap, topic)[1]
    for offset in (end + 1, -2, 2**62):
        assert delete_records(broker.bootstrap, topic, (0, offset)) == [(OUT_OF_RANGE, -1)]
    assert delete_records(broker.bootstrap, topic, (1, 0), (0, 5)) == [(UNKNOWN_TOPIC, -1), (0, 5)]
    assert delete_records(broker.bootstrap, topic + "-missing", (0, 0)) == [(UNKNOWN_TOPIC, -1)]
    assert offsets(broker.bootstrap, topic) == (5, end)


def test_deleted_records_and_changed_settings_hold_at_once_and_after_a_kill(make_broker: Any, topic: str) -> None:
    broker = make_broker().start()
    changed = f"{topic}-changed"
    create(broker.bootstrap, changed)
    produce(broker.bootstrap, changed, [values(1, 2000)])
    assert error(change(broker.bootstrap, changed, ("max.message.bytes", SET, "1000"))) == 0
    with pytest.raises(AssertionError, match="message_too_large"):
        produce(broker.bootstrap, changed, [values(1, 2000)])
    create(broker.bootstrap, topic, segment_bytes="1000")
    bases = produce(broker.bootstrap, topic, [values(20) for _ in range(20)])
    folder = broker.folder / "data" / f"{topic}-0"
    files_before = len(list(folder.glob("*.log")))
    wanted = bases[10] + 3
    assert delete_records(broker.bootstrap, topic, (0, wanted)) == [(0, wanted)]
    broker.kill()
    assert len(list(folder.glob("*.log"))) < files_before
    broker.start()
    assert offsets(broker.bootstrap, topic) == (wanted, bases[-1] + 20)
    assert own_settings(broker.bootstrap, changed) == {"max.message.bytes": "1000"}
    with pytest.raises(AssertionError, match="message_too_large"):
        produce(broker.bootstrap, changed, [values(1, 2000)])


# --- DescribeConfigs ---


def describe(bootstrap: str, kind: int, name: str, version: int = 4, **more: Any) -> Any:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": more.pop("keys", None)}
    return ask(bootstrap, ApiKey.DESCRIBE_CONFIGS, version, resources=[resource], **more).results[0]


@each("version", borders(ApiKey.DESCRIBE_CONFIGS, range(1, 5)))
def test_a_topics_settings_in_every_version(broker: RunningBroker, topic: str, version: int) -> None:
    create(broker.bootstrap, topic, retention_ms="1234", max_message_bytes="5000")
    found = describe(broker.bootstrap, TOPIC, topic, version, include_synonyms=True, include_documentation=True)
    assert (error(found), found.resource_type, found.resource_name) == (0, TOPIC, topic)
    by_name = {one.name: one for one in found.configs}
    assert by_name.keys() == TOPIC_SETTINGS.keys()
    retention = by_name["retention.ms"]
    assert (retention.value, retention.config_source, retention.read_only) == ("1234", FROM_TOPIC, False)
    week_hours = BROKER_SETTINGS["log.retention.hours"].default
    assert [(one.name, one.value, one.source) for one in retention.synonyms] == [
        ("retention.ms", "1234", FROM_TOPIC),
        ("log.retention.hours", str(week_hours), FROM_DEFAULT),
    ]
    segment = by_name["segment.bytes"]
    assert (segment.value, segment.config_source) == ("1073741824", FROM_DEFAULT)
    if version >= 3:
        assert (retention.config_type, by_name["preallocate"].config_type) == (5, 1)
        assert retention.documentation


def test_synonyms_and_documentation_come_only_when_asked_for(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    found = describe(broker.bootstrap, TOPIC, topic, keys=["retention.ms", "no.such.setting"])
    assert [one.name for one in found.configs] == ["retention.ms"]
    assert found.configs[0].synonyms == ()
    assert found.configs[0].documentation is None
    assert found.configs[0].value == "604800000"


def test_what_is_asked_for_twice_is_answered_once(broker: RunningBroker) -> None:
    resource = {"resource_type": BROKER, "resource_name": "1", "configuration_keys": None}
    answer = ask(broker.bootstrap, ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource] * 1000)
    assert len(answer.results) == 1


def test_a_brokers_settings(make_broker: Any, topic: str) -> None:
    broker = make_broker(log__retention__hours="24", segment__bytes="1000000").start()
    found = describe(broker.bootstrap, BROKER, "1", include_synonyms=True, include_documentation=True)
    by_name = {one.name: one for one in found.configs}
    assert by_name.keys() == BROKER_SETTINGS.keys()
    assert all(one.read_only for one in found.configs)
    assert (by_name["broker.id"].value, by_name["broker.id"].config_source) == ("1", FROM_BROKER)
    retention = by_name["log.retention.ms"]
    assert (retention.value, retention.config_source) == ("86400000", FROM_BROKER)
    assert [(one.name, one.value, one.source) for one in retention.synonyms] == [
        ("log.retention.hours", "24", FROM_BROKER),
        ("log.retention.hours", "168", FROM_DEFAULT),
    ]
    assert by_name["broker.rack"].value is None
    create(broker.bootstrap, topic)
    of_topic = describe(broker.bootstrap, TOPIC, topic, keys=["retention.ms"]).configs[0]
    assert (of_topic.value, of_topic.config_source) == ("86400000", FROM_BROKER)


@each(
    ("kind", "name", "code"),
    [
        (TOPIC, "missing-topic", UNKNOWN_TOPIC),
        (TOPIC, "no/name", INVALID_TOPIC),
        (BROKER, "2", BAD_REQUEST),
        (BROKER, "one", BAD_REQUEST),
        (GROUP, "group", BAD_REQUEST),
        (0, "", BAD_REQUEST),
    ],
)
def test_settings_of_what_is_not_there(broker: RunningBroker, kind: int, name: str, code: int) -> None:
    found = describe(broker.bootstrap, kind, name)
    assert (error(found), found.configs) == (code, ())
    assert found.error_message


def test_settings_of_all_brokers_at_once_are_none(broker: RunningBroker) -> None:
    found = describe(broker.bootstrap, BROKER, "")
    assert (error(found), found.configs) == (0, ())


# --- AlterConfigs, IncrementalAlterConfigs ---

SET, DELETE, APPEND, SUBTRACT = range(4)


def alter(bootstrap: str, kind: int, name: str, given: Any, *, version: int = 2, validate_only: bool = False) -> Any:
    resources = [{"resource_type": kind, "resource_name": name, "configs": given}]
    return ask(bootstrap, ApiKey.ALTER_CONFIGS, version, resources=resources, validate_only=validate_only).responses[0]


def change(
    bootstrap: str,
    name: str,
    *changes: tuple[str, int, str | None],
    kind: int = TOPIC,
    version: int = 1,
    validate_only: bool = False,
) -> Any:
    configs = [
        {"name": setting, "config_operation": operation, "value": value} for setting, operation, value in changes
    ]
    resources = [{"resource_type": kind, "resource_name": name, "configs": configs}]
    return ask(
        bootstrap, ApiKey.INCREMENTAL_ALTER_CONFIGS, version, resources=resources, validate_only=validate_only
    ).responses[0]


@each("version", range(3))
def test_altering_replaces_the_whole_set_in_every_version(broker: RunningBroker, topic: str, version: int) -> None:
    create(broker.bootstrap, topic, retention_ms="1234")
    answer = alter(broker.bootstrap, TOPIC, topic, settings_of(max_message_bytes="900"), version=version)
    assert (error(answer), answer.resource_type, answer.resource_name) == (0, TOPIC, topic)
    assert own_settings(broker.bootstrap, topic) == {"max.message.bytes": "900"}
    assert error(alter(broker.bootstrap, TOPIC, topic, [], version=version)) == 0
    assert own_settings(broker.bootstrap, topic) == {}


@each("version", range(2))
def test_changing_leaves_the_others_in_every_version(broker: RunningBroker, topic: str, version: int) -> None:
    create(broker.bootstrap, topic, retention_ms="1234", max_message_bytes="900")
    answer = change(
        broker.bootstrap,
        topic,
        ("retention.ms", DELETE, None),
        ("segment.bytes", SET, "4096"),
        ("flush.ms", DELETE, None),
        version=version,
    )
    assert error(answer) == 0, answer
    assert own_settings(broker.bootstrap, topic) == {"max.message.bytes": "900", "segment.bytes": "4096"}


def test_items_of_lists_are_added_and_removed(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    assert error(change(broker.bootstrap, topic, ("cleanup.policy", APPEND, "delete"))) == 0
    assert own_settings(broker.bootstrap, topic) == {"cleanup.policy": "delete"}
    assert error(change(broker.bootstrap, topic, ("cleanup.policy", APPEND, "compress"))) == BAD_CONFIG
    assert error(change(broker.bootstrap, topic, ("retention.ms", APPEND, "1"))) == BAD_CONFIG
    assert error(change(broker.bootstrap, topic, ("retention.ms", SUBTRACT, "1"))) == BAD_CONFIG
    assert own_settings(broker.bootstrap, topic) == {"cleanup.policy": "delete"}


def test_changes_that_are_refused(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic, retention_ms="1234")
    address = broker.bootstrap

    def refused(answer: Any) -> int:
        assert answer.error_message
        return error(answer)

    assert refused(change(address, topic, ("retention.ms", SET, "soon"))) == BAD_CONFIG
    assert refused(change(address, topic, ("retention.mss", SET, "1"))) == BAD_CONFIG
    assert refused(change(address, topic, ("retention.mss", DELETE, None))) == BAD_CONFIG
    assert refused(change(address, topic, ("log.retention.ms", SET, "1"))) == BAD_CONFIG
    assert refused(change(address, topic, ("retention.ms", SET, None))) == BAD_REQUEST
    assert refused(change(address, topic, ("retention.ms", 9, "1"))) == BAD_REQUEST
    assert refused(change(address, topic, ("retention.ms", SET, "1"), ("retention.ms", DELETE, None))) == BAD_REQUEST
    assert refused(change(address, topic + "-missing", ("retention.ms", SET, "1"))) == UNKNOWN_TOPIC
    assert refused(change(address, "no/name", ("retention.ms", SET, "1"))) == INVALID_TOPIC
    assert refused(change(address, "1", ("log.retention.ms", SET, "1"), kind=BROKER)) == BAD_REQUEST
    assert refused(change(address, "g", ("x", SET, "1"), kind=GROUP)) == BAD_REQUEST
    assert refused(alter(address, TOPIC, topic, settings_of(retention_ms="soon"))) == BAD_CONFIG
    assert refused(alter(address, TOPIC, topic, settings_of(retention_ms=None))) == BAD_REQUEST
    assert refused(alter(address, TOPIC, topic, settings_of(retention_ms="1") * 2)) == BAD_REQUEST
    assert refused(alter(address, TOPIC, topic + "-missing", [])) == UNKNOWN_TOPIC
    assert refused(alter(address, BROKER, "1", [])) == BAD_REQUEST
    assert error(change(address, topic, ("retention.ms", SET, "5"), validate_only=True)) == 0
    assert error(alter(address, TOPIC, topic, [], validate_only=True)) == 0
    assert refused(change(address, topic, ("retention.ms", SET, "soon"), validate_only=True)) == BAD_CONFIG
    assert own_settings(address, topic) == {"retention.ms": "1234"}


def test_a_resource_twice_in_one_request_is_refused_both_times(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    resource = {"resource_type": TOPIC, "resource_name": topic, "configs": settings_of(retention_ms="1")}
    answer = ask(broker.bootstrap, ApiKey.ALTER_CONFIGS, 2, resources=[resource, resource], validate_only=False)
    assert [error(one) for one in answer.responses] == [BAD_REQUEST, BAD_REQUEST]
    assert own_settings(broker.bootstrap, topic) == {}


async def test_changes_at_the_same_time_do_not_undo_each_other(broker: RunningBroker, topic: str) -> None:
    await asyncio.to_thread(create, broker.bootstrap, topic)
    wanted = {"retention.ms": "1", "retention.bytes": "2", "segment.bytes": "3000", "segment.ms": "4", "flush.ms": "5"}
    requests = [
        codec.request(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            1,
            resources=[
                {
                    "resource_type": TOPIC,
                    "resource_name": topic,
                    "configs": [{"name": name, "config_operation": SET, "value": value}],
                }
            ],
            validate_only=False,
        )
        for name, value in wanted.items()
    ]
    async with channels(broker.bootstrap, len(wanted)) as each_one:
        answers = await asyncio.gather(*(one.request(asked) for one, asked in zip(each_one, requests, strict=True)))
        assert [error(answer.responses[0]) for answer in answers] == [0] * len(wanted)
    assert await asyncio.to_thread(own_settings, broker.bootstrap, topic) == wanted


# --- DescribeCluster, DescribeLogDirs ---


@each("version", range(2))
def test_the_cluster_in_every_version(broker: RunningBroker, version: int) -> None:
    found = ask(broker.bootstrap, ApiKey.DESCRIBE_CLUSTER, version, include_cluster_authorized_operations=False)
    assert (error(found), found.controller_id) == (0, 1)
    assert re.fullmatch(r"[A-Za-z0-9_-]{22}", found.cluster_id)
    assert [(one.broker_id, f"{one.host}:{one.port}", one.rack) for one in found.brokers] == [
        (1, broker.bootstrap, None)
    ]


@each("version", range(2))
def test_one_may_do_everything_with_the_cluster(broker: RunningBroker, version: int) -> None:
    found = ask(broker.bootstrap, ApiKey.DESCRIBE_CLUSTER, version, include_cluster_authorized_operations=True)
    assert found.cluster_authorized_operations == sum(1 << one for one in (5, 7, 8, 9, 10, 11, 12))
    found = ask(broker.bootstrap, ApiKey.DESCRIBE_CLUSTER, version, include_cluster_authorized_operations=False)
    assert found.cluster_authorized_operations == -(2**31)


def test_there_are_no_controllers_apart(broker: RunningBroker) -> None:
    found = ask(
        broker.bootstrap, ApiKey.DESCRIBE_CLUSTER, 1, include_cluster_authorized_operations=False, endpoint_type=2
    )
    assert (error(found), found.brokers) == (WRONG_ENDPOINT, ())


@each("version", borders(ApiKey.DESCRIBE_LOG_DIRS, range(1, 5)))
def test_log_dirs_in_every_version(broker: RunningBroker, topic: str, version: int) -> None:
    create(broker.bootstrap, topic, 2)
    produce(broker.bootstrap, topic, [values(10), values(10)], partition=1)
    end_address = offsets(broker.bootstrap, topic, 1)[1]
    asked = [{"topic": topic, "partitions": [0, 1, 7]}, {"topic": topic + "-missing", "partitions": [0]}]
    answer = ask(broker.bootstrap, ApiKey.DESCRIBE_LOG_DIRS, version, topics=asked)
    (one,) = answer.results
    assert (error(one), one.log_dir) == (0, str(broker.folder / "data"))
    (found,) = one.topics
    sizes = {part.partition_index: part.partition_size for part in found.partitions}
    assert found.name == topic
    on_disk = {
        number: sum(file.stat().st_size for file in (broker.folder / "data" / f"{topic}-{number}").glob("*.log"))
        for number in (0, 1)
    }
    assert sizes == on_disk
    assert sizes[0] == 0
    assert sizes[1] >= end_address
    assert all((part.offset_lag, part.is_future_key) == (0, False) for part in found.partitions)
    if version >= 4:
        assert one.total_bytes == shutil.disk_usage(broker.folder).total
        assert 0 < one.usable_bytes <= one.total_bytes


# --- FindCoordinator ---


@each("version", range(5))
def test_a_broker_alone_coordinates_every_group_in_any_version(broker: RunningBroker, version: int) -> None:
    asked = {"key": "group", "key_type": 0, "coordinator_keys": ["group", "other"]}
    answer = ask(broker.bootstrap, ApiKey.FIND_COORDINATOR, version, **asked)
    found = answer.coordinators if version >= 4 else [answer]
    there = (0, broker.broker_id, *broker.bootstrap.split(":"))
    assert [(error(one), one.node_id, one.host, str(one.port)) for one in found] == [there] * len(found)
    assert [one.key for one in found] == ["group", "other"] if version >= 4 else len(found) == 1


@each("version", range(1, 5))
def test_nobody_coordinates_transactions(broker: RunningBroker, version: int) -> None:
    asked = {"key": "tx", "key_type": 1, "coordinator_keys": ["tx", "other"]}
    answer = ask(broker.bootstrap, ApiKey.FIND_COORDINATOR, version, **asked)
    found = answer.coordinators if version >= 4 else [answer]
    assert [(error(one), one.node_id) for one in found] == [(53, -1)] * (2 if version >= 4 else 1)
    assert all("transactional.id" in one.error_message for one in found)


def test_a_kind_of_key_that_nobody_knows(broker: RunningBroker) -> None:
    answer = ask(broker.bootstrap, ApiKey.FIND_COORDINATOR, 4, key_type=2, coordinator_keys=["share"])
    assert [error(one) for one in answer.coordinators] == [42]
