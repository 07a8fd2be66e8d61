"""Whether what one schema writes another can read, by Avro's rules of resolution; and the levels a subject may ask for.

Source: the specification of Avro 1.12, "Schema Resolution"; kinds of incompatibility under the names that Avro's own
checker for Java gives them.

Rules
- Names of records, enums and fixed types match without their namespaces, or by the reader's aliases.
- A reader's field takes the writer's field of its name, or of one of its aliases; what it finds neither for needs a
  default. What only the writer has is skipped.
- int, long, float and double are promoted to what stands right of them; string and bytes to each other.
- Of a writer's union every branch must be readable; of a reader's union one branch must fit what is written.
- A symbol that the reader lacks needs its enum's default. Decimals need the same precision and scale.
- A recursive type is readable unless something in it is not: a pair that is being compared already counts as readable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from klog.ops.schemas.avro import Array, Enum, Fixed, Map, Node, Parsed, Primitive, Record, Union, type_name
from klog.protocol.schema_errors import InvalidCompatibilityLevel, InvalidSchema

COMPARISONS_MAX = 100_000
"""Of pairs of types in one comparison. Schemas that need more are made to need more."""


class Level(StrEnum):
    """Who must be able to read what. BACKWARD: the new schema what the last one wrote; FORWARD: the last one what the
    new one writes; FULL: both. TRANSITIVE: not the last one alone, but all.
    """

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def new_reads_old(self) -> bool:
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def old_reads_new(self) -> bool:
        return self.value.startswith(("FORWARD", "FULL"))

    @property
    def is_transitive(self) -> bool:
        return self.value.endswith("_TRANSITIVE")


def parse_level(text: str) -> Level:
    """In any case. InvalidCompatibilityLevel for another word."""
    try:
        return Level(text.upper())
    except ValueError:
        raise InvalidCompatibilityLevel(
            f"{text!r} is no compatibility level", hint=f"those there are: {', '.join(Level)}"
        ) from None


class Kind(StrEnum):
    """What is wrong; the names of Avro's checker for Java, and one of ours."""

    NAME_MISMATCH = "NAME_MISMATCH"
    FIXED_SIZE_MISMATCH = "FIXED_SIZE_MISMATCH"
    MISSING_ENUM_SYMBOLS = "MISSING_ENUM_SYMBOLS"
    READER_FIELD_MISSING_DEFAULT_VALUE = "READER_FIELD_MISSING_DEFAULT_VALUE"
    TYPE_MISMATCH = "TYPE_MISMATCH"
    MISSING_UNION_BRANCH = "MISSING_UNION_BRANCH"
    DECIMAL_MISMATCH = "DECIMAL_MISMATCH"


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """``path`` leads to the place in the reader's schema: ``/customer/addresses/items/zip``; ``/`` is all of it."""

    kind: Kind
    path: str
    message: str


@dataclass(frozen=True, slots=True)
class Found:
    """An incompatibility with a version; ``reader`` is ``new`` or ``old``, whose schema cannot read the other's."""

    version: int
    reader: str
    problem: Incompatibility


def held_against(new: Parsed, old: Sequence[tuple[int, Parsed]], level: Level) -> list[Found]:
    """What keeps a new schema from following these versions, the earliest first, under a level."""
    asked = old if level.is_transitive else old[-1:]
    found: list[Found] = []
    for version, schema in asked:
        if level.new_reads_old:
            found += [Found(version, "new", one) for one in incompatibilities(new.node, schema.node)]
        if level.old_reads_new:
            found += [Found(version, "old", one) for one in incompatibilities(schema.node, new.node)]
    return found


def incompatibilities(reader: Node, writer: Node) -> list[Incompatibility]:
    """What a reader by one schema cannot make of data written by another; nothing if it can read all of them."""
    try:
        found = _Comparison().compare(reader, writer)
    except RecursionError:  # types that name each other in a chain of hundreds; no nesting bounds that
        raise _too_entangled() from None
    return [replace(one, path=one.path or "/") for one in found]


def _too_entangled() -> InvalidSchema:
    return InvalidSchema("the types of the schemas name each other in too many ways to be compared")


_PROMOTED = {
    ("int", "long"),
    ("int", "float"),
    ("int", "double"),
    ("long", "float"),
    ("long", "double"),
    ("float", "double"),
    ("string", "bytes"),
    ("bytes", "string"),
}
"""(written as, read as)."""

Pair = tuple[int, int]


