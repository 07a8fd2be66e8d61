"""A store that a stream is joined with: a keyed topic as the latest value of each key, or the rows of an export.

Strategy: the rows that were read for one batch are kept in Spark (a local checkpoint, so that the plan does not grow),
and for the next batch only the messages behind them are read. Up to where, is kept in the query's checkpoint before
the batch is joined (`klog.streams.batch_ends`): a batch that is repeated after a crash is joined with the same values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from klog.streams.batch import Batch
from klog.streams.batch_ends import BatchEnds, Ends, bounds_of

FOLDER = "klog-store"


class Store(Protocol):
    """``key``: the columns that say which row belongs to a row of the stream; one row for each of their values."""

    @property
    def key(self) -> tuple[str, ...]: ...

    def frame(self, batch: Batch) -> Any:
        """The rows as they are for a batch."""
        ...


class LatestValues:
    """A topic whose messages with one key replace each other; a null value removes the key.

    Messages with one key must be in one partition, as producers put them. One query's, in one thread.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        key: str,
        decode: Callable[[Any], Any],
        options: Mapping[str, str],
    ) -> None:
        """``key``: the name of the column with the key. ``decode``: from messages to rows that still have the columns
        ``_key``, ``_at`` and ``_gone``. ``options``: of ``format("klog")``, to connect."""
        self.topic = topic
        self.key = (key,)
        self._bootstrap = bootstrap
        self._decode = decode
        self._options = dict(options)
        self._read: Ends | None = None
        self._rows: Any = None

    def frame(self, batch: Batch) -> Any:
        starts, now = bounds_of(self._bootstrap, self.topic)
        ends = BatchEnds(batch.checkpoint, f"{FOLDER}/{self.topic}", batch.query, self.topic).keep(batch.number, now)
        if ends.topic_id != now.topic_id:
            ends = now  # it was deleted and created again: the old ends say nothing of it
        known = self._read
        if known is None or known.topic_id != ends.topic_id or any(map(int.__gt__, known.partitions, ends.partitions)):
            known, self._rows = Ends(ends.topic_id, ()), None
        if self._rows is None or known != ends:
            begins = [*known.partitions, *starts[len(known.partitions) :]]
            ranges = [
                [self.topic, number, max(begin, start), end]
                for number, (begin, start, end) in enumerate(zip(begins, starts, ends.partitions, strict=False))
                if max(begin, start) < end
            ]
            self._rows = self._refreshed(batch.session, ranges)
            self._read = ends
        return self._rows.where("NOT _gone").drop("_key", "_at", "_gone")

    def _refreshed(self, session: Any, ranges: list[list[Any]]) -> Any:
        from pyspark.sql import Window
        from pyspark.sql import functions as sql

        reader = session.read.format("klog").options(**self._options)
        messages = reader.option("ranges", json.dumps(ranges)).load()
        found = self._decode(messages)
        if self._rows is not None:
            found = self._rows.unionByName(found)
        newest = Window.partitionBy("_key").orderBy(sql.col("_at").desc())
        found = found.withColumn("_nth", sql.row_number().over(newest)).where("_nth = 1").drop("_nth")
        return found.localCheckpoint(eager=True)


class ExportedRows:
    """The rows of an export, as committed when a batch begins: with a batch that is repeated, maybe more of them."""

    def __init__(self, root: str, key: tuple[str, ...]) -> None:
        self.root = root
        self.key = key

    def frame(self, batch: Batch) -> Any:
        from klog.spark.committed import read_export

        return read_export(batch.session, self.root)
