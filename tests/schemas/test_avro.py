"""Avro schemas read and written: what is one schema, and what is none."""

from __future__ import annotations

import json
import random
import re
import sys
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.protocol.schema_errors import InvalidSchema
from klog.schemas.avro import Fixed, Logical, Primitive
from klog.schemas.parsing import DEPTH_MAX, parse
from tests.rows import each
from tests.schemas.avro_reference import Schemas

RECORD: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "next", "type": ["null", "Order"], "default": None},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"], "default": "A"}},
    ],
}

ID, NEXT, KIND = RECORD["fields"]


def text(raw: Any) -> str:
    return parse(json.dumps(raw)).text


@each(
    ("one", "other"),
    [
        ("string", {"type": "string"}),
        ({"type": {"type": "array", "items": "int"}}, {"items": {"type": "int"}, "type": "array"}),
        (RECORD, dict(reversed(RECORD.items()))),
        (RECORD, {**RECORD, "name": "shop.Order", "namespace": "ignored.beside.a.full.name"}),
        (
            RECORD,
            {**RECORD, "fields": [ID, {**NEXT, "type": ["null", "shop.Order"]}, KIND]},
        ),
        (
            {"type": "fixed", "name": "F", "size": 4, "b": {"y": 1, "x": 2}, "a": 1},
            {"a": 1, "type": "fixed", "b": {"x": 2, "y": 1}, "name": "F", "size": 4},
        ),
    ],
)
def test_equal_schemas_are_one_text(one: Any, other: Any) -> None:
    assert text(one) == text(other) == parse(text(one)).text


@each(
    "other",
    [
        {**RECORD, "doc": "of a customer"},
        {**RECORD, "aliases": ["Purchase"]},
        {**RECORD, "namespace": "other"},
        {**RECORD, "fields": RECORD["fields"][:2]},
        {**RECORD, "fields": [{"name": "id", "type": {"type": "long", "logicalType": "timestamp-millis"}}]},
        {**RECORD, "fields": [{**RECORD["fields"][0], "default": 1}, *RECORD["fields"][1:]]},
    ],
)
def test_what_a_reader_would_miss_makes_another_text(other: Any) -> None:
    assert text(RECORD) != text(other)


def test_the_text_is_what_avro_for_java_would_write() -> None:
    assert text(RECORD) == (
        '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"long"},'
        '{"name":"next","type":["null","Order"],"default":null},'
        '{"name":"kind","type":{"type":"enum","name":"Kind","symbols":["A","B"],"default":"A"}}]}'
    )
    inner = {"type": "record", "name": "o.In", "fields": [{"name": "up", "type": "shop.Order"}]}
    assert '"name":"In","namespace":"o","fields":[{"name":"up","type":"shop.Order"}]' in text(
        {**RECORD, "fields": [{"name": "in", "type": inner}]}
    )


def test_a_bare_word_is_a_primitive() -> None:
    assert parse(" string\n").text == '"string"'


@each(
    ("raw", "path"),
    [
        ("nonsense", ""),
        ("", ""),
        ('{"type": "int"', ""),
        ("NaN", ""),
        ('{"type":"record","name":"R","fields":[{"name":"f","type":"double","default":1e999}]}', ""),
        ('"\\ud800"', ""),
        ('{"type":"fixed","name":"F","size":1,"x":"\\ud800"}', ""),
        ("17", ""),
        ("{}", ""),
        ('"Nobody"', ""),
        ('{"type":"array"}', ""),
        ("[]", ""),
        ('["int","int"]', ""),
        ('["int",["null"]]', ""),
        ('[{"type":"array","items":"int"},{"type":"array","items":"long"}]', ""),
        ('{"type":"enum","name":"E","symbols":["A","A"]}', ""),
        ('{"type":"enum","name":"E","symbols":["1"]}', ""),
        ('{"type":"enum","name":"E","symbols":["A"],"default":"B"}', ""),
        ('{"type":"fixed","name":"F","size":-1}', ""),
        ('{"type":"fixed","name":"F","size":true}', ""),
        ('{"type":"fixed","name":"a..F","size":1}', ""),
        ('{"type":"fixed","name":"int","size":1}', ""),
        ('{"type":"record","name":"R","fields":[{"name":"f","type":"int"},{"name":"f","type":"int"}]}', ""),
        ('{"type":"record","name":"R","fields":[{"name":"f","type":"int","default":"1"}]}', "/f"),
        ('{"type":"record","name":"R","fields":[{"name":"f","type":"int","default":2147483648}]}', "/f"),
        ('{"type":"record","name":"R","fields":[{"name":"f","type":["null","int"],"default":"x"}]}', "/f"),
        ('{"type":"record","name":"R","fields":[{"name":"f","type":"int","order":"up"}]}', "/f"),
        ('{"type":"record","name":"R","fields":[{"type":"int"}]}', ""),
        ('{"type":"record","name":"R","fields":{}}', ""),
        (
            '[{"type":"record","name":"R","fields":[]},{"type":"array","items":{"type":"fixed","name":"R","size":1}}]',
            "",
        ),
        ('{"type":"array","items":' * (DEPTH_MAX + 1) + '"int"' + "}" * (DEPTH_MAX + 1), ""),
        ("[" * 100_000, ""),
    ],
)
def test_what_is_not_a_schema_is_refused_with_its_path(raw: str, path: str) -> None:
    with pytest.raises(InvalidSchema, match=re.escape(path) or None):
        parse(raw)


@given(st.integers(0, 2**48))
def test_any_schema_is_read_as_another_library_reads_it(seed: int) -> None:
    """The text is the same schema for fastavro: its canonical form of both agrees."""
    raw = Schemas(random.Random(seed), is_entangled=True).any(3)
    found = parse(json.dumps(raw)).text
    assert parse(found).text == found
    assert fastavro.schema.to_parsing_canonical_form(json.loads(found)) == (
        fastavro.schema.to_parsing_canonical_form(raw)
    )


def test_a_record_of_many_fields_takes_as_much_longer_as_it_has_more_of_them() -> None:
    def calls(fields: int) -> int:
        wide, count = text({**RECORD, "fields": [{**ID, "name": f"f{number}"} for number in range(fields)]}), 0

        def called(frame: object, event: str, argument: object) -> None:
            nonlocal count
            count += event == "call"

        sys.setprofile(called)
        try:
            parse(wide)
        finally:
            sys.setprofile(None)
        return count

    assert calls(800) < 10 * calls(100)


@each(
    ("raw", "logical"),
    [
        ({"type": "int", "logicalType": "date"}, Logical("date")),
        ({"type": "long", "logicalType": "date"}, None),
        ({"type": "string", "logicalType": "uuid"}, Logical("uuid")),
        ({"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}, Logical("uuid")),
        ({"type": "fixed", "name": "F", "size": 12, "logicalType": "uuid"}, None),
        ({"type": "fixed", "name": "F", "size": 12, "logicalType": "duration"}, Logical("duration")),
        ({"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 10}, Logical("decimal", 60, 10)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 5}, None),
        ({"type": "bytes", "logicalType": "decimal"}, None),
        ({"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 4}, Logical("decimal", 4)),
        ({"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 5}, None),
        ({"type": "int", "logicalType": "of-another-system"}, None),
    ],
)
def test_a_logical_type_counts_where_it_fits(raw: Any, logical: Logical | None) -> None:
    node = parse(json.dumps(raw)).node
    assert isinstance(node, Primitive | Fixed)
    assert node.logical == logical
