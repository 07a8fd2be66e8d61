"""Whether one schema can read what another writes, by Avro's rules of resolution; and the levels of compatibility.

Source: the specification of Avro 1.12, "Schema Resolution"; kinds of incompatibility under the names that Avro's own
checker for Java gives them.

Rules, beside those of `klog.schemas.resolution`
- A reader's field that the writer has not written needs a default. Fields that only the writer has are skipped.
- Of a writer's union every branch must be readable; of a reader's union one branch must fit what is written.
- A symbol that the reader lacks needs its enum's default. Decimals need the same precision and scale.
- A recursive type is readable unless something in it is not: a pair that is being compared already counts as readable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from klog.names import first_few, near_hint
from klog.protocol.schema_errors import InvalidCompatibilityLevel, InvalidSchema
from klog.schemas.avro import Array, Enum, Fixed, Map, Named, Node, Primitive, Record, Union, type_name
from klog.schemas.parsing import Parsed
from klog.schemas.resolution import matches, names_match, sources_of

COMPARISONS_MAX = 100_000
"""Of pairs of types in one comparison. Only schemas that were made for it need more."""


class Level(StrEnum):
    """Which schema must read data of which other. BACKWARD: the new schema reads data of the last one; FORWARD: the
    last one reads data of the new one; FULL: both. TRANSITIVE: the same with all earlier versions.
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
            f"{text!r} is not a compatibility level",
            hint=near_hint(text.upper(), Level, f"use one of {', '.join(Level)}"),
        ) from None


class Kind(StrEnum):
    """The names of Avro's checker for Java, and one of ours (DECIMAL_MISMATCH)."""

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
    """``version``: the one that is there. ``reader``: ``new`` or ``old``, which schema cannot read the other's data.

    ``path`` is the place in the reader's schema.
    """

    version: int
    reader: str
    kind: str
    path: str
    problem: str


def held_against(new: Parsed, old: Sequence[tuple[int, Parsed]], level: Level) -> list[Found]:
    """Why a level does not allow a new schema after these versions; the earliest version comes first."""
    asked = old if level.is_transitive else old[-1:]
    found: list[Found] = []
    for version, schema in asked:
        if level.new_reads_old:
            found += _found(version, "new", incompatibilities(new.node, schema.node))
        if level.old_reads_new:
            found += _found(version, "old", incompatibilities(schema.node, new.node))
    return found


def _found(version: int, reader: str, problems: list[Incompatibility]) -> list[Found]:
    return [Found(version, reader, one.kind.value, one.path, one.message) for one in problems]


def incompatibilities(reader: Node, writer: Node) -> list[Incompatibility]:
    """Why a reader with one schema cannot read data written with another; empty if it can read all of it."""
    try:
        found = _Comparison().compare(reader, writer)
    except RecursionError:  # types that name each other in a chain of hundreds; no nesting bounds that
        raise _too_entangled() from None
    return [replace(one, path=one.path or "/") for one in found]


def _too_entangled() -> InvalidSchema:
    return InvalidSchema("the types of the schemas name each other in too many ways to be compared")


Pair = tuple[int, int]


@dataclass(slots=True)
class _Comparison:
    """Paths start at the pair; the caller puts its own path in front.

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
                if not matches(writer, reader):
                    yield _mismatch(reader, writer)
                yield from _decimals(reader, writer)
            case Array(), Array():
                yield from _under("items", self.compare(reader.items, writer.items))
            case Map(), Map():
                yield from _under("values", self.compare(reader.values, writer.values))
            case (Named(), Named()) if type(reader) is type(writer) and not names_match(writer, reader):
                yield Incompatibility(
                    Kind.NAME_MISMATCH,
                    "",
                    f"{type_name(reader)} is read where {type_name(writer)} is written, and has no such alias",
                )
            case Enum(), Enum():
                known = set(reader.symbols)
                lacking = [one for one in writer.symbols if one not in known]
                if lacking and reader.default is None:
                    yield Incompatibility(
                        Kind.MISSING_ENUM_SYMBOLS,
                        "",
                        f"{reader.full_name} lacks {first_few(lacking, 5)}, and has no default for unknown symbols",
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
                for one, source in zip(reader.fields, sources_of(writer, reader), strict=True):
                    if source is not None:
                        yield from _under(one.name, self.compare(one.node, source.node))
                    elif not one.has_default:
                        yield Incompatibility(
                            Kind.READER_FIELD_MISSING_DEFAULT_VALUE,
                            f"/{one.name}",
                            f"{writer.full_name} is written without field {one.name}, which has no default",
                        )
            case _:
                yield _mismatch(reader, writer)

    def _branch(self, reader: Union, writer: Node) -> Iterator[Incompatibility]:
        """Nothing if a branch reads the writer's type. If one branch has its type and name, its problems."""
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
            Kind.MISSING_UNION_BRANCH, "", f"{type_name(writer)} is written, and none of the branches {names} reads it"
        )


_OF_THE_WHOLE = (Kind.TYPE_MISMATCH, Kind.NAME_MISMATCH)


def _decimals(reader: Primitive | Fixed, writer: Primitive | Fixed) -> Iterator[Incompatibility]:
    ours, theirs = reader.logical, writer.logical
    if ours and theirs and ours != theirs and ours.name == theirs.name == "decimal":
        yield Incompatibility(
            Kind.DECIMAL_MISMATCH,
            "",
            f"a decimal of precision {ours.precision} and scale {ours.scale} is read where precision "
            f"{theirs.precision} and scale {theirs.scale} are written",
        )


def _mismatch(reader: Node, writer: Node) -> Incompatibility:
    return Incompatibility(Kind.TYPE_MISMATCH, "", f"{type_name(reader)} is read where {type_name(writer)} is written")


def _under(name: str, found: Iterable[Incompatibility]) -> Iterator[Incompatibility]:
    return (replace(one, path=f"/{name}{one.path}") for one in found)
