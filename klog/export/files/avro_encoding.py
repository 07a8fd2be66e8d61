"""Arrow rows as Avro's binary encoding (Avro 1.12, "Binary Encoding"), all rows of a batch at once.

Strategy: each column becomes an array of encoded pieces, and Arrow joins the pieces of a row; the joined array's data
is, as it lies, the records one behind the other. Numbers are variable in length: numpy writes their first bytes for all
rows, then their second ones.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from klog.errors import UsageError
from klog.record.records import varint

NEVER_NULL: Final = frozenset({"topic", "partition", "offset", "timestamp", "timestampType", "headers"})
"""Columns of every message; all others may be null."""

_DECIMAL_BYTES: Final = 16
_NULL, _THERE = 0x00, 0x02
"""The branches of a union of null and something."""

Ints = NDArray[np.int64]


# --- Schemas ---


def avro_schema(schema: pa.Schema) -> dict[str, Any]:
    """The schema of the records as which batches of this one are written."""
    return _record_schema("Message", "klog", list(schema), never_null=NEVER_NULL)


def _record_schema(
    name: str, path: str, fields: list[pa.Field], never_null: frozenset[str] = frozenset()
) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "namespace": path,
        "fields": [
            {"name": one.name, "type": _avro_type(one.type, f"{path}.{name}", one.name)}
            if one.name in never_null
            else {"name": one.name, "type": ["null", _avro_type(one.type, f"{path}.{name}", one.name)], "default": None}
            for one in fields
        ],
    }


def _avro_type(type_: pa.DataType, path: str, name: str) -> Any:
    """``path`` and ``name`` name the records inside."""
    if pa.types.is_boolean(type_):
        return "boolean"
    if pa.types.is_date32(type_):
        return {"type": "int", "logicalType": "date"}
    if pa.types.is_timestamp(type_):
        return {"type": "long", "logicalType": "timestamp-micros"}
    if pa.types.is_integer(type_):
        return "int" if type_.bit_width <= 32 and type_ != pa.uint32() else "long"
    if pa.types.is_float32(type_):
        return "float"
    if pa.types.is_floating(type_):
        return "double"
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return "string"
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        return "bytes"
    if pa.types.is_decimal128(type_):
        fixed = {"type": "fixed", "name": f"{path}.{name}_number", "size": _DECIMAL_BYTES}
        return fixed | {"logicalType": "decimal", "precision": type_.precision, "scale": type_.scale}
    if pa.types.is_map(type_):
        return {"type": "map", "values": ["null", _avro_type(type_.item_type, path, f"{name}_value")]}
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        if path == "klog.Message" and name == "headers":
            header = _record_schema("Header", "klog", list(type_.value_type), frozenset({"key"}))
            return {"type": "array", "items": header}
        return {"type": "array", "items": ["null", _avro_type(type_.value_type, path, f"{name}_item")]}
    if pa.types.is_struct(type_):
        return _record_schema(name, path, list(type_))
    raise UsageError(f"column {name}: Avro has no type like {type_}", hint="export to another format")


# --- Rows ---


def encode_rows(batch: pa.RecordBatch) -> pa.BinaryArray:
    """Each row as a record of `avro_schema`."""
    return _join(
        [
            _plain(column) if field.name in NEVER_NULL else _nullable(column)
            for field, column in zip(batch.schema, batch.columns, strict=True)
        ]
    )


def _join(pieces: list[pa.Array]) -> pa.BinaryArray:
    if len(pieces) == 1:
        return pieces[0]
    return pc.binary_join_element_wise(*pieces, b"", null_handling="replace", null_replacement=b"")


def _nullable(column: pa.Array) -> pa.BinaryArray:
    """A union of null and the column's type."""
    nulls = np.asarray(column.is_null()) if column.null_count else None
    if _is_bytes(column.type):
        return _join([_numbers(_sizes(column), nulls, union=True), _bytes(column)])
    if nulls is None:
        return _join([_repeat(bytes([_THERE]), len(column)), _plain(column)])
    branch = pa.array(np.where(nulls, _NULL, _THERE).astype(np.uint8)).view(pa.binary(1)).cast(pa.binary())
    return _join([branch, _without_nulls(_plain(column), nulls)])


def _without_nulls(pieces: pa.BinaryArray, nulls: NDArray[np.bool_]) -> pa.BinaryArray:
    return pc.if_else(pa.array(nulls), pa.scalar(b"", pa.binary()), pieces)


