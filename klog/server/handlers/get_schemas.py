"""GetSchemas (klog's own, 10040): schemas by their ids.

Behaviour
    Read in ZooKeeper once a broker, then answered from memory: what stands under an id never changes. 40403 for an id
    that was never given out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.errors import KlogError
from klog.protocol.apis import ApiKey
from klog.protocol.schema_errors import SchemaNotFound, code_of, words_of
from klog.server.dispatch import Request, handles

if TYPE_CHECKING:
    from klog.server.broker import Broker


@handles(ApiKey.GET_SCHEMAS, 0, 0)
async def handle(broker: Broker, request: Request) -> dict[str, Any]:
    ids = request.entity.ids
    try:
        found = await broker.registry.schemas(ids)
    except KlogError as error:
        return {"schemas": [_error(schema_id, error) for schema_id in ids]}
    return {
        "schemas": [
            {"id": one, "error": 0, "error_message": None, "type": found[one].kind, "schema": found[one].text}
            if one in found
            else _error(one, SchemaNotFound(f"there is no schema {one}"))
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
