"""The registry of schemas as its users know it: register, find, check, delete, set levels.

`Registry` is what the HTTP interface and the commands speak to. Here it is on ZooKeeper itself, for brokers;
`klog.schemas.remote` has the same over brokers' own requests.

Semantics are the common registry's, with these differences: a version's number is never given again, and a schema stays
under its id for ever, also when every version that named it is deleted for good, since messages name it still.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

from klog.coordination.acts import Actor
from klog.coordination.schemas import AVRO, DEFAULT_LEVEL, Schema, SchemaRegistry, Settings, Subject, Version
from klog.names import near_hint
from klog.protocol.schema_errors import (
    IncompatibleSchema,
    InvalidSchema,
    SchemaNotFound,
    SchemaVersionDeleted,
    SchemaVersionNotDeleted,
    SchemaVersionNotFound,
    SubjectDeleted,
    SubjectNotDeleted,
    SubjectNotFound,
)
from klog.schemas.compatibility import Found, held_against, parse_level
from klog.schemas.parsing import Parsed, parse

LATEST = -1
ALL = 0
"""In place of a version's number: for `delete` the whole subject, for `check` those that the level asks for."""
TEXT_CHARS_MAX = 1024 * 1024
"""Of a schema as it is sent, with its spaces: four times what ZooKeeper takes of a canonical text."""
SHOWN_MAX = 5
"""Incompatibilities in one error message."""


ONE_PARSES = threading.Lock()
"""Held while JSON of a peer's is parsed. A megabyte of it holds the interpreter for tens of milliseconds; threads that
parse together would leave the event loop none."""


class Registry(ABC):
    """Every method may wait, and may be called by any thread. Raises SchemaError, or what keeps it from answering."""

    def acting(self, actor: Actor) -> Registry:
        """The registry as this client changes it: its changes are acts of the client. Brokers know who asks them."""
        return self

    @abstractmethod
    def schemas(self, ids: Iterable[int]) -> dict[int, Schema]:
        """Those there are."""

    @abstractmethod
    def id_of(self, text: str) -> int | None:
        """The id of a text, as `klog.schemas.parsing.parse` gives it, that is registered under any subject."""

    @abstractmethod
    def level(self) -> str:
        """The compatibility level of subjects that have none of their own."""

    @abstractmethod
    def subjects(self, names: Sequence[str] | None = None) -> list[Subject]:
        """All, by name, or those of these that there are; deleted versions are among theirs."""

    @abstractmethod
    def register(self, subject: str, kind: str, text: str) -> Version:
        """The version that has the schema, new or there already. IncompatibleSchema, InvalidSchema, InvalidSubject."""

    @abstractmethod
    def delete(self, subject: str, version: int = ALL, *, permanent: bool = False) -> list[int]:
        """The versions deleted; for good only what is deleted already."""

    @abstractmethod
    def set_level(self, subject: str | None, level: str | None) -> str | None:
        """The level before. Without a subject: the level of the registry. A level of None removes the subject's own."""

    def schema(self, schema_id: int) -> Schema:
        """SchemaNotFound."""
        found = self.schemas([schema_id]).get(schema_id)
        if found is None:
            raise SchemaNotFound(f"schema {schema_id} does not exist", hint="`klog schema list` lists the schemas")
        return found

    def versions(self, name: str, *, deleted: bool = False) -> tuple[Version, ...]:
        """A subject's live versions, or with ``deleted`` all. SubjectNotFound where there are none."""
        there = self.subject(name)
        found = there.versions if deleted else there.live
        if not found:
            raise no_subject(name)
        return found

    def version(self, name: str, number: int, *, deleted: bool = False) -> Version:
        """One of `versions`, or the latest. SchemaVersionNotFound too."""
        among = self.versions(name, deleted=deleted)
        return among[-1] if number == LATEST else _version(name, among, number)

    def find(self, name: str, kind: str, text: str, *, deleted: bool = False) -> Version:
        """The version that has the schema. SubjectNotFound, SchemaNotFound."""
        among = self.versions(name, deleted=deleted)
        schema_id = self.id_of(_parsed(kind, text).text)
        found = [one for one in among if one.schema_id == schema_id]
        if not found:
            raise SchemaNotFound(f"the schema is not registered under subject {name!r}")
        return found[-1]

    def check(self, name: str, kind: str, text: str, version: int = ALL) -> list[Found]:
        """What would keep the schema from following a version, under the subject's level. Nothing is registered."""
        parsed, there = _parsed(kind, text), self.subject(name)
        versions = there.live if version == ALL else (self.version(name, version),)
        return self._held_against(parsed, versions, there.level or self.level())

    def subject(self, name: str) -> Subject:
        """Without versions where there is none of this name."""
        found = self.subjects([name])
        return found[0] if found else Subject(name)

    def _held_against(self, parsed: Parsed, versions: Sequence[Version], level: str) -> list[Found]:
        wanted = parse_level(level)
        if not wanted.is_transitive:
            versions = versions[-1:]
        texts = self.schemas(one.schema_id for one in versions)
        old = [(one.number, parse_once(texts[one.schema_id].text)) for one in versions]
        return held_against(parsed, old, wanted)


