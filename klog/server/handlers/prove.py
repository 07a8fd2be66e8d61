"""Prove (klog's own, 10019): proof of the cluster's secret; from then on the connection is a broker's (rule R10).

Behaviour
    Once for each `greet`. CLUSTER_AUTHORIZATION_FAILED for a wrong proof, or one without a Greet. The outcome decides
    over later requests of the connection.
"""

from __future__ import annotations

import logging

from klog.errors import ClusterAuthorizationFailed
from klog.protocol.apis import ApiKey
from klog.secret import Challenge
from klog.server.dispatch import Answer, Request, handles
from klog.server.parts import Parts

log = logging.getLogger(__name__)


@handles(ApiKey.PROVE, 0, 0)
def handle(request: Request, parts: Parts) -> Answer:
    connection = request.connection
    assert connection is not None  # a broker does not greet itself
    challenge, connection.challenge = connection.challenge, None
    if isinstance(challenge, Challenge) and challenge.is_asked(parts.secret, bytes(request.entity.proof)):
        connection.is_broker = True
        return {"error_code": 0}
    connection.is_broker = False
    log.warning(
        "%s claims to be a broker, and does not know the cluster's secret",
        connection.peer,
        extra={"peer": connection.peer},
    )
    return {"error_code": ClusterAuthorizationFailed.wire}
