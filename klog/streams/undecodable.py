"""The messages of an export that could not be decoded, in a topic of their own, each once.

A message comes with its key, value, headers and time as it was, and two headers more:

    klog-error      why it could not be decoded
    klog-source     where it was: TOPIC-PARTITION@OFFSET

It goes to the partition of the same number (modulo the topic's partitions), in the order of the batch's files. The
messages of a batch are written behind its commit, by conditional appends under the root's own name
(``_klog/undecodable/name``), as those of streams (`klog.streams.topic_sink`). A run that was killed in between is made
good by the next run, which looks at the last batch before it begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from klog.errors import UsageError
from klog.export.batch_writer import is_undecodable
from klog.export.files import read_stored
from klog.export.history import originals
from klog.export.manifest import Manifest
from klog.export.root import ExportRoot
from klog.export.stores.store import Store
from klog.names import TopicPartition
from klog.streams.batch_ends import kept_token
from klog.streams.part_writer import PartPlan, PartWriter, Row
from klog.streams.topic_sink import plan_of, room_of

FOLDER: Final = "_klog/undecodable"
NAME: Final = f"{FOLDER}/name"
ERROR_HEADER: Final = "klog-error"
SOURCE_HEADER: Final = "klog-source"
_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers", "error")


class UndecodableTopic:
    """Where the undecodable messages of a root go. Blocks."""

    def __init__(
        self, bootstrap: str, topic: str, root: str | Store, exported: Sequence[str], *, decodes: bool = True
    ) -> None:
        """``decodes``: the run is asked to decode, as any later one of a root that was begun so.

        UsageError where the topic is one of those that are ``exported``; UnknownTopicOrPartition; Refused where the
        cluster is not klog.
        """
        if topic in exported:
            raise UsageError(
                f"--undecodable-to {topic}: this topic is exported, and its messages would come back for ever"
            )
        self.topic = topic
        self._bootstrap = bootstrap
        self._root = root
        self._decodes = decodes
        self._batch_bytes_max = room_of(bootstrap, topic)

    def write(self) -> int:
        """Have those of the root's last batch there; how many were not yet. What the target answers with is raised."""
        place = ExportRoot(self._root)
        identity = place.identity()
        if not self._decodes and (identity is None or identity.decode is None):
            raise UsageError(
                f"--undecodable-to {self.topic}: the messages of {place} are not decoded, so none cannot be",
                hint="--decode avro, json or protobuf, in the first run",
            )
        numbers = [] if identity is None else place.batch_numbers()
        if not numbers:
            return 0
        manifest, _ = place.manifest(numbers[-1])
        last = originals(place, manifest)[-1]
        sources = [one for one, part in sorted(last.partitions.items()) if part.undecodable]
        if not sources:
            return 0
        if any(one.topic == self.topic for one in last.partitions):
            raise UsageError(f"--undecodable-to {self.topic}: this topic is exported to {place}")
        name = kept_token(place.store, NAME, 8)
        plan, partitions = plan_of(
            PartPlan(self._bootstrap, self.topic, name, last.batch, None, self._batch_bytes_max), place.store, FOLDER
        )
        with PartWriter(plan) as writer:
            done = writer.write(_rows(place, manifest, last, sources, partitions))
        return sum(one.rows - one.there for one in done)


def _rows(
    place: ExportRoot, manifest: Manifest, last: Manifest, sources: Sequence[TopicPartition], partitions: int
) -> Iterator[Row]:
    """Those of one target partition together. The files are read once for each, so that memory is bounded."""
    paths = sorted(file.path for file in manifest.files if is_undecodable(file.path))
    for target in sorted({one.partition % partitions for one in sources}):
        wanted = {
            (one.topic, one.partition): range(part.from_offset, part.to_offset)
            for one, part in last.partitions.items()
            if one.partition % partitions == target
        }
        for path in paths:
            for row in _read(place, place.file_path(manifest, path)):
                if row["offset"] in wanted.get((row["topic"], row["partition"]), ()):
                    source = f"{row['topic']}-{row['partition']}@{row['offset']}"
                    headers = [(one["key"], one["value"]) for one in row["headers"] or ()]
                    headers += [(ERROR_HEADER, row["error"].encode()), (SOURCE_HEADER, source.encode())]
                    yield target, row["timestamp"], row["key"], row["value"], tuple(headers)


def _read(place: ExportRoot, path: str) -> Iterator[dict[str, Any]]:
    """The messages of a file; their times in milliseconds."""
    import pyarrow as pa

    for batch in read_stored(place.store, path, _COLUMNS):
        times = batch.column("timestamp").cast(pa.int64()).to_pylist()
        for row, time_us in zip(batch.drop_columns(["timestamp"]).to_pylist(), times, strict=True):
            yield {**row, "timestamp": time_us // 1000}
