"""The broker's access to the schema registry, and the registry over HTTP.

While ZooKeeper is unreachable, each request waits for it for up to a session time-out, in threads of this purpose.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from klog.coordination.schemas import Schema, SchemaRegistry
from klog.net.http_server import HttpServer
from klog.schemas.registry import ZooKeeperRegistry
from klog.server.executors import Purpose
from klog.server.listening import http_host
from klog.server.runtime import Runtime

log = logging.getLogger(__name__)

T = TypeVar("T")


class BrokerRegistry:
    """Event loop only, except ``verbs``, which are thread-safe and block."""

    def __init__(self, runtime: Runtime, has_room: Callable[[int], None]) -> None:
        """``has_room``: see `ZooKeeperRegistry`; any thread."""
        self._runtime = runtime
        self._kept = SchemaRegistry(runtime.zookeeper)
        self.verbs = ZooKeeperRegistry(self._kept, has_room=has_room)

    async def serve(self) -> HttpServer:
        """Serve the registry over HTTP at ``schema.registry.port``. Raises PortInUse, HostError."""
        from klog.schemas.http import HttpRegistry

        config = self._runtime.config
        server = await self._runtime.executors.run(
            Purpose.OTHER,
            HttpServer.open,
            HttpRegistry(self.verbs),
            http_host(config),
            config.integer("schema.registry.port"),
            what="the schema registry",
            flag="-X schema.registry.port=PORT",
        )
        log.info("schema registry at http://%s", server.address)
        return server

    async def schemas(self, ids: Sequence[int], text: str | None = None) -> dict[int, Schema]:
        """The schemas that exist; from memory where all were read before, so also while ZooKeeper is unreachable."""
        if text is not None:
            known = await self.ask(lambda verbs: verbs.id_of(text))
            ids = ids if known is None else [*ids, known]
        found = self._kept.known(ids)
        return found if len(found) == len(set(ids)) else await self.ask(lambda verbs: verbs.schemas(ids))

    async def ask(self, question: Callable[[ZooKeeperRegistry], T]) -> T:
        """Ask the registry, in a thread."""
        return await self._runtime.executors.run(Purpose.SCHEMAS, question, self.verbs)
