"""How an export's rows are divided into files: by their time, or by a column.

day, hour           the message's timestamp, in UTC
page                the column's values; identity(page) where it is called as one of the words here
bucket(16,user)     Iceberg's hash of the value, in so many buckets
truncate(4,page)    so many first characters or bytes; of numbers, multiples
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from klog.errors import UsageError

if TYPE_CHECKING:
    from pyiceberg.transforms import Transform

TIMES: Final = ("day", "hour")
"""Folders inside each batch that readers see as columns: ``dt=2026-02-01``, with ``hour=09`` below it; in UTC."""

NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
"""For a missing value; readers of folders see a null."""

TEXT_MAX: Final = 150
"""Of a value in the name of a folder, which file systems bound at 255."""

_CALL: Final = re.compile(r"(identity|bucket|truncate)\(\s*(?:(\d{1,9})\s*,\s*)?(\w+)\s*\)")
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_TYPES: Final = {
    "identity": ("bool", "int32", "int64", "string", "date32[day]"),
    "bucket": ("int32", "int64", "string", "binary", "date32[day]"),
    "truncate": ("int32", "int64", "string", "binary"),
}


@dataclass(frozen=True, slots=True)
class Partitioning:
    """``transform``: one of TIMES, identity, bucket or truncate. ``number``: of buckets, or the width; else 0."""

    transform: str
    column: str
    number: int = 0

    @classmethod
    def parse(cls, text: str) -> Partitioning:
        """UsageError for another text."""
        if text in TIMES:
            return cls(text, "timestamp")
        if match := _CALL.fullmatch(text):
            transform, number, column = match[1], int(match[2] or 0), match[3]
            if (transform == "identity") is (match[2] is None) and (transform == "identity" or number > 0):
                return cls(transform, column, number)
        elif _NAME.fullmatch(text):
            return cls("identity", text)
        raise UsageError(
            f"partitioning by {text!r}: must be day, hour, COLUMN, bucket(N,COLUMN) or truncate(WIDTH,COLUMN)",
            hint="for example --partition-by page, or --partition-by 'bucket(16,user)'",
        )

    def __str__(self) -> str:
        if self.is_time or (self.transform == "identity" and self.column not in TIMES):
            return self.transform if self.is_time else self.column
        return f"{self.transform}({f'{self.number},' if self.number else ''}{self.column})"

    @property
    def is_time(self) -> bool:
        return self.transform in TIMES

    @property
    def label(self) -> str:
        """What folders are called by, and Iceberg's field of the partition."""
        return self.column if self.transform == "identity" else f"{self.column}_{self.transform}"

    def check(self, schema: Any) -> None:
        """UsageError where rows of this Arrow schema have no such column, or one of a type that does not go with it."""
        if self.is_time:
            return
        fields = {field.name: field for field in (*record_fields(schema), *schema)}
        if self.column not in fields:
            raise UsageError(
                f"partitioning by {self.column!r}: the rows have no such column (they have {', '.join(fields)})"
            )
        type_ = str(fields[self.column].type)
        if type_ not in _TYPES[self.transform]:
            raise UsageError(
                f"partitioning by {self.column!r}: {self.transform} takes columns of "
                f"{', '.join(_TYPES[self.transform])}, and this is {type_}"
            )

    def function(self, type_: Any) -> Callable[[Any], Any]:
        """From a value of a column of this Arrow type, which may be None, to that of its partition."""
        if self.transform == "identity":
            return lambda value: value
        from pyiceberg.types import BinaryType, DateType, IntegerType, LongType, PrimitiveType, StringType

        kinds: dict[str, PrimitiveType] = {
            "int32": IntegerType(),
            "int64": LongType(),
            "string": StringType(),
            "binary": BinaryType(),
            "date32[day]": DateType(),
        }
        return self.as_iceberg().transform(kinds[str(type_)])

    def as_iceberg(self) -> Transform[Any, Any]:
        """The transform of an Iceberg table's partitions."""
        from pyiceberg import transforms

        match self.transform:
            case "day":
                return transforms.DayTransform()
            case "hour":
                return transforms.HourTransform()
            case "bucket":
                return transforms.BucketTransform(self.number)
            case "truncate":
                return transforms.TruncateTransform(self.number)
        return transforms.IdentityTransform()

    def values(self, batch: Any) -> Any:
        """The column's values in an Arrow record batch, or those of the record's field of that name."""
        if self.column in batch.schema.names:
            return batch.column(self.column)
        import pyarrow.compute as pc

        return pc.struct_field(batch.column("record"), self.column)


def record_fields(schema: Any) -> list[Any]:
    """Of rows with one column of decoded values."""
    import pyarrow as pa

    at = schema.get_field_index("record")
    return list(schema.field(at).type) if at >= 0 and pa.types.is_struct(schema.field(at).type) else []


def hashed(value: Any) -> str:
    """A value in the name of a folder that means nothing: some readers would take the form NAME=VALUE for a column, and
    would undo what is quoted."""
    return sha256(repr(value).encode()).hexdigest()[:16]


def folder_text(value: Any) -> str:
    """A value in the name of a folder. A long one is cut, and its hash makes it differ from others."""
    if value is None:
        return NULL_FOLDER
    if isinstance(value, bytes):
        text = value.hex()
    else:
        text = quote(str(value).lower() if isinstance(value, bool) else str(value), safe="")
    if len(text) > TEXT_MAX:
        text = f"{text[:TEXT_MAX]}-{sha256(text.encode()).hexdigest()[:16]}"
    return text
