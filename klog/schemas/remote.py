"""The registry of schemas over brokers' own requests: for commands, and for an HTTP interface away from the brokers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Sequence
from typing import Any

from klog.client.cluster import Cluster
from klog.coordination.acts import Actor
from klog.coordination.schemas import Schema, Subject, Version
from klog.errors import NoSuchThing
from klog.protocol import schemas
from klog.protocol.apis import ApiKey
from klog.protocol.schema_errors import IncompatibleSchema, SchemaNotFound, error_of
from klog.schemas.compatibility import Found, Incompatibility, Kind
from klog.schemas.registry import ALL


class RemoteRegistry:
    """`klog.schemas.registry.Registry` of a cluster. Its methods block: never called in the cluster's event loop.

    One request at a time, whichever thread asks: a connection that broke is replaced once.
    """

    def __init__(self, cluster: Cluster, loop: asyncio.AbstractEventLoop) -> None:
        """``loop`` is the one that the cluster lives in."""
        self._cluster = cluster
        self._loop = loop
        self._one_at_a_time = threading.Lock()

    def acting(self, actor: Actor) -> RemoteRegistry:
        """The brokers know who asks."""
        return self

    def schemas(self, ids: Iterable[int]) -> dict[int, Schema]:
        answer = self._ask(ApiKey.GET_SCHEMAS, ids=list(ids))
        found = {}
        for one in answer.schemas:
            if one.error == 0:
                found[int(one.id)] = Schema(int(one.id), str(one.type), str(one.schema))
            elif one.error != SchemaNotFound.registry_code:
                raise error_of(int(one.error), one.error_message)
        return found

    def text_of(self, schema_id: int) -> str:
        """A schema's text; SchemaNotFound."""
        found = self.schemas([schema_id]).get(schema_id)
        if found is None:
            raise SchemaNotFound(f"there is no schema {schema_id}")
        return found.text

    def level(self) -> str:
        return str(self._ask(ApiKey.LIST_SUBJECTS, subjects=[]).level)

    def subjects(self, names: Sequence[str] | None = None) -> list[Subject]:
        answer = self._ask(ApiKey.LIST_SUBJECTS, subjects=None if names is None else list(names))
        return [
            Subject(
                str(one.name),
                one.level,
                versions=tuple(Version(int(v.version), int(v.id), bool(v.is_deleted)) for v in one.versions),
            )
            for one in answer.subjects
        ]

    def register(self, subject: str, kind: str, text: str) -> Version:
        return self._version(schemas.REGISTER, subject, kind, text)

    def find(self, subject: str, kind: str, text: str, *, deleted: bool = False) -> Version:
        return self._version(schemas.FIND, subject, kind, text, deleted=deleted)

    def check(self, subject: str, kind: str, text: str, version: int = ALL) -> list[Found]:
        return _found(self._act(schemas.CHECK, subject, kind, text, version=version))

    def delete(self, subject: str, version: int = ALL, *, permanent: bool = False) -> list[int]:
        answer = self._ask(ApiKey.DELETE_SCHEMAS, subject=subject, version=version, permanent=permanent)
        return [int(one) for one in answer.versions]

    def set_level(self, subject: str | None, level: str | None) -> str | None:
        answer = self._ask(ApiKey.SET_SCHEMA_LEVEL, subject=subject, level=level)
        return None if answer.prior is None else str(answer.prior)

    def _version(self, act: str, subject: str, kind: str, text: str, *, deleted: bool = False) -> Version:
        answer = self._act(act, subject, kind, text, deleted=deleted)
        return Version(int(answer.version), int(answer.id))

    def _act(self, act: str, subject: str, kind: str, text: str, *, version: int = ALL, deleted: bool = False) -> Any:
        return self._ask(
            ApiKey.REGISTER_SCHEMA,
            act=act,
            subject=subject,
            type=kind,
            schema=text,
            version=version,
            deleted=deleted,
        )

    def _ask(self, key: ApiKey, **fields: Any) -> Any:
        with self._one_at_a_time:
            if not self._cluster.is_klog:
                raise NoSuchThing(f"{self._cluster} has no schema registry: it is not a klog cluster")
            asked = self._cluster.to_any(key, 0, 0, **fields)
            answer = asyncio.run_coroutine_threadsafe(asked, self._loop).result()
        code = int(getattr(answer, "error", 0))
        if code == IncompatibleSchema.registry_code:
            raise IncompatibleSchema(str(answer.error_message), found=_found(answer))
        if code:
            raise error_of(code, answer.error_message)
        return answer


def _found(answer: Any) -> list[Found]:
    return [
        Found(int(one.version), str(one.reader), Incompatibility(Kind(one.kind), str(one.path), str(one.message)))
        for one in answer.incompatibilities
    ]
