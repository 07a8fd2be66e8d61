"""SetSchemaLevel (klog's own, 10044): how compatible the versions of a subject, or of all, have to be.

Behaviour
    It binds what is registered from then on; what is there stays. Answered with the level before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.errors import KlogError
from klog.protocol.apis import ApiKey
from klog.protocol.schema_errors import code_of, words_of
from klog.server.dispatch import Request, handles

if TYPE_CHECKING:
    from klog.server.broker import Broker


@handles(ApiKey.SET_SCHEMA_LEVEL, 0, 0)
async def handle(broker: Broker, request: Request) -> dict[str, Any]:
    asked = request.entity
    registry = broker.registry
    try:
        prior = await registry.ask(lambda verbs: verbs.set_level(asked.subject, asked.level))
    except KlogError as error:
        return {"error": code_of(error), "error_message": words_of(error), "prior": None}
    return {"error": 0, "error_message": None, "prior": prior}
