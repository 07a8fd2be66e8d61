"""Columns that later schemas add to a table (`klog.schemas.widening`).

A batch is written by the decoding of the batch before it. If its messages turn out to have schemas that need more
columns, or wider ones, it is written again by a decoding that has them, before it is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from klog.errors import Refused
from klog.protocol.schema_errors import InvalidSchema


def grown(
    decode: dict[str, Any] | None, met: Iterable[int], schema_of: Callable[[int], str], root: str
) -> dict[str, Any] | None:
    """The decoding that has columns for all that schemas ``met`` write; ``decode`` itself where it has, or is fixed.

    Refused where a column's type cannot become what is written.
    """
    if decode is None or not decode.get("grows"):
        return decode
    from klog.schemas.decoding.decoder import Decoding
    from klog.schemas.widening import widened

    reader = before = decode["reader"]
    for schema_id in sorted(met):
        try:
            reader = widened(reader, schema_of(schema_id))
        except InvalidSchema as error:
            raise Refused(
                f"{root} cannot have the messages of schema {schema_id}: {error.message}",
                hint="export to another root, with --from where this one ends",
            ) from None
    if reader == before:
        return decode
    wider = {**decode, "reader": reader, "reader_id": -1}
    Decoding.from_json(wider).check()
    return wider


def added_columns(before: dict[str, Any] | None, after: dict[str, Any] | None) -> list[str]:
    """The names of columns that are new in the second decoding, or of another type."""
    import pyarrow as pa

    from klog.schemas.decoding.decoder import Decoding

    schemas = [Decoding.from_json(one).typed_schema(pa.schema([])) for one in (before, after) if one is not None]
    return [field.name for field in schemas[-1] if field not in list(schemas[0])]
