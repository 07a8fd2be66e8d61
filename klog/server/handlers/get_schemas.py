"""GetSchemas (klog's own, 10040): schemas by their ids.

Behaviour
    Each broker reads a schema from ZooKeeper once and then answers from memory: the schema of an id never changes.
    40403 for an id that was never assigned.
"""

from __future__ import annotations

from typing import Any

from klog.errors import KlogError
from klog.protocol.apis import ApiKey
from klog.protocol.schema_errors import SchemaNotFound, code_of, words_of
from klog.server.dispatch import Request, handles
from klog.server.schema_registry import BrokerRegistry


@handles(ApiKey.GET_SCHEMAS, 0, 0)
async def handle(request: Request, *, registry: BrokerRegistry) -> dict[str, Any]:
    ids = request.entity.ids
    try:
        found = await registry.schemas(ids)
    except KlogError as error:
        return {"schemas": [_error(schema_id, error) for schema_id in ids]}
    return {
        "schemas": [
            {"id": one, "error": 0, "error_message": None, "type": found[one].kind, "schema": found[one].text}
            if one in found
            else _error(one, SchemaNotFound(f"schema {one} does not exist"))
            for one in ids
        ]
    }


def _error(schema_id: int, error: KlogError) -> dict[str, Any]:
    return {
        "id": schema_id,
        "error": code_of(error),
        "error_message": words_of(error),
        "type": "",
        "schema": "",
    }
