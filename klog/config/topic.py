"""A topic's settings: which of the broker's they override, and the resulting `LogConfig`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from klog.config.broker import ALIASES, BROKER_SETTINGS, DEFAULT_SOURCE, BrokerConfig
from klog.config.setting import Setting, Value, text_of
from klog.errors import InvalidConfig

TOPIC_SETTINGS: dict[str, str] = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.type": "compression.type",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "klog.audit.enable": "klog.audit.enable",
    "max.message.bytes": "message.max.bytes",
    "message.format.version": "log.message.format.version",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
"""A topic's setting -> the broker's setting that is its default."""

OF_TOPICS_ALONE = frozenset({"unclean.leader.election.enable"})
"""Settings that only a topic can switch on: a line in a broker's file, once Kafka 0.8's default, must not let a whole
cluster lose acknowledged messages."""

TOPIC_SOURCE = "topic"

VALUE_CHARS_MAX = 1_000
"""Per value. Every broker keeps it, and old versions of DescribeConfigs hold 32 KB."""

CONFIGS_KEPT = 256
"""Different sets of topics' settings whose `LogConfig` is cached."""

KEEP_EVERYTHING = {"retention.ms": "-1", "retention.bytes": "-1"}
"""For a topic whose settings cannot be read."""


class TopicValue(NamedTuple):
    """A setting's effective value for a topic; ``source``: ``topic``, a source of the broker's, or ``default``."""

    name: str
    value: Value
    source: str
    setting: Setting


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The settings of one partition's log. -1: no retention limit; LONG_MAX: never flush."""

    segment_bytes: int = 1073741824
    segment_ms: int = 168 * 3_600_000
    segment_jitter_ms: int = 0
    deletes: bool = True
    """Whether retention deletes; False where old messages are only to be compacted."""
    retention_ms: int = 168 * 3_600_000
    retention_bytes: int = -1
    flush_messages: int = 1
    flush_ms: int = 2**63 - 1
    max_message_bytes: int = 1000012
    min_insync_replicas: int = 1
    unclean_leader_election: bool = False
    producer_expiry_ms: int = 86400000
    timestamp_before_max_ms: int = 2**63 - 1
    timestamp_after_max_ms: int = 3_600_000

    @classmethod
    def of(cls, config: BrokerConfig, topic_overrides: Mapping[str, str]) -> LogConfig:
        """The broker's settings with the topic's on top. Raises InvalidConfig for an invalid name or value of the
        topic's.

        Equal settings are one object: a broker opens, and its controller handles, tens of thousands of logs.
        """
        return _log_config(config, tuple(sorted(topic_overrides.items())))


@lru_cache(maxsize=CONFIGS_KEPT)
def _log_config(config: BrokerConfig, topic_overrides: tuple[tuple[str, str], ...]) -> LogConfig:
    values: dict[str, Any] = {one.name: one.value for one in topic_values(config, dict(topic_overrides))}
    return LogConfig(
        segment_bytes=values["segment.bytes"],
        segment_ms=values["segment.ms"],
        segment_jitter_ms=values["segment.jitter.ms"],
        deletes=values["cleanup.policy"] != ("compact",),
        retention_ms=values["retention.ms"],
        retention_bytes=values["retention.bytes"],
        flush_messages=values["flush.messages"],
        flush_ms=values["flush.ms"],
        max_message_bytes=values["max.message.bytes"],
        min_insync_replicas=values["min.insync.replicas"],
        unclean_leader_election=values["unclean.leader.election.enable"],
        producer_expiry_ms=config.integer("producer.id.expiration.ms"),
        timestamp_before_max_ms=values["message.timestamp.before.max.ms"],
        timestamp_after_max_ms=values["message.timestamp.after.max.ms"],
    )


def topic_values(config: BrokerConfig, topic_overrides: Mapping[str, str]) -> list[TopicValue]:
    """Every effective setting of a topic, by name. Raises InvalidConfig for an invalid name or value among the
    overrides."""
    given = check_topic_settings(topic_overrides)
    values = []
    for name, broker_name in TOPIC_SETTINGS.items():
        setting = BROKER_SETTINGS[broker_name]
        if name in given:
            values.append(TopicValue(name, given[name], TOPIC_SOURCE, setting))
        elif name in OF_TOPICS_ALONE:
            values.append(TopicValue(name, setting.default, DEFAULT_SOURCE, setting))
        else:
            values.append(TopicValue(name, config[broker_name], config.source(broker_name), setting))
    return values


def may_be_led_uncleanly(topic_overrides: Mapping[str, str]) -> bool:
    """``unclean.leader.election.enable`` of a topic, alone: the controller needs it per partition of a dead broker."""
    name = "unclean.leader.election.enable"
    text = topic_overrides.get(name)
    return bool(BROKER_SETTINGS[TOPIC_SETTINGS[name]].default if text is None else _parsed(name, text))


def effective_min_isr(min_insync_replicas: int, replicas: int) -> int:
    """In-sync replicas that an append with acks=all needs: the smaller of the setting and the number of replicas.

    As in Kafka: a topic with one replica can be written to although the setting, meant for the others, asks for two.
    """
    return min(min_insync_replicas, max(replicas, 1))


def check_topic_settings(overrides: Mapping[str, str]) -> dict[str, Value]:
    """The typed values of a topic's settings. Raises InvalidConfig with the setting, the value and what was
    expected."""
    return {name: _parsed(name, text) for name, text in overrides.items()}


def _parsed(name: str, text: str) -> Value:
    setting = _setting_of(name)
    if len(text) > VALUE_CHARS_MAX:
        raise InvalidConfig(
            f"{name} (from {TOPIC_SOURCE}): expected at most {VALUE_CHARS_MAX} characters, got {len(text)}"
        )
    return setting.parse(text, name=name, source=TOPIC_SOURCE)


def usable_settings(overrides: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The usable settings among those that another tool wrote, and the reasons against the others.

    An unreadable retention counts as unlimited: a typing error must not delete messages.
    """
    usable: dict[str, str] = {}
    wrong = []
    for name, text in overrides.items():
        try:
            check_topic_settings({name: text})
            usable[name] = text
        except InvalidConfig as error:
            wrong.append(error.message)
            if name in KEEP_EVERYTHING:
                usable[name] = KEEP_EVERYTHING[name]
    return usable, wrong


def _setting_of(name: str) -> Setting:
    broker_name = TOPIC_SETTINGS.get(name)
    if broker_name is not None:
        return BROKER_SETTINGS[broker_name]
    known = ALIASES.get(name, name)
    meant = next(
        (
            topic
            for topic, broker in TOPIC_SETTINGS.items()
            if known == broker or known in (other for other, _ in BROKER_SETTINGS[broker].follows)
        ),
        None,
    )
    if meant is not None:
        hint = f"the topic's setting is {meant}"
    elif known in BROKER_SETTINGS:
        hint = "it is a broker's setting, not a topic's"
    else:
        from difflib import get_close_matches

        near = get_close_matches(name, TOPIC_SETTINGS, 1, 0.6)
        hint = f"did you mean {near[0]}?" if near else "settings of a topic: " + ", ".join(TOPIC_SETTINGS)
    raise InvalidConfig(f"unknown topic setting {name}", hint=hint)


def unknown_setting_hint(names: Iterable[str]) -> str | None:
    """A hint for the first unknown name of these; a broker's answer has no hints."""
    for name in names:
        try:
            _setting_of(name)
        except InvalidConfig as error:
            return error.hint
    return None


def topic_setting_text(value: Value) -> str:
    """A value as shown and sent to clients; no value is the empty text, as in Kafka."""
    return text_of(value) or ""
