"""librdkafka's clients as the tools make them: they say nothing, and wrong settings are the user's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from klog.client.servers import silent_logger
from klog.errors import UsageError


def made(kind: Callable[[Mapping[str, Any]], Any], settings: Mapping[str, Any]) -> Any:
    """confluent-kafka's Producer or Consumer. UsageError for settings that it does not take."""
    from confluent_kafka import KafkaException

    try:
        return kind({"logger": silent_logger(), **settings})
    except KafkaException as error:
        raise UsageError(f"librdkafka rejects the settings: {error.args[0].str().strip()}") from None