class ZooKeeperRegistry(Registry):
    """The registry on ZooKeeper. Thread-safe; keeps nothing of its own."""

    def __init__(
        self, kept: SchemaRegistry, actor: Actor | None = None, has_room: Callable[[int], None] = lambda size: None
    ) -> None:
        """``has_room`` raises the error where a new schema of so many bytes may not be kept."""
        self._kept = kept
        self._actor = actor
        self._has_room = has_room

    def acting(self, actor: Actor) -> ZooKeeperRegistry:
        return ZooKeeperRegistry(self._kept, actor, self._has_room)

    def schemas(self, ids: Iterable[int]) -> dict[int, Schema]:
        return self._kept.schemas(ids)

    def id_of(self, text: str) -> int | None:
        return self._kept.id_of(AVRO, text)

    def level(self) -> str:
        return self._kept.settings().level

    def subjects(self, names: Sequence[str] | None = None) -> list[Subject]:
        return self._kept.subjects(names)

    def register(self, subject: str, kind: str, text: str) -> Version:
        parsed = _parsed(kind, text)

        def admit(settings: Settings, there: Subject) -> None:
            self._has_room(len(parsed.text.encode()))
            level = there.level or settings.level
            if found := self._held_against(parsed, there.live, level):
                raise incompatible(subject, level, found)

        return self._kept.register(subject, kind, parsed.text, admit, self._actor)

    def delete(self, subject: str, version: int = ALL, *, permanent: bool = False) -> list[int]:
        gone: list[Version] = []

        def decide(settings: Settings, there: Subject) -> Subject:
            gone[:] = versions_to_delete(there, version, permanent=permanent)
            if permanent:
                left = tuple(one for one in there.versions if one not in gone)
                return replace(there, versions=left, level=there.level if left else None)
            marked = (replace(one, is_deleted=True) if one in gone else one for one in there.versions)
            return replace(there, versions=tuple(marked))

        self._kept.change(subject, decide, self._actor)
        return [one.number for one in gone]

    def set_level(self, subject: str | None, level: str | None) -> str | None:
        wanted = None if level is None else parse_level(level).value
        if subject is None:
            return self._kept.set_level(wanted or DEFAULT_LEVEL, self._actor)
        prior: str | None = None

        def decide(settings: Settings, there: Subject) -> Subject:
            nonlocal prior
            prior = there.level
            return replace(there, level=wanted)

        self._kept.change(subject, decide, self._actor)
        return prior


@lru_cache(maxsize=128)
def parse_once(text: str) -> Parsed:
    """`klog.schemas.parsing.parse` of a registered text. The same texts come again and again."""
    return parse(text)


def _parsed(kind: str, text: str) -> Parsed:
    if kind.upper() != AVRO:
        raise InvalidSchema(f"a schema of type {kind}: {AVRO} alone is served")
    if len(text) > TEXT_CHARS_MAX:
        raise InvalidSchema(f"the schema has {len(text)} characters; at most {TEXT_CHARS_MAX}")
    with ONE_PARSES:
        return parse(text)


def versions_to_delete(subject: Subject, version: int, *, permanent: bool) -> list[Version]:
    """The versions that `Registry.delete` deletes, or its error."""
    if not subject.versions:
        raise no_subject(subject.name)
    among = subject.versions if permanent else subject.live
    if version == ALL:
        if permanent and subject.live:
            raise SubjectNotDeleted(
                f"subject {subject.name!r} must be deleted before it can be deleted permanently",
                hint=f"its live versions: {_numbers(subject.live)}",
            )
        if not among:
            raise SubjectDeleted(
                f"subject {subject.name!r} is deleted already", hint="for good: klog schema delete SUBJECT --permanent"
            )
        return list(among)
    if version == LATEST:
        if not among:
            raise SubjectDeleted(f"subject {subject.name!r} is deleted already")
        found = among[-1]
    else:
        found = _version(subject.name, subject.versions, version)
    if permanent and not found.is_deleted:
        raise SchemaVersionNotDeleted(
            f"version {found.number} of {subject.name!r} must be deleted before it can be deleted permanently"
        )
    if found.is_deleted and not permanent:
        raise SchemaVersionDeleted(f"version {found.number} of {subject.name!r} is deleted already")
    return [found]


def _version(subject: str, among: Sequence[Version], number: int) -> Version:
    found = next((one for one in among if one.number == number), None)
    if found is None:
        raise SchemaVersionNotFound(
            f"subject {subject!r} has no version {number}", hint=f"those there are: {_numbers(among) or 'none'}"
        )
    return found


def _numbers(versions: Sequence[Version]) -> str:
    return ", ".join(str(one.number) for one in versions)


def no_subject(name: str, known: Iterable[str] = ()) -> SubjectNotFound:
    """The error, with the subjects that have such a name."""
    hint = near_hint(name, known, "`klog schema list` lists the subjects")
    return SubjectNotFound(f"subject {name!r} does not exist", hint=hint)


def incompatible(name: str, level: str, found: Sequence[Found]) -> IncompatibleSchema:
    """The error of a subject of this level, with the first incompatibilities."""
    shown = "; ".join(describe(one) for one in found[:SHOWN_MAX])
    more = f"; and {len(found) - SHOWN_MAX} more" if len(found) > SHOWN_MAX else ""
    return IncompatibleSchema(f"the schema is not compatible with those of subject {name!r} ({level}): {shown}{more}")


def describe(found: Found) -> str:
    """``version 2 cannot read the new schema at /name: ...``."""
    version, new = f"version {found.version}", "the new schema"
    reader, writer = (version, new) if found.reader == "old" else (new, version)
    return f"{reader} cannot read {writer} at {found.path}: {found.problem}"
