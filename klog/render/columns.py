"""The columns of a row dataclass: one field, one column, one JSON key.

A field ``log_end_offset`` is the key ``log_end_offset`` in JSON and the head ``LOG-END-OFFSET`` in a table;
``from_``, which Python forces upon us, is ``from``. ``field(metadata={"name": ...})`` is the name in both.
``field(metadata={"wide": True})`` keeps a column out of plain tables; the pair of `MayFail` is shown there only
where a row has failed. Machine formats always carry every column, so that a script can rely on them.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import PurePath
from typing import Any, Literal, NamedTuple, Self, Union, get_args, get_origin, get_type_hints

from klog.errors import KlogError

FAILURE_FIELDS = ("error", "message")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MayFail:
    """A row that can say that it has failed: ``error`` is a code, ``message`` says why."""

    error: str | None = None
    message: str | None = None

    def failed_by(self, error: KlogError | None) -> Self:
        """The row with this error, if there is one."""
        return self if error is None else dataclasses.replace(self, error=error.code, message=error.message)

    def failed_with(self, parts: Iterable[MayFail]) -> Self:
        """The row with the error of the first of its parts that has failed, if there is one."""
        failed = next((one for one in parts if one.error is not None), self)
        return dataclasses.replace(self, error=failed.error, message=failed.message)


class Column(NamedTuple):
    """One column: ``field`` of the row, ``name`` its JSON key, ``head`` what stands over it in a table; ``rank``: see
    `klog.render.fitting`."""

    field: str
    name: str
    head: str
    wide: bool
    numeric: bool
    rank: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnType:
    """A column as ``-o schema`` shows it; ``key`` in JSON, ``in_tables``: always, or in wide ones only."""

    column: str
    key: str
    type: str
    nullable: bool
    in_tables: bool


def column_types(row_type: type) -> list[ColumnType]:
    """The columns of a row dataclass, as data."""
    hints = get_type_hints(row_type)
    found = []
    for one in columns(row_type):
        parts = _parts(hints[one.field])
        names = dict.fromkeys(_type_name(part) for part in parts if part is not type(None))
        found.append(ColumnType(one.head, one.name, " or ".join(names), type(None) in parts, not one.wide))
    return found


def _parts(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _type_name(hint: Any) -> str:
    kind = get_origin(hint) or hint
    if kind is Literal:
        return "text"
    if dataclasses.is_dataclass(kind):
        return "object"
    if not isinstance(kind, type):
        return "any"
    for base, name in _TYPE_NAMES:
        if issubclass(kind, base):
            return name
    return "object"


_TYPE_NAMES: tuple[tuple[type, str], ...] = (
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "text"),
    (PurePath, "text"),
    (datetime, "time"),
    (Mapping, "object"),
    (Collection, "list"),
)


@cache
def columns(row_type: type) -> tuple[Column, ...]:
    """Every column of a row dataclass, in its order; those of `MayFail` come last."""
    hints = get_type_hints(row_type)
    found = [
        Column(
            field.name,
            str(field.metadata.get("name", field.name.rstrip("_"))),
            str(field.metadata.get("name", field.name.rstrip("_").upper().replace("_", "-"))),
            bool(field.metadata.get("wide", False)),
            _is_numeric(hints[field.name]),
            int(field.metadata.get("rank", 0)),
        )
        for field in dataclasses.fields(row_type)
    ]
    if can_fail(row_type):
        found.sort(key=lambda column: column.name in FAILURE_FIELDS)
    return tuple(found)


def can_fail(row_type: type) -> bool:
    """Whether rows of this type can say that they failed."""
    return issubclass(row_type, MayFail)


def has_failed(row: Any) -> bool:
    """Whether this row carries an error."""
    return isinstance(row, MayFail) and row.error is not None


def shown_columns(row_type: type, rows: Sequence[Any], *, wide: bool) -> tuple[Column, ...]:
    """The columns of a table: wide ones on request, ERROR and MESSAGE where some row has failed."""
    failed = any(has_failed(row) for row in rows)
    return tuple(
        column
        for column in columns(row_type)
        if (wide or not column.wide) and (failed or not can_fail(row_type) or column.name not in FAILURE_FIELDS)
    )


def _is_numeric(hint: Any) -> bool:
    """Whether a column holds plain numbers (or nothing): those are aligned to the right."""
    return all(part in (int, float) for part in _parts(hint) if part is not type(None))
