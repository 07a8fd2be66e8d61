"""ChangeSchemas (klog's own, 10041): register a schema, delete versions, or set a compatibility level.

Behaviour
    It runs in a thread: parsing, comparing and ZooKeeper take time. A schema that is registered already gets its id
    again, so that a client that lost the answer can ask again. 409, with the differences, for an incompatible schema.
    A first deletion marks the version, which hides it; a second one, with ``permanent``, removes it. The schema itself
    remains under its id in both cases. A level applies to later registrations.
"""

from __future__ import annotations

from typing import Any

from klog.errors import KlogError, MalformedRequest
from klog.protocol.apis import ApiKey
from klog.protocol.klog_apis import DELETE, LEVEL, REGISTER
from klog.protocol.schema_errors import code_of, words_of
from klog.schemas.registry import Registry
from klog.server.dispatch import Answer, Request, handles
from klog.server.parts import Parts


@handles(ApiKey.CHANGE_SCHEMAS, 0, 0)
async def handle(request: Request, parts: Parts) -> Answer:
    asked = request.entity
    if asked.act not in (REGISTER, DELETE, LEVEL) or (asked.subject is None and asked.act != LEVEL):
        raise MalformedRequest(f"ChangeSchemas with act {asked.act[:40]!r}")
    answer: dict[str, Any] = {"error": 0, "error_message": None, "id": -1, "versions": [], "prior": None}
    try:
        return answer | await parts.registry.ask(lambda verbs: _changed(verbs.acting(request.actor), asked))
    except KlogError as error:
        return {**answer, "error": code_of(error), "error_message": words_of(error)}


def _changed(registry: Registry, asked: Any) -> dict[str, Any]:
    if asked.act == REGISTER:
        made = registry.register(asked.subject, asked.type, asked.schema)
        return {"id": made.schema_id, "versions": [made.number]}
    if asked.act == DELETE:
        return {"versions": registry.delete(asked.subject, asked.version, permanent=asked.permanent)}
    return {"prior": registry.set_level(asked.subject, asked.level)}
