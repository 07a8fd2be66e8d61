"""Avro's rules of resolution, rule by rule; and random pairs held against the checker that Avro has."""

from __future__ import annotations

import json
import random
from typing import Any

import avro.schema
import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from hypothesis import assume, given
from hypothesis import strategies as st

from klog.protocol.schema_errors import InvalidCompatibilityLevel, InvalidSchema
from klog.schemas.avro import Record
from klog.schemas.compatibility import Found, Kind, Level, held_against, incompatibilities, parse_level
from klog.schemas.parsing import parse
from tests.rows import each
from tests.schemas import avro_reference as reference


def found(reader: Any, writer: Any) -> list[tuple[str, str]]:
    """(kind, path) of each."""
    both = parse(json.dumps(reader)).node, parse(json.dumps(writer)).node
    return [(one.kind.value, one.path) for one in incompatibilities(*both)]


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def one(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def enum(*symbols: str, name: str = "E", **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def fixed(size: int, name: str = "F", **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **more}


PROMOTED = {
    ("int", "long"), ("int", "float"), ("int", "double"), ("long", "float"), ("long", "double"), ("float", "double"),
    ("string", "bytes"), ("bytes", "string"),
}  # fmt: skip
"""(written, read): the whole list of the specification."""


PRIMITIVES = ["null", *reference.PRIMITIVES]


@each("reader", PRIMITIVES)
def test_primitives_are_read_as_themselves_and_as_what_they_are_promoted_to(reader: str) -> None:
    for writer in PRIMITIVES:
        fits = reader == writer or (writer, reader) in PROMOTED
        assert found(reader, writer) == ([] if fits else [("TYPE_MISMATCH", "/")]), writer


LACKING = "READER_FIELD_MISSING_DEFAULT_VALUE"
TREE = record(one("value", "int"), one("children", {"type": "array", "items": "Tree"}), name="Tree")
LIST = record(one("next", ["null", "Link"]), name="Link")

COMPATIBLE = [
    # what only the writer has is skipped; what only the reader has comes from its default
    (record(), record(one("a", "int"))),
    (record(one("a", "int", default=1)), record()),
    (record(one("b", "int"), one("a", "int")), record(one("a", "int"), one("b", "int"))),
    (record(one("a", "long")), record(one("a", "int"))),
    # aliases, of fields and of types
    (record(one("b", "int", aliases=["a"])), record(one("a", "int"))),
    (record(one("b", "long", aliases=["x", "a"])), record(one("a", "int"))),
    (record(name="S", aliases=["R"]), record()),
    (record(name="S", namespace="n", aliases=["R"]), record(name="n.R")),
    (enum("A", name="D", aliases=["E"]), enum("A")),
    (fixed(2, name="G", aliases=["F"]), fixed(2)),
    # names match without their namespaces
    (record(name="a.R"), record(name="b.R")),
    (enum("A", name="a.E"), enum("A", name="b.E")),
    # enums
    (enum("B", "A"), enum("A", "B")),
    (enum("A", "B"), enum("A")),
    (enum("A", default="A"), enum("A", "B", "C")),
    # containers
    ({"type": "array", "items": "double"}, {"type": "array", "items": "int"}),
    ({"type": "map", "values": "bytes"}, {"type": "map", "values": "string"}),
    # unions
    (["null", "int"], "int"),
    (["null", "long"], "int"),
    (["string", "double"], ["int", "bytes"]),
    ("long", ["int", "long"]),
    ("int", ["int"]),
    (["null", record(one("a", "int", default=0))], record()),
    ([enum("A"), enum("B", name="F")], enum("B", name="F")),
    # recursion
    (TREE, TREE),
    ({**TREE, "fields": [one("value", "long"), *TREE["fields"][1:]]}, TREE),
    (LIST, LIST),
    # logical types say nothing, but for decimals
    ({"type": "long", "logicalType": "timestamp-millis"}, "long"),
    ("bytes", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}),
    (fixed(4, logicalType="decimal", precision=4), fixed(4, logicalType="decimal", precision=4, scale=0)),
]

INCOMPATIBLE = [
    (record(one("a", "int")), record(), [(LACKING, "/a")]),
    (record(one("a", "int"), one("b", "int")), record(), [(LACKING, "/a"), (LACKING, "/b")]),
    (record(one("b", "int")), record(one("a", "int", aliases=["b"])), [(LACKING, "/b")]),
    (record(one("b", "int", aliases=["a"])), record(one("a", "string")), [("TYPE_MISMATCH", "/b")]),
    (record(one("a", "int", default=1)), record(one("a", "long")), [("TYPE_MISMATCH", "/a")]),
    # the decoder gives what was written to one field, so the registry does not count it twice
    (record(one("a", "int"), one("b", "int", aliases=["a"])), record(one("a", "int")), [(LACKING, "/b")]),
    (
        record(one("b", "int", aliases=["a"]), one("c", "int", aliases=["a"])),
        record(one("a", "int")),
        [(LACKING, "/c")],
    ),
    (record(name="S"), record(), [("NAME_MISMATCH", "/")]),
    (record(), record(name="S", aliases=["R"]), [("NAME_MISMATCH", "/")]),
    (record(name="S", namespace="n", aliases=["R"]), record(name="R"), [("NAME_MISMATCH", "/")]),
    (enum("A"), enum("A", "B"), [("MISSING_ENUM_SYMBOLS", "/")]),
    (enum("A"), enum("A", "B", default="A"), [("MISSING_ENUM_SYMBOLS", "/")]),
    (enum("A", name="D"), enum("A"), [("NAME_MISMATCH", "/")]),
    (fixed(2), fixed(3), [("FIXED_SIZE_MISMATCH", "/")]),
    (fixed(2), fixed(2, name="G"), [("NAME_MISMATCH", "/")]),
    (fixed(2), "bytes", [("TYPE_MISMATCH", "/")]),
    (enum("A"), "string", [("TYPE_MISMATCH", "/")]),
    ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}, [("TYPE_MISMATCH", "/items")]),
    ({"type": "map", "values": "int"}, {"type": "array", "items": "int"}, [("TYPE_MISMATCH", "/")]),
    ("int", ["int", "null"], [("TYPE_MISMATCH", "/")]),
    ("int", ["int", "long"], [("TYPE_MISMATCH", "/")]),
    (["null", "int"], "string", [("MISSING_UNION_BRANCH", "/")]),
    (["int"], ["int", "null"], [("MISSING_UNION_BRANCH", "/")]),
    (["null", record(one("a", "int"))], record(), [(LACKING, "/R/a")]),
    (
        {**TREE, "fields": [one("value", "string"), *TREE["fields"][1:]]},
        TREE,
        [("TYPE_MISMATCH", "/value")],
    ),
    (
        record(one("x", record(one("y", {"type": "array", "items": enum("A")}), name="In"))),
        record(one("x", record(one("y", {"type": "array", "items": enum("B")}), name="In"))),
        [("MISSING_ENUM_SYMBOLS", "/x/y/items")],
    ),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
        {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 3},
        [("DECIMAL_MISMATCH", "/")],
    ),
]  # fmt: skip


