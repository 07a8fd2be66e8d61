"""Texts as long as the wire allows: each request has an answer, and none ends a connection, or that to ZooKeeper."""

from __future__ import annotations

from klog.protocol.apis import ApiKey
from klog.protocol.codec import ERROR_CHARS_MAX
from tests.broker_fixture import RunningBroker
from tests.rows import each
from tests.server.asking import ask, create, error, new_topic

LONGEST = 32_767
"""Of a text in a version that is not flexible."""


@each("character", ["a", "'", "\x1b", "\\", "\u00fc"])
def test_an_error_that_quotes_a_long_name_is_answered(broker: RunningBroker, character: str) -> None:
    name = character * (LONGEST // len(character.encode()))
    asked = {"name": name, "count": 3, "assignments": None}
    answer = ask(broker.bootstrap, ApiKey.CREATE_PARTITIONS, 0, topics=[asked], timeout=1000, validate_only=False)
    assert error(answer.results[0]) == 3
    assert len(answer.results[0].error_message) < ERROR_CHARS_MAX + 100
    topic = new_topic("t", configs=[{"name": name, "value": "1"}])
    made = ask(broker.bootstrap, ApiKey.CREATE_TOPICS, 2, topics=[topic], timeout=1000, validate_only=False)
    assert made.topics[0].error_code.name == "invalid_config"
    assert "internal error" not in broker.log_text


@each(("name", "value"), [("message.format.version", "1" * 2_000), ("retention.ms", " " * 1_000_000)])
def test_a_long_value_of_a_setting_is_refused(broker: RunningBroker, topic: str, name: str, value: str) -> None:
    """Every broker would remember it, and old versions of DescribeConfigs could not show it."""
    create(broker.bootstrap, topic)
    entry = {"name": name, "config_operation": 0, "value": value}
    resource = {"resource_type": 2, "resource_name": topic, "configs": [entry]}
    answer = ask(broker.bootstrap, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
    assert answer.responses[0].error_code.name == "invalid_config"
    asked = {"resource_type": 2, "resource_name": topic, "configuration_keys": None}
    assert error(ask(broker.bootstrap, ApiKey.DESCRIBE_CONFIGS, 1, resources=[asked]).results[0]) == 0


def test_a_long_subject_does_not_end_the_connection_to_zookeeper(broker: RunningBroker) -> None:
    """ZooKeeper closes the connection of a client whose request is larger than a megabyte."""
    long = ["s" * 2_000_000, *(f"{n:0255}" for n in range(5_000))]
    known = ask(broker.bootstrap, ApiKey.READ_SCHEMAS, 0, ids=[], text=None, subjects=long)
    assert known.error == 0 and known.subjects == ()
    change = {"act": "delete", "subject": "%" * 2_000_000, "type": "AVRO", "schema": "", "version": 0}
    deleted = ask(broker.bootstrap, ApiKey.CHANGE_SCHEMAS, 0, **change, permanent=False, level=None)
    assert deleted.error == 42208
    assert "is lost" not in broker.log_text
