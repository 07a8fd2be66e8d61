"""JSON as Avro values of single messages, by schemas of the registry: the other way of `message_decoder`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klog.errors import UsageError
from klog.protocol.schema_errors import InvalidSchema, SchemaNotFound
from klog.schemas.decoding.json_values import Unfit
from klog.schemas.encoding import Encoder, parse_json

SchemaOf = Callable[[int], str]


class MessageEncoder:
    """Encodes one message at a time. Used by one thread at a time."""

    def __init__(self, schema_id: int, text: str, schema_of: SchemaOf | None = None) -> None:
        """``schema_of``: a JSON line that names the id of a schema is encoded by that one. InvalidSchema."""
        self._encoder = Encoder(schema_id, text)
        self._schema_of = schema_of
        self._others = {schema_id: self._encoder}

    def value(self, value: Any) -> bytes:
        """The message of a value as JSON has it. UsageError, with the field, what was found and what is expected."""
        return _framed(self._encoder, value)

    def text(self, data: bytes) -> bytes:
        """The same of its JSON."""
        try:
            return self.value(parse_json(data))
        except Unfit as unfit:
            raise UsageError(str(unfit)) from None

    def row(self, row: dict[str, Any]) -> bytes | None:
        """The same of the object that `klog tail --schema --output jsonl` writes as a line; None for a null message."""
        encoding = row.get("value_encoding")
        if encoding not in (None, "avro"):
            raise UsageError(f"value_encoding is {encoding!r}; with --schema expected avro, or none")
        if row["value"] is None and encoding is None:
            return None
        return _framed(self._named_by(row), row["value"])

    def _named_by(self, row: dict[str, Any]) -> Encoder:
        schema_id = row.get("value_schema_id")
        if self._schema_of is None or not isinstance(schema_id, int):
            return self._encoder
        known = self._others.get(schema_id)
        if known is None:
            try:
                known = self._others[schema_id] = Encoder(schema_id, self._schema_of(schema_id))
            except (SchemaNotFound, InvalidSchema) as error:
                raise UsageError(f"schema {schema_id} cannot be used: {error.message}") from None
        return known


def _framed(encoder: Encoder, value: Any) -> bytes:
    try:
        return encoder.framed(value)
    except Unfit as unfit:
        raise UsageError(str(unfit)) from None
