"""The JSON of registry entries: one object per node, with 0.8's keys and klog's own.

klog does not trust what other tools wrote: a node that is not such an object raises a ZooKeeperError with the path and
what was found. Unknown keys are ignored, as by 0.8's own readers.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

from klog import names
from klog.errors import ZooKeeperError

SHOWN_CHARS_MAX = 120
DIGITS_MAX = 10
"""Of a partition's number."""

_JSON = json.JSONEncoder(separators=(",", ":"))
"""Shared: `json.dumps` would make an encoder per node, which takes as long as using it."""


def encode(fields: Mapping[str, Any]) -> bytes:
    """Compact, as 0.8 writes it; keys in the order given."""
    return _JSON.encode(fields).encode()


class JsonNode:
    """A decoded node; each getter raises ZooKeeperError when the key is missing or of another type."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        self._data = data
        try:
            fields = json.loads(data)
        except (ValueError, RecursionError):  # RecursionError: too many nested brackets
            fields = None
        if not isinstance(fields, dict):
            raise ZooKeeperError(f"ZooKeeper node {path} holds {self._shown()}, expected a JSON object")
        self.fields: dict[str, Any] = fields

    def integer(self, key: str, default: int | None = None) -> int:
        """A number, or a number in quotes as 0.8 writes its timestamps."""
        value = self.fields.get(key, default)
        if isinstance(value, str):
            try:
                value = int(value)
            except ValueError:
                pass
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(key, "a number")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self.fields.get(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, "a text")
        return value

    def integers(self, key: str) -> tuple[int, ...]:
        return self._integers(self.fields.get(key), key)

    def texts(self, key: str) -> tuple[str, ...]:
        """() if the key is missing: all lists of texts are klog's own."""
        value = self.fields.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._wrong(key, "a list of texts")
        return tuple(value)

    def integer_lists(self, key: str) -> dict[int, tuple[int, ...]]:
        """An object of number -> list of numbers, in the order of the numbers (0.8's assignment)."""
        value = self.fields.get(key)
        if not isinstance(value, dict) or not all(_is_number(name) for name in value):
            raise self._wrong(key, "an object of partition numbers")
        return {int(name): self._integers(value[name], key) for name in sorted(value, key=int)}

    def entry_map(self, key: str) -> dict[int, JsonNode]:
        """An object of number -> object; empty if the key is missing: all such are klog's own."""
        value = self.fields.get(key, {})
        if not isinstance(value, dict) or not all(
            _is_number(name) and isinstance(one, dict) for name, one in value.items()
        ):
            raise self._wrong(key, "an object of partition numbers")
        return {int(name): JsonNode._of(self, value[name]) for name in sorted(value, key=int)}

    def entry_list(self, key: str) -> list[JsonNode]:
        """A list of objects."""
        value = self.fields.get(key)
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            raise self._wrong(key, "a list of objects")
        return [JsonNode._of(self, one) for one in value]

    @classmethod
    def _of(cls, outer: JsonNode, fields: dict[str, Any]) -> JsonNode:
        """An object within an entry: errors name the node and show all of it."""
        inner = cls.__new__(cls)
        inner.path, inner._data, inner.fields = outer.path, outer._data, fields
        return inner

    def text_map(self, key: str) -> dict[str, str]:
        value = self.fields.get(key)
        if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
            raise self._wrong(key, "an object of texts")
        return dict(value)

    def flag(self, key: str) -> bool:
        """False when missing."""
        return self.fields.get(key, False) is True

    def _integers(self, value: Any, key: str) -> tuple[int, ...]:
        if not isinstance(value, list) or not all(type(item) is int for item in value):
            raise self._wrong(key, "a list of numbers")
        return tuple(value)

    def _wrong(self, key: str, expected: str) -> ZooKeeperError:
        return ZooKeeperError(f"ZooKeeper node {self.path} holds {self._shown()}, expected {expected} under {key!r}")

    def _shown(self) -> str:
        return repr(self._data.decode("utf-8", "replace")[:SHOWN_CHARS_MAX]) if self._data else "nothing"


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) <= DIGITS_MAX


def number(path: str, data: bytes) -> int:
    """The content of a node that is a plain number, such as /controller_epoch."""
    try:
        return int(data)
    except ValueError:
        shown = data.decode("utf-8", "replace")[:SHOWN_CHARS_MAX]
        raise ZooKeeperError(f"ZooKeeper node {path} holds {shown!r}, expected a number") from None


def parse_uuid(path: str, text: str) -> uuid.UUID:
    """A UUID in Kafka's form; ``path`` is for the error."""
    found = names.parse_uuid(text)
    if found is None:
        raise ZooKeeperError(f"ZooKeeper node {path} has {text!r} where a UUID of 22 characters is expected")
    return found
