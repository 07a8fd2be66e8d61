"""Subscriptions and assignments of the protocol type ``consumer``, which are opaque to the coordinator.

    subscription   version int16, [topic string], user data bytes, then fields of later versions
    assignment     version int16, [topic string, [partition int32]], user data bytes, then fields of later versions

Only what all versions have in the same place is read: versions 0 to 3 differ in what follows.
"""

from __future__ import annotations

import struct

from klog.errors import MalformedRequest
from klog.names import TopicPartition

PROTOCOL_TYPE = "consumer"


def assigned_partitions(assignment: bytes) -> list[TopicPartition]:
    """The partitions assigned to a member, in order; none for an empty assignment. Raises MalformedRequest."""
    if not assignment:
        return []
    at = 2
    found = []
    try:
        topics, at = _number(assignment, at)
        for _ in range(topics):
            topic, at = _text(assignment, at)
            partitions, at = _number(assignment, at)
            if not 0 <= partitions <= (len(assignment) - at) // 4:
                raise MalformedRequest(f"an assignment of {len(assignment)} bytes names {partitions} partitions")
            found += [TopicPartition(topic, one) for one in struct.unpack_from(f">{partitions}i", assignment, at)]
            at += 4 * partitions
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedRequest(f"an assignment of {len(assignment)} bytes cannot be read: {error}") from None
    return sorted(found)


def subscribed_topics(subscription: bytes) -> list[str]:
    """The topics that a member subscribes to, in order; none for an empty subscription. Raises MalformedRequest."""
    if not subscription:
        return []
    at = 2
    found = []
    try:
        topics, at = _number(subscription, at)
        for _ in range(topics):
            topic, at = _text(subscription, at)
            found.append(topic)
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedRequest(f"a subscription of {len(subscription)} bytes cannot be read: {error}") from None
    return sorted(found)


def _number(data: bytes, at: int) -> tuple[int, int]:
    (value,) = struct.unpack_from(">i", data, at)
    return value, at + 4


def _text(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", data, at)
    if not 0 <= length <= len(data) - at - 2:
        raise struct.error(f"a text of {length} bytes at byte {at}")
    return data[at + 2 : at + 2 + length].decode(), at + 2 + length