def _plain(column: pa.Array) -> pa.BinaryArray:
    """The column's values; where one is null there is anything."""
    type_ = column.type
    if _is_bytes(type_):
        return _join([_numbers(_sizes(column)), _bytes(column)])
    if pa.types.is_boolean(type_):
        return _fixed(pc.fill_null(column, False).cast(pa.uint8()), 1)
    if pa.types.is_floating(type_):
        width = 4 if pa.types.is_float32(type_) else 8
        return _fixed(pc.fill_null(column, 0.0).cast(pa.float32() if width == 4 else pa.float64()), width)
    if pa.types.is_timestamp(type_):
        return _numbers(_ints(column.cast(pa.timestamp("us", type_.tz)).cast(pa.int64())))
    if pa.types.is_date32(type_):
        return _numbers(_ints(column.cast(pa.int32())))
    if pa.types.is_integer(type_):
        return _numbers(_ints(column))
    if pa.types.is_decimal128(type_):
        return _decimals(column)
    if pa.types.is_map(type_):
        column = column.take(pa.array(np.arange(len(column))))  # a slice's keys would be those of the whole
        entries = _join([_plain(column.keys), _nullable(column.items)])
        return _blocks(column, entries)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        values = column.flatten()
        if pa.types.is_struct(type_.value_type) and [f.name for f in type_.value_type] == ["key", "value"]:
            entries = _join([_plain(values.field(0)), _nullable(values.field(1))])
            return _blocks(column, entries)
        return _blocks(column, _nullable(values))
    if pa.types.is_struct(type_):
        return _join([_nullable(one) for one in column.flatten()])
    raise UsageError(f"Avro has no type like {type_}")


def _blocks(column: pa.Array, entries: pa.BinaryArray) -> pa.BinaryArray:
    """Arrays and maps: a count, so many entries, and a count of none."""
    counts = _ints(pc.list_value_length(column)) if not pa.types.is_map(column.type) else _map_sizes(column)
    if not counts.any():
        return _repeat(b"\x00", len(column))
    bounds = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=bounds[1:])
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(bounds), entries), b"")
    last = pc.if_else(pa.array(counts > 0), pa.scalar(b"\x00", pa.binary()), pa.scalar(b"", pa.binary()))
    return _join([_numbers(counts), joined, last])


def _map_sizes(column: pa.Array) -> Ints:
    offsets = np.asarray(column.offsets).astype(np.int64)
    return np.where(np.asarray(column.is_null()), 0, np.diff(offsets))


def _is_bytes(type_: pa.DataType) -> bool:
    kinds = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string, pa.types.is_large_string)
    return any(is_one(type_) for is_one in kinds)


def _bytes(column: pa.Array) -> pa.Array:
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _sizes(column: pa.Array) -> Ints:
    return _ints(pc.binary_length(column))


def _ints(column: pa.Array) -> Ints:
    if column.null_count:
        column = pc.fill_null(column, 0)
    return np.asarray(column).astype(np.int64, copy=False)


def _repeat(piece: bytes, rows: int) -> pa.BinaryArray:
    return pa.repeat(pa.scalar(piece, pa.binary()), rows)


def _fixed(column: pa.Array, width: int) -> pa.BinaryArray:
    """Numbers of fixed width, little-endian as Arrow has them."""
    data = column.buffers()[1].slice(column.offset * width, len(column) * width)
    return pa.Array.from_buffers(pa.binary(width), len(column), [None, data]).cast(pa.binary())


def _decimals(column: pa.Array) -> pa.BinaryArray:
    """Big-endian, which Arrow's are not."""
    data = column.buffers()[1].slice(column.offset * _DECIMAL_BYTES, len(column) * _DECIMAL_BYTES)
    turned = np.frombuffer(data, np.uint8).reshape(-1, _DECIMAL_BYTES)[:, ::-1]
    return pa.Array.from_buffers(
        pa.binary(_DECIMAL_BYTES), len(column), [None, pa.py_buffer(np.ascontiguousarray(turned))]
    ).cast(pa.binary())


def _numbers(values: Ints, nulls: NDArray[np.bool_] | None = None, *, union: bool = False) -> pa.BinaryArray:
    """Each number in zigzag; with ``union`` behind its branch, and only that where it is null."""
    rows = len(values)
    if rows and (values == values[0]).all() and nulls is None:
        return _repeat((bytes([_THERE]) if union else b"") + varint(int(values[0])), rows)
    zigzag = ((values << 1) ^ (values >> 63)).view(np.uint64)
    sizes = np.ones(rows, np.int32)
    largest = int(zigzag.max()) if rows else 0
    for shift in range(7, 70, 7):
        if not largest >> shift:
            break
        sizes += zigzag >= np.uint64(1) << np.uint64(shift)
    before = 1 if union else 0
    widths = sizes + before if nulls is None else np.where(nulls, before, sizes + before).astype(np.int32)
    bounds = np.zeros(rows + 1, np.int32)
    np.cumsum(widths, out=bounds[1:])
    data = np.empty(int(bounds[-1]), np.uint8)
    starts = bounds[:-1]
    if union:
        data[starts] = _THERE if nulls is None else np.where(nulls, _NULL, _THERE)
        starts = starts + 1
    if nulls is not None:
        starts, zigzag, sizes = starts[~nulls], zigzag[~nulls], sizes[~nulls]
    byte = 0
    while len(starts):
        goes_on = sizes > byte + 1
        data[starts + byte] = (zigzag & np.uint64(0x7F)).astype(np.uint8) | (goes_on.view(np.uint8) << 7)
        if not goes_on.any():
            break
        if not goes_on.all():
            starts, zigzag, sizes = starts[goes_on], zigzag[goes_on], sizes[goes_on]
        zigzag = zigzag >> np.uint64(7)
        byte += 1
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
