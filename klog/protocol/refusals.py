"""Answers that refuse: an error in the field for it, and empty values."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Final, get_args, get_type_hints

from klog.errors import KlogError
from klog.protocol.schema_errors import SubjectAuthorizationFailed

NOTHING: Final[Mapping[str, Any]] = {}
_EMPTY: Final[tuple[tuple[type, Any], ...]] = (
    (bool, False),
    (int, -1),
    (float, 0.0),
    (str, ""),
    (bytes, b""),
    (datetime.timedelta, 0),
    (datetime.datetime, -1),
    (uuid.UUID, None),
)


def refusal(schema: Any, error: KlogError | None, known: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
    """The values of an answer, or of a part, for `codec.build`: the known ones, the error, else empty ones.

    ``schema``: kio's class. ``error`` None: no error.
    """
    values: dict[str, Any] = {}
    for name, kind, empty in _fields(schema):
        if name in known:
            values[name] = known[name]
        elif kind == "error_code":
            values[name] = 0 if error is None else error.wire
        elif name == "error":  # the schema registry has other numbers for errors
            values[name] = 0 if error is None else SubjectAuthorizationFailed.registry_code
        elif name == "error_message":
            values[name] = None if error is None else error.message
        elif is_dataclass(empty):
            values[name] = refusal(empty, error)
        elif empty is not MISSING:
            values[name] = empty
    return values


@cache
def _fields(schema: Any) -> tuple[tuple[str, str | None, Any], ...]:
    """Name, wire type and empty value of each field; MISSING for one with a default."""
    hints = get_type_hints(schema)
    return tuple(
        (one.name, one.metadata.get("kafka_type"), _empty(hints[one.name], has_default=one.default is not MISSING))
        for one in fields(schema)
    )


def _empty(hint: Any, *, has_default: bool) -> Any:
    if has_default:
        return MISSING
    if getattr(hint, "__origin__", None) is tuple:
        return ()
    if type(None) in get_args(hint):
        return None
    if is_dataclass(hint):
        return hint
    return next((empty for kind, empty in _EMPTY if isinstance(hint, type) and issubclass(hint, kind)), MISSING)


@cache
def element_of(schema: Any, name: str) -> Any:
    """The element type of an array: kio's class, or that of a plain value."""
    hint = get_type_hints(schema)[name]
    while get_args(hint):
        hint = next(one for one in get_args(hint) if one not in (type(None), ...))
    return hint
