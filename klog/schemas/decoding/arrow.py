"""The Arrow types of Avro values; docs/pipeline.md, "Schemas in exports", lists them.

Spark reads them in every format of an export. It cannot read a file at all that has a column of a type unknown to it: a
time, nanoseconds, 39 digits. ORC has no null type, so null is a bool that is always null.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import pyarrow as pa

from klog.protocol.schema_errors import InvalidSchema
from klog.schemas.avro import Array, Enum, Fixed, Logical, Map, Node, Primitive, Record, Union, parts_of, type_name
from klog.schemas.parsing import DEPTH_MAX, parse

NODES_MAX: Final = 20_000
"""Of a schema whose named types are written out where they are used. Types that refer to each other twice at every
level would otherwise fill the memory."""

DECIMAL_DIGITS_MAX: Final = 38


def parse_columns(text: str) -> Node:
    """The type that a schema's JSON text describes. InvalidSchema if it is not a schema, or its values have no columns:
    a type that contains itself has no Arrow type."""
    node = parse(text).node
    _check_size(node)
    return node


def _check_size(node: Node) -> None:
    sizes: dict[int, int] = {}
    open_: set[int] = set()

    def size(one: Node, depth: int) -> int:
        if id(one) in open_:
            raise InvalidSchema(
                f"the type {type_name(one)} contains itself, and columns cannot",
                hint="export such messages undecoded: leave --decode out",
            )
        if depth > DEPTH_MAX:
            raise InvalidSchema(f"types are nested deeper than {DEPTH_MAX}")
        if id(one) not in sizes:
            open_.add(id(one))
            sizes[id(one)] = 1 + sum(size(part, depth + 1) for part in parts_of(one))
            open_.remove(id(one))
        return sizes[id(one)]

    if (count := size(node, 1)) > NODES_MAX:
        raise InvalidSchema(f"the schema has {count} types when it is written out, more than {NODES_MAX}")


def logical_of(node: Node) -> Logical | None:
    """The logical type that shapes the column. Decimals with more digits than Arrow's are bytes."""
    logical = node.logical if isinstance(node, Primitive | Fixed) else None
    return None if logical and logical.precision > DECIMAL_DIGITS_MAX else logical


def arrow_type(node: Node) -> pa.DataType:
    """The type of a column of these values."""
    match node:
        case Primitive() | Fixed():
            logical = logical_of(node)
            if logical is None:
                return _ARROW[node.name] if isinstance(node, Primitive) else pa.binary()
            if logical.name == "decimal":
                return pa.decimal128(logical.precision, logical.scale)
            return _ARROW[logical.name]
        case Enum():
            return pa.string()
        case Record():
            fields = [(field.name, arrow_type(field.node)) for field in node.fields]
            return pa.struct(fields) if fields else pa.bool_()
        case Array():
            return pa.list_(pa.field("element", arrow_type(node.items)))
        case Map():
            return pa.map_(pa.string(), arrow_type(node.values))
        case Union():
            members = [arrow_type(member) for member in members_of(node)]
            if len(members) <= 1:
                return members[0] if members else _ARROW["null"]
            return pa.struct([(f"member{number}", member) for number, member in enumerate(members)])


def members_of(union: Union) -> list[Node]:
    """The branches that have columns: all except null."""
    return [branch for branch in union.branches if type_name(branch) != "null"]


# --- Fields of a record as columns of their own, beside those of the message ---

TAKEN: Final = frozenset(
    ("topic", "partition", "offset", "timestamp", "timestamptype", "key", "value", "headers", "schema_id", "dt", "hour")
)
"""In any case, the names of a message's columns, and of partitions by time. A field of such a name has the name of the
decoded column in front: ``timestamp`` is ``value_timestamp``."""


def parse_record(text: str) -> Record | None:
    """The record with fields that a schema describes, null or not; None for another type."""
    node = parse_columns(text)
    members = members_of(node) if isinstance(node, Union) else [node]
    only = members[0] if len(members) == 1 else None
    return only if isinstance(only, Record) and only.fields else None


def flat_fields(record: pa.DataType, column: str) -> list[pa.Field]:
    """InvalidSchema where two columns would have one name; their case makes no difference to many readers."""
    found = []
    for field in record:
        taken = field.name.lower() in TAKEN
        found.append(field.with_name(f"{column}_{field.name}") if taken else field)
    names, times = Counter(field.name.lower() for field in found).most_common(1)[0]
    if times > 1:
        raise InvalidSchema(f"the table would have two columns {names}", hint="give the schema's field another name")
    return found


_ARROW: Final[dict[str, pa.DataType]] = {
    "null": pa.bool_(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "uuid": pa.string(),
    "date": pa.date32(),
    "time-millis": pa.int32(),
    "time-micros": pa.int64(),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "timestamp-nanos": pa.int64(),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.int64(),
    "duration": pa.struct([("months", pa.int64()), ("days", pa.int64()), ("milliseconds", pa.int64())]),
}
