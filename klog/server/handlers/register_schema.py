"""RegisterSchema (klog's own, 10042): register a schema under a subject, find it there, or check whether it could be.

Behaviour
    It runs in a thread: parsing, comparing and ZooKeeper take time. A schema that is registered already gets its id
    again, so that a client that lost the answer can ask again. 409, with the differences, for an incompatible schema.
"""

from __future__ import annotations

from typing import Any

from klog.errors import KlogError, MalformedRequest
from klog.protocol import schemas
from klog.protocol.apis import ApiKey
from klog.protocol.schema_errors import IncompatibleSchema, code_of, words_of
from klog.schemas.compatibility import Found
from klog.server.dispatch import Request, handles
from klog.server.schema_registry import BrokerRegistry


@handles(ApiKey.REGISTER_SCHEMA, 0, 0)
async def handle(request: Request, *, registry: BrokerRegistry) -> dict[str, Any]:
    asked = request.entity
    answer: dict[str, Any] = {"error": 0, "error_message": None, "id": -1, "version": -1, "incompatibilities": []}
    if asked.act not in (schemas.REGISTER, schemas.FIND, schemas.CHECK):
        raise MalformedRequest(f"RegisterSchema with act {asked.act[:40]!r}")
    try:
        if asked.act == schemas.CHECK:
            found = await registry.ask(
                lambda verbs: verbs.check(asked.subject, asked.type, asked.schema, asked.version)
            )
            return {**answer, "incompatibilities": [_shown(one) for one in found]}
        if asked.act == schemas.FIND:
            version = await registry.ask(
                lambda verbs: verbs.find(asked.subject, asked.type, asked.schema, deleted=asked.deleted)
            )
        else:
            version = await registry.ask(
                lambda verbs: verbs.acting(request.actor).register(asked.subject, asked.type, asked.schema)
            )
    except IncompatibleSchema as error:
        refused = [_shown(one) for one in error.found]
        return {**answer, "error": code_of(error), "error_message": words_of(error), "incompatibilities": refused}
    except KlogError as error:
        return {**answer, "error": code_of(error), "error_message": words_of(error)}
    return {**answer, "id": version.schema_id, "version": version.number}


def _shown(one: Found) -> dict[str, Any]:
    return {
        "version": one.version,
        "reader": one.reader,
        "kind": one.problem.kind.value,
        "path": one.problem.path,
        "message": one.problem.message,
    }
