"""Prove (klog's own, 10019): proof of the cluster's secret; from then on the connection is a broker's (rule R10).

Behaviour
    Once for each `greet`; CLUSTER_AUTHORIZATION_FAILED for a proof that does not fit, or without a Greet. What comes
    on the connection behind it is judged by its outcome.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from klog.errors import ClusterAuthorizationFailed
from klog.protocol.apis import ApiKey
from klog.secret import Challenge
from klog.server.dispatch import Request, handles

if TYPE_CHECKING:
    from klog.server.broker import Broker

log = logging.getLogger(__name__)


@handles(ApiKey.PROVE, 0, 0)
def handle(broker: Broker, request: Request) -> dict[str, Any]:
    connection = request.connection
    assert connection is not None  # a broker does not greet itself
    challenge, connection.challenge = connection.challenge, None
    if isinstance(challenge, Challenge) and challenge.is_asked(broker.secret, bytes(request.entity.proof)):
        connection.is_broker = True
        return {"error_code": 0}
    connection.is_broker = False
    log.warning(
        "%s says that it is a broker, and does not know the cluster's secret",
        connection.peer,
        extra={"peer": connection.peer},
    )
    return {"error_code": ClusterAuthorizationFailed.wire}
