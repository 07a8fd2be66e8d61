"""Where a streaming query stands, as Spark's checkpoint keeps it.

    {"offsets": {"clicks": {"0": 4711, "1": 17}}, "topicIds": {"clicks": "…"}, "added": {"clicks": {"1": 0}}}

``offsets`` reads as the connector's. The ids tell a topic that was deleted and made anew, whose offsets mean nothing in
it, from the one that was read. ``added`` are partitions that the batch which ends here has met first, with where they
began at that moment: a batch that is run again after a crash begins there again, whatever retention has taken since.
A query's first batch meets all of its partitions first. Its beginning is told by ``"initial": true``, and is kept by
nobody: Spark asks for it again and again, and writes down where batches end, and no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from klog.errors import Refused
from klog.names import TopicPartition


@dataclass(frozen=True)
class StreamOffsets:
    """``offsets``: the next one to read of each partition."""

    offsets: dict[TopicPartition, int]
    topic_ids: dict[str, str]
    added: dict[TopicPartition, int] = field(default_factory=dict)
    initial: bool = False
    """Whether a query begins here, and does not go on."""

    def to_json(self) -> dict[str, Any]:
        """In one order always: Spark takes two offsets for the same when their texts are."""
        found: dict[str, Any] = {"offsets": _nested(self.offsets), "topicIds": dict(sorted(self.topic_ids.items()))}
        if self.added:
            found["added"] = _nested(self.added)
        if self.initial:
            found["initial"] = True
        return found

    @classmethod
    def from_json(cls, value: Any, where: str = "Spark's checkpoint") -> StreamOffsets:
        """Refused for what `to_json` has not made."""
        try:
            ids = {str(topic): str(topic_id) for topic, topic_id in value["topicIds"].items()}
            return cls(_flat(value["offsets"]), ids, _flat(value.get("added", {})), value.get("initial") is True)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Refused(
                f"{where} has offsets that are not klog's: {str(value)[:200]} ({error!r})",
                hint="was the checkpoint made with another source? give the query a new checkpointLocation",
            ) from None

    def is_new(self, one: TopicPartition, ids: Mapping[str, str]) -> bool:
        """Whether a partition of the topics with these ids has never been read: it, or its whole topic, is new."""
        return one not in self.offsets or is_anew(self.topic_ids.get(one.topic), ids.get(one.topic))


def is_anew(known: str | None, found: str | None) -> bool:
    """Whether the topic was deleted and made anew. Where either has no id, nobody can tell."""
    return known is not None and found is not None and known != found


def _nested(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for one, offset in sorted(offsets.items()):
        found.setdefault(one.topic, {})[str(one.partition)] = offset
    return found


def _flat(value: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(str(topic), int(partition)): int(offset)
        for topic, partitions in value.items()
        for partition, offset in partitions.items()
    }
