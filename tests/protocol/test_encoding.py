"""What klog writes is what kio writes, byte for byte, for every request and answer of every version."""

from __future__ import annotations

import contextlib
import datetime
import random
import struct
import uuid
from io import BytesIO
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from klog.errors import UnsupportedVersion
from klog.protocol.apis import ApiKey
from klog.protocol.encoding import writer_of
from klog.protocol.entity_fields import Field, element_of, fields_of
from klog.protocol.versions import request_schema, response_schema
from tests.rows import each

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
    return schema(**{one.name: value(one, chance) for one in fields_of(schema)})


def value(field: Field, chance: random.Random) -> Any:
    kind = field.kind
    if field.is_nullable and chance.random() < 0.3:
        return None
    if field.is_array:
        count = chance.choice((0, 1, 2, 3))
        if kind in INTEGERS and chance.random() < 0.1:
            count = 200  # its length takes two bytes
        return tuple(value(field._replace(is_array=False, is_nullable=False), chance) for _ in range(count))
    if field.is_structure:
        return entity(field.element, chance)
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
    raise AssertionError(field)


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
    topic = element_of(schema, "topics")
    ranges = element_of(topic, "ranges")
    asked = schema(topics=(topic(name="t", ranges=(ranges(partition_index=1 << 31, from_offset=0, to_offset=0),)),))
    with pytest.raises(struct.error):
        written(writer_of(schema), asked)
