"""Answers that refuse: an error in the field for it, and empty values."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Mapping
from typing import Any, Final

from klog.errors import KlogError
from klog.protocol.entity_fields import Field, fields_of
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
    for field in fields_of(schema):
        name = field.name
        if name in known:
            values[name] = known[name]
        elif field.kind == "error_code":
            values[name] = 0 if error is None else error.wire
        elif name == "error":  # the schema registry has other numbers for errors
            values[name] = 0 if error is None else SubjectAuthorizationFailed.registry_code
        elif name == "error_message":
            values[name] = None if error is None else error.message
        elif not field.has_default:
            is_part = field.is_structure and not (field.is_array or field.is_nullable)
            values[name] = refusal(field.element, error) if is_part else _empty(field)
    return values


def _empty(field: Field) -> Any:
    if field.is_array or field.is_nullable:
        return None if field.is_nullable else ()
    return next(empty for kind, empty in _EMPTY if issubclass(field.element, kind))
