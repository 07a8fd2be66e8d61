"""Avro's "Schema Resolution", one level deep: which type of a writer matches which type of a reader.

The verdict on compatibility and the decoder both ask here, so what the registry accepts is what the decoder reads.

Rules (specification of Avro 1.12)
- Names of records, enums and fixed types match without their namespaces, or by the reader's aliases.
- int, long, float and double are promoted to the types on their right; string and bytes to each other.
- A reader's field takes the writer's field of its name, else of its first alias that the writer has. A field of the
  writer goes to one field of the reader, and one that matches by name comes first.
"""

from __future__ import annotations

from klog.schemas.avro import Enum, Field, Fixed, Named, Node, Primitive, Record, Union

PROMOTIONS = frozenset(
    {
        ("int", "long"),
        ("int", "float"),
        ("int", "double"),
        ("long", "float"),
        ("long", "double"),
        ("float", "double"),
        ("string", "bytes"),
        ("bytes", "string"),
    }
)
"""(type of the writer, type of the reader)."""


def is_same(writer: Node, reader: Node) -> bool:
    """The same type, by its full name if it has one. What is inside may differ."""
    match writer, reader:
        case Primitive(), Primitive():
            return writer.name == reader.name
        case Fixed(), Fixed():
            return writer.full_name == reader.full_name and writer.size == reader.size
        case (Enum(), Enum()) | (Record(), Record()):
            return writer.full_name == reader.full_name  # type: ignore[union-attr]
    return type(writer) is type(reader)


def matches(writer: Node, reader: Node) -> bool:
    """Whether the reader's type takes values of the writer's. Neither may be a union; what is inside may not match."""
    match writer, reader:
        case Primitive(), Primitive():
            return writer.name == reader.name or (writer.name, reader.name) in PROMOTIONS
        case Fixed(), Fixed():
            return writer.size == reader.size and names_match(writer, reader)
        case (Enum(), Enum()) | (Record(), Record()):
            return names_match(writer, reader)  # type: ignore[arg-type]
    return type(writer) is type(reader)


def names_match(writer: Named, reader: Named) -> bool:
    """Without namespaces, or by the reader's aliases."""
    return _simple(reader.full_name) == _simple(writer.full_name) or writer.full_name in reader.aliases


def _simple(full_name: str) -> str:
    return full_name.rpartition(".")[2]


def branch_for(writer: Node, reader: Union) -> Node | None:
    """The reader's branch that takes the writer's type: the same one, else the first that matches."""
    for test in (is_same, matches):
        for branch in reader.branches:
            if test(writer, branch):
                return branch
    return None


def sources_of(writer: Record, reader: Record) -> list[Field | None]:
    """For each field of the reader, the field of the writer that it reads; None where only a default can fill it."""
    written = {field.name: field for field in writer.fields}
    found = [written.get(field.name) for field in reader.fields]
    taken = {field.name for field in found if field is not None}
    for place, field in enumerate(reader.fields):
        if found[place] is None:
            alias = next((one for one in field.aliases if one in written and one not in taken), None)
            if alias is not None:
                taken.add(alias)
                found[place] = written[alias]
    return found
