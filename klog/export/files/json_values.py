"""Arrow columns as what JSON has: for typed columns, whose values Python's own types do not all hold.

Structs and maps are objects, bytes base64, decimals texts. A time is a text in ISO 8601; one beyond the years that it
has is its number as a text (days, or microseconds since 1970). What JSON has no number for (NaN, infinities) is null.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
DAY_MIN: Final = -719_162
DAY_MAX: Final = 2_932_896
"""0001-01-01 and 9999-12-31."""
_DAY_US: Final = 86_400_000_000


def json_values(column: pa.Array) -> list[Any]:
    """Each value as `json` writes it."""
    found = _values(column)
    if not column.null_count:
        return found
    return [one if is_there else None for one, is_there in zip(found, column.is_valid().to_pylist(), strict=True)]


def _values(column: pa.Array) -> list[Any]:
    """As `json_values`; anything where a value is null."""
    type_ = column.type
    if pa.types.is_struct(type_):
        if not type_.num_fields:
            return [{}] * len(column)
        parts = [json_values(part) for part in column.flatten()]
        names = [field.name for field in type_]
        return [dict(zip(names, row, strict=True)) for row in zip(*parts, strict=True)]
    if pa.types.is_map(type_):
        bounds = column.offsets.to_pylist()
        keys, items = column.keys.to_pylist(), json_values(column.items)
        return [dict(zip(keys[start:end], items[start:end], strict=True)) for start, end in pairwise(bounds)]
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        bounds, items = column.offsets.to_pylist(), json_values(column.values)
        return [items[start:end] for start, end in pairwise(bounds)]
    if pa.types.is_timestamp(type_):
        micros = column.cast(pa.timestamp("us", type_.tz)).cast(pa.int64())
        return _each(micros, lambda one: _time(one, type_.tz is not None))
    if pa.types.is_date32(type_):
        return _each(column.cast(pa.int32()), _day)
    if pa.types.is_floating(type_):
        return _each(column, lambda one: one if math.isfinite(one) else None)
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        return _each(column, lambda one: b64encode(one).decode())
    if pa.types.is_decimal(type_):
        return _each(column, str)
    return list(column.to_pylist())


def _each(column: pa.Array, shown: Callable[[Any], Any]) -> list[Any]:
    return [None if one is None else shown(one) for one in column.to_pylist()]


def _time(micros: int, is_utc: bool) -> str:
    if not DAY_MIN * _DAY_US <= micros < (DAY_MAX + 1) * _DAY_US:
        return str(micros)
    text = (EPOCH + timedelta(microseconds=micros)).isoformat()
    return text if is_utc else text.removesuffix("+00:00")


def _day(day: int) -> str:
    return (EPOCH + timedelta(days=day)).date().isoformat() if DAY_MIN <= day <= DAY_MAX else str(day)
