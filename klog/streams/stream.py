"""A stream of rows and what can be computed on it: the paper's "windowed counting, joins of streams with each other and
with a store" (section 6), on Spark's Structured Streaming.

A `Stream` is a frame of Spark's and the steps that each of its batches goes through after it. What Spark can do on a
stream itself (filters, windows, joins of streams) becomes part of the frame. What it cannot (ranks, a store that is
read again for each batch) is a step. Every method returns another stream; `to_topic` and `to_export` start a query.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from klog.errors import UsageError
from klog.export.stores import open_store
from klog.spark.running import hadoop
from klog.streams.batch import Batch, Sink, Step

if TYPE_CHECKING:
    from klog.streams.latest import Store

How = Literal["inner", "left", "right", "full"]
Mode = Literal["append", "update"]

_INTERVAL = re.compile(r"\s*\d+(\.\d+)?\s+[a-z]+(\s+\d+\s+[a-z]+)*\s*", re.IGNORECASE)
NO_DELAY = "0 seconds"

hadoop.register_stores()


@dataclass(frozen=True)
class Stream:
    """``frame``: a DataFrame of ``readStream``, to use with all of Spark; `then` puts it back."""

    frame: Any
    steps: tuple[Step, ...] = ()
    mode: Mode = "append"
    """Spark's output mode: a window once, when it is complete, or each time that it has changed."""
    servers: str | None = None
    """Of the cluster whose topics `to_topic` names."""

    # --- Rows ---

    def then(self, change: Callable[[Any], Any]) -> Stream:
        """``change`` of the frame; behind a step, of the frame of each batch."""
        if self.steps:
            return self._with_step(lambda frame, batch: change(frame))
        return replace(self, frame=change(self.frame))

    def where(self, condition: str) -> Stream:
        """The rows for which a condition in SQL is true."""
        return self.then(lambda frame: frame.where(condition))

    def select(self, *expressions: str) -> Stream:
        """Columns by expressions of SQL, like ``upper(country) AS country``."""
        return self.then(lambda frame: frame.selectExpr(*expressions))

    def distinct(self, *columns: str, on: str = "timestamp", within: str) -> Stream:
        """The first row for each value of the columns: ``topic, partition, offset`` where none is named.

        Values are remembered for ``within`` of the time in ``on``. Which of two rows of one batch is first is not said.
        """
        _check_interval("within", within)
        frame = self._streamed("distinct").withWatermark(on, within)
        return replace(
            self, frame=frame.dropDuplicatesWithinWatermark(list(columns or ("topic", "partition", "offset")))
        )

    # --- Windows ---

    def window(self, size: str, *, every: str | None = None, on: str = "timestamp", late: str = NO_DELAY) -> Windows:
        """Windows of ``size`` (``1 minute``) of the time in ``on``; with ``every``, one begins so often: they overlap.

        ``late``: how long a row may come behind the newest one and still count. A window is complete, and its result
        written, when a row has come that is ``late`` behind its end. Rows that come later are dropped and counted
        (`Progress.late`).
        """
        _check_interval("size", size)
        if every is not None:
            _check_interval("every", every)
        return self._windows(lambda sql: sql.window(on, size, every), on, late)

    def session(self, gap: str, *, on: str = "timestamp", late: str = NO_DELAY) -> Windows:
        """Windows that end when no row of the same group has come for ``gap``. ``late`` as in `window`."""
        _check_interval("gap", gap)
        return self._windows(lambda sql: sql.session_window(on, gap), on, late)

    def _windows(self, column: Callable[[Any], Any], on: str, late: str) -> Windows:
        _check_interval("late", late)
        return Windows(replace(self, frame=self._streamed("windows").withWatermark(on, late)), column)

    # --- Joins ---

    def join(
        self,
        other: Stream,
        *columns: str,
        within: str,
        on: str = "timestamp",
        other_on: str | None = None,
        how: How = "inner",
        late: str = NO_DELAY,
    ) -> Stream:
        """Pairs of rows with equal ``columns`` whose times (``on``, and ``other_on`` of the other stream) are at most
        ``within`` apart.

        The result has the columns once, and those of both streams; where both have a name, the other's is
        ``other_NAME``. A row waits in the state for ``within`` and ``late``. Of an outer join, rows without a partner
        come when they have waited so long.
        """
        from pyspark.sql import functions as sql

        _check_interval("within", within)
        _check_interval("late", late)
        if not columns:
            raise UsageError("join: no column is named that both streams have")
        left, right = self._streamed("join"), other._streamed("join")
        theirs = on if other_on is None else other_on
        for name in (*columns, on):
            _check_column(left, name, "the first stream")
        for name in (*columns, theirs):
            _check_column(right, name, "the other stream")
        renamed = {name: f"other_{name}" for name in right.columns if name in left.columns}
        left = left.withWatermark(on, late).alias("l")
        right = right.withWatermark(theirs, late).withColumnsRenamed(renamed).alias("r")
        here, there = sql.col(f"l.{on}"), sql.col(f"r.{renamed.get(theirs, theirs)}")
        span = sql.expr(f"INTERVAL {within}")
        condition = (there >= here - span) & (there <= here + span)
        for name in columns:
            condition &= sql.col(f"l.{name}") == sql.col(f"r.{renamed[name]}")
        joined = left.join(right, condition, how)
        if how in ("right", "full"):
            for name in columns:
                joined = joined.withColumn(name, sql.coalesce(sql.col(name), sql.col(renamed[name])))
        return replace(self, frame=joined.drop(*(renamed[name] for name in columns)))

    def enrich(self, store: Store, *columns: str, how: Literal["inner", "left"] = "left") -> Stream:
        """Each row with the columns of its row in ``store``, which has one for each value of the columns, and is read
        again for each batch. Names that both have are ``store_NAME``."""
        names = columns or store.key
        if not names:
            raise UsageError("enrich: no column is named that the stream and the store have")

        def step(frame: Any, batch: Batch) -> Any:
            found = store.frame(batch)
            for name in names:
                _check_column(frame, name, "the stream")
                _check_column(found, name, "the store")
            renamed = {name: f"store_{name}" for name in found.columns if name in frame.columns and name not in names}
            return frame.join(found.withColumnsRenamed(renamed), list(names), how)

        return self._with_step(step)

    # --- Ranks ---

    def top(self, count: int, *, by: str, per: Sequence[str] = ("window_start", "window_end")) -> Stream:
        """The ``count`` rows with the largest ``by`` for each value of the columns ``per``, with their ``rank`` (1 the
        first). Of equal ones, those whose other columns come first.

        Among the rows of one batch: complete windows come whole, so this is for results of `Windows` in mode append.
        """
        if count < 1:
            raise UsageError(f"top: at least 1 row, not {count}")

        def step(frame: Any, batch: Batch) -> Any:
            from pyspark.sql import Window
            from pyspark.sql import functions as sql

            for name in (by, *per):
                _check_column(frame, name, "the stream")
            others = [sql.col(name) for name in frame.columns if name != by and name not in per]
            order = Window.partitionBy(*per).orderBy(sql.col(by).desc(), *others)
            return frame.withColumn("rank", sql.row_number().over(order)).where(sql.col("rank") <= count)

        return self._with_step(step)

    # --- Results ---

    def to_topic(
        self,
        topic: str,
        *,
        checkpoint: str,
        key: str | Sequence[str] = (),
        order_by: Sequence[str] = (),
        servers: str | None = None,
        every: str | None = None,
        available_now: bool = False,
        name: str | None = None,
    ) -> Any:
        """Start a query that writes each row to a topic, once (`klog.streams.topic_sink`): Spark's StreamingQuery.

        ``key``: the columns that are the message's key; all columns are its value, as a JSON object. Rows that have a
        column ``value`` are written by their columns key, value, partition, timestamp and headers. ``checkpoint``: a
        folder for this query alone, a path or a URL; a query that is started again continues from there. ``every``:
        the interval between batches, like ``10 seconds``. ``available_now``: end behind what is there now.
        """
        from klog.streams.topic_sink import TopicSink

        servers = servers or self.servers
        if servers is None:
            raise UsageError("to_topic: the cluster is not known", hint='servers="host:9092"')
        sink = TopicSink(servers, topic, key=(key,) if isinstance(key, str) else key, order_by=order_by)
        return self.start(sink, checkpoint, every=every, available_now=available_now, name=name)

    def to_export(
        self,
        root: str,
        *,
        checkpoint: str,
        every: str | None = None,
        available_now: bool = False,
        name: str | None = None,
        table: Literal["iceberg", "delta"] | None = None,
    ) -> Any:
        """Start a query that commits each batch of rows to an export, once (`klog.streams.export_sink`).

        ``root``: a folder or a URL, for this query alone. ``table``: make it one of Iceberg or Delta Lake. The others
        as in `to_topic`.
        """
        from klog.export.run import TableChoice
        from klog.streams.export_sink import ExportSink

        sink = ExportSink(root, None if table is None else TableChoice(table))
        return self.start(sink, checkpoint, every=every, available_now=available_now, name=name)

    def start(
        self,
        sink: Sink,
        checkpoint: str,
        *,
        every: str | None = None,
        available_now: bool = False,
        name: str | None = None,
    ) -> Any:
        """Start a query with any sink; the others as in `to_topic`."""
        if not getattr(self.frame, "isStreaming", False):
            raise UsageError("the frame is not a stream", hint="begin with Streams.topic, or spark.readStream")
        store = open_store(checkpoint)
        sink.check(None if self.steps else self.frame)
        writer = self.frame.writeStream.outputMode(self.mode).option("checkpointLocation", store.location(""))
        if name is not None:
            writer = writer.queryName(name)
        if available_now:
            writer = writer.trigger(availableNow=True)
        elif every is not None:
            writer = writer.trigger(processingTime=every)
        steps = self.steps

        def write(frame: Any, number: int) -> None:
            session = frame.sparkSession
            query = session.sparkContext.getLocalProperty("sql.streaming.queryId")
            batch = Batch(session, query, number, store)
            for step in steps:
                frame = step(frame, batch)
            sink.write(frame, batch)

        return writer.foreachBatch(write).start()

    # --- Inside ---

    def _with_step(self, step: Step) -> Stream:
        return replace(self, steps=(*self.steps, step))

    def _streamed(self, what: str) -> Any:
        if self.steps:
            raise UsageError(
                f"{what}: not behind `enrich` or `top`, which see one batch at a time",
                hint="write the result to a topic, and begin another stream there",
            )
        return self.frame


