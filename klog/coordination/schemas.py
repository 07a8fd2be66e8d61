"""The registry of schemas in ZooKeeper: texts under ids, subjects with versions, levels of compatibility.

    /klog/schemas                   {"version":1,"last_id":7,"compatibility":"BACKWARD"}; empty at first
    /klog/schemas/ids/<id>          {"version":1,"type":"AVRO","schema":"{...}"}; never changed nor removed
    /klog/schemas/texts/<SHA-256>   the id of the text: a plain number. The hash is of type, a zero byte and text
    /klog/schemas/subjects/<name>   {"version":1,"compatibility":null,"last":2,
                                     "versions":{"1":{"id":3},"2":{"id":7,"deleted":true}}}

This module stores them and keeps them consistent; the caller decides which schema may follow which.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from klog.coordination import entries, paths
from klog.coordination.acts import Actor, new_act
from klog.coordination.zookeeper import MULTI_BYTES_MAX, Check, Create, Operation, SetData, ZNode, ZooKeeper, put
from klog.errors import BadVersion, NodeExists, NoNode, ZooKeeperError
from klog.protocol.schema_errors import InvalidSchema, InvalidSubject, SchemaError

AVRO = "AVRO"
DEFAULT_LEVEL = "BACKWARD"

SCHEMA_BYTES_MAX = MULTI_BYTES_MAX // 2
"""The limit of a schema's entry; the multi that creates it also has a subject's entry in it."""
SUBJECT_BYTES_MAX = MULTI_BYTES_MAX // 4
"""The limit of a subject's entry: some four thousand versions."""
SUBJECT_CHARS_MAX = 255
SCHEMA_ID_MAX = 2**31 - 1
"""The framing of messages has four bytes for an id, which other decoders read as signed."""
RACE_TRIES = 100

REGISTER_ACT, DELETE_ACT, LEVEL_ACT = "schema-register", "schema-delete", "schema-level"
"""Kinds of acts; the states map versions to their schemas, and `LEVEL` to the subject's own level."""
LEVEL = "compatibility"
CACHE_CHARS_MAX = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Schema:
    """The schema of an id; never changes. ``kind``: the schema type of the Schema Registry API."""

    schema_id: int
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Version:
    """``number`` counts from 1 in its subject and is never reused."""

    number: int
    schema_id: int
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class Subject:
    """``level`` None: the registry's. ``last``: the highest version number ever used. A subject may have no version."""

    name: str
    level: str | None = None
    last: int = 0
    versions: tuple[Version, ...] = ()

    @property
    def live(self) -> tuple[Version, ...]:
        """The versions that are not deleted, the earliest first."""
        return tuple(one for one in self.versions if not one.is_deleted)


@dataclass(frozen=True, slots=True)
class Settings:
    """``level``: that of subjects without one."""

    last_id: int = 0
    level: str = DEFAULT_LEVEL


Decide = Callable[[Settings, Subject], Subject]
"""Decides the new state of a subject; called again after a lost race. If it raises, nothing is changed."""
Admit = Callable[[Settings, Subject], None]
"""Raises if the new version is not allowed."""