@dataclass(slots=True)
class _Comparison:
    """Paths inside are from the pair on; whoever asked puts its own in front.

    ``_known`` has what is certain: what was found wrong (it was found although all above was taken to be right), and
    what was found right without leaning on a pair above it that may yet be found wrong.
    """

    _known: dict[Pair, list[Incompatibility]] = field(default_factory=dict)
    _open: dict[Pair, int] = field(default_factory=dict)
    """Pair that is being compared -> how deep."""
    _leans_on: int = 2**31
    """The least depth of a pair that what was just compared has taken to be right."""
    _left: int = COMPARISONS_MAX

    def compare(self, reader: Node, writer: Node) -> list[Incompatibility]:
        pair = (id(reader), id(writer))
        if pair in self._known:
            return self._known[pair]
        if pair in self._open:
            self._leans_on = min(self._leans_on, self._open[pair])
            return []
        self._left -= 1
        if self._left < 0:
            raise _too_entangled()
        depth = self._open[pair] = len(self._open)
        outer, self._leans_on = self._leans_on, 2**31
        found = list(self._differences(reader, writer))
        del self._open[pair]
        if found or self._leans_on >= depth:
            self._known[pair] = found
            self._leans_on = outer
        else:
            self._leans_on = min(outer, self._leans_on)
        return found

    def _differences(self, reader: Node, writer: Node) -> Iterator[Incompatibility]:
        match reader, writer:
            case _, Union():
                for branch in writer.branches:
                    yield from self.compare(reader, branch)
            case Union(), _:
                yield from self._branch(reader, writer)
            case Primitive(), Primitive():
                if reader.name != writer.name and (writer.name, reader.name) not in _PROMOTED:
                    yield _mismatch(reader, writer)
                yield from _decimals(reader, writer)
            case Array(), Array():
                yield from _under("items", self.compare(reader.items, writer.items))
            case Map(), Map():
                yield from _under("values", self.compare(reader.values, writer.values))
            case (Enum(), Enum()) | (Fixed(), Fixed()) | (Record(), Record()):
                if not names_match(reader, writer):  # type: ignore[arg-type]
                    yield Incompatibility(
                        Kind.NAME_MISMATCH,
                        "",
                        f"{type_name(reader)} is read where {type_name(writer)} is written, and is no alias of it",
                    )
                    return
                yield from self._of_a_name(reader, writer)
            case _:
                yield _mismatch(reader, writer)

    def _of_a_name(self, reader: Node, writer: Node) -> Iterator[Incompatibility]:
        match reader, writer:
            case Enum(), Enum():
                known = set(reader.symbols)
                lacking = [one for one in writer.symbols if one not in known]
                if lacking and reader.default is None:
                    yield Incompatibility(
                        Kind.MISSING_ENUM_SYMBOLS,
                        "",
                        f"{reader.full_name} lacks {_some(lacking)}, and has no default for what it does not know",
                    )
            case Fixed(), Fixed():
                if reader.size != writer.size:
                    yield Incompatibility(
                        Kind.FIXED_SIZE_MISMATCH,
                        "",
                        f"{reader.full_name} has {reader.size} bytes where {writer.size} are written",
                    )
                yield from _decimals(reader, writer)
            case Record(), Record():
                written = {one.name: one for one in writer.fields}
                for one in reader.fields:
                    source = next((written[name] for name in (one.name, *one.aliases) if name in written), None)
                    if source is not None:
                        yield from _under(one.name, self.compare(one.node, source.node))
                    elif not one.has_default:
                        yield Incompatibility(
                            Kind.READER_FIELD_MISSING_DEFAULT_VALUE,
                            f"/{one.name}",
                            f"{writer.full_name} is written without field {one.name}, which has no default",
                        )

    def _branch(self, reader: Union, writer: Node) -> Iterator[Incompatibility]:
        """Nothing if a branch fits; where one is meant, by its type and name, what is wrong inside it."""
        meant: list[tuple[Node, list[Incompatibility]]] = []
        for branch in reader.branches:
            found = self.compare(branch, writer)
            if not found:
                return
            if type(branch) is type(writer) and all(one.path or one.kind not in _OF_THE_WHOLE for one in found):
                meant.append((branch, found))
        if len(meant) == 1:
            branch, found = meant[0]
            yield from _under(type_name(branch), found)
            return
        names = ", ".join(type_name(one) for one in reader.branches)
        yield Incompatibility(
            Kind.MISSING_UNION_BRANCH, "", f"{type_name(writer)} is written, for which no branch is among {names}"
        )


_OF_THE_WHOLE = (Kind.TYPE_MISMATCH, Kind.NAME_MISMATCH)


def names_match(reader: Record | Enum | Fixed, writer: Record | Enum | Fixed) -> bool:
    """Without namespaces, or by the reader's aliases."""
    return _simple(reader.full_name) == _simple(writer.full_name) or writer.full_name in reader.aliases


def _simple(full_name: str) -> str:
    return full_name.rpartition(".")[2]


def _decimals(reader: Primitive | Fixed, writer: Primitive | Fixed) -> Iterator[Incompatibility]:
    ours, theirs = reader.decimal, writer.decimal
    if ours and theirs and ours != theirs:
        yield Incompatibility(
            Kind.DECIMAL_MISMATCH,
            "",
            f"a decimal of precision {ours[0]} and scale {ours[1]} is read where precision {theirs[0]} and scale "
            f"{theirs[1]} are written",
        )


def _mismatch(reader: Node, writer: Node) -> Incompatibility:
    return Incompatibility(Kind.TYPE_MISMATCH, "", f"{type_name(reader)} is read where {type_name(writer)} is written")


def _under(name: str, found: Iterable[Incompatibility]) -> Iterator[Incompatibility]:
    return (replace(one, path=f"/{name}{one.path}") for one in found)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
