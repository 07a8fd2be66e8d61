"""Decodes frames to typed entities and encodes them, by kio.

A frame is what follows the 4-byte length on the wire. A request's head is

    0   int16   api key
    2   int16   api version
    4   int32   correlation id
    8   int16   length of the client id, -1 for null, then its bytes
    ..  tags    only in flexible versions (KIP-482)

and a response's is the correlation id, with tags in flexible versions; ApiVersions alone never has them (KIP-511).

Strategy: handlers use plain values. `build` turns keyword arguments and dicts into kio's frozen entities for one
version and drops the fields that the version lacks, so that one handler serves all versions. Times are integers of
milliseconds, error codes integers.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from io import SEEK_END, BytesIO
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader
from kio.serial.errors import SerialError

from klog.errors import MalformedRequest
from klog.protocol import encoding
from klog.protocol.apis import ApiKey
from klog.protocol.bounds import ELEMENTS_MAX, TRUSTED_ELEMENTS_MAX, check_lengths, read_uvarint
from klog.protocol.entity_fields import Field, fields_of
from klog.protocol.versions import is_flexible, request_schema, response_schema

_HEAD = struct.Struct(">hhih")
_LENGTH_AND_CORRELATION = struct.Struct(">ii")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


PADDED_METADATA = 9
"""librdkafka allocates four times the bytes of a Metadata answer. In version 9 a topic with few partitions and a short
name takes so few bytes that this is not enough, from some thirty such topics on, and librdkafka rejects the whole
answer. So it gets an empty tagged field, which clients skip. Version 8 has more bytes, but does not help: clients trust
leader epochs from version 9 on only. From 10 on topic ids make the answer long enough."""
PADDING_BYTES = 16
"""Per such topic: librdkafka's structures of one take up to 190 bytes, and its 37 bytes or more at least."""
SMALL_PARTITIONS = 4
SMALL_NAME_CHARS = 16
PADDING_TAG = 10_000
"""Not a tag of Kafka's."""

ERROR_CHARS_MAX = 4_000
"""Limit of an error's message. It quotes the peer's input, and a string of a version that is not flexible holds 32,767
bytes."""


class RequestHead(NamedTuple):
    """A request's head; the body begins at ``body_at`` in the frame."""

    key: int
    version: int
    correlation_id: int
    client_id: str | None
    body_at: int


def read_head(frame: memoryview) -> RequestHead:
    """The head of a request's frame.

    Raises MalformedRequest if it does not parse, UnsupportedVersion if the key or version is unknown.
    """
    try:
        key, version, correlation_id, client_id_bytes = _HEAD.unpack_from(frame)
    except struct.error:
        raise MalformedRequest(f"a request of {len(frame)} bytes has no whole head (10 bytes at least)") from None
    at = _HEAD.size
    client_id = None
    if client_id_bytes >= 0:
        end = at + client_id_bytes
        if end > len(frame):
            raise MalformedRequest(f"the client id claims {client_id_bytes} bytes; {len(frame) - at} are left")
        try:
            client_id = str(frame[at:end], "utf-8")
        except UnicodeDecodeError:
            raise MalformedRequest("the client id is not UTF-8") from None
        at = end
    if is_flexible(key, version):
        at = skip_tags(frame, at)
    return RequestHead(key, version, correlation_id, client_id, at)


def skip_tags(frame: memoryview, at: int) -> int:
    """The end of a section of tagged fields."""
    if at < len(frame) and frame[at] == 0:  # by far the most common
        return at + 1
    count, at = read_uvarint(frame, at)
    for _ in range(count):
        _, at = read_uvarint(frame, at)
        size, at = read_uvarint(frame, at)
        at += size
        if at > len(frame):
            raise MalformedRequest("a tagged field reaches past the frame's end")
    return at


def decode_body(frame: memoryview, head: RequestHead, elements_max: int = ELEMENTS_MAX) -> Any:
    """The request's entity (kio's class for its key and version). Raises MalformedRequest.

    Bytes behind it are ignored, as by Kafka: librdkafka sends three too many when it asks for the metadata of all
    topics in version 9.
    """
    return decode_part(frame.toreadonly(), head.body_at, request_schema(head.key, head.version), elements_max)


def decode_response(frame: bytes | memoryview, key: int, version: int) -> tuple[int, Any]:
    """(correlation id, entity) of a response's frame."""
    view = memoryview(frame)
    if len(view) < 4:
        raise MalformedRequest(f"a response of {len(view)} bytes has no correlation id")
    (correlation_id,) = struct.unpack_from(">i", view)
    at = 4
    if key != ApiKey.API_VERSIONS and is_flexible(key, version):
        at = skip_tags(view, at)
    return correlation_id, decode_part(view, at, response_schema(key, version), TRUSTED_ELEMENTS_MAX)


def decode_part(frame: memoryview, at: int, schema: Any, elements_max: int = ELEMENTS_MAX) -> Any:
    """The entity at a place in a frame. Raises MalformedRequest."""
    frame, _ = check_lengths(frame, at, schema, elements_max)
    try:
        entity, _ = entity_reader(schema)(frame, at)
    except (SerialError, ValueError, OverflowError, UnicodeDecodeError, KeyError) as error:
        raise MalformedRequest(f"{schema.__name__} version {schema.__version__} does not parse: {error}") from None
    return entity


