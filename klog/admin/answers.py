"""The error of what a broker has answered, in klog's class and the broker's words, and of what it lacks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from klog.client.blocking import error_of
from klog.client.metadata import TopicNode
from klog.errors import KlogError, UnknownTopicOrPartition
from klog.names import counted


def check(answer: Any, what: str = "") -> None:
    """Raise it, of an answer or of a part of one that has an ``error_code``; ``what`` was asked for."""
    error = error_in(answer, what)
    if error is not None:
        raise error


def error_in(answer: Any, what: str = "") -> KlogError | None:
    """The same error, returned."""
    if not int(answer.error_code):
        return None
    said = getattr(answer, "error_message", None) or answer.error_code.name
    return error_of(int(answer.error_code), f"{what}: {said}" if what else said)


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
