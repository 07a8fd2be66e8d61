"""The error of what a broker has answered, in klog's class and the broker's words, and of what it lacks."""

from __future__ import annotations

from collections.abc import Iterable

from klog.client.metadata import TopicNode
from klog.errors import KlogError, UnknownTopicOrPartition
from klog.names import counted


def code_and_message(error: KlogError | None) -> tuple[str | None, str | None]:
    """``error`` and ``message`` of a row."""
    return (None, None) if error is None else (error.code, error.message)


def check_partitions(topic: TopicNode, wanted: Iterable[int]) -> None:
    """UnknownTopicOrPartition for those that the topic lacks."""
    error = lacking(topic, wanted)
    if error is not None:
        raise error


def lacking(topic: TopicNode, wanted: Iterable[int]) -> UnknownTopicOrPartition | None:
    """The same error, returned."""
    missing = sorted(set(wanted) - topic.partitions.keys())
    if not missing:
        return None
    count = len(topic.partitions)
    return UnknownTopicOrPartition(
        f"topic {topic.name!r} has {counted(count, 'partition')} (0 to {count - 1}),"
        f" no partition {','.join(map(str, missing))}"
    )
