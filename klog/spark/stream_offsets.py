"""The position of a streaming query, as Spark's checkpoint stores it.

    {"offsets": {"clicks": {"0": 4711, "1": 17}}, "topicIds": {"clicks": "…"}, "added": {"clicks": {"1": 0}}}

``offsets`` has the form of Spark's Kafka connector. The ids distinguish the topic that was read from a re-created
topic of that name, in which these offsets mean nothing. ``added`` has the partitions that are new in the batch
which ends here, with their starts at that moment. A batch that runs again after a crash starts there again, whatever
retention has removed since. All partitions of a query's first batch are added. The start of a query has ``"initial":
true``. It is not stored: Spark asks for it several times, and writes down only the ends of batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from klog.errors import Refused
from klog.names import TopicPartition, nested, unnested


@dataclass(frozen=True)
class StreamOffsets:
    """``offsets``: the next offset to read, per partition."""

    offsets: dict[TopicPartition, int]
    topic_ids: dict[str, str]
    added: dict[TopicPartition, int] = field(default_factory=dict)
    initial: bool = False
    """Whether this is the start of a query."""

    def to_json(self) -> dict[str, Any]:
        """Always in the same order: Spark compares offsets as text."""
        found: dict[str, Any] = {"offsets": nested(self.offsets), "topicIds": dict(sorted(self.topic_ids.items()))}
        if self.added:
            found["added"] = nested(self.added)
        if self.initial:
            found["initial"] = True
        return found

    @classmethod
    def from_json(cls, value: Any) -> StreamOffsets:
        """Refused for a value that `to_json` did not make."""
        try:
            ids = {str(topic): str(topic_id) for topic, topic_id in value["topicIds"].items()}
            return cls(_flat(value["offsets"]), ids, _flat(value.get("added", {})), value.get("initial") is True)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Refused(
                f"Spark's checkpoint has offsets that are not klog's: {str(value)[:200]} ({error!r})",
                hint="was the checkpoint made with another source? give the query a new checkpointLocation",
            ) from None

    def is_new(self, one: TopicPartition, ids: Mapping[str, str]) -> bool:
        """Whether this partition has never been read: it is new, or its topic was re-created (``ids``: by topic)."""
        return one not in self.offsets or is_recreated(self.topic_ids.get(one.topic), ids.get(one.topic))


def is_recreated(known: str | None, found: str | None) -> bool:
    """Whether the topic was deleted and re-created. False if either id is unknown."""
    return known is not None and found is not None and known != found


def _flat(value: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {one: int(offset) for one, offset in unnested(value).items()}
