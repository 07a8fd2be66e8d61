"""Messages by the schemas of the registry: single values as JSON, for `klog produce --schema`, `klog tail --schema`,
`klog log dump --decode` and programs. For reading by eye, not for bulk, which `klog.schemas.decoding` is made for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import pyarrow as pa

from klog.client.raw_fetch import RawCluster
from klog.client.security_files import read_security
from klog.client.servers import Servers
from klog.config.properties import read_text
from klog.errors import InvalidRecord, NoSuchThing, SessionLost, UsageError, ZooKeeperError
from klog.export.files.json_values import json_values
from klog.protocol.schema_errors import InvalidSchema, SchemaNotFound
from klog.record.avro_framing import unframed
from klog.record.records import Record
from klog.schemas.decoding.decoder import NO_FRAMING, Decoder, Decoding
from klog.schemas.decoding.json_values import Unfit
from klog.schemas.encoding import Encoder, parse_json

SchemaOf = Callable[[int], str]
ANY_ID: Final = -1
KEPT_MAX: Final = 1_000
"""Schemas; garbage names random ids."""
_COLUMNS: Final = {"avro": "value", "avro:value": "value", "avro:key": "key"}


class MessageDecoder:
    """Decodes one message at a time."""

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


class Schemas:
    """Encodes and decodes values of messages, as JSON has them. Any number of threads.

    >>> with klog.Schemas(bootstrap_servers="127.0.0.1:9092") as schemas:
    ...     producer.send("orders", schemas.encode({"id": 7}, "orders-value"))
    ...     schemas.decode(message.value)

    Schemas are read from the brokers once, the newest of a subject too.
    """

    def __init__(self, *, bootstrap_servers: str | Sequence[str], **settings: Any) -> None:
        """``settings``: a producer's of security, such as ``sasl_username``. CannotConnect, UsageError."""
        servers = bootstrap_servers if isinstance(bootstrap_servers, str) else ",".join(bootstrap_servers)
        given = {name.replace("_", "."): str(value) for name, value in settings.items()}
        self._cluster = RawCluster(Servers(servers, read_security(given, "settings of Schemas")))
        self._lock = threading.Lock()
        self._encoders: dict[int | str, MessageEncoder] = {}
        self._decoder = MessageDecoder("avro", self._cluster.schema)

    def encode(self, value: Any, schema: int | str) -> bytes:
        """The message's value by the schema of an id, or the newest of a subject.

        UsageError names the field that does not fit. SchemaNotFound, SubjectNotFound, InvalidSchema.
        """
        with self._lock:
            encoder = self._encoders.get(schema)
            if encoder is None:
                found = schema if isinstance(schema, int) else self._cluster.newest_schema_id(schema)
                encoder = self._encoders[schema] = MessageEncoder(found, self._cluster.schema(found))
            return encoder.value(value)

    def decode(self, message: bytes | None) -> Any:
        """What a message's value says by the schema whose id it begins with; None of null.

        InvalidRecord says why it cannot be decoded; the message is what it was.
        """
        with self._lock:
            found = self._decoder.of(message)
        if "value_error" in found:
            raise InvalidRecord(found["value_error"])
        return found.get("value")

    def close(self) -> None:
        """End the connections; may be called twice."""
        self._cluster.close()

    def __enter__(self) -> Schemas:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
