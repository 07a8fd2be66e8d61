"""A topic's settings: the broker's with the topic's on top."""

import re

import pytest

from klog.config import BROKER_SETTINGS, TOPIC_SETTINGS, BrokerConfig, LogConfig, check_topic_settings, topic_values
from klog.errors import InvalidConfig
from tests.rows import each

KAFKA_082 = [
    "segment.bytes",
    "segment.ms",
    "segment.jitter.ms",
    "segment.index.bytes",
    "flush.messages",
    "flush.ms",
    "retention.bytes",
    "retention.ms",
    "max.message.bytes",
    "index.interval.bytes",
    "file.delete.delay.ms",
    "delete.retention.ms",
    "min.cleanable.dirty.ratio",
    "cleanup.policy",
    "unclean.leader.election.enable",
    "min.insync.replicas",
]


def test_all_of_kafkas_topic_settings_are_there() -> None:
    assert set(KAFKA_082) <= set(TOPIC_SETTINGS)
    assert set(TOPIC_SETTINGS.values()) <= set(BROKER_SETTINGS)


def test_without_overrides_the_brokers_settings_hold() -> None:
    config = BrokerConfig.parse({"log.retention.hours": "1", "log.segment.bytes": "5000", "message.max.bytes": "77"})
    log_config = LogConfig.of(config, {})
    assert (log_config.retention_ms, log_config.segment_bytes, log_config.max_message_bytes) == (3_600_000, 5000, 77)


def test_the_defaults_of_a_log_are_those_of_the_table() -> None:
    assert LogConfig() == LogConfig.of(BrokerConfig.parse({}), {})


def test_a_topics_settings_override_the_brokers() -> None:
    config = BrokerConfig.parse({"log.retention.ms": "1", "log.flush.interval.messages": "3"}, "the file")
    overrides = {
        "retention.ms": "2",
        "flush.ms": "10",
        "unclean.leader.election.enable": "true",
        "min.insync.replicas": "2",
    }
    log_config = LogConfig.of(config, overrides)
    assert (log_config.retention_ms, log_config.flush_ms, log_config.flush_messages) == (2, 10, 3)
    assert (log_config.unclean_leader_election, log_config.min_insync_replicas) == (True, 2)
    sources = {value.name: value.source for value in topic_values(config, overrides)}
    assert (sources["retention.ms"], sources["flush.messages"], sources["segment.ms"]) == (
        "topic",
        "the file",
        "default",
    )


@each(
    ("name", "hint"),
    [
        ("log.retention.ms", " retention.ms"),
        ("port", "broker"),
        ("retention.mss", "retention.ms?"),
        ("qqqqqqqqqqqq", ", segment.bytes, "),
    ],
)
def test_unknown_topic_settings_are_refused_with_a_hint(name: str, hint: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(name)) as caught:
        check_topic_settings({name: "1"})
    assert hint in (caught.value.hint or "")


def test_wrong_values_are_named_by_the_topics_name() -> None:
    with pytest.raises(InvalidConfig, match=r"^segment\.bytes=1 \(from topic\): .*\b14"):
        LogConfig.of(BrokerConfig.parse({}), {"segment.bytes": "1"})


@each("word", ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_kafkas_codecs_of_a_topic_are_taken_without_effect(word: str) -> None:
    """Tools make topics with them (librdkafka's own tests do), and batches stay as their producer compressed them."""
    assert check_topic_settings({"compression.type": word}) == {"compression.type": word}
    assert LogConfig.of(BrokerConfig.parse({}), {"compression.type": word}) == LogConfig()
    with pytest.raises(InvalidConfig, match="producer, uncompressed, gzip, snappy, lz4, zstd"):
        check_topic_settings({"compression.type": "brotli"})


def test_a_topics_message_format_is_taken_as_the_brokers_is() -> None:
    assert LogConfig.of(BrokerConfig.parse({}), {"message.format.version": "0.10.0.0"}) == LogConfig()
