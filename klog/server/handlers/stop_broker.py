"""StopBroker (klog's own, 10002): controlled shutdown of this broker.

Behaviour
    Answered before the shutdown begins, and after the act is written. Without ZooKeeper the broker stops all the same;
    its log says that the act is missing. The broker refuses a request that does not name its own id, so that a load
    balancer in between cannot stop the wrong broker. Of several requests the first one counts.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from klog.coordination.acts import new_act
from klog.errors import BrokerNotAvailable, KlogError
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.executors import Purpose
from klog.server.parts import Parts

log = logging.getLogger(__name__)

ACT_WITHIN_S: Final = 2.0


@handles(ApiKey.STOP_BROKER, 0, 0, may_refuse=True)
async def handle(request: Request, parts: Parts) -> Answer:
    return await shut_down(request, parts, "broker-stop", restart=False)


async def shut_down(request: Request, parts: Parts, kind: str, *, restart: bool) -> Answer:
    """The answer; the shutdown has begun then. ``kind`` is that of the act."""
    runtime, broker_id = parts.runtime, parts.runtime.broker_id
    if request.entity.broker_id != broker_id:
        raise BrokerNotAvailable(f"this is broker {broker_id}, not {request.entity.broker_id}")
    if not runtime.is_stopping:
        act = new_act(kind, request.actor, broker=broker_id)
        try:
            async with asyncio.timeout(ACT_WITHIN_S):
                await runtime.executors.run(Purpose.OTHER, runtime.zookeeper.multi, [act.write])
        except (KlogError, TimeoutError) as error:
            log.warning("%s by %s could not be written as an act: %s", kind, request.peer, error)
    runtime.stop_soon(f"asked by {request.peer}", restart=restart)
    return {}
