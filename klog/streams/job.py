"""What `klog stream run` runs: inputs, a program and a sink, made from nothing at each start."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from klog.config.properties import read_text
from klog.errors import UsageError
from klog.export.run import TableChoice
from klog.names import check_topic_name
from klog.spark.running.session import SparkTarget
from klog.streams.batch import Sink
from klog.streams.program import Input, Late, from_python, from_sql, open_inputs
from klog.streams.stream import Mode, Stream
from klog.streams.streams import Streams

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"


@dataclass(frozen=True)
class Program:
    """One of a file of Python, and a query in SQL."""

    path: Path | None = None
    sql: str | None = None

    @classmethod
    def of(cls, path: Path | None, sql: str | None) -> Program:
        """By the words of a command. UsageError for none, for two, and for a file of another kind."""
        if (path is None) == (sql is None):
            raise UsageError(
                "a file or -e SQL says what to compute" if path is None else "a file and -e exclude each other"
            )
        if path is None:
            return cls(sql=sql)
        if path.suffix == ".py":
            return cls(path=path)
        if path.suffix == ".sql":
            try:
                return cls(path=path, sql=read_text(path))
            except (OSError, UnicodeDecodeError) as error:
                raise UsageError(f"{path} cannot be read: {error}") from None
        raise UsageError(f"{path} is neither .py nor .sql")

    def __str__(self) -> str:
        return str(self.path) if self.path is not None else str(self.sql)


def sink_of(servers: str, text: str, key: tuple[str, ...], table: TableChoice | None = None) -> Sink:
    """The sink of ``--to``; ``table``: what an export's root becomes. UsageError for another text."""
    kind, colon, name = text.partition(":")
    if kind == "topic" and colon:
        from klog.streams.topic_sink import TopicSink

        check_topic_name(name)
        if table is not None:
            raise UsageError("--table is for an export", hint=f"--to export:ROOT --table {table.format}")
        return TopicSink(servers, name, key=key)
    if kind == "export" and name:
        from klog.streams.export_sink import ExportSink

        if key:
            raise UsageError("--key is for a topic")
        return ExportSink(name, table)
    raise UsageError(f"--to {text}: where to?", hint="topic:NAME or export:ROOT")


@dataclass(frozen=True)
class Job:
    servers: str
    inputs: tuple[Input, ...]
    program: Program
    sink: Sink
    checkpoint: str
    where: SparkTarget
    name: str
    mode: Mode = "append"
    late: Late | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    """Of ``format("klog")``."""
    every: str | None = None
    once: bool = False

    def start(self) -> Any:
        """Spark's query, started; in the session that runs, or a new one."""
        session = with_few_partitions(self.where).session()
        streams = Streams(self.servers, session)
        inputs = open_inputs(streams, self.inputs, self.options, self.late)
        return self._stream(streams, inputs).start(
            self.sink,
            self.checkpoint,
            every=self.every,
            available_now=self.once,
            name=self.name,
        )

    def _stream(self, streams: Streams, inputs: Mapping[str, Stream]) -> Stream:
        if self.program.sql is not None:
            return from_sql(self.program.sql, streams, inputs, self.mode)
        assert self.program.path is not None
        return from_python(self.program.path, streams, inputs)


def with_few_partitions(where: SparkTarget) -> SparkTarget:
    """Spark divides what it shuffles in 200 parts, which on one machine is work for nothing. A checkpoint keeps the
    number that it was begun with."""
    if where.master is not None and not where.master.startswith("local"):
        return where
    return replace(where, settings={SHUFFLE_PARTITIONS: str(os.cpu_count() or 2), **where.settings})
