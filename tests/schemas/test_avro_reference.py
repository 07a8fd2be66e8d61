"""Avro datums as columns, value for value against fastavro: random schemas, their evolution, whole and damaged data."""

from __future__ import annotations

import copy
import json
import random
import re
from typing import Any

import pytest
from fastavro._read_common import SchemaResolutionError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klog.protocol.schema_errors import InvalidSchema, SchemaNotFound
from klog.record.avro_framing import frame
from klog.schemas.decoding.arrow import arrow_type, parse_columns
from klog.schemas.decoding.decoder import Decoder, Decoding
from klog.schemas.decoding.plan import check_defaults, plan
from tests.schemas import avro_reference as reference


@pytest.fixture(autouse=True)
def _strict(monkeypatch: pytest.MonkeyPatch) -> None:
    reference.be_strict(monkeypatch)


REFUSED_EMPTY = re.compile("'type': '(array|map)'")
"""fastavro compares the types of items before it knows whether there are any."""


def hold_against_reference(values: list[bytes | None], writers: dict[int, Any], reader: Any) -> tuple[int, int]:
    """How many rows were typed, and how many not."""

    def schema_of(schema_id: int) -> str:
        if schema_id not in writers:
            raise SchemaNotFound(str(schema_id))
        return reference.text(writers[schema_id])

    decoder = Decoder(Decoding("value", reference.text(reader)), schema_of)
    typed, undecodable = decoder.split(reference.batch_of(values))
    typed.validate(full=True)
    records = dict(zip(typed["offset"].to_pylist(), reference.raw(typed["record"]), strict=True))
    errors = {} if undecodable is None else {row["offset"]: row for row in undecodable.to_pylist()}
    assert sorted([*records, *errors]) == list(range(len(values)))
    reader_type = parse_columns(reference.text(reader))
    plain_reader = reference.plain(reader)
    plain_writers = {schema_id: reference.plain(writer) for schema_id, writer in writers.items()}
    for offset, value in enumerate(values):
        if value is None:
            assert records[offset] is None
            continue
        try:
            assert len(value) >= 5 and value[0] == 0
            writer = plain_writers[int.from_bytes(value[1:5], "big", signed=True)]
            expected = reference.read(value[5:], writer, plain_reader, reader_type)
        except Exception as error:
            if offset in records and isinstance(error, SchemaResolutionError) and REFUSED_EMPTY.search(str(error)):
                continue
            assert offset in errors, f"{offset} {value!r}: reference says {error!r}, decoded as {records[offset]}"
            assert errors[offset]["value"] == value
            assert errors[offset]["error"]
        else:
            assert offset in records, f"{offset} {value!r}: {errors[offset]['error']}, but it is {expected}"
            assert reference.same(reader_type, records[offset], expected), f"{records[offset]} is not {expected}"
    return len(records), len(errors)


JUNK: list[Any] = [
    None,
    True,
    -1,
    10**30,
    0.5,
    "",
    "x",
    "\ud800",
    "int",
    [],
    {},
    [5],
    {"type": 5},
    [["int"]],
    {"a": {}},
]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**48))
def test_a_schema_is_a_type_with_columns_or_refused(seed: int) -> None:
    schemas = reference.Schemas(random.Random(seed))
    schema: Any = copy.deepcopy({"it": schemas.record()})
    for _ in range(schemas.dice.randint(1, 3)):
        inside: Any = schema
        while True:  # to any place in it
            key = schemas.dice.choice(list(inside) if isinstance(inside, dict) else list(range(len(inside))))
            if not inside[key] or not isinstance(inside[key], (dict, list)) or schemas.dice.random() < 0.1:
                break
            inside = inside[key]
        inside[key] = copy.deepcopy(schemas.dice.choice(JUNK))
        if not isinstance(schema["it"], (dict, list)):
            break
    try:
        found = parse_columns(json.dumps(schema["it"]))
        check_defaults(found)
    except InvalidSchema:
        return
    assert plan(found, found).type == arrow_type(found)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**48), rows=st.sampled_from([1, 4, 12, 60]), damage=st.sampled_from([0.0, 0.2, 0.6]))
def test_random_schemas_and_data(seed: int, rows: int, damage: float) -> None:
    schemas = reference.Schemas(random.Random(seed))
    writer = schemas.record() if schemas.dice.random() < 0.9 else schemas.any(3)
    writers = {7: writer, 1 << 30: schemas.evolved(writer)}
    reader = schemas.evolved(writer)
    values: list[bytes | None] = []
    for _ in range(rows):
        schema_id = schemas.dice.choice(list(writers))
        value: bytes | None = frame(schema_id, schemas.datum(writers[schema_id]))
        values.append(schemas.damaged(value) if value and schemas.dice.random() < damage else value)
    hold_against_reference(values, writers, reader)
