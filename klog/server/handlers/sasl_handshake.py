"""SaslHandshake: v0-1: the client chooses the mechanism by which it authenticates.

Behaviour
    The answer lists the mechanisms of the listener. UNSUPPORTED_SASL_MECHANISM for another one, after which the
    connection ends; ILLEGAL_SASL_STATE on a listener without SASL, and in the middle of an authentication.

Version notes
    After v0 the messages of the mechanism come without Kafka's head, each behind its length, and so do their answers; a
    failure ends the connection without an answer. Clients since 2017 have v1, and SaslAuthenticate carries them.
"""

from __future__ import annotations

from klog.protocol.apis import ApiKey
from klog.security.errors import IllegalSaslState
from klog.server.authentication import Authentication
from klog.server.dispatch import Answer, Request, handles
from klog.server.parts import Parts


@handles(ApiKey.SASL_HANDSHAKE, 0, 1, waits=True, may_refuse=True)
def handle(request: Request, parts: Parts) -> Answer:
    state = None if request.connection is None else request.connection.sasl
    if not isinstance(state, Authentication):
        raise IllegalSaslState("this listener has no SASL")
    return state.begin(request.entity.mechanism, request.head.version)
