"""Exports made without brokers: each batch is written, counted and committed through the root, as a run does it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from klog.client.raw_fetch import Range
from klog.export.batch_writer import WriteResult
from klog.export.file_statistics import collect_statistics
from klog.export.manifest import ExportIdentity, Gap, Manifest
from klog.export.message_columns import SCHEMA
from klog.export.root import ExportRoot, Staged
from klog.export.run import _manifest, _Plan
from klog.export.stores.local import LocalStore
from klog.names import TopicPartition


class LocalByManifest(LocalStore):
    """Real files, in the way of a store that cannot rename folders, as an object store."""

    commits_by_rename = False


class HandmadeExport:
    """Of one or more topics with two partitions each; offsets ascend by ten."""

    def __init__(self, root: Path, *topics: str, by_manifest: bool = False) -> None:
        self.path = root
        self.store = LocalByManifest(root) if by_manifest else LocalStore(root)
        self.place = ExportRoot(self.store)
        names = topics or ("t",)
        self._at = {TopicPartition(topic, partition): 0 for topic in names for partition in (0, 1)}
        initial = dict.fromkeys(self._at, 0)
        made = ExportIdentity("c", "parquet", dict.fromkeys(names, "id"), initial, "2026-01-01T00:00:00.000Z", "0")
        self._identity = self.place.create(made)

    def commit(
        self, messages: int = 5, *, at_ms: int | None = None, age_ms: int = 1000, gap: int = 0, value: bytes = b"v"
    ) -> int:
        """One batch: so many messages of each partition, in a file a topic; its number.

        They are from ``age_ms`` before the commit at ``at_ms`` on, a millisecond apart; ``gap``: offsets left out of
        the first partition.
        """
        last = self.place.last()
        batch = last[0].batch + 1 if last else 0
        at_ms = time.time_ns() // 1_000_000 if at_ms is None else at_ms
        when = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(at_ms // 1000))}.{at_ms % 1000:03d}Z"
        starts, gaps = dict(self._at), []
        if gap:
            first = next(iter(starts))
            gaps.append(Gap(*first, starts[first], starts[first] + gap, "removed before it was exported"))
            starts[first] += gap
        ranges = {one: Range(*one, start, start + 10 * messages) for one, start in starts.items()}
        self._at = {one: wanted.to_offset for one, wanted in ranges.items()}
        counts, epochs = dict.fromkeys(ranges.values(), messages), dict.fromkeys(ranges, 1)
        plan = _Plan(
            batch, last and last[1], self._identity, ranges, {**counts}, epochs, tuple(gaps), frozenset(), None
        )

        def fill(staged: Staged) -> Manifest:
            for number, topic in enumerate(self._identity.topic_ids):
                rows = [
                    (b"k", value, one.topic, one.partition, start + 10 * i, (at_ms - age_ms + i) * 1000, 0, None)
                    for one, start in starts.items()
                    if one.topic == topic
                    for i in range(messages)
                ]
                if rows:
                    columns = zip(zip(*rows, strict=True), SCHEMA, strict=True)
                    table = pa.table([pa.array(column, kind.type) for column, kind in columns], SCHEMA)
                    with self.place.store.open_output(f"{staged.folder}/part-{number:05d}-x.parquet") as sink:
                        pq.write_table(table, sink, write_page_checksum=True)
            found = collect_statistics(self.place.store, staged.folder)
            manifest = _manifest(plan, found, WriteResult(), {}, staged.run, "by hand", when)
            return replace(manifest, committed_at=when)

        assert self.place.commit_batch(batch, fill)
        return batch

    def commits(self, count: int, messages: int = 5) -> None:
        for _ in range(count):
            self.commit(messages)
