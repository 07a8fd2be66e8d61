"""A schema for JSON messages that have none: found in a sample of them, once, and kept from then on.

docs/pipeline.md, "JSON", says what becomes what. Every field may be null or missing, since a sample does not show what
never is. A name that Avro does not allow for a field ("user-id") has no column: the run that reads such messages says
so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from klog.schemas.parsing import NAME

FIELDS_MAX: Final = 300
"""Objects with more names between them are maps."""
DEPTH_MAX: Final = 12
"""Deeper values are texts."""
EXACT_MAX: Final = 2**53
LONG: Final = range(-(2**63), 2**63)


@dataclass(slots=True)
class _Seen:
    """What the values at one place are."""

    kinds: set[str] = field(default_factory=set)
    """Of ``boolean``, ``long``, ``large`` (a double does not have all its digits), ``double``, ``string``, ``array``,
    ``object``; null is none."""
    fields: dict[str, _Seen] = field(default_factory=dict)
    """Of all objects."""
    items: _Seen | None = None
    """Of all arrays."""

    def add(self, value: Any, depth: int = 0) -> None:
        if value is None:
            return
        kind = _kind(value)
        if depth >= DEPTH_MAX and kind in ("array", "object"):
            kind = "string"
        self.kinds.add(kind)
        if kind == "array":
            self.items = self.items or _Seen()
            for one in value:
                self.items.add(one, depth + 1)
        elif kind == "object":
            for name, one in value.items():
                self.fields.setdefault(name, _Seen()).add(one, depth + 1)

    def merge(self, other: _Seen) -> None:
        self.kinds |= other.kinds
        for name, one in other.fields.items():
            self.fields.setdefault(name, _Seen()).merge(one)
        if other.items is not None:
            self.items = self.items or _Seen()
            self.items.merge(other.items)


def infer(values: Iterable[bytes]) -> str | None:
    """The text of a schema that these values fit, those left out that are not JSON; None where no value is left."""
    seen = _Seen()
    for one in values:
        try:
            value = json.loads(one.decode())
        except (ValueError, RecursionError):
            continue
        seen.add(value)
    if not seen.kinds:
        return None
    return json.dumps(_Names().schema(seen, "message"))


def _kind(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case int():
            if value not in LONG:
                return "string"  # its digits, all of them
            return "long" if abs(value) <= EXACT_MAX else "large"
        case float():
            return "double"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


class _Names:
    """Makes the schema; each record in it has a name of its own."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def schema(self, seen: _Seen, name: str) -> Any:
        """Null included."""
        return ["null", self._type(seen, name)]

    def _type(self, seen: _Seen, name: str) -> Any:
        if seen.kinds == {"long", "double"}:
            return "double"
        if seen.kinds <= {"long", "large"}:
            return "long" if seen.kinds else "string"
        if len(seen.kinds) != 1:
            return "string"
        (kind,) = seen.kinds
        if kind == "array":
            return {"type": "array", "items": self.schema(seen.items or _Seen(), f"{name}_item")}
        if kind != "object":
            return kind
        fields = {one: found for one, found in seen.fields.items() if NAME.match(one)}
        if not fields or len(seen.fields) > FIELDS_MAX:
            merged = _Seen()
            for one in seen.fields.values():
                merged.merge(one)
            return {"type": "map", "values": self.schema(merged, f"{name}_value")}
        return {
            "type": "record",
            "name": self._named(name),
            "fields": [
                {"name": one, "type": self.schema(found, f"{name}_{one}"), "default": None}
                for one, found in fields.items()
            ],
        }

    def _named(self, name: str) -> str:
        found, number = name, 1
        while found in self._taken:
            number += 1
            found = f"{name}_{number}"
        self._taken.add(found)
        return found
