"""The fields of a record as columns of their own, beside those of the message.

A field whose name is in `TAKEN` (of a message, or of partitions by time), in any case, has the name of the decoded
column in front: ``timestamp`` is ``value_timestamp``. Other values, such as texts, stay the column ``record``.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import pyarrow as pa

from klog.protocol.schema_errors import InvalidSchema
from klog.schemas.avro import Record, Union
from klog.schemas.decoding.arrow import members_of, parse_columns

TAKEN: Final = frozenset(
    ("topic", "partition", "offset", "timestamp", "timestamptype", "key", "value", "headers", "schema_id", "dt", "hour")
)


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
