"""``/metrics`` for Prometheus, over HTTP, in threads of its own. Only where ``metrics.port`` is set.

Strategy
    prometheus-client and the standard library's HTTP server are loaded by `MetricsEndpoint.open` alone, and this module
    by a broker with the port alone, so that others pay for nothing. A scrape reads and renders in its own thread: the
    event loop gives the interpreter up for half a millisecond at a time, however many partitions there are.

Limits
    One scrape reads at a time. A peer that is silent for `SILENT_S` is hung up on.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from klog.errors import PortInUse, SurroundingsError
from klog.metrics import Metric, Times
from klog.server.metrics_table import METRICS

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric as Family

    from klog.server.broker import Broker

log = logging.getLogger(__name__)

SILENT_S: Final = 5.0


class MetricsEndpoint:
    """A listening socket and the thread that serves it. Made and closed by the owner thread."""

    def __init__(self, server: WSGIServer, address: str) -> None:
        self.address = address
        """``host:port``."""
        self._server = server
        threading.Thread(target=server.serve_forever, name=f"metrics {address}", daemon=True).start()

    @classmethod
    async def serve(cls, broker: Broker) -> MetricsEndpoint:
        """Where the broker listens itself, at ``metrics.port``."""
        host, port = broker.config.listener[0], broker.config.integer("metrics.port")
        endpoint = await asyncio.to_thread(cls.open, broker, host, port)
        log.info("metrics at http://%s/metrics", endpoint.address)
        return endpoint

    @classmethod
    def open(cls, broker: Broker, host: str, port: int) -> MetricsEndpoint:
        """Listen; port 0 is a free one. Blocks for the imports; any thread. PortInUse, SurroundingsError."""
        server = _server(registry(broker), host, port)
        return cls(server, f"{host or '0.0.0.0'}:{server.server_port}")

    def close(self) -> None:
        """Stop listening, at once; the thread ends by itself, when it next looks whether it should."""
        threading.Thread(target=self._server.shutdown, name="metrics end", daemon=True).start()
        self._server.server_close()


def _server(shown: CollectorRegistry, host: str, port: int) -> WSGIServer:
    from socketserver import TCPServer, ThreadingMixIn
    from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

    from prometheus_client import make_wsgi_app

    class Server(ThreadingMixIn, WSGIServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        daemon_threads = True
        block_on_close = False

        def server_bind(self) -> None:
            """As WSGIServer's, without asking a name server who we are."""
            TCPServer.server_bind(self)
            self.server_name, self.server_port = host, self.socket.getsockname()[1]
            self.setup_environ()

        def handle_error(self, request: Any, client_address: Any) -> None:
            log.debug("a scrape of %s failed", client_address, exc_info=True)

    class Handler(WSGIRequestHandler):
        timeout = SILENT_S

        def log_message(self, format: str, *arguments: Any) -> None:
            log.debug("%s: %s", self.client_address[0], format % arguments)

    try:
        server = Server((host, port), Handler)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(
                f"cannot serve metrics at {host}:{port}: the port is in use",
                hint=f"`ss -ltnp 'sport = :{port}'` shows by whom; choose another with --metrics-port PORT",
            ) from None
        raise SurroundingsError(f"cannot serve metrics at {host}:{port}: {error.strerror}") from None
    server.set_app(make_wsgi_app(shown))
    return server


def registry(broker: Broker) -> CollectorRegistry:
    """What a scrape of this broker gives: the table, and the process as the library measures it."""
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.core import Metric as Family

    class Table:
        """The library's form of `METRICS`."""

        def __init__(self) -> None:
            self._one_at_a_time = threading.Lock()

        def collect(self) -> Iterable[Family]:
            with self._one_at_a_time:
                return [_filled(Family(_family_name(one), one.doc, one.kind), one, broker) for one in METRICS]

    found = CollectorRegistry(auto_describe=False)
    found.register(Table())
    ProcessCollector(registry=found)
    return found


def _family_name(metric: Metric[Broker]) -> str:
    return metric.name.removesuffix("_total") if metric.kind == "counter" else metric.name


def _filled(family: Family, metric: Metric[Broker], broker: Broker) -> Family:
    for values, number in metric.read(broker):
        labels = dict(zip(metric.labels, values, strict=False))
        if isinstance(number, Times):
            for quantile, ms in number.quantiles:
                family.add_sample(metric.name, {**labels, "quantile": str(quantile)}, ms)
            family.add_sample(f"{metric.name}_count", labels, number.measured)
            family.add_sample(f"{metric.name}_sum", labels, number.total_ms)
        else:
            family.add_sample(metric.name, labels, number)
    return family
