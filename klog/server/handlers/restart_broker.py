"""RestartBroker (klog's own, 10027): controlled shutdown of this broker, whose process then serves again.

Behaviour
    As StopBroker. The process runs its command line again, and one of several under a parent is started again by it.
"""

from __future__ import annotations

from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.handlers.stop_broker import shut_down
from klog.server.parts import Parts


@handles(ApiKey.RESTART_BROKER, 0, 0, may_refuse=True)
async def handle(request: Request, parts: Parts) -> Answer:
    return await shut_down(request, parts, "broker-restart", restart=True)