@dataclass(frozen=True)
class Windows:
    """A stream divided into windows; its results have the columns window_start, window_end, and those counted by."""

    _stream: Stream
    _column: Callable[[Any], Any]
    """By Spark's functions."""

    def early(self) -> Windows:
        """Write the result of a window each time that it has changed, and not once when it is complete.

        The later one counts, so the target is a keyed topic: the key must have the window's start.
        """
        return replace(self, _stream=replace(self._stream, mode="update"))

    def count(self, *by: str) -> Stream:
        """The number of rows (``count``) for each window and value of the columns."""
        return self.aggregate(*by, count="count(*)")

    def aggregate(self, *by: str, **results: str) -> Stream:
        """Results by their names, as expressions of SQL: ``total="sum(amount)", users="approx_count_distinct(user)"``.

        Sums of decimals and whole numbers are the same in a repeated batch; of doubles, the last digit may differ.
        """
        from pyspark.sql import functions as sql

        if not results:
            raise UsageError('aggregate: no result is asked for, like total="sum(amount)"')
        for name in by:
            _check_column(self._stream.frame, name, "the stream")
        grouped = self._stream.frame.groupBy(self._column(sql).alias("_window"), *by)
        found = grouped.agg(*(sql.expr(text).alias(name) for name, text in results.items()))
        bounds = (sql.col(f"_window.{end}").alias(f"window_{end}") for end in ("start", "end"))
        return replace(self._stream, frame=found.select(*bounds, *by, *results))


def _check_interval(name: str, text: str) -> None:
    if _INTERVAL.fullmatch(text) is None:
        raise UsageError(f'{name}: {text!r} is not a duration, like "10 minutes" or "1 hour"')


def _check_column(frame: Any, name: str, whose: str) -> None:
    if name not in frame.columns:
        raise UsageError(f"{whose} has no column {name} (it has {', '.join(frame.columns)})")
