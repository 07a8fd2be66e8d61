"""Settings of a broker and of a topic, by Kafka's names, with current and 0.8's spellings."""

from klog.config.broker import BROKER_SETTINGS, BrokerConfig
from klog.config.properties import parse_properties, read_properties
from klog.config.setting import Setting, Value, text_of
from klog.config.topic import TOPIC_SETTINGS, LogConfig, TopicValue, check_topic_settings, topic_values

__all__ = [
    "BROKER_SETTINGS",
    "TOPIC_SETTINGS",
    "BrokerConfig",
    "LogConfig",
    "Setting",
    "TopicValue",
    "Value",
    "check_topic_settings",
    "parse_properties",
    "read_properties",
    "text_of",
    "topic_values",
]