class SchemaRegistry:
    """The registry of one cluster. Thread-safe; every call may wait for ZooKeeper.

    Why ZooKeeper and not a topic: it has put-if-absent, versions and writes of several nodes at once, which is all that
    a registry needs. A topic would need one writer at a time, so an election of it, and readers that have followed the
    topic to its end before they may answer. Here every broker answers alike, keeps nothing and follows no log;
    ZooKeeper decides between two registrations at once. The price is its limit of 1 MB per node and per write: a
    schema may have `SCHEMA_BYTES_MAX` bytes, a subject some four thousand versions.

    Rules
    - One multi writes a schema under its id and the version that names it: no reader sees half a registration.
    - Ids go up by one, under the version of the root node, so no two schemas get the same id. The text's own node,
      created by the same multi, keeps a text from getting two ids.
    - A subject's node is never removed, so its version in ZooKeeper only goes up, and a writer that was paused cannot
      overwrite later writes.
    - Every write checks the root node too: a new level applies to every later registration.
    - After a lost answer the registry is read again (rule Z2): a finished registration returns the same id.
    """

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._cache: OrderedDict[int, Schema] = OrderedDict()
        self._cached_chars = 0
        self._cache_lock = threading.Lock()

    # --- Reads ----------------------------------------------------------------------------------------------------

    def schemas(self, ids: Iterable[int]) -> dict[int, Schema]:
        """The schemas of these ids; missing ones are skipped."""
        wanted = list(dict.fromkeys(one for one in ids if 0 < one <= SCHEMA_ID_MAX))
        found = self.known(wanted)
        missing = [one for one in wanted if one not in found]
        if missing:
            for schema_id, node in self._zookeeper.find_many(missing, paths.schema).items():
                found[schema_id] = self._keep(_schema(schema_id, node))
        return found

    def known(self, ids: Iterable[int]) -> dict[int, Schema]:
        """The schemas of these ids that were read before; never blocks."""
        with self._cache_lock:
            return {one: self._cache[one] for one in ids if one in self._cache}

    def _keep(self, schema: Schema) -> Schema:
        with self._cache_lock:
            if schema.schema_id not in self._cache:
                self._cache[schema.schema_id] = schema
                self._cached_chars += len(schema.text)
            while self._cached_chars > CACHE_CHARS_MAX and len(self._cache) > 1:
                self._cached_chars -= len(self._cache.popitem(last=False)[1].text)
        return schema

    def id_of(self, kind: str, text: str) -> int | None:
        """The id of a text registered under any subject, or None."""
        path = paths.schema_text(_digest(kind, text))
        node = self._zookeeper.find(path)
        return None if node is None else entries.number(path, node.data)

    def settings(self) -> Settings:
        return _settings(self._zookeeper.find(paths.SCHEMAS))

    def subjects(self, names: Sequence[str] | None = None) -> list[Subject]:
        """All subjects that have a version, deleted or not, or a level, by name; or the existing ones of these."""
        if names is None:
            names = list(map(paths.group_name, self._zookeeper.find_children(paths.SUBJECTS)))
        else:  # ZooKeeper disconnects a client that asks for a path of a megabyte
            names = [name for name in names if len(name) <= SUBJECT_CHARS_MAX]
        found = [_subject(name, node) for name, node in self._zookeeper.find_many(names, paths.subject).items()]
        return sorted((one for one in found if one.versions or one.level), key=lambda one: one.name)

    # --- Writes ---------------------------------------------------------------------------------------------------

    def register(self, name: str, kind: str, text: str, admit: Admit, actor: Actor | None = None) -> Version:
        """The live version of the subject with this text: an existing one, or a new one that ``admit`` allows.

        A new one is an act by ``actor``, if there is one, like every change of the registry. Raises InvalidSchema for a
        text that is too large, InvalidSubject for a bad name, or for a subject that is full.
        """
        check_subject_name(name)
        path = paths.subject(name)
        of_text = paths.schema_text(_digest(kind, text))
        for _ in range(RACE_TRIES):
            root, node, known = self._zookeeper.get_many([paths.SCHEMAS, path, of_text])
            if root is None:
                self._make_folders()
                continue
            settings, subject = _settings(root), _subject(name, node)
            schema_id = settings.last_id + 1 if known is None else entries.number(of_text, known.data)
            there = next((one for one in subject.live if one.schema_id == schema_id), None)
            if there is not None and known is not None:
                return there
            admit(settings, subject)
            version = Version(subject.last + 1, schema_id)
            grown = replace(subject, last=version.number, versions=(*subject.versions, version))
            write = self._write_subject(grown, node)
            operations: list[Operation] = [write]
            if known is None:
                operations = [
                    SetData(paths.SCHEMAS, _encode_settings(replace(settings, last_id=schema_id)), root.stat.version),
                    Create(of_text, str(schema_id).encode()),
                    Create(paths.schema(schema_id), _encode_schema(kind, text)),
                    *operations,
                ]
            else:
                operations.append(Check(paths.SCHEMAS, root.stat.version))
            if self._commit([*operations, *_acts(actor, subject, grown)], write):
                return version
        raise _too_many_races(name)

    def change(self, name: str, decide: Decide, actor: Actor | None = None) -> Subject:
        """Write the subject as ``decide`` returns it; writes nothing if that changes nothing."""
        check_subject_name(name)
        path = paths.subject(name)
        for _ in range(RACE_TRIES):
            root, node = self._zookeeper.get_many([paths.SCHEMAS, path])
            if root is None:
                self._make_folders()
                continue
            subject = _subject(name, node)
            changed = decide(_settings(root), subject)
            if changed == subject:
                return subject
            write = self._write_subject(changed, node)
            operations: list[Operation] = [write, Check(paths.SCHEMAS, root.stat.version)]
            operations += _acts(actor, subject, changed)
            if self._commit(operations, write):
                return changed
        raise _too_many_races(name)

    def set_level(
        self, level: str, actor: Actor | None = None, check: Callable[[str], object] = lambda level: None
    ) -> str:
        """Set the default level of subjects. Returns the level before, which ``check`` may refuse."""
        for _ in range(RACE_TRIES):
            root = self._zookeeper.find(paths.SCHEMAS)
            if root is None:
                self._make_folders()
                continue
            settings = _settings(root)
            check(settings.level)
            write = SetData(paths.SCHEMAS, _encode_settings(replace(settings, level=level)), root.stat.version)
            noted = _acts(actor, Subject("", settings.level), Subject("", level))
            if settings.level == level or self._commit([write, *noted], write):
                return settings.level
        raise _too_many_races("all subjects")

    # --- Below ----------------------------------------------------------------------------------------------------

    def _commit(self, operations: list[Operation], proof: Operation) -> bool:
        """Whether the write succeeded; False after a lost race: read everything again."""
        try:
            self._zookeeper.commit(operations, [proof])
        except (BadVersion, NodeExists, NoNode):
            return False
        return True

    def _make_folders(self) -> None:
        """Create the nodes in a cluster that is older than the registry."""
        self._zookeeper.ensure_paths([paths.SCHEMA_IDS, paths.SCHEMA_TEXTS, paths.SUBJECTS, paths.ACTS])

    @staticmethod
    def _write_subject(subject: Subject, node: ZNode | None) -> Create | SetData:
        data = _encode_subject(subject)
        if len(data) > SUBJECT_BYTES_MAX:
            raise InvalidSubject(
                f"subject {subject.name} has {len(subject.versions)} versions, which is all that its node can hold",
                hint="delete old versions for good: klog schema delete SUBJECT --version N, and again with --permanent",
            )
        return put(paths.subject(subject.name), data, node)


