"""SetSchemaLevel (klog's own, 10044): the compatibility level of a subject, or of all subjects.

Behaviour
    The level applies to later registrations; registered versions remain. The answer has the previous level.
"""

from __future__ import annotations

from typing import Any

from klog.errors import KlogError
from klog.protocol.apis import ApiKey
from klog.protocol.schema_errors import code_of, words_of
from klog.server.dispatch import Request, handles
from klog.server.schema_registry import BrokerRegistry


@handles(ApiKey.SET_SCHEMA_LEVEL, 0, 0)
async def handle(request: Request, *, registry: BrokerRegistry) -> dict[str, Any]:
    asked = request.entity
    try:
        prior = await registry.ask(lambda verbs: verbs.acting(request.actor).set_level(asked.subject, asked.level))
    except KlogError as error:
        return {"error": code_of(error), "error_message": words_of(error), "prior": None}
    return {"error": 0, "error_message": None, "prior": prior}
