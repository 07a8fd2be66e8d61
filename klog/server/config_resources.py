"""Settings in the protocol: resources, entries, sources, synonyms (KIP-133, KIP-226)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any

from klog.config import BROKER_SETTINGS, TOPIC_SETTINGS, BrokerConfig, Setting, text_of, topic_values
from klog.config.broker import SECRETS
from klog.config.topic import OF_TOPICS_ALONE, TOPIC_SOURCE, topic_setting_text
from klog.errors import InvalidRequest, UnknownTopicOrPartition
from klog.names import check_topic_name
from klog.server.dispatch import Answer, Request, outcome
from klog.server.image import ClusterImage, TopicImage
from klog.server.listening import UNFINISHED_BYTES_MAX, unfinished_bytes_max
from klog.server.parts import Parts


class ResourceType(IntEnum):
    """The kinds of resource with settings in klog; Kafka has more."""

    TOPIC = 2
    BROKER = 4


class Source(IntEnum):
    """The source of a value."""

    DYNAMIC_TOPIC_CONFIG = 1
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


class Operation(IntEnum):
    """Of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


KAFKAS_THROTTLES = frozenset(
    {
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
    }
)
"""Settings by which kafka-reassign-partitions throttles, and which it removes each time it verifies progress. A klog
throttle is part of its reassignment: klog never has these settings, so their removal always succeeds."""

_TYPES = {"bool": 1, "string": 2, "enum": 2, "int": 5, "bytes": 5, "ms": 5, "float": 6, "list": 7}
"""Kind of a setting -> the protocol's type: BOOLEAN 1, STRING 2, LONG 5, DOUBLE 6, LIST 7."""


def existing_topic(image: ClusterImage, name: str) -> TopicImage:
    """The topic. Raises InvalidTopic, UnknownTopicOrPartition."""
    topic = image.topics.get(name)
    if topic is None:
        check_topic_name(name)
        raise UnknownTopicOrPartition.of_topics(name)
    return topic


def given_settings(pairs: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """Names and texts of a request. Raises InvalidRequest for a duplicate name or a missing value."""
    given: dict[str, str] = {}
    for name, value in pairs:
        if value is None:
            raise InvalidRequest(f"setting {name} has no value")
        if name in given:
            raise InvalidRequest(f"setting {name} is named more than once")
        given[name] = value
    return given


# --- Shown ---


def topic_entries(config: BrokerConfig, overrides: Mapping[str, str]) -> list[dict[str, Any]]:
    """Every setting of a topic as DescribeConfigs and CreateTopics answer it."""
    entries = []
    for one in topic_values(config, overrides):
        above = BrokerConfig.parse({}) if one.name in OF_TOPICS_ALONE else config
        synonyms = _broker_synonyms(above, TOPIC_SETTINGS[one.name])
        text = topic_setting_text(one.value)
        if one.source == TOPIC_SOURCE:
            synonyms.insert(0, _synonym(one.name, text, Source.DYNAMIC_TOPIC_CONFIG))
        entries.append(_entry(one.name, text, one.setting, synonyms, is_read_only=False))
    return entries


def broker_entries(config: BrokerConfig) -> list[dict[str, Any]]:
    """Every setting of a broker, followed by those given per listener."""
    entries = [
        _entry(name, _value_that_holds(config, name), setting, _broker_synonyms(config, name), is_read_only=True)
        for name, setting in BROKER_SETTINGS.items()
    ]
    for name, of_all in sorted(config.of_single_listeners().items()):
        text = config.given_text(name)
        given = [] if text is None else [_synonym(name, text, Source.STATIC_BROKER_CONFIG)]
        synonyms = [*given, *_broker_synonyms(config, of_all)]
        entries.append(_entry(name, text, BROKER_SETTINGS[of_all], synonyms, is_read_only=True))
    return entries


def _value_that_holds(config: BrokerConfig, name: str) -> str | None:
    """The effective value, also if the machine decides because none is given."""
    if name == UNFINISHED_BYTES_MAX and config[name] is None:
        return str(int(unfinished_bytes_max(config)))
    return text_of(config[name])


def _entry(
    name: str, value: str | None, setting: Setting, synonyms: list[dict[str, Any]], *, is_read_only: bool
) -> dict[str, Any]:
    return {
        "name": name,
        "value": None if setting.name in SECRETS else value,
        "read_only": is_read_only,
        "config_source": synonyms[0]["source"] if synonyms else Source.DEFAULT_CONFIG,
        "is_sensitive": setting.name in SECRETS,
        "synonyms": [{**one, "value": None} for one in synonyms] if setting.name in SECRETS else synonyms,
        "config_type": _TYPES[setting.kind],
        "documentation": setting.doc,
    }


def _broker_synonyms(config: BrokerConfig, name: str) -> list[dict[str, Any]]:
    """The sources of a broker's setting, the deciding one first: the given value, then the defaults."""
    chain = [name, *(follows for follows, _ in BROKER_SETTINGS[name].follows)]
    given = [(one, config.given_text(one)) for one in chain]
    defaults = [(one, text_of(BROKER_SETTINGS[one].default)) for one in chain]
    return [
        *(_synonym(one, text, Source.STATIC_BROKER_CONFIG) for one, text in given if text is not None),
        *(_synonym(one, text, Source.DEFAULT_CONFIG) for one, text in defaults if text is not None),
    ]


def _synonym(name: str, value: str, source: Source) -> dict[str, Any]:
    return {"name": name, "value": value, "source": source}


# --- Changed ---


async def alter_topics(
    request: Request, parts: Parts, after: Callable[[Any, dict[str, str]], dict[str, str]]
) -> Answer:
    """Change the topics' own settings to ``after(resource, current)``; one answer per resource."""
    asked = request.entity
    times_named = Counter((one.resource_type, one.resource_name) for one in asked.resources)

    async def alter(resource: Any) -> None:
        kind, name = resource.resource_type, resource.resource_name
        if times_named[kind, name] > 1:
            raise InvalidRequest(f"resource {name!r} is named {times_named[kind, name]} times in one request")
        if kind == ResourceType.BROKER and _takes_kafkas_throttles_away(resource):
            return
        _check_can_alter(kind)
        parts.controller.require()
        existing_topic(parts.image, name)

        def changed(current: dict[str, str]) -> dict[str, str]:
            overrides = after(resource, dict(current))
            if request.is_of_client:
                parts.zookeeper_admission.new_settings(current, overrides)
            return overrides

        await parts.controller.topics.change_overrides(
            name, changed, actor=request.actor, validate_only=asked.validate_only
        )

    return {
        "responses": [
            {"resource_type": one.resource_type, "resource_name": one.resource_name, **await outcome(alter(one))}
            async for one in request.in_turn(asked.resources)
        ]
    }


def _takes_kafkas_throttles_away(resource: Any) -> bool:
    changes = [(one.name, getattr(one, "config_operation", None)) for one in resource.configs]
    return bool(changes) and all(name in KAFKAS_THROTTLES and done == Operation.DELETE for name, done in changes)


def _check_can_alter(kind: int) -> None:
    if kind == ResourceType.BROKER:
        raise InvalidRequest(
            "a broker's settings cannot be changed while it runs: change them where it is started, and restart it"
        )
    if kind != ResourceType.TOPIC:
        raise InvalidRequest(f"resources of type {kind} have no settings in klog: topics (2) have")