@each(("reader", "writer"), COMPATIBLE)
def test_what_can_be_read(reader: Any, writer: Any) -> None:
    assert found(reader, writer) == []


@each(("reader", "writer", "why"), INCOMPATIBLE)
def test_what_cannot_be_read_and_where(reader: Any, writer: Any, why: list[tuple[str, str]]) -> None:
    assert found(reader, writer) == why


def test_a_pair_that_was_taken_to_be_right_is_looked_at_again() -> None:
    """Inside the first branch, B is readable if A is; A is not, so that B, met again behind it, is not either."""

    def both(of_a: Any) -> Any:
        a = record(one("b", record(one("back", ["null", "A"]), name="B")), one("x", of_a), name="A")
        return record(one("first", ["null", a]), one("second", "B"), name="Top")

    assert found(both("string"), both("string")) == []
    wrong = found(both("string"), both("int"))
    assert ("TYPE_MISMATCH", "/first/A/x") in wrong
    assert any(path.startswith("/second") for _, path in wrong)


def test_entangled_schemas_end() -> None:
    names = [f"R{number}" for number in range(40)]
    previous: Any = "null"
    for name in names:
        previous = record(
            one("a", ["null", previous] if previous != "null" else "int"), one("b", ["null", name]), name=name
        )
    assert found(previous, previous) == []  # fmt: skip