def _acts(actor: Actor | None, before: Subject, after: Subject) -> list[Create]:
    """The operations that write the acts of a change. The subject "" is the registry, for its default level."""
    if actor is None:
        return []
    found = []
    if before.level != after.level:
        states = [{LEVEL: one.level} for one in (before, after)]
        found.append(new_act(LEVEL_ACT, actor, schema=after.name, before=states[0], after=states[1]))
    if before.versions != after.versions:
        kind = REGISTER_ACT if len(after.live) > len(before.live) else DELETE_ACT
        gone, come = {*before.versions} - {*after.versions}, {*after.versions} - {*before.versions}
        states = [{str(one.number): _text(one) for one in side} for side in (gone, come)]
        found.append(new_act(kind, actor, schema=after.name, before=states[0], after=states[1]))
    return [act.write for act in found]


def _text(version: Version) -> str:
    return f"id {version.schema_id}{', deleted' if version.is_deleted else ''}"


def _digest(kind: str, text: str) -> str:
    return hashlib.sha256(f"{kind}\0{text}".encode()).hexdigest()


def check_subject_name(name: str) -> None:
    """Raise InvalidSubject for one that is empty or too long."""
    if not name or len(name) > SUBJECT_CHARS_MAX:
        raise InvalidSubject(f"a subject's name has 1 to {SUBJECT_CHARS_MAX} characters; {name[:80]!r} has {len(name)}")


def _too_many_races(what: str) -> SchemaError:
    error = SchemaError(f"{what}: others change the registry all the time; {RACE_TRIES} tries were too late")
    error.retriable = True
    return error


def _settings(node: ZNode | None) -> Settings:
    if node is None or not node.data:
        return Settings()
    entry = entries.JsonNode(paths.SCHEMAS, node.data)
    return Settings(entry.integer("last_id", 0), entry.text("compatibility", DEFAULT_LEVEL))


def _encode_settings(settings: Settings) -> bytes:
    return entries.encode({"version": 1, "last_id": settings.last_id, "compatibility": settings.level})


def _schema(schema_id: int, node: ZNode) -> Schema:
    entry = entries.JsonNode(paths.schema(schema_id), node.data)
    return Schema(schema_id, entry.text("type"), entry.text("schema"))


def _encode_schema(kind: str, text: str) -> bytes:
    data = entries.encode({"version": 1, "type": kind, "schema": text})
    if len(data) > SCHEMA_BYTES_MAX:
        raise InvalidSchema(
            f"the schema takes {len(data)} bytes in ZooKeeper; at most {SCHEMA_BYTES_MAX}",
            hint="documentation inside a schema is part of it, and often most of it",
        )
    return data


def _subject(name: str, node: ZNode | None) -> Subject:
    if node is None:
        return Subject(name)
    path = paths.subject(name)
    entry = entries.JsonNode(path, node.data)
    level = entry.fields.get("compatibility")
    if level is not None and not isinstance(level, str):
        raise ZooKeeperError(f"ZooKeeper node {path} has compatibility {level!r}, expected a text or null")
    versions = tuple(
        Version(number, one.integer("id"), one.flag("deleted")) for number, one in entry.entry_map("versions").items()
    )
    return Subject(name, level, entry.integer("last", 0), versions)


def _encode_subject(subject: Subject) -> bytes:
    versions: dict[str, dict[str, Any]] = {
        str(one.number): {"id": one.schema_id, "deleted": True} if one.is_deleted else {"id": one.schema_id}
        for one in subject.versions
    }
    return entries.encode({"version": 1, "compatibility": subject.level, "last": subject.last, "versions": versions})
