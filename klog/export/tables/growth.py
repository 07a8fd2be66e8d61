"""Columns that later schemas add to a table (`klog.schemas.widening`).

A batch is written by the decoding of the batch before it. If its messages turn out to have schemas that need more
columns, or wider ones, it is written again by a decoding that has them, before it is committed. A schema that no column
can follow changes nothing: those of its messages that cannot be read as the columns are undecodable, and stop nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

from klog.export.tables.commits import schema_of
from klog.protocol.schema_errors import InvalidSchema


def grown(
    decode: dict[str, Any] | None, met: Iterable[int], text_of: Callable[[int], str], *, types_stay: bool = False
) -> dict[str, Any] | None:
    """The decoding that has columns for what schemas ``met`` write; ``decode`` itself where it has, or is fixed.

    ``types_stay``: the table's columns cannot become wider ones, and only get company.
    """
    if decode is None or not decode.get("grows"):
        return decode
    from klog.schemas.widening import widened

    reader = before = decode["reader"]
    for schema_id in sorted(met):
        with contextlib.suppress(InvalidSchema):
            reader = widened(reader, text_of(schema_id), types_stay=types_stay)
    if reader == before:
        return decode
    wider = {**decode, "reader": reader, "reader_id": -1}
    schema_of(wider)  # InvalidSchema where it has no columns
    return wider


def added_columns(before: dict[str, Any] | None, after: dict[str, Any] | None) -> list[str]:
    """The names of columns that are new in the second decoding, or of another type."""
    known = list(schema_of(before))
    return [field.name for field in schema_of(after) if field not in known]
