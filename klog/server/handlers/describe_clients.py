"""DescribeClients (klog's own, 10032): the clients that are connected to this broker, and what they read and write.

Behaviour
    One row per connection; other brokers are left out. What a client reads are the topics that its last Fetch was
    answered from, among its first `READS_NOTED` partitions.
"""

from __future__ import annotations

from typing import Final

from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.parts import Parts

CLIENTS_MAX: Final = 2_000


@handles(ApiKey.DESCRIBE_CLIENTS, 0, 0)
async def handle(request: Request, parts: Parts) -> Answer:
    clients = [one for one in parts.server.connections if not one.is_broker and not one.closed]
    rows = [
        {
            "address": one.peer,
            "listener": one.listener,
            "principal": str(one.principal),
            "client_id": one.client_id,
            "software": "" if one.software is None else " ".join(one.software),
            "reads": one.reads,
            "writes": one.writes,
            "idle_ms": int((parts.runtime.loop.time() - one.last_active_s) * 1000),
        }
        async for one in request.in_turn(clients[:CLIENTS_MAX])
    ]
    return {"error_code": 0, "clients": rows, "left_out": len(clients) - len(rows)}
