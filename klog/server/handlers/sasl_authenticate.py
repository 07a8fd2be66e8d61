"""SaslAuthenticate: v0-2: one message of the mechanism that SaslHandshake chose; see `klog.server.authentication`.

Behaviour
    SASL_AUTHENTICATION_FAILED, with the same words whatever was wrong, ends the connection. A client may authenticate
    again on its connection as the same user (KIP-368).

Version notes
    v1 answers with the time until the client must authenticate again, 0 for never.
"""

from __future__ import annotations

from klog.protocol.apis import ApiKey
from klog.security.errors import IllegalSaslState
from klog.server.authentication import Authentication
from klog.server.dispatch import Answer, Request, handles
from klog.server.parts import Parts


@handles(ApiKey.SASL_AUTHENTICATE, 0, 2, waits=True, may_refuse=True)
async def handle(request: Request, parts: Parts) -> Answer:
    state = None if request.connection is None else request.connection.sasl
    if not isinstance(state, Authentication):
        raise IllegalSaslState("this listener has no SASL")
    return await state.step(bytes(request.entity.auth_bytes))
