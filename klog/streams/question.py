"""`klog sql`: one question in SQL to topics and exports, by Spark.

Each topic that the text names is a view: the columns of the message, with key and value as text, or what its form
makes of the value. Each export that is named by the command is a view too.

What is read of a topic: where the plan that Spark has made of the text reads it at one place only, with a filter right
above it, the text is asked again of a view that leaves out what the filter does not want (`klog.spark.narrowing`).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from klog.client.raw_fetch import RawCluster
from klog.errors import UsageError
from klog.spark.export import translating
from klog.spark.narrowing import readings_of
from klog.streams.program import Input
from klog.streams.streams import Form, Streams

_WORD = re.compile(r"`([^`]+)`|([A-Za-z_][A-Za-z0-9_]*)")
_STRING = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)


def ask(
    streams: Streams, text: str, inputs: Sequence[Input], exports: Mapping[str, str], limit: int | None = None
) -> tuple[type, Iterator[Any]]:
    """The type of the rows, and the rows, as they come. UsageError with what Spark says of the text."""
    from pyspark.errors import AnalysisException, ParseException

    from klog.spark.committed import read_export

    named = {one.name: one for one in inputs}
    for topic in _topics_in(streams.bootstrap, text):
        named.setdefault(topic.name, topic)
    for name in exports:
        if name in named:
            raise UsageError(f"--export {name}: there is a topic of that name", hint="give the export another one")
    with translating():
        session = streams.session
        for name, one in named.items():
            streams.frame(one.topic, one.form).createOrReplaceTempView(name)
        for name, root in exports.items():
            read_export(session, root).createOrReplaceTempView(name)
        try:
            frame = session.sql(text)
            narrowed = _narrowed(streams, frame, named)
            frame = session.sql(text) if narrowed else frame
        except (AnalysisException, ParseException) as error:
            raise UsageError(_said(str(error)), hint=_hint(str(error), named, exports)) from None
        if limit is not None:
            frame = frame.limit(limit)
        return row_type(frame), _rows(frame)


def _topics_in(bootstrap: str, text: str) -> list[Input]:
    """The topics of the cluster that the text names anywhere outside of its strings: a view more costs nothing."""
    words = {found[1] or found[2] for found in _WORD.finditer(_STRING.sub(" ", text))}
    with RawCluster(bootstrap) as cluster:
        there = [Input(topic, Form(text=True)) for topic in sorted(cluster.describe())]
    return [one for one in there if one.name in words]


def _narrowed(streams: Streams, frame: Any, named: Mapping[str, Input]) -> bool:
    """Make the views again that need not read everything; whether there is one."""
    found = False
    for topic, reading in readings_of(frame).items():
        views = [one for one in named.values() if one.topic == topic]
        if not reading.bounds.is_everything and len(views) == 1:
            left = streams.frame(topic, views[0].form, {"ranges": reading.left()})
            left.createOrReplaceTempView(views[0].name)
            found = True
    return found


# --- Rows ---


def row_type(frame: Any) -> type:
    """A dataclass with the columns of a frame, under their own names."""
    fields = []
    for number, column in enumerate(frame.schema.fields):
        kind = _KINDS.get(column.dataType.typeName().partition("(")[0], Any)
        hint = kind | None if isinstance(kind, type) else kind
        fields.append((f"column_{number}", hint, dataclasses.field(metadata={"name": column.name})))
    return dataclasses.make_dataclass("SqlRow", fields, frozen=True)


_KINDS: dict[str, Any] = {
    "boolean": bool,
    "byte": int,
    "short": int,
    "integer": int,
    "long": int,
    "float": float,
    "double": float,
    "string": str,
    "timestamp": datetime,
}


def _rows(frame: Any) -> Iterator[Any]:
    kind = row_type(frame)
    with translating():
        for row in frame.toLocalIterator():
            yield kind(*map(shown, row))


def shown(value: Any) -> Any:
    """A value of a row as the renderer takes it: structs as objects, times with their zone, bytes as text."""
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    if hasattr(value, "asDict"):
        return {name: shown(one) for name, one in value.asDict().items()}
    if isinstance(value, dict):
        return {str(name): shown(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [shown(one) for one in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)  # decimals, dates, intervals


def _said(text: str) -> str:
    """Spark's first lines, without its plan and its link to itself."""
    first = text.partition("SQLSTATE")[0].strip().rstrip(".;")
    return " ".join(re.sub(r"^\[[A-Z_.]+\]\s*", "", first).split())


def _hint(text: str, named: Mapping[str, Input], exports: Mapping[str, str]) -> str | None:
    if "TABLE_OR_VIEW_NOT_FOUND" not in text:
        return None
    known = ", ".join([*named, *exports]) or "none of the topics"
    return f"the text names {known}; klog topic list, or --export NAME=ROOT"
