"""Greet (klog's own, 10018): a broker names itself and the broker it wants; see `klog.protocol.introduction`.

Behaviour
    The answer has a nonce for `prove`, and proof that this broker knows the cluster's secret. Every peer gets it, since
    neither reveals anything of the secret. BROKER_NOT_AVAILABLE if the request wants another broker. Each Greet of a
    connection voids the one before.
"""

from __future__ import annotations

import secrets

from klog.errors import BrokerNotAvailable, MalformedRequest
from klog.protocol.apis import ApiKey
from klog.protocol.introduction import NONCE_BYTES
from klog.secret import Challenge
from klog.server.dispatch import Answer, Request, handles
from klog.server.parts import Parts


@handles(ApiKey.GREET, 0, 0)
def handle(request: Request, parts: Parts) -> Answer:
    asked, connection = request.entity, request.connection
    assert connection is not None  # a broker does not greet itself
    connection.challenge = None
    if len(asked.nonce) != NONCE_BYTES:
        raise MalformedRequest(f"a nonce of {len(asked.nonce)} bytes, expected {NONCE_BYTES}")
    if asked.answerer_id != parts.identity.broker_id:
        return {"error_code": BrokerNotAvailable.wire, "nonce": b"", "proof": b""}
    nonce = secrets.token_bytes(NONCE_BYTES)
    challenge = Challenge(int(asked.broker_id), parts.identity.broker_id, bytes(asked.nonce), nonce)
    connection.challenge = challenge
    return {"error_code": 0, "nonce": nonce, "proof": challenge.answerer_proof(parts.secret)}
