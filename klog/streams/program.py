"""What `klog stream run` is given: inputs, a sink, and a program, which is a file of Python with a function
``stream``, or one query in SQL.

A program in Python:

    def stream(views):                                the parameters are named as the topics
        return views.window("1 minute").count("country")

``streams`` as a parameter is the `Streams` of the cluster, for stores and for topics beyond those of ``--from``. A name
of a topic that Python or SQL cannot have has ``_`` for each dot and hyphen.
"""

from __future__ import annotations

import inspect
import re
import runpy
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from klog.config.properties import read_text
from klog.errors import KlogError, NoSuchThing, UsageError
from klog.export.run import TableChoice
from klog.names import check_topic_name, name_in_program
from klog.streams.batch import Sink
from klog.streams.stream import Mode, Stream
from klog.streams.streams import Form, Streams

_FORMS = re.compile(r"(text|avro|avro=\d+|json=.+)", re.DOTALL)


@dataclass(frozen=True)
class Input:
    """A topic as a program sees it: ``views``, ``views:text``, ``views:avro``, ``views:json=country string``."""

    topic: str
    form: Form = Form()

    @classmethod
    def parse(cls, text: str) -> Input:
        topic, colon, form = text.partition(":")
        check_topic_name(topic)
        if colon and _FORMS.fullmatch(form) is None:
            raise UsageError(
                f"--from {text}: the form {form!r} is not known",
                hint="text, avro, avro=SCHEMA_ID or json=COLUMNS, like 'views:json=country string, at timestamp'",
            )
        kind, _, detail = form.partition("=")
        if kind == "json":
            return cls(topic, Form(json=detail))
        if kind == "avro":
            return cls(topic, Form(avro=int(detail) if detail else True))
        return cls(topic, Form(text=kind == "text"))

    @property
    def name(self) -> str:
        """In Python and in SQL."""
        return name_in_program(self.topic)


@dataclass(frozen=True)
class Late:
    """How rows of the inputs are late, for SQL: ``by`` behind the newest of the column ``on``."""

    by: str
    on: str = "timestamp"


def check_names(inputs: tuple[Input, ...]) -> None:
    """UsageError where two topics have one name in the program."""
    seen: dict[str, str] = {}
    for one in inputs:
        other = seen.setdefault(one.name, one.topic)
        if other != one.topic or [each.topic for each in inputs].count(one.topic) > 1:
            raise UsageError(f"--from: {other} and {one.topic} would both be called {one.name}")


def open_inputs(
    streams: Streams, inputs: tuple[Input, ...], options: Mapping[str, str], late: Late | None = None
) -> dict[str, Stream]:
    """The inputs by their names in the program. ``options``: of ``format("klog")``."""
    check_names(inputs)
    found = {}
    for one in inputs:
        stream = streams.topic(one.topic, **asdict(one.form), options=options)
        if late is not None:
            stream = stream.then(lambda frame: frame.withWatermark(late.on, late.by))
        found[one.name] = stream
    return found


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

    def stream(self, streams: Streams, inputs: Mapping[str, Stream], mode: Mode = "append") -> Stream:
        """What it computes from the inputs, which are by name. Errors of `from_python` and `from_sql`."""
        if self.sql is not None:
            return from_sql(self.sql, streams, inputs, mode)
        assert self.path is not None
        return from_python(self.path, streams, inputs)


def from_python(path: Path, streams: Streams, inputs: Mapping[str, Stream]) -> Stream:
    """The stream that a file's function returns; a DataFrame counts as one.

    NoSuchThing without the file; UsageError where it cannot be run, or has no such function.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    if not path.is_file():
        raise NoSuchThing(f"{path}: no such file")
    try:
        found = runpy.run_path(str(path))
    except KlogError:
        raise
    except Exception as error:
        raise UsageError(f"{path} cannot be run: {type(error).__name__}: {error}") from error
    function = found.get("stream")
    if not callable(function):
        raise UsageError(f"{path} has no function named stream", hint="def stream(views): return views.window(...)...")
    given: dict[str, Any] = {**inputs, "streams": streams}
    wanted = list(inspect.signature(function).parameters)
    unknown = [name for name in wanted if name not in given]
    if unknown:
        raise UsageError(
            f"{path}: stream({', '.join(wanted)}): {unknown[0]} is not a topic of --from (there are"
            f" {', '.join(inputs) or 'none'})",
            hint=f"--from {unknown[0]}",
        )
    try:
        result = function(**{name: given[name] for name in wanted})
    except (KlogError, PySparkException, Py4JError, OSError, EOFError):  # of Spark, or of its JVM that has ended
        raise
    except Exception as error:
        raise UsageError(f"{path}: stream() failed: {type(error).__name__}: {error}") from error
    if isinstance(result, Stream):
        return result
    if hasattr(result, "isStreaming"):
        return Stream(result, servers=streams.bootstrap)
    raise UsageError(f"{path}: stream() returns {type(result).__name__}, not a Stream")


def from_sql(text: str, streams: Streams, inputs: Mapping[str, Stream], mode: Mode = "append") -> Stream:
    """The stream that a query in SQL is; its tables are the inputs. UsageError with what Spark says of the text."""
    from pyspark.errors import AnalysisException, ParseException

    for name, stream in inputs.items():
        stream.frame.createOrReplaceTempView(name)
    try:
        frame = streams.session.sql(text.strip().rstrip(";"))
    except (AnalysisException, ParseException) as error:
        raise UsageError(str(error).partition(";\n'")[0].strip()) from None
    if not frame.isStreaming:
        raise UsageError("the query reads no topic of --from, so it is not a stream")
    return Stream(frame, mode=mode, servers=streams.bootstrap)
