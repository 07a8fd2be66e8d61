"""ReadHistory (klog's own, 10022): this broker's recent history, one point per minute for a day.

Behaviour
    The points after ``since_ms``, the oldest first; the last is the minute that is not over yet, which a thread reads.
    ``names`` has the meaning of each value.
"""

from __future__ import annotations

import time

from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.history import EVERY_S, NAMES, read
from klog.server.look_ups import LookUp
from klog.server.parts import Parts


@handles(ApiKey.READ_HISTORY, 0, 0, may_refuse=True)
async def handle(request: Request, parts: Parts) -> Answer:
    with LookUp(parts.runtime.executors, request.connection) as look_up:
        now = await look_up.run("", lambda _: read(parts))
    points = parts.history.points(request.entity.since_ms, now)
    return {
        "broker_id": parts.identity.broker_id,
        "now_ms": time.time_ns() // 1_000_000,
        "every_ms": int(EVERY_S * 1000),
        "names": NAMES,
        "points": [{"time_ms": one.time_ms, "values": tuple(one.values)} for one in points],
    }