def test_a_chain_of_types_that_is_too_long_to_follow_is_refused() -> None:
    """Each is defined beside the one before and names it, so that the text is flat."""

    def chain(length: int) -> Any:
        links = [
            one(f"f{number}", record(one("next", f"L{number - 1}"), name=f"L{number}")) for number in range(1, length)
        ]
        return record(one("f0", record(name="L0")), *links, name="Top")

    def last_first(length: int) -> Any:
        """A reader of the chain that begins at its end."""
        raw = chain(length)
        return {"type": "record", "name": "Outer", "fields": [one("all", raw), one("end", f"L{length - 1}")]}

    assert found(last_first(50), last_first(50)) == []
    reader = parse(json.dumps(last_first(3000))).node
    writer = parse(json.dumps(last_first(3000))).node
    assert isinstance(reader, Record) and isinstance(writer, Record)
    with pytest.raises(InvalidSchema):
        incompatibilities(reader.fields[1].node, writer.fields[1].node)


@given(st.integers(0, 2**48))
def test_the_verdict_is_that_of_avros_own_checker(seed: int) -> None:
    schemas = reference.Schemas(random.Random(seed), is_entangled=True)
    old = reference.plain(schemas.any(3))
    new = schemas.evolved(schemas.evolved(schemas.evolved(old)))
    try:
        wrong = incompatibilities(parse(json.dumps(new)).node, parse(json.dumps(old)).node)
    except InvalidSchema:
        assume(False)
    checker = ReaderWriterCompatibilityChecker()
    verdict = checker.get_compatibility(avro.schema.parse(json.dumps(new)), avro.schema.parse(json.dumps(old)))
    assert (verdict.compatibility is SchemaCompatibilityType.compatible) == (not wrong)


# --- Levels -----------------------------------------------------------------------------------------------------------

OLD = [(1, parse(json.dumps(record(one("a", "int"))))), (2, parse(json.dumps(record(one("a", "long")))))]
"""The second reads what the first has written; the first does not read the second's."""


@each(
    ("level", "expected"),
    [
        ("NONE", []),
        ("BACKWARD", []),
        ("BACKWARD_TRANSITIVE", []),
        ("FORWARD", [(2, "old")]),
        ("FORWARD_TRANSITIVE", [(1, "old"), (2, "old")]),
        ("FULL", [(2, "old")]),
        ("FULL_TRANSITIVE", [(1, "old"), (2, "old")]),
    ],
)
def test_a_level_says_who_reads_what(level: str, expected: list[tuple[int, str]]) -> None:
    new = parse(json.dumps(record(one("a", "double"))))
    assert [(wrong.version, wrong.reader) for wrong in held_against(new, OLD, Level(level))] == expected
    assert held_against(new, [], Level(level)) == []


def test_without_transitivity_the_last_version_alone_counts() -> None:
    new = parse(json.dumps(record(one("a", "long"), one("b", "int", default=0))))
    later = [*OLD, (3, parse(json.dumps(record(one("b", "int")))))]
    wrong = held_against(parse(json.dumps(record(one("a", "int"), one("b", "int")))), later, Level.BACKWARD)
    assert [(one.version, one.kind, one.path) for one in wrong] == [(3, Kind.READER_FIELD_MISSING_DEFAULT_VALUE, "/a")]
    assert isinstance(held_against(new, later, Level.BACKWARD_TRANSITIVE)[0], Found)


def test_the_name_of_a_level() -> None:
    assert parse_level("full_transitive") is Level.FULL_TRANSITIVE
    with pytest.raises(InvalidCompatibilityLevel, match="SIDEWARD"):
        parse_level("SIDEWARD")
