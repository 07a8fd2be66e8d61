"""Kafka 0.7's settings per topic: ``topic.log.retention.hours=clicks:10,orders:720``.

Each is the broker's value of another setting for the named topics. It overrides the broker's value for all topics; a
topic's own settings override it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from klog.config.setting import Check, Setting, Table

_HOUR_MS = 3_600_000


def _pair(item: str) -> tuple[str, int]:
    """Raise ValueError unless the text is a topic's name, a colon and a number."""
    topic, _, number = item.rpartition(":")
    topic, number = topic.strip(), number.strip()
    if not topic or not (number.isascii() and number.lstrip("-").isdigit()):
        raise ValueError(item)
    return topic, int(number)


def _are_pairs(items: object) -> bool:
    assert isinstance(items, tuple)
    try:
        return len(dict(map(_pair, items))) == len(items)
    except ValueError:
        return False


_PAIRS = Check("of TOPIC:NUMBER, each topic once", _are_pairs)


class TopicMap(NamedTuple):
    """``broker_setting``: the setting per topic; ``factor``: from its unit to that setting's."""

    broker_setting: str
    factor: int
    default: str
    """The broker's setting for other topics, in the same unit."""
    effect: str

    def values(self, items: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        """Topic and value of the broker's setting, as text."""
        for item in items:
            topic, number = _pair(item)
            yield topic, str(number * self.factor if number > 0 else number)


TOPIC_MAPS: Final = {
    "topic.log.file.size": TopicMap("log.segment.bytes", 1, "log.segment.bytes", "segment roll"),
    "topic.log.roll.hours": TopicMap("log.roll.ms", _HOUR_MS, "log.roll.hours", "segment roll"),
    "topic.log.retention.hours": TopicMap(
        "log.retention.ms", _HOUR_MS, "log.retention.hours", "deletion of old segments"
    ),
    "topic.log.retention.size": TopicMap("log.retention.bytes", 1, "log.retention.bytes", "deletion of old segments"),
    "topic.flush.intervals.ms": TopicMap("log.flush.interval.ms", 1, "log.flush.interval.ms", "flush"),
    "topic.partition.count.map": TopicMap("num.partitions", 1, "num.partitions", "default of new topics"),
}

TOPIC_MAP_SETTINGS: Final[Table] = {
    Setting(name, "list", (), _PAIRS): (f"{one.default} of some topics: TOPIC:NUMBER,... From Kafka 0.7.", one.effect)
    for name, one in TOPIC_MAPS.items()
}
