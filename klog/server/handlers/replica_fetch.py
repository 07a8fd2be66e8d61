"""ReplicaFetch (klog's own, 10017): a follower fetches from its leader; `klog.protocol.replica_fetch` has the format.

Behaviour
    The first request of a connection names the follower. The leader refuses a broker of another cluster, one that is
    not registered, an earlier incarnation of a registered one, one that wanted another leader, and one that has not
    proven the cluster's secret (`prove`). The reason is in the leader's log. `klog.server.replicas.replica_session`
    answers the later requests.

Not implemented
    Compression between brokers: followers get the producer's own batches.
"""

from __future__ import annotations

import logging

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
from klog.server.dispatch import handles
from klog.server.image import ClusterImage
from klog.server.parts import Parts
from klog.server.replicas.replica_session import ReplicaSession

log = logging.getLogger(__name__)


@handles(ApiKey.REPLICA_FETCH, 0, 0, takes_frames=True)
def handle(head: RequestHead, frame: memoryview, reply: Reply, connection: Connection, parts: Parts) -> None:
    request = replica_fetch.read_request(frame, head)
    session = connection.session
    if isinstance(request, Open):
        if session is not None:
            raise MalformedRequest("a connection was opened for replication twice")
        try:
            if not connection.is_broker:
                raise ClusterAuthorizationFailed("the connection has not shown the cluster's secret")
            _check(parts.identity.broker_id, parts.image, request)
        except KlogError as error:
            log.warning(
                "%s may not fetch as a replica: %s", connection.peer, error.message, extra={"peer": connection.peer}
            )
            # Rule R10: a peer without the secret learns nothing of clusters and incarnations.
            words = error.message if connection.is_broker else error.code
            reply.send(replica_fetch.opened(head, error.wire, words, -1))
            return
        connection.session = opened = ReplicaSession(
            parts.runtime, parts.partitions, parts.log_dirs, parts.probes, request.broker_id, request.incarnation
        )
        connection.at_end.add(opened.ended)
        reply.send(replica_fetch.opened(head, 0, "", parts.identity.incarnation))
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


def _check(broker_id: int, image: ClusterImage, asks: Open) -> None:
    """InconsistentClusterId, BrokerNotAvailable, StaleBrokerEpoch."""
    if asks.cluster_id != image.cluster_id:
        raise InconsistentClusterId(
            f"broker {asks.broker_id} belongs to cluster {asks.cluster_id}, broker {broker_id} to {image.cluster_id}"
        )
    if asks.leader != broker_id:
        raise BrokerNotAvailable(f"the follower wanted broker {asks.leader}; broker {broker_id} listens here")
    known = image.brokers.get(asks.broker_id)
    if known is None:
        raise BrokerNotAvailable(f"broker {broker_id} knows of no live broker {asks.broker_id}")
    if asks.incarnation < known.incarnation:
        raise StaleBrokerEpoch(
            f"broker {asks.broker_id} is registered as incarnation {known.incarnation}, not {asks.incarnation}"
        )
