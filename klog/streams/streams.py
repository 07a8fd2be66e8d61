"""Where a program with streams begins: a cluster, and a Spark session."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from klog.client.servers import librdkafka_servers
from klog.errors import UsageError
from klog.streams.latest import ExportedRows, LatestValues
from klog.streams.stream import Stream

if TYPE_CHECKING:
    from klog.spark.running.session import SparkTarget

Bad = Literal["fail", "null"]

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"

MESSAGE = ("key", "topic", "partition", "offset", "timestamp")
"""Of a message's columns, those that decoded rows keep. Where a field has such a name, the message's is
``message_NAME``."""


@dataclass(frozen=True)
class Form:
    """How values are read: as they are (bytes), as text, as JSON or as Avro by schema id.

    ``json``: a schema in Spark's words: ``user string, at timestamp``. ``avro``: ``True`` for the newest schema of the
    subject ``<topic>-value``, or the id of the schema to read as. ``bad``: a value that cannot be read ends the query,
    or has null in all its fields.
    """

    text: bool = False
    json: str | None = None
    avro: bool | int = False
    bad: Bad = "fail"

    def __post_init__(self) -> None:
        given = [name for name in ("text", "json", "avro") if getattr(self, name) not in (False, None)]
        if len(given) > 1:
            raise UsageError(f"{' and '.join(given)} exclude each other")
        if self.bad not in ("fail", "null"):
            raise UsageError(f'bad: "fail" or "null", not {self.bad!r}')


def with_few_partitions(where: SparkTarget) -> SparkTarget:
    """Spark divides what it shuffles in 200 parts, which on one machine is work for nothing. A checkpoint keeps the
    number that it was begun with."""
    if where.master is not None and not where.master.startswith("local"):
        return where
    return replace(where, settings={SHUFFLE_PARTITIONS: str(os.cpu_count() or 2), **where.settings})


@dataclass(frozen=True)
class Streams:
    """Streams of one cluster. ``spark``: a session; if None, the running one, or one on this machine's cores."""

    bootstrap: str
    spark: Any = None
    options: Mapping[str, str] = field(default_factory=dict)
    """Of ``format("klog")``, for every topic."""

    @property
    def session(self) -> Any:
        from klog.spark.running.session import start_session
        from klog.spark.source import KlogDataSource

        if self.spark is None:
            object.__setattr__(self, "spark", start_session())
        self.spark.dataSource.register(KlogDataSource)
        return self.spark

    def topic(
        self,
        *topics: str,
        text: bool = False,
        json: str | None = None,
        avro: bool | int = False,
        bad: Bad = "fail",
        options: Mapping[str, str] | None = None,
    ) -> Stream:
        """The messages of topics, from their start on unless ``options`` say otherwise (those of ``format("klog")``).

        Without a form: key and value as bytes, and the other columns of ``format("klog")``. With one: the fields of
        the value, and key (as text), topic, partition, offset and timestamp of the message.
        """
        if not topics:
            raise UsageError("no topic is named")
        form = Form(text, json, avro, bad)
        given = {"startingOffsets": "earliest", **self.options, **self._servers(), **(options or {})}
        frame = self.session.readStream.format("klog").options(**given).option("subscribe", ",".join(topics)).load()
        return Stream(self._decoded(frame, form, topics), servers=self.bootstrap)

    def latest(
        self,
        topic: str,
        key: str,
        *,
        text: bool = False,
        json: str | None = None,
        avro: bool | int = False,
        bad: Bad = "fail",
    ) -> LatestValues:
        """A keyed topic as its latest value for each key, for `Stream.enrich`. ``key``: what to call the column."""
        form = Form(text, json, avro, bad)
        options = {**self.options, **self._servers()}
        return LatestValues(self.bootstrap, topic, key, partial(self._latest_rows, topic, key, form), options)

    def exported(self, root: str, *key: str) -> ExportedRows:
        """The rows of an export, which have one for each value of the columns ``key``, for `Stream.enrich`."""
        return ExportedRows(root, key)

    def frame(self, topic: str, form: Form | None = None, options: Mapping[str, str] | None = None) -> Any:
        """The messages of a topic as a DataFrame to query once, with the columns that `topic` names."""
        given = {**self.options, **self._servers(), **(options or {})}
        frame = self.session.read.format("klog").options(**given).option("subscribe", topic).load()
        return self._decoded(frame, form or Form(), (topic,))

    def _servers(self) -> dict[str, str]:
        return {f"kafka.{name}": value for name, value in librdkafka_servers(self.bootstrap).items()}

    def _latest_rows(self, topic: str, key: str, form: Form, messages: Any) -> Any:
        from pyspark.sql import functions as sql

        marked = messages.where("key IS NOT NULL").selectExpr(
            "*", "key AS _key", "offset AS _at", "value IS NULL AS _gone"
        )
        decoded = self._decoded(marked, form, (topic,), kept=("_key", "_at", "_gone"))
        names = [name for name in decoded.columns if name not in _own(decoded.columns)]
        return decoded.select(*names).withColumn(key, sql.col("_key").cast("string"))

    def _decoded(self, frame: Any, form: Form, topics: tuple[str, ...], kept: tuple[str, ...] = ()) -> Any:
        from pyspark.sql import functions as sql

        if form.text:
            return frame.select(sql.col("value").cast("string"), sql.col("key").cast("string"), *MESSAGE[1:], *kept)
        if form.json is not None:
            options = {"mode": "FAILFAST" if form.bad == "fail" else "PERMISSIVE"}
            record = sql.from_json(sql.col("value").cast("string"), form.json, options).alias("record")
            return _flat(frame.select(*MESSAGE, *kept, record), kept)
        if form.avro is not False:
            from klog.streams.avro import with_records

            reader = None if form.avro is True else str(form.avro)
            return _flat(with_records(frame, self.bootstrap, topics, reader, form.bad, (*MESSAGE, *kept)), kept)
        return frame


def _flat(frame: Any, kept: tuple[str, ...]) -> Any:
    """The fields of ``record``, and the message's own columns behind them."""
    from pyspark.sql import functions as sql
    from pyspark.sql.types import StructType

    type_ = frame.schema["record"].dataType
    fields = type_.names if isinstance(type_, StructType) else []
    shown = [sql.col(f"record.`{name}`").alias(name) for name in fields] or [sql.col("record").alias("value")]
    own = [
        (sql.col(name).cast("string") if name == "key" else sql.col(name)).alias(
            f"message_{name}" if name in fields else name
        )
        for name in MESSAGE
    ]
    return frame.select(*shown, *own, *kept)


def _own(columns: list[str]) -> set[str]:
    """Those of a decoded row that are the message's, and not fields of its value."""
    return {f"message_{name}" if f"message_{name}" in columns else name for name in MESSAGE}
