"""What klog writes is what kio writes, byte for byte, for every request and answer of every version."""

from __future__ import annotations

import contextlib
import datetime
import random
import struct
import uuid
from dataclasses import fields, is_dataclass
from functools import cache
from io import BytesIO
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from klog.errors import UnsupportedVersion
from klog.protocol.apis import ApiKey
from klog.protocol.encoding import writer_of
from klog.protocol.versions import request_schema, response_schema
from tests.rows import each

hints_of = cache(get_type_hints)
INTEGERS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63, "uint16": 16}
VERSIONS = range(20)


def schemas(key: ApiKey) -> list[Any]:
    found = []
    for of in (request_schema, response_schema):
        for version in VERSIONS:
            with contextlib.suppress(UnsupportedVersion):
                found.append(of(key, version))
    return found


def entity(schema: Any, chance: random.Random) -> Any:
    """One with every field filled, its arrays empty, short or long."""
    hints = hints_of(schema)
    return schema(
        **{one.name: value(hints[one.name], one.metadata.get("kafka_type"), chance) for one in fields(schema)}
    )


def value(hint: Any, kind: str | None, chance: random.Random) -> Any:
    args = get_args(hint)
    if get_origin(hint) is tuple:
        count = chance.choice((0, 1, 2, 3))
        if kind in INTEGERS and chance.random() < 0.1:
            count = 200  # its length takes two bytes
        return tuple(value(args[0], kind, chance) for _ in range(count))
    if type(None) in args:
        inner = next(one for one in args if one is not type(None))
        return None if chance.random() < 0.3 else value(inner, kind, chance)
    if is_dataclass(hint):
        return entity(hint, chance)
    if kind in INTEGERS:
        bits = INTEGERS[kind]
        return chance.choice((0, 1, (1 << bits) - 1, 0 if kind == "uint16" else -(1 << bits), chance.getrandbits(bits)))
    if kind == "string":
        return chance.choice(("", "orders", "ä" * 70, "x" * 300))
    if kind in ("bytes", "records"):
        return chance.randbytes(chance.choice((0, 5, 300)))
    if kind == "bool":
        return chance.random() < 0.5
    if kind == "uuid":
        return uuid.UUID(bytes=chance.randbytes(16))
    if kind == "error_code":
        return chance.choice(list(ErrorCode))
    if kind in ("timedelta_i32", "timedelta_i64"):
        return datetime.timedelta(milliseconds=chance.randrange(1 << 31))
    if kind == "datetime_i64":
        return datetime.datetime.fromtimestamp(chance.randrange(1 << 31), datetime.UTC)
    if kind == "float64":
        return chance.random()
    raise AssertionError(f"{kind} {hint}")


def written(write: Any, one: Any) -> bytes:
    out = BytesIO()
    write(out, one)
    return out.getvalue()


@each("key", list(ApiKey), ids=lambda one: one.name)
def test_bytes_are_kios(key: ApiKey) -> None:
    chance = random.Random(int(key))
    for schema in schemas(key):
        for _ in range(3):
            one = entity(schema, chance)
            expected = written(entity_writer(schema), one)
            assert written(writer_of(schema), one) == expected, f"{schema.__name__} version {schema.__version__}"


def test_a_number_that_does_not_fit_is_an_error() -> None:
    schema = request_schema(ApiKey.COUNT_MESSAGES, 0)
    hints = get_type_hints(schema)
    topic = get_args(hints["topics"])[0]
    ranges = get_args(get_type_hints(topic)["ranges"])[0]
    asked = schema(topics=(topic(name="t", ranges=(ranges(partition_index=1 << 31, from_offset=0, to_offset=0),)),))
    with pytest.raises(struct.error):
        written(writer_of(schema), asked)
