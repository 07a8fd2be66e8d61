"""A stream consumer's subscription: topics with their numbers of streams, or a filter over all topics.

A filter is a regular expression that must match a topic's whole name, or, as in 0.8, several separated by commas. 0.8
has Java's syntax, klog has Python's; the characters of topic names are written the same in both. Internal topics are
those whose names begin with ``__`` or ``klog.``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from klog.coordination.consumers import BLACK_LIST, STATIC, WHITE_LIST, ConsumerEntry
from klog.errors import UsageError
from klog.names import check_topic_name

STREAMS_MAX = 1024
"""Streams of one consumer: each stream that owns a partition has its own connections."""

_COMMA = re.compile(r",(?![^{]*\})")
"""A comma between expressions, not the one in ``{1,3}``."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """`threads`: topic to number of streams; of a filter (`pattern` is not STATIC) one entry, the filter itself."""

    threads: Mapping[str, int]
    pattern: str = STATIC

    @classmethod
    def of_topics(cls, threads: Mapping[str, int]) -> Subscription:
        """Raises UsageError or InvalidTopic for an invalid subscription."""
        if not threads:
            raise UsageError("no topic is named", hint='write create_message_streams({"topic": 1})')
        for topic, count in threads.items():
            check_topic_name(topic)
            _check_count(count, f"topic {topic!r}")
        return cls(dict(threads))

    @classmethod
    def of_filter(cls, whitelist: str | None, blacklist: str | None, streams: int) -> Subscription:
        """Raises UsageError unless there is exactly one list that is a regular expression."""
        if (whitelist is None) == (blacklist is None):
            raise UsageError("a filter is either whitelist=... or blacklist=...")
        text = whitelist if whitelist is not None else blacklist
        assert text is not None
        _check_count(streams, f"the filter {text!r}")
        try:
            compile_filter(text)
        except re.error as error:
            raise UsageError(f"the filter {text!r} is not a regular expression: {error}") from None
        return cls({text: streams}, WHITE_LIST if whitelist is not None else BLACK_LIST)

    def entry(self, consumer_id: str) -> ConsumerEntry:
        return ConsumerEntry(consumer_id, self.threads, self.pattern)


def threads_of(entry: ConsumerEntry, topics: Iterable[str], exclude_internal: bool = True) -> dict[str, int]:
    """The number of a consumer's threads for each of these topics; an invalid entry of another tool has none."""
    if entry.pattern == STATIC:
        return {topic: count for topic in topics if (count := entry.subscription.get(topic, 0)) > 0}
    if entry.pattern not in (WHITE_LIST, BLACK_LIST):
        return {}
    found: dict[str, int] = {}
    for text, count in entry.subscription.items():
        try:
            wanted = compile_filter(text)
        except re.error:
            continue
        for topic in topics:
            matches = wanted.fullmatch(topic) is not None
            if matches == (entry.pattern == WHITE_LIST) and not (exclude_internal and is_internal(topic)):
                found[topic] = min(count, STREAMS_MAX)
    return found


def compile_filter(text: str) -> re.Pattern[str]:
    """Raises re.error if invalid. White space and quotes around it are ignored, as in 0.8."""
    return re.compile(_COMMA.sub("|", re.sub(r"\s", "", text).strip("\"'")))


def is_internal(topic: str) -> bool:
    return topic.startswith(("__", "klog."))


def _check_count(count: object, of: str) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= STREAMS_MAX:
        raise UsageError(f"{of}: {count!r} streams; expected 1 to {STREAMS_MAX}")
