"""ReplicaFetch (klog's own, 10017): what a follower asks its leader; `klog.protocol.replica_fetch` has the form.

Behaviour
    The first request of a connection says who asks: a broker of another cluster, one that is not registered, and an
    earlier incarnation of one that is are refused, and so is everybody who meant another broker, or has not shown the
    cluster's secret (`prove`); the reason is in this broker's log. From then on `klog.server.replica_session` answers.

Not implemented
    Compression between brokers: what travels are the producer's own batches.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from klog.errors import (
    BrokerNotAvailable,
    ClusterAuthorizationFailed,
    InconsistentClusterId,
    KlogError,
    MalformedRequest,
    StaleBrokerEpoch,
)
from klog.net.connection import Connection, Reply
from klog.protocol import replica_fetch
from klog.protocol.apis import ApiKey
from klog.protocol.codec import RequestHead
from klog.protocol.replica_fetch import Fetch, Open, Range
from klog.server.dispatch import handles_frame
from klog.server.replica_session import ReplicaSession

if TYPE_CHECKING:
    from klog.server.broker import Broker

log = logging.getLogger(__name__)


@handles_frame(ApiKey.REPLICA_FETCH, 0, 0)
def handle(broker: Broker, head: RequestHead, frame: memoryview, reply: Reply, connection: Connection) -> None:
    request = replica_fetch.read_request(frame, head)
    session = connection.session
    if isinstance(request, Open):
        if session is not None:
            raise MalformedRequest("a connection was opened for replication twice")
        try:
            if not connection.is_broker:
                raise ClusterAuthorizationFailed("the connection has not shown the cluster's secret")
            _check(broker, request)
        except KlogError as error:
            log.warning(
                "%s may not fetch as a replica: %s", connection.peer, error.message, extra={"peer": connection.peer}
            )
            # Rule R10: a stranger is told nothing of clusters and incarnations.
            words = error.message if connection.is_broker else error.code
            reply.send(replica_fetch.opened(head, error.wire, words, -1))
            return
        connection.session = ReplicaSession(broker, request.broker_id, request.incarnation)
        reply.send(replica_fetch.opened(head, 0, "", broker.incarnation))
        return
    if not isinstance(session, ReplicaSession):
        raise MalformedRequest("a replica fetches on a connection that was not opened for it")
    if isinstance(request, Range):
        session.range(request, head, reply)
        return
    entries = replica_fetch.read_entries(frame, request.entries_at)
    if isinstance(request, Fetch):
        session.fetch(request, entries, head, reply)
    else:
        reply.nothing()
        session.update(entries)


def _check(broker: Broker, asks: Open) -> None:
    """InconsistentClusterId, BrokerNotAvailable, StaleBrokerEpoch."""
    if asks.cluster_id != broker.image.cluster_id:
        raise InconsistentClusterId(
            f"broker {asks.broker_id} is of cluster {asks.cluster_id}, broker {broker.broker_id} of cluster"
            f" {broker.image.cluster_id}"
        )
    if asks.leader != broker.broker_id:
        raise BrokerNotAvailable(f"broker {asks.leader} was looked for where broker {broker.broker_id} listens")
    known = broker.image.brokers.get(asks.broker_id)
    if known is None:
        raise BrokerNotAvailable(f"broker {broker.broker_id} knows of no live broker {asks.broker_id}")
    if asks.incarnation < known.incarnation:
        raise StaleBrokerEpoch(
            f"broker {asks.broker_id} asks as incarnation {asks.incarnation}, {known.incarnation} is registered"
        )
