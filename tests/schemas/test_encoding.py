"""JSON as Avro data: what the decoder shows is encoded again, each type against fastavro, and what does not fit."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from klog.export.files.json_values import json_values
from klog.schemas.decoding.decoder import Decoder, Decoding
from klog.schemas.decoding.json_values import Unfit
from klog.schemas.encoding import Encoder, parse_json
from tests.chance import seed_of
from tests.rows import each
from tests.schemas import avro_reference as reference
from tests.schemas.avro_reference import fields, logical


def encoded(schema: Any, text: str) -> bytes:
    return Encoder(7, json.dumps(schema)).framed(parse_json(text.encode()))


def shown(schema: Any, value: bytes) -> tuple[Any, str | None]:
    """What `klog tail --schema` shows, or why it cannot."""
    decoder = Decoder(Decoding("value", reference.text(schema)), lambda _: reference.text(schema))
    typed, undecodable = decoder.split(pa.record_batch({"value": pa.array([value], pa.binary())}))
    if undecodable is not None:
        return None, undecodable["error"][0].as_py()
    return json_values(typed["record"])[0], None


TREE = {
    "type": "record",
    "name": "tree",
    "fields": [{"name": "leaf", "type": "int"}, {"name": "more", "type": {"type": "array", "items": "tree"}}],
}


@each(
    ("schema", "text", "value"),
    [
        ("null", "null", None),
        ("boolean", "true", True),
        ("int", "-2147483648", -(2**31)),
        ("long", "9223372036854775807", 2**63 - 1),
        ("float", "0.5", 0.5),
        ("double", "0.1", 0.1),
        ("string", '"é\\u0000"', "é\0"),
        ("bytes", '"AP8="', b"\0\xff"),
        ({"type": "fixed", "name": "f", "size": 2}, '"AP8="', b"\0\xff"),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, '"B"', "B"),
        ({"type": "array", "items": "int"}, "[1, 2, 3]", [1, 2, 3]),
        ({"type": "array", "items": "int"}, "[]", []),
        ({"type": "map", "values": "int"}, '{"a": 1}', {"a": 1}),
        (["null", "string"], '"x"', "x"),
        (["null", "string"], '{"string": "x"}', "x"),
        (["null", "string"], "null", None),
        (["int", "string", "null"], '"5"', "5"),
        (["int", "string", "null"], '{"member0": null, "member1": "5"}', "5"),
        (TREE, '{"leaf": 1, "more": [{"leaf": 2, "more": []}]}', {"leaf": 1, "more": [{"leaf": 2, "more": []}]}),
    ],
)
def test_a_value_is_encoded_as_others_read_it(schema: Any, text: str, value: Any) -> None:
    found = encoded(schema, text)
    assert found[:5] == b"\0\0\0\0\7"
    assert fastavro.schemaless_reader(io.BytesIO(found[5:]), fastavro.parse_schema(schema), None) == value


@each(
    ("schema", "text", "whole"),
    [
        (logical("bytes", "decimal", precision=5, scale=2), "-12.3", b"\x04\xfb\x32"),
        (logical("bytes", "decimal", precision=38, scale=0), '"12345678901234567890123456789012345678"', None),
        (logical("fixed", "decimal", precision=5, scale=2, name="d", size=4), '"-12.30"', b"\xff\xff\xfb\x32"),
        (logical("fixed", "uuid", name="u", size=16), '"00112233-4455-6677-8899-aabbccddeeff"', None),
        (logical("fixed", "duration", name="u", size=12), '{"months": 1, "days": 2, "milliseconds": 3}', None),
        (logical("int", "date"), '"1970-01-03"', b"\x04"),
        (logical("int", "time-millis"), '"00:00:00.002"', b"\x04"),
        (logical("long", "timestamp-millis"), '"1970-01-01T00:00:00.002Z"', b"\x04"),
        (logical("long", "timestamp-millis"), "2", b"\x04"),
        (logical("long", "local-timestamp-micros"), '"1970-01-01T00:00:00.000002"', b"\x04"),
    ],
)
def test_a_logical_type_is_written_as_it_is_shown(schema: Any, text: str, whole: bytes | None) -> None:
    found = encoded(schema, text)
    assert whole is None or found[5:] == whole
    value, error = shown(schema, found)
    assert error is None and encoded(schema, json.dumps(value)) == found


def test_what_the_decoder_shows_is_encoded_again() -> None:
    dice = random.Random(seed_of(__name__))
    again = beyond = 0
    for _ in range(100):
        schemas = reference.Schemas(dice)
        schema = schemas.record()
        value = b"\0\0\0\0\7" + schemas.datum(schema)
        line, error = shown(schema, value)
        if error is not None:
            continue
        try:
            found = encoded(schema, json.dumps(line))
        except Unfit as unfit:
            assert "expected a" in str(unfit), "a number, date or time that JSON does not have"
            beyond += 1
            continue
        assert shown(schema, found) == (line, None), (schema, line)
        again += 1
    assert again > 3 * beyond


LINE = {**fields(sku="string"), "name": "line"}
ORDER = fields(id="long", lines={"type": "array", "items": LINE}, note=["null", "string"])


@each(
    ("text", "facts"),
    [
        ('{"id": "x", "lines": []}', ("id:", "whole number", '"x"')),
        ('{"lines": []}', ("id", "missing")),
        ('{"id": 1, "lines": [], "nots": 1}', ("nots", "note")),
        ('{"id": 1, "lines": [{"sku": "a"}, {"sku": 5}]}', ("lines.1.sku:", "a text", "5")),
        ('{"id": 1, "lines": [{"sku": "a"}], "note": 7}', ("note:", "a text", "7")),
        ('{"id": 1, "id": 2, "lines": []}', ("id", "twice")),
        ("[]", ("an object", "[]")),
        ("{", ("not JSON", "1")),
        ("\xff", ("not JSON",)),
        ("", ("not JSON",)),
        ("[" * 100_000, ("nested",)),
    ],
)
def test_what_does_not_fit_says_which_field_what_it_found_and_what_it_expects(
    text: str, facts: tuple[str, ...]
) -> None:
    encoder = Encoder(7, json.dumps(ORDER))
    with pytest.raises(Unfit) as failed:
        encoder.framed(parse_json(text.encode("latin-1")))
    assert all(fact in str(failed.value) for fact in facts), str(failed.value)
    assert encoder.framed(parse_json(b'{"id": 1, "lines": []}'))[5:] == b"\2\0\0"


@each(
    ("schema", "text"),
    [
        ("string", "5"),
        ("bytes", '"a"'),
        ({"type": "fixed", "name": "f", "size": 2}, '"AA=="'),
        (logical("long", "timestamp-millis"), '"1970-01-01T00:00:00.000002Z"'),
        (logical("fixed", "uuid", name="u", size=16), '"0011"'),
        (logical("fixed", "duration", name="u", size=12), '{"months": 1, "days": 2}'),
        (["int", "string"], "1.5"),
    ],
)
def test_nothing_is_bent_to_fit(schema: Any, text: str) -> None:
    with pytest.raises(Unfit, match="expected"):
        encoded(schema, text)


def test_a_missing_field_has_its_default() -> None:
    schema = fields(a="int")
    schema["fields"] += [
        {"name": "b", "type": ["string", "null"], "default": "x"},
        {"name": "c", "type": "bytes", "default": "\u00ff"},
        {"name": "d", "type": logical("int", "date"), "default": 3},
        {"name": "e", "type": ["null", "int"]},
    ]
    found = encoded(schema, '{"a": 1}')[5:]
    given = fastavro.schemaless_reader(io.BytesIO(found), fastavro.parse_schema(fields(a="int")), None)
    assert given == {"a": 1}
    assert found == b"\2" + b"\0\2x" + b"\2\xff" + b"\6" + b"\0"
