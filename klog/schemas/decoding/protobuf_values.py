"""Messages of Protocol Buffers as values of an Avro schema's types, by a descriptor.

A descriptor is what ``protoc --include_imports --descriptor_set_out=FILE`` writes, with the name of one message type.
docs/pipeline.md, "Protocol Buffers", lists the types; one that contains itself has no columns.

A field that knows whether it is set (proto2, ``optional``, a oneof's, a message) is null where it is not. Others are
what they are where nothing is sent: 0, "", false, the first value. Timestamps, durations and wrappers are records as
any, so that no nanosecond is lost. Field numbers that the descriptor has not are named as left out (``who.#7``).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from klog.errors import CorruptBatch, HostError
from klog.protocol.schema_errors import InvalidSchema
from klog.record.records import read_varint
from klog.schemas.decoding.json_values import LEFT_OUT_MAX, Unfit, below

UINT64: Final = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 0}
"""2**64 - 1 has 20 digits."""
NAMED_MAX: Final = 10
INDEXES_MAX: Final = 100
"""Message types are seldom nested deeper than three."""

Read = Callable[[Any, str], Any]


def described(data: bytes, name: str | None) -> tuple[str, str]:
    """(an Avro schema's text, a descriptor as `ProtobufReader` takes it) of a message type in a set of files.

    ``name`` None: the only message type of the last file, which is the one that protoc was given. InvalidSchema where
    the set cannot be read or has no such type; HostError without the library.
    """
    found = _find(data, name)
    schema, _ = _Types({}).of_message(found)
    return json.dumps(schema), f"{found.full_name}:{base64.b64encode(data).decode()}"


class ProtobufReader:
    """Reads messages of one type. Used by one thread."""

    def __init__(self, descriptor: str) -> None:
        """``descriptor``: of `described`."""
        name, _, packed = descriptor.partition(":")
        found = _find(base64.b64decode(packed), name)
        from google.protobuf import message_factory
        from google.protobuf.message import DecodeError

        self.left_out: dict[str, None] = {}
        self._errors = (DecodeError, RecursionError, UnicodeDecodeError)
        self._parse = message_factory.GetMessageClass(found).FromString
        _, self._read = _Types(self.left_out).of_message(found)

    def read(self, data: bytes) -> Any:
        """A record as pyarrow takes it. Unfit where the bytes are not a message of this type."""
        try:
            return self._read(self._parse(data), "")
        except self._errors:
            raise Unfit("not a message of this type: a field ends early, or is of another type") from None

    def behind_id(self, data: bytes) -> bytes:
        """Behind the path to the message type in its file: how many numbers it has, and these; 0 stands for the first
        type. The path is not looked at."""
        try:
            count, at = read_varint(data, 0)
            if not 0 <= count <= INDEXES_MAX:
                raise Unfit(f"not framed as Protocol Buffers are: a path of {count} numbers")
            for _ in range(count):
                _, at = read_varint(data, at)
        except CorruptBatch:
            raise Unfit("not framed as Protocol Buffers are: the path to its message type ends early") from None
        return data[at:]


class _Types:
    """Each type of a set of files: Avro's, which of a message is written out at its first place and named at others;
    and how its values are read."""

    def __init__(self, left_out: dict[str, None]) -> None:
        from google.protobuf import unknown_fields

        self._left_out = left_out
        self._unknown = unknown_fields.UnknownFieldSet
        self._readers: dict[str, Read] = {}

    def of_message(self, descriptor: Any) -> tuple[Any, Read]:
        name: str = descriptor.full_name
        if name in self._readers:
            return name, self._readers[name]
        fields: list[tuple[str, bool, Read]] = []
        unknown, left_out = self._unknown, self._left_out

        def read(message: Any, path: str) -> Any:
            for one in unknown(message):
                if len(left_out) < LEFT_OUT_MAX:
                    left_out[below(path, f"#{one.field_number}")] = None
            if not fields:
                return True
            return {
                name: reader(getattr(message, name), below(path, name))
                if not has_presence or message.HasField(name)
                else None
                for name, has_presence, reader in fields
            }

        self._readers[name] = read
        schema = []
        for one in descriptor.fields:
            type_, reader = self._of_field(one)
            schema.append({"name": one.name, "type": type_})
            fields.append((one.name, one.has_presence, reader))
        return {"type": "record", "name": name, "fields": schema}, read

    def _of_field(self, field: Any) -> tuple[Any, Read]:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            type_, value = self._of_one(field.message_type.fields_by_name["value"])
            return {"type": "map", "values": type_}, lambda found, path: [
                (_key(key), value(found[key], f"{path}.*")) for key in found
            ]
        type_, one = self._of_one(field)
        if field.is_repeated:
            return {"type": "array", "items": type_}, lambda found, path: [one(item, f"{path}.*") for item in found]
        return ["null", type_] if field.has_presence else type_, one

    def _of_one(self, field: Any) -> tuple[Any, Read]:
        if field.message_type is not None:
            return self.of_message(field.message_type)
        if field.enum_type is not None:
            names = {number: one.name for number, one in field.enum_type.values_by_number.items()}
            return "string", lambda found, path: names.get(found, str(found))
        if field.type == field.TYPE_STRING:
            return "string", _text
        if field.cpp_type == field.CPPTYPE_UINT64:
            return UINT64, lambda found, path: Decimal(found)
        kinds = {
            field.CPPTYPE_INT32: "int",
            field.CPPTYPE_INT64: "long",
            field.CPPTYPE_UINT32: "long",
            field.CPPTYPE_BOOL: "boolean",
            field.CPPTYPE_FLOAT: "float",
            field.CPPTYPE_DOUBLE: "double",
            field.CPPTYPE_STRING: "bytes",
        }
        return kinds[field.cpp_type], lambda found, path: found


def _find(data: bytes, name: str | None) -> Any:
    """A message type's descriptor."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool
        from google.protobuf.message import DecodeError
    except ImportError:
        raise HostError(
            "Protocol Buffers need the package protobuf, which is not here", hint="pip install 'klog[protobuf]'"
        ) from None
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(data)
    except DecodeError:
        files = None
    if files is None or not files.file:
        raise InvalidSchema(
            "not a set of descriptors", hint="protoc --include_imports --descriptor_set_out=FILE page.proto"
        )
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in files.file:
            pool.Add(file)
        there = {one.full_name: one for one in pool.FindFileByName(files.file[-1].name).message_types_by_name.values()}
    except (KeyError, TypeError) as error:
        raise InvalidSchema(
            f"the descriptors cannot be used: {error}", hint="protoc --include_imports has what a file imports"
        ) from None
    if name is None and len(there) == 1:
        return next(iter(there.values()))
    if name is not None:
        try:
            return pool.FindMessageTypeByName(name)
        except KeyError:
            pass
    listed = ", ".join([*there][:NAMED_MAX]) or "none"
    raise InvalidSchema(
        f"the descriptors have no message type {name}" if name else f"the descriptors have {len(there)} message types",
        hint=f"--read-as FILE#NAME; in {files.file[-1].name}: {listed}",
    )


def _key(key: Any) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return str(key)


def _text(found: Any, path: str) -> str:
    """proto2 does not look whether a text is UTF-8."""
    try:
        found.encode()
    except UnicodeEncodeError:
        raise Unfit(f"{path}: a text that is not UTF-8") from None
    return str(found)
