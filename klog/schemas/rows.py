"""The verbs of ``klog schema``: over any `Registry`, as rows. They block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from klog.coordination.schemas import AVRO, DEFAULT_LEVEL, check_subject_name
from klog.protocol.schema_errors import SchemaNotFound, SubjectNotFound
from klog.schemas.compatibility import Found, parse_level
from klog.schemas.registry import ALL, LATEST, Registry, incompatible, no_subject, versions_to_delete

EVERY_SUBJECT = "*"
"""In the column SUBJECT: those that have no level of their own."""


@dataclass(frozen=True, slots=True)
class SchemaRow:
    """A version of a subject."""

    id: int
    subject: str
    version: int
    type: str
    deleted: bool = field(default=False, metadata={"wide": True})


@dataclass(frozen=True, slots=True)
class SchemaText:
    """A schema. ``subject`` and ``version`` are unset if the request named its id."""

    id: int
    subject: str | None
    version: int | None
    type: str
    schema: str


@dataclass(frozen=True, slots=True)
class DeletedRow:
    """``permanent``: it was marked before, and is gone now."""

    subject: str
    version: int
    permanent: bool


@dataclass(frozen=True, slots=True)
class LevelRow:
    """Subject ``*``: all that have none of their own."""

    subject: str
    level: str


def list_schemas(registry: Registry, subjects: Sequence[str] = (), *, deleted: bool = False) -> list[SchemaRow]:
    """Every version, by subject; SubjectNotFound for a subject that was named and has none to show."""
    found = {one.name: one for one in registry.subjects(list(subjects) or None)}
    rows = [
        SchemaRow(one.schema_id, name, one.number, AVRO, one.is_deleted)
        for name, subject in found.items()
        for one in (subject.versions if deleted else subject.live)
    ]
    shown = {row.subject for row in rows}
    for name in subjects:
        if name not in shown:
            raise no_subject(name, [one.name for one in registry.subjects()])
    return rows


def get_schema(registry: Registry, which: str, version: int | None = None) -> SchemaText:
    """Of an id, where ``which`` is a number and no version is named; else of a subject, its latest or that version."""
    if which.isascii() and which.isdigit() and version is None:
        schema = registry.schema(int(which))
        return SchemaText(schema.schema_id, None, None, schema.kind, schema.text)
    try:
        one = registry.version(which, LATEST if version is None else version)
    except SubjectNotFound:
        raise no_subject(which, [one.name for one in registry.subjects()]) from None
    schema = registry.schema(one.schema_id)
    return SchemaText(one.schema_id, which, one.number, schema.kind, schema.text)


def register(registry: Registry, subject: str, text: str) -> SchemaRow:
    """The row of the version that has the schema now."""
    made = registry.register(subject, AVRO, text)
    return SchemaRow(made.schema_id, subject, made.number, AVRO)


def preview_register(registry: Registry, subject: str, text: str) -> list[SchemaRow]:
    """The version that has the schema already, or no row where a new one would get it; the errors of `register`."""
    check_subject_name(subject)
    try:
        there = registry.find(subject, AVRO, text)
    except (SchemaNotFound, SubjectNotFound):
        found = registry.check(subject, AVRO, text)
        if found:
            raise incompatible(subject, levels(registry, subject)[0].level, found) from None
        return []
    return [SchemaRow(there.schema_id, subject, there.number, AVRO)]


def check(registry: Registry, subject: str, text: str, version: int | None = None) -> list[Found]:
    """What keeps a schema from being registered; against one version, or against those that the level names."""
    return registry.check(subject, AVRO, text, ALL if version is None else version)


def delete(registry: Registry, subject: str, version: int | None, *, permanent: bool) -> list[DeletedRow]:
    """One version, or all of the subject."""
    gone = registry.delete(subject, ALL if version is None else version, permanent=permanent)
    return [DeletedRow(subject, number, permanent) for number in gone]


def preview_delete(registry: Registry, subject: str, version: int | None, *, permanent: bool) -> list[DeletedRow]:
    """The rows and the errors of `delete`; nothing is deleted."""
    gone = versions_to_delete(registry.subject(subject), ALL if version is None else version, permanent=permanent)
    return [DeletedRow(subject, one.number, permanent) for one in gone]


def preview_level(registry: Registry, subject: str | None, wanted: str | None) -> LevelRow:
    """The level that a subject, or without one the registry, would have; None removes its own."""
    if subject is not None:
        check_subject_name(subject)
    if wanted is not None:
        wanted = parse_level(wanted).value
    if subject is None:
        return LevelRow(EVERY_SUBJECT, wanted or DEFAULT_LEVEL)
    return LevelRow(subject, wanted or registry.level())


def levels(registry: Registry, subject: str | None = None) -> list[LevelRow]:
    """The level of all, and of each subject with its own; or the one that holds for a subject."""
    if subject is not None:
        return [LevelRow(subject, registry.subject(subject).level or registry.level())]
    return [
        LevelRow(EVERY_SUBJECT, registry.level()),
        *(LevelRow(one.name, one.level) for one in registry.subjects() if one.level is not None),
    ]
