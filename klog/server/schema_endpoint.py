"""The registry of schemas over HTTP, on a port of the broker. Only where ``schema.registry.port`` is set.

Every broker may serve it, and each answers alike: what there is stands in ZooKeeper.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from klog.net.http_server import HttpServer
from klog.ops.schemas.http import HttpRegistry
from klog.server.executors import Purpose

if TYPE_CHECKING:
    from klog.server.broker import Broker

log = logging.getLogger(__name__)


class SchemaEndpoint:
    """What a broker serves at ``schema.registry.port``. Made and closed by the owner thread."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server

    @classmethod
    async def serve(cls, broker: Broker) -> SchemaEndpoint:
        """Where the broker listens itself. PortInUse, SurroundingsError."""
        host, port = broker.config.listener[0], broker.config.integer("schema.registry.port")
        application = HttpRegistry(broker.registry.verbs)

        def listen() -> HttpServer:
            return HttpServer.open(
                application, host, port, what="the registry of schemas", flag="-X schema.registry.port=PORT"
            )

        endpoint = cls(await broker.executors.run(Purpose.OTHER, listen))
        log.info("registry of schemas at http://%s", endpoint._server.address)
        return endpoint

    def close(self) -> None:
        """Stop listening, at once."""
        self._server.close()
