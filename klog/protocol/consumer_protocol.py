"""Subscriptions and assignments of the protocol type ``consumer``, which are opaque to the coordinator.

A version, int16, and what Kafka's schema of that version has. All versions begin as version 0, and what follows in
later ones is of no use here.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.consumer_protocol_assignment.v0.data import ConsumerProtocolAssignment
from kio.schema.consumer_protocol_subscription.v0.data import ConsumerProtocolSubscription

from klog.names import TopicPartition
from klog.protocol import codec

PROTOCOL_TYPE = "consumer"

_VERSION_BYTES: Final = 2
_NO_USER_DATA: Final = b"\xff\xff\xff\xff"
"""For a client that leaves the last field of version 0 out."""


def assigned_partitions(assignment: bytes) -> list[TopicPartition]:
    """The partitions assigned to a member, in order; none for an empty assignment. Raises MalformedRequest."""
    if not assignment:
        return []
    topics = _decode(assignment, ConsumerProtocolAssignment).assigned_partitions
    return sorted(TopicPartition(topic.topic, one) for topic in topics for one in topic.partitions)


def subscribed_topics(subscription: bytes) -> list[str]:
    """The topics that a member subscribes to, in order; none for an empty subscription. Raises MalformedRequest."""
    return sorted(_decode(subscription, ConsumerProtocolSubscription).topics) if subscription else []


def _decode(data: bytes, schema: Any) -> Any:
    return codec.decode_part(memoryview(data + _NO_USER_DATA), _VERSION_BYTES, schema)
