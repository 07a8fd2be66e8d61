"""The result of a streaming query as an export: files or a table, and a manifest for each batch (`klog.export.root`).

A batch is committed as every batch of an export, in one step of the store that shows its files and its manifest
together. The manifest has the query's own number of the batch. A batch that is repeated after a crash finds that number
committed and writes nothing; without it, its files were never seen, and it writes them again. A root is for one query.

Limits: Parquet; a batch without rows makes none. Batches of results cannot be merged by `klog export compact`.
"""

from __future__ import annotations

import logging
from typing import Any

from klog import __version__
from klog.errors import Refused, UsageError
from klog.export.file_statistics import count_files
from klog.export.manifest import ExportIdentity, Manifest, now
from klog.export.root import ExportRoot, Staged
from klog.export.run import TableChoice, check_fixed, check_table, of_table
from klog.spark.frames import COMPRESSION, save
from klog.spark.running import hadoop
from klog.streams.batch import Batch

log = logging.getLogger(__name__)

FORMAT = "parquet"

hadoop.register_stores()


class ExportSink:
    """Writes each batch of one query to a root."""

    def __init__(self, root: str, table: TableChoice | None = None) -> None:
        """``root``: a path or a URL; errors of `open_store`. ``table``: what its first batch makes it."""
        if table is not None:
            check_table(table, FORMAT)
        self._place = ExportRoot(root)
        self._table = table

    def __str__(self) -> str:
        return f"export:{self._place}"

    def check(self, frame: Any) -> None:
        """Refused where the root has messages, or something else; UsageError for columns that are named twice."""
        known = self._place.identity()
        if known is not None and known.stream is None:
            raise Refused(
                f"{self._place} is the export of {', '.join(sorted(known.topic_ids))}", hint="name another folder"
            )
        if known is not None:
            check_fixed(self._place, *of_table(known, self._table))
        names = [] if frame is None else [name.lower() for name in frame.columns]
        doubled = sorted({name for name in names if names.count(name) > 1 or name == "batch"})
        if doubled:
            raise UsageError(
                f"the rows have the column {doubled[0]} more than once"
                if doubled[0] != "batch"
                else 'a column "batch" has no place in an export, where it is the number of the batch'
            )

    def write(self, frame: Any, batch: Batch) -> None:
        place = self._place
        known = place.identity() or place.create(self._identity(batch.query))
        if known.stream != batch.query:
            raise Refused(
                f"{place} has the results of another query ({known.stream})",
                hint="a query with a new checkpoint needs another folder",
            )
        last = place.last()
        if last is not None and (last[0].stream_batch or 0) >= batch.number:
            log.info("batch %d is in %s already", batch.number, place)
            return
        place.discard_stale()
        started_at = now()

        def fill(staged: Staged) -> Manifest | None:
            writer = frame.write.mode("append").option("compression", COMPRESSION[FORMAT])
            save(writer, FORMAT, batch.session, place.store, staged.folder)
            files = count_files(place.store, staged.folder)
            for empty in (one for one in files if not one.messages):
                place.store.remove(f"{staged.folder}/{empty.path}")
            written = tuple(one for one in files if one.messages)
            if not written:
                return None
            return Manifest(
                batch=staged.batch,
                run=staged.run,
                previous_sha256=None if last is None else last[1],
                format=FORMAT,
                cluster_id=None,
                topic_ids={},
                partitions={},
                gaps=(),
                windows={},
                files=written,
                klog=__version__,
                engine=f"spark {batch.session.version}",
                started_at=started_at,
                committed_at=now(),
                stream_batch=batch.number,
            )

        if place.commit_batch(0 if last is None else last[0].batch + 1, fill) is False:
            raise Refused(f"another process writes batches of this query to {place}", hint="stop one of them")

    def _identity(self, query: str) -> ExportIdentity:
        made = ExportIdentity(None, FORMAT, {}, {}, now(), __version__, stream=query)
        return made if self._table is None else self._table.named(made, self._place)
