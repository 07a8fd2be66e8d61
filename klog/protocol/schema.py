"""Declares klog's own requests, which kio reads and writes.

    request(ApiKey.FIND_THINGS, "``kinds`` None: all.", kinds=tuple[str, ...] | None)
    response(ApiKey.FIND_THINGS, error_code=ErrorCode, things=[{"name": str, "offset": i64}])

Fields are declared as `codec.request` takes their values: a dict is a structure, a list of one an array. What klog's
code makes or annotates by its name is a class instead: a `Structure`, `Request` or `Response` with annotated fields.

All are version 0 and flexible (KIP-482: compact lengths, tags). The types on the wire follow from the annotations, so a
module that declares a class evaluates its annotations: no ``from __future__ import annotations`` there.
"""

import threading
from dataclasses import dataclass, field
from types import GenericAlias
from typing import Any, ClassVar, Final, NamedTuple, dataclass_transform, get_args, get_origin
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.static.constants import EntityType
from kio.static.primitive import f64, i16, i32, i64

from klog.protocol.apis import ApiKey, api_name

REQUESTS: dict[int, Any] = {}
"""Key -> class of all declared requests."""
RESPONSES: dict[int, Any] = {}

_TYPES: Final[dict[Any, str]] = {
    bool: "bool",
    i16: "int16",
    i32: "int32",
    i64: "int64",
    f64: "float64",
    str: "string",
    bytes: "bytes",
    UUID: "uuid",
    ErrorCode: "error_code",
}


class Tagged(NamedTuple):
    """A field added later: old readers skip it, and old writers leave the default."""

    tag: int
    default: Any


def tagged(tag: int, default: Any) -> Any:
    """A tagged field, in a declaration."""
    return Tagged(tag, default)


def _type_on_the_wire(annotation: Any) -> str | None:
    """kio's name of a field's type; None for a structure. For optional fields and arrays that of their element."""
    if annotation in _TYPES:
        return _TYPES[annotation]
    inner = [one for one in get_args(annotation) if one not in (type(None), ...)]
    return _type_on_the_wire(inner[0]) if inner else None


class _DataclassAtFirstUse(type):
    """Whoever asks for the fields makes the class a dataclass: half a millisecond, and a process uses few of them."""

    def __getattr__(cls, name: str) -> Any:
        if name != "__dataclass_fields__" or "__type__" in vars(cls):  # the bases have no fields
            raise AttributeError(name)
        _complete(cls)
        return vars(cls)[name]


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Structure(metaclass=_DataclassAtFirstUse):
    """A group of fields."""

    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __type__: ClassVar = EntityType.nested

    def __init__(self, **values: Any) -> None:
        _complete(type(self))
        type(self).__init__(self, **values)  # its own now


_completing = threading.RLock()
"""Long requests are decoded in threads."""


def _complete(cls: type) -> None:
    with _completing:
        if "__dataclass_fields__" in vars(cls):
            return
        for name, annotation in vars(cls).get("__annotations__", {}).items():
            known = None if get_origin(annotation) is ClassVar else _type_on_the_wire(annotation)
            metadata: dict[str, Any] = {} if known is None else {"kafka_type": known}
            given = vars(cls).get(name)
            if isinstance(given, Tagged):
                setattr(cls, name, field(metadata={**metadata, "tag": given.tag}, default=given.default))
            elif metadata:
                setattr(cls, name, field(metadata=metadata))
        dataclass(frozen=True, kw_only=True)(cls)


class Request(Structure):
    """A request's body."""

    __type__: ClassVar = EntityType.request
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    __api_key__: ClassVar[i16]

    def __init_subclass__(cls, key: ApiKey) -> None:
        cls.__api_key__ = i16(key)
        REQUESTS[key] = cls


class Response(Structure):
    """A response's body."""

    __type__: ClassVar = EntityType.response
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    __api_key__: ClassVar[i16]

    def __init_subclass__(cls, key: ApiKey) -> None:
        cls.__api_key__ = i16(key)
        RESPONSES[key] = cls


def request(key: ApiKey, about: str | None = None, /, **fields: Any) -> None:
    """Declare a request; ``about`` describes it, and its structures."""
    _declare(Request, f"{api_name(key)}Request", about, fields, key=key)


def response(key: ApiKey, about: str | None = None, /, **fields: Any) -> None:
    """Declare a response; ``about`` describes it, and its structures."""
    _declare(Response, f"{api_name(key)}Response", about, fields, key=key)


def _declare(base: Any, name: str, about: str | None, fields: dict[str, Any], **options: Any) -> Any:
    hints = {field: _hint(f"{name}.{field}", kind) for field, kind in fields.items()}
    return type(base)(name, (base,), {"__annotations__": hints, "__doc__": about}, **options)


def _hint(name: str, kind: Any) -> Any:
    if isinstance(kind, dict):
        return _declare(Structure, name, None, kind)
    return GenericAlias(tuple, (_hint(name, kind[0]), ...)) if isinstance(kind, list) else kind
