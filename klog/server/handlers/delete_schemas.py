"""DeleteSchemas (klog's own, 10043): delete a version, or all of a subject, in the registry of schemas.

Behaviour
    First a mark, which hides it; then for good, with ``permanent``. The schema stays under its id whatever is deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.errors import KlogError
from klog.protocol.apis import ApiKey
from klog.protocol.schema_errors import code_of, words_of
from klog.server.dispatch import Request, handles

if TYPE_CHECKING:
    from klog.server.broker import Broker


@handles(ApiKey.DELETE_SCHEMAS, 0, 0)
async def handle(broker: Broker, request: Request) -> dict[str, Any]:
    asked = request.entity
    registry = broker.registry
    try:
        versions = await registry.ask(
            lambda verbs: verbs.delete(asked.subject, asked.version, permanent=asked.permanent)
        )
    except KlogError as error:
        return {"error": code_of(error), "error_message": words_of(error), "versions": []}
    return {"error": 0, "error_message": None, "versions": versions}