def encode_response(head: RequestHead, entity: Any) -> bytes:
    """The whole answer with its length in front."""
    out = BytesIO()
    flexible = head.key != ApiKey.API_VERSIONS and entity.__flexible__
    out.write(b"\0" * 9 if flexible else b"\0" * 8)
    encoding.write(out, entity)
    if head.key == ApiKey.METADATA and head.version == PADDED_METADATA:
        _pad(out, PADDING_BYTES * sum(map(_is_small, entity.topics)))
    answer = out.getbuffer()
    _LENGTH_AND_CORRELATION.pack_into(answer, 0, len(answer) - 4, head.correlation_id)
    return bytes(answer)


def _is_small(topic: Any) -> bool:
    return len(topic.partitions) < SMALL_PARTITIONS and len(topic.name) < SMALL_NAME_CHARS


def _pad(out: BytesIO, size: int) -> None:
    """Replace the count of tagged fields, 0, at the entity's end by one field of ``size`` bytes."""
    if size:
        out.seek(-1, SEEK_END)
        out.write(b"".join((b"\1", uvarint(PADDING_TAG), uvarint(size), bytes(size))))


class EncodedRequest:
    """A request with an encoded body: parts shared with other requests, joined when it is sent."""

    __slots__ = ("__api_key__", "__version__", "parts")
    __flexible__ = True

    def __init__(self, key: int, version: int, parts: Sequence[bytes]) -> None:
        self.__api_key__ = key
        self.__version__ = version
        self.parts = parts

    def decoded(self) -> Any:
        """The request's entity."""
        body = memoryview(b"".join(self.parts))
        return decode_part(body, 0, request_schema(self.__api_key__, self.__version__), TRUSTED_ELEMENTS_MAX)


def encode_part(entity: Any) -> bytes:
    """An entity without a head: a request's body, or a structure in one."""
    out = BytesIO()
    encoding.write(out, entity)
    return out.getvalue()


def uvarint(value: int) -> bytes:
    """An unsigned varint: in flexible versions an array's length + 1."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_request(entity: Any, correlation_id: int, client_id: str) -> bytes:
    """The whole request, also an `EncodedRequest`, with its length in front."""
    parts = entity.parts if isinstance(entity, EncodedRequest) else (encode_part(entity),)
    name = client_id.encode()
    head = _HEAD.pack(entity.__api_key__, entity.__version__, correlation_id, len(name)) + name
    if entity.__flexible__:
        head += b"\0"
    size = len(head) + sum(map(len, parts))
    return b"".join([struct.pack(">i", size), head, *parts])


def request(key: int, version: int, /, **values: Any) -> Any:
    """A request's entity from plain values; see `build`."""
    return build(request_schema(key, version), values)


def response(key: int, version: int, /, **values: Any) -> Any:
    """A response's entity from plain values; see `build`."""
    return build(response_schema(key, version), values)


def build(schema: Any, values: dict[str, Any]) -> Any:
    """An entity of ``schema`` from plain values.

    Dicts become nested entities, lists tuples, integers the timedelta, datetime or ErrorCode of the field. Values for
    fields that the version lacks are dropped; a missing value without default is our error (KeyError).
    """
    arguments = {}
    for name, convert, required in _plan(schema):
        if name in values:
            arguments[name] = convert(values[name])
        elif name == "throttle_time":
            arguments[name] = timedelta(0)
        elif required:
            raise KeyError(f"{schema.__name__} version {schema.__version__} wants {name}")
    return schema(**arguments)


@cache
def _plan(schema: Any) -> tuple[tuple[str, Any, bool], ...]:
    return tuple(
        (one.name, _shortened if one.name == "error_message" else _converter(one), not one.has_default)
        for one in fields_of(schema)
    )


def _shortened(message: str | None) -> str | None:
    if message is None or len(message) <= ERROR_CHARS_MAX:
        return message
    return f"{message[:ERROR_CHARS_MAX]}... ({len(message)} characters)"


def _converter(field: Field) -> Any:
    """The conversion of plain values to kio's type of a field."""
    if field.is_nullable:
        return _or_none(_converter(field._replace(is_nullable=False)))
    if field.is_array:
        one = _converter(field._replace(is_array=False))
        return lambda values: tuple(map(one, values))
    if field.is_structure:
        schema = field.element
        return lambda values: build(schema, values) if isinstance(values, dict) else values
    if field.kind in ("timedelta_i32", "timedelta_i64"):
        return lambda ms: timedelta(milliseconds=ms)
    if field.kind == "datetime_i64":
        return lambda ms: _EPOCH + timedelta(milliseconds=ms)
    if field.kind == "error_code":
        return ErrorCode
    return _as_it_is


def _or_none(convert: Any) -> Any:
    return lambda value: None if value is None else convert(value)


def _as_it_is(value: Any) -> Any:
    return value
