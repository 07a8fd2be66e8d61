"""``/metrics`` for Prometheus, over HTTP, in its own threads. Only where ``metrics.port`` is set.

Strategy
    Only `serve` loads prometheus-client, and only a broker with the port loads this module. Other
    brokers show the same table to `klog metrics` (`klog.server.handlers.read_metrics`). A scrape reads and renders in
    its own thread: the event loop releases the interpreter for half a millisecond at a time, however many partitions
    there are.

Limits
    One scrape reads at a time; those of the server are `klog.net.http_server`'s.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from klog.metrics import Metric, readings
from klog.net.http_server import HttpServer
from klog.server.executors import Purpose
from klog.server.listening import http_host
from klog.server.metrics_table import METRICS, Measured

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric as Family


log = logging.getLogger(__name__)


async def serve(measured: Measured) -> HttpServer:
    """Listen on the host for HTTP, at ``metrics.port``. Raises PortInUse, HostError."""
    server = await measured.runtime.executors.run(Purpose.OTHER, _open, measured)
    log.info("metrics at http://%s/metrics", server.address)
    return server


def _open(measured: Measured) -> HttpServer:
    """In a thread: blocks for the imports."""
    from prometheus_client import make_wsgi_app

    config = measured.runtime.config
    host, port = http_host(config), config.integer("metrics.port")
    return HttpServer.open(make_wsgi_app(registry(measured)), host, port, what="metrics", flag="--metrics-port PORT")


def registry(measured: Measured) -> CollectorRegistry:
    """The metrics of a scrape: the table, and the library's metrics of the process."""
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.core import Metric as Family

    class Table:
        """The library's form of `METRICS`."""

        def __init__(self) -> None:
            self._one_at_a_time = threading.Lock()

        def collect(self) -> Iterable[Family]:
            with self._one_at_a_time:
                return [_filled(Family(_family_name(one), one.doc, one.kind), one, measured) for one in METRICS]

    found = CollectorRegistry(auto_describe=False)
    found.register(Table())
    ProcessCollector(registry=found)
    return found


def _family_name(metric: Metric[Measured]) -> str:
    return metric.name.removesuffix("_total") if metric.kind == "counter" else metric.name


def _filled(family: Family, metric: Metric[Measured], measured: Measured) -> Family:
    for sample in metric.read(measured):
        for name, labels, value in readings(metric, sample):
            family.add_sample(name, labels, value)
    return family
