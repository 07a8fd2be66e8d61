"""Avro values or keys of single messages as JSON, by the schemas that wrote them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from klog.config.properties import read_text
from klog.errors import NoSuchThing, SessionLost, UsageError, ZooKeeperError
from klog.export.files.json_values import json_values
from klog.protocol.schema_errors import InvalidSchema, SchemaNotFound
from klog.record.avro_framing import unframed
from klog.record.records import Record
from klog.schemas.decoding.decoder import NO_FRAMING, Decoder, Decoding

SchemaOf = Callable[[int], str]
ANY_ID: Final = -1
KEPT_MAX: Final = 1_000
"""Schemas; garbage names random ids."""
_COLUMNS: Final = {"avro": "value", "avro:value": "value", "avro:key": "key"}


class MessageDecoder:
    """Decodes one message at a time: for reading by eye, not for bulk, which `Decoder` is made for."""

    def __init__(self, what: str, schema_of: SchemaOf, reader: str | None = None) -> None:
        """``what``: ``avro`` or ``avro:key``. ``reader``: the schema to read as; None: the message's. UsageError."""
        if what not in _COLUMNS:
            raise UsageError(f"--decode {what!r} is not known", hint=f"one of {', '.join(_COLUMNS)}")
        self._column = _COLUMNS[what]
        self._schema_of = schema_of
        self._reader = reader
        self._decoders: dict[int, Decoder | str] = {}

    def decoded(self, record: Record) -> dict[str, Any]:
        """What replaces the column in the message's line: the decoded value, or why it stays as it is."""
        return self.of(record.value if self._column == "value" else record.key)

    def of(self, content: bytes | None) -> dict[str, Any]:
        """The same of the column's content."""
        if content is None:
            return {}
        schema_id, _ = unframed(content)
        if schema_id is None:
            return {f"{self._column}_error": NO_FRAMING}
        known = self._decoders.get(schema_id)
        if known is None:
            if len(self._decoders) >= KEPT_MAX:
                self._decoders.clear()
            known = self._decoders[schema_id] = self._decoder(schema_id)
        if isinstance(known, str):
            return {f"{self._column}_error": known}
        batch = pa.record_batch({self._column: pa.array([content], pa.binary())})
        typed, undecodable = known.split(batch)
        if undecodable is not None:
            return {f"{self._column}_error": undecodable.column("error")[0].as_py()}
        (value,) = json_values(typed.column("record"))
        return {self._column: value, f"{self._column}_encoding": "avro", f"{self._column}_schema_id": schema_id}

    def _decoder(self, schema_id: int) -> Decoder | str:
        try:
            return Decoder(Decoding(self._column, self._reader or self._schema_of(schema_id)), self._schema_of)
        except SchemaNotFound:
            return f"schema {schema_id} is not known"
        except SessionLost:
            raise
        except (InvalidSchema, ZooKeeperError) as error:  # a node that has something else than a schema, too
            return f"schema {schema_id} cannot be used: {error.message}"


def schemas_in(words: list[str]) -> SchemaOf:
    """Schemas in files: ``7=orders.avsc``, or ``orders.avsc`` for every id. Raises UsageError, NoSuchThing."""
    texts: dict[int, str] = {}
    for word in words:
        number, sign, name = word.partition("=")
        is_numbered = bool(sign) and number.isascii() and number.isdigit()
        path = Path(name if is_numbered else word)
        try:
            text = read_text(path)
        except (OSError, UnicodeDecodeError, ValueError) as error:
            raise NoSuchThing(f"schema {path} cannot be read: {error}") from None
        texts[int(number) if is_numbered else ANY_ID] = text

    def schema_of(schema_id: int) -> str:
        found = texts.get(schema_id, texts.get(ANY_ID))
        if found is None:
            raise SchemaNotFound(f"no schema {schema_id} is given")
        return found

    return schema_of
