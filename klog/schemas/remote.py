"""The registry of schemas over brokers' own requests: for commands, and for an HTTP interface away from the brokers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Sequence
from typing import Any, Final

from klog.client.cluster import Cluster
from klog.coordination.schemas import AVRO, SCHEMA_ID_MAX, Schema, Subject, Version
from klog.errors import NoSuchThing
from klog.protocol.apis import ApiKey
from klog.protocol.klog_apis import DELETE, LEVEL, REGISTER
from klog.protocol.schema_errors import error_of
from klog.schemas.registry import ALL, Registry

READ_AT_ONCE: Final = 64
"""Schemas in an answer."""


class RemoteRegistry(Registry):
    """The registry of a cluster. Its methods block: never called in the cluster's event loop.

    One request at a time, whichever thread asks: a connection that broke is replaced once.
    """

    def __init__(self, cluster: Cluster, loop: asyncio.AbstractEventLoop) -> None:
        """``loop`` is the one that the cluster lives in."""
        self._cluster = cluster
        self._loop = loop
        self._one_at_a_time = threading.Lock()

    def schemas(self, ids: Iterable[int]) -> dict[int, Schema]:
        wanted = [one for one in dict.fromkeys(ids) if 0 < one <= SCHEMA_ID_MAX]
        parts = (wanted[at : at + READ_AT_ONCE] for at in range(0, len(wanted), READ_AT_ONCE))
        read = (one for part in parts for one in self._read(ids=part).schemas)
        return {int(one.id): Schema(int(one.id), str(one.type), str(one.schema)) for one in read}

    def id_of(self, text: str) -> int | None:
        return next((int(one.id) for one in self._read(text=text).schemas), None)

    def level(self) -> str:
        return str(self._read().level)

    def subjects(self, names: Sequence[str] | None = None) -> list[Subject]:
        found = []
        for one in self._read(subjects=None if names is None else list(names)).subjects:
            if one.error:
                raise error_of(int(one.error), one.error_message)
            versions = tuple(Version(int(v.version), int(v.id), bool(v.is_deleted)) for v in one.versions)
            found.append(Subject(str(one.name), one.level, versions=versions))
        return found

    def register(self, subject: str, kind: str, text: str) -> Version:
        answer = self._change(REGISTER, subject, type=kind, schema=text)
        return Version(int(answer.versions[0]), int(answer.id))

    def delete(self, subject: str, version: int = ALL, *, permanent: bool = False) -> list[int]:
        return [int(one) for one in self._change(DELETE, subject, version=version, permanent=permanent).versions]

    def set_level(self, subject: str | None, level: str | None) -> str | None:
        prior = self._change(LEVEL, subject, level=level).prior
        return None if prior is None else str(prior)

    def _read(self, **fields: Any) -> Any:
        return self._ask(ApiKey.READ_SCHEMAS, {"ids": [], "text": None, "subjects": [], **fields})

    def _change(self, act: str, subject: str | None, **fields: Any) -> Any:
        unset = {"type": AVRO, "schema": "", "version": ALL, "permanent": False, "level": None}
        return self._ask(ApiKey.CHANGE_SCHEMAS, {"act": act, "subject": subject, **unset, **fields})

    def _ask(self, key: ApiKey, fields: dict[str, Any]) -> Any:
        with self._one_at_a_time:
            if not self._cluster.is_klog:
                raise NoSuchThing("the cluster has no schema registry: it is not a klog cluster")
            asked = self._cluster.to_any(key, 0, 0, **fields)
            answer = asyncio.run_coroutine_threadsafe(asked, self._loop).result()
        if answer.error:
            raise error_of(int(answer.error), answer.error_message)
        return answer
