"""The schema whose columns take the values of two: what a table was begun with, and what was written later.

Rules
    * A field that only one of the two has is optional in the result: null where it was not written and has no default.
    * int becomes long, float double, and a decimal gets more digits of the same scale, where both mean the same thing.
      A finer unit of a timestamp replaces the coarser one. An enum gets the symbols of both.
    * Everything else leaves a column as it is, since what is in it already would mean something else. Messages whose
      value it cannot take are undecodable.
    * Aliases rename nothing here: a field under a new name is a new column.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from klog.protocol.schema_errors import InvalidSchema
from klog.schemas.avro import Array, Enum, Field, Fixed, Map, Node, Primitive, Record, Union, describe, type_name
from klog.schemas.decoding.arrow import arrow_type, logical_of, members_of, parse_columns
from klog.schemas.decoding.plan import logical_problem
from klog.schemas.parsing import text_of
from klog.schemas.resolution import branch_for, matches, names_match, sources_of


def widened(reader: str, writer: str, *, types_stay: bool = False) -> str:
    """The text of a schema whose columns take what both schemas write; ``reader`` itself where it takes all already.

    A writer's record of another name is not a version of the reader's, and adds nothing. InvalidSchema where all that
    is written is of another type. ``types_stay``: a column's type stays where a wider one would take more.
    """
    before, written = parse_columns(reader), parse_columns(writer)
    records = [next((one for one in _branches(node) if isinstance(one, Record)), None) for node in (before, written)]
    if records[0] is not None and records[1] is not None and not names_match(records[1], records[0]):
        return reader
    if records.count(None) == 1:
        return reader
    after = _Widening(types_stay).of(before, written, "")
    return reader if after is before else text_of(after)


def _branches(node: Node) -> tuple[Node, ...]:
    return node.branches if isinstance(node, Union) else (node,)


class _Widening:
    """Each method returns ``column`` itself where it takes the values already; a type that occurs twice stays one."""

    def __init__(self, types_stay: bool) -> None:
        self._types_stay = types_stay
        self._done: dict[tuple[int, int], tuple[Node, Node, Node]] = {}  # all are kept: no id comes twice

    def of(self, column: Node, written: Node, path: str) -> Node:
        if isinstance(written, Union):
            for branch in written.branches:
                column = self.of(column, branch, path)
            return column
        if type_name(written) == "null":
            return _optional(column)
        if isinstance(column, Union):
            return self._union(column, written, path)
        match column, written:
            case Primitive() | Fixed(), Primitive() | Fixed() if type(column) is type(written):
                return self._plain(column, written, path)
            case Array(), Array():
                items = self.of(column.items, written.items, f"{path}[]")
                return column if items is column.items else Array(items)
            case Map(), Map():
                values = self.of(column.values, written.values, f"{path}[]")
                return column if values is column.values else Map(values)
            case Enum(), Enum() if names_match(written, column):
                added = tuple(one for one in written.symbols if one not in column.symbols)
                return replace(column, symbols=column.symbols + added) if added else column
            case Record(), Record() if names_match(written, column):
                known = self._done.get((id(column), id(written)))
                if known is None:
                    known = self._done[id(column), id(written)] = column, written, self._record(column, written, path)
                return known[2]
        raise _refused(column, written, path)

    def _union(self, column: Union, written: Node, path: str) -> Node:
        members = members_of(column)
        found = branch_for(written, column)
        for member in members if found is None else [found]:
            try:
                wider = self.of(member, written, path)
            except InvalidSchema:
                if found is not None:
                    raise
                continue
            if wider is member:
                return column
            return Union(tuple(wider if one is member else one for one in column.branches))
        if len(members) < 2:  # the column would become a struct of members
            raise _refused(column, written, path)
        return Union((*column.branches, written))

    def _plain(self, column: Primitive | Fixed, written: Primitive | Fixed, path: str) -> Node:
        digits = [logical.precision if (logical := logical_of(one)) else 0 for one in (column, written)]
        for one in (written, column) if digits[1] > digits[0] > 0 else (column, written):
            reads_both = all(matches(other, one) and not logical_problem(other, one) for other in (column, written))
            if reads_both and _may_become(column, one):
                return column if self._types_stay and arrow_type(one) != arrow_type(column) else one
        raise _refused(column, written, path)

    def _record(self, column: Record, written: Record, path: str) -> Node:
        fields: list[Field] = []
        sources = sources_of(written, column)
        for field, source in zip(column.fields, sources, strict=True):
            if source is None:
                fields.append(field if field.has_default else _absent(field))
                continue
            try:
                node = self.of(field.node, source.node, f"{path}.{field.name}" if path else field.name)
            except InvalidSchema:
                node = field.node
            fields.append(field if node is field.node else replace(field, node=node))
        taken = {source.name for source in sources if source is not None}
        added = [replace(one, aliases=()) for one in written.fields if one.name not in taken]
        fields += [one if one.has_default else _absent(one) for one in added]
        if len(fields) == len(column.fields) and all(a is b for a, b in zip(fields, column.fields, strict=True)):
            return column
        if not column.fields:
            raise _refused(column, written, path)  # a record without fields is a column of booleans
        return replace(column, fields=tuple(fields))


def _may_become(column: Node, wider: Node) -> bool:
    """Whether values in a column of the first type mean the same in one of the second."""
    before, after = arrow_type(column), arrow_type(wider)
    if before == after:
        return True
    if logical_of(column) is None and logical_of(wider) is None:
        return (before, after) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))
    decimals = pa.types.is_decimal128(before) and pa.types.is_decimal128(after)
    return bool(decimals) and before.scale == after.scale and before.precision < after.precision


def _absent(field: Field) -> Field:
    """The field of a record that may be written without it."""
    return replace(field, node=_optional(field.node), has_default=True, default=None)


def _optional(node: Node) -> Node:
    branches = _branches(node)
    if any(type_name(one) == "null" for one in branches):
        return node
    return Union((Primitive("null"), *branches))


def _refused(column: Node, written: Node, path: str) -> InvalidSchema:
    return InvalidSchema(
        f"{path or 'the datum'} is a column of {describe(column)}, which cannot become one of {describe(written)}"
    )
