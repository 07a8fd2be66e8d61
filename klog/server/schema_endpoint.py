"""The schema registry over HTTP, on a port of the broker. Only where ``schema.registry.port`` is set.

Every broker may serve it, and all give the same answers: ZooKeeper has the schemas.
"""

from __future__ import annotations

import logging

from klog.net.http_server import HttpServer
from klog.schemas.http import HttpRegistry
from klog.server.executors import Purpose
from klog.server.listening import http_host
from klog.server.runtime import Runtime
from klog.server.schema_registry import BrokerRegistry

log = logging.getLogger(__name__)


class SchemaEndpoint:
    """The endpoint at ``schema.registry.port``. Created and closed by the owner thread."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server

    @classmethod
    async def serve(cls, runtime: Runtime, registry: BrokerRegistry) -> SchemaEndpoint:
        """Listen on the host for HTTP. Raises PortInUse, HostError."""
        host, port = http_host(runtime.config), runtime.config.integer("schema.registry.port")
        application = HttpRegistry(registry.verbs)

        def listen() -> HttpServer:
            return HttpServer.open(
                application, host, port, what="the registry of schemas", flag="-X schema.registry.port=PORT"
            )

        endpoint = cls(await runtime.executors.run(Purpose.OTHER, listen))
        log.info("registry of schemas at http://%s", endpoint._server.address)
        return endpoint

    def close(self) -> None:
        """Stop listening, at once."""
        self._server.close()
