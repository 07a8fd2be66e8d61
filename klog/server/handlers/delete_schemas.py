"""DeleteSchemas (klog's own, 10043): delete a version, or all of a subject, in the schema registry.

Behaviour
    A first deletion marks the version, which hides it; a second one, with ``permanent``, removes it. The schema itself
    remains under its id in both cases.
"""

from __future__ import annotations

from typing import Any

from klog.errors import KlogError
from klog.protocol.apis import ApiKey
from klog.protocol.schema_errors import code_of, words_of
from klog.server.dispatch import Request, handles
from klog.server.schema_registry import BrokerRegistry


@handles(ApiKey.DELETE_SCHEMAS, 0, 0)
async def handle(request: Request, *, registry: BrokerRegistry) -> dict[str, Any]:
    asked = request.entity
    try:
        versions = await registry.ask(
            lambda verbs: verbs.acting(request.actor).delete(asked.subject, asked.version, permanent=asked.permanent)
        )
    except KlogError as error:
        return {"error": code_of(error), "error_message": words_of(error), "versions": []}
    return {"error": 0, "error_message": None, "versions": versions}
