"""Metrics of connections and of the memory for their requests, by Kafka's names if it has them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from klog.metrics import Metric, Sample, one
from klog.net.server import Server


def _memory_free(server: Server) -> Iterable[Sample]:
    free = server.shared.memory_pool.free_bytes
    return [] if math.isinf(free) else [((), free)]


OF_SERVER: Final[tuple[Metric[Server], ...]] = (
    Metric(
        "kafka_server_socketservermetrics_connection_count",
        "gauge",
        (),
        "Connections of clients and of other brokers.",
        one(lambda server: len(server.connections)),
    ),
    Metric(
        "kafka_network_socketserver_expiredconnectionskilledcount",
        "gauge",
        (),
        "Connections closed after connections.max.idle.ms.",
        one(lambda server: server.idle_closed),
    ),
    Metric(
        "kafka_network_socketserver_memorypoolused",
        "gauge",
        (),
        "Bytes held of requests that have come in part (queued.max.request.bytes).",
        one(lambda server: server.shared.memory_pool.bytes),
    ),
    Metric(
        "kafka_network_socketserver_memorypoolavailable",
        "gauge",
        (),
        "Bytes of queued.max.request.bytes that are free; none without a limit.",
        _memory_free,
    ),
    Metric(
        "klog_listener_connections",
        "gauge",
        ("listener",),
        "Connections of each listener.",
        lambda server: [((name,), count) for name, count in server.admission.of_listener.copy().items()],
    ),
    Metric(
        "klog_listener_full",
        "gauge",
        ("listener",),
        "1 for a listener that has as many connections as it may: new ones wait.",
        lambda server: [((name,), 1) for name in server.full_listeners],
    ),
    Metric(
        "klog_listener_slowed_seconds_total",
        "counter",
        ("listener",),
        "How long a listener took no connection since more had come than max.connection.creation.rate.",
        lambda server: [((name,), seconds) for name, seconds in server.arrivals.slowed_s.copy().items()],
    ),
    Metric(
        "klog_connections_refused_total",
        "counter",
        ("limit",),
        "Connections closed because there were too many: of their address, or in all, when another broker came.",
        lambda server: [
            (("max.connections.per.ip",), server.admission.refused),
            (("max.connections",), server.admission.gave_way),
        ],
    ),
)
