"""librdkafka's clients as the tools make them: they say nothing, and wrong settings are the user's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaException

from klog.client.producer_settings import BUFFER_KILOBYTES, MESSAGE_BYTES_MAX
from klog.client.servers import librdkafka_servers, silent_logger
from klog.errors import UsageError

QUEUE_MESSAGES_MAX: Final = 100_000


def made(kind: Callable[[Mapping[str, Any]], Any], settings: Mapping[str, Any]) -> Any:
    """confluent-kafka's Producer or Consumer. UsageError for settings that it does not take."""
    try:
        return kind({"logger": silent_logger(), **settings})
    except KafkaException as error:
        raise UsageError(f"librdkafka rejects the settings: {error.args[0].str().strip()}") from None


def producer_settings(bootstrap: str, client_id: str, acks: str, compression: str) -> dict[str, Any]:
    """What the tools' producers have in common. With acks=all they are idempotent: a retry never doubles a message."""
    return {
        **librdkafka_servers(bootstrap),
        "client.id": client_id,
        "acks": acks,
        "enable.idempotence": acks == "all",
        "compression.type": compression,
        "partitioner": "murmur2_random",
        "queue.buffering.max.messages": QUEUE_MESSAGES_MAX,
        "queue.buffering.max.kbytes": BUFFER_KILOBYTES,
        "message.max.bytes": MESSAGE_BYTES_MAX,  # of smaller ones the broker decides
    }
