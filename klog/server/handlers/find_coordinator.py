"""FindCoordinator: v0-4: which broker coordinates a group.

Behaviour
    Any broker answers from the controller's last update: the holder of the group's slot (rule G1), at its advertised
    address. Clients often ask when their coordinator has just died, as early as the controller notices. A client that
    gets the dead broker again loses the time of one more attempt (librdkafka: a second). So a broker probes the holder
    before it names it. If the holder does not listen, the answer waits for the controller to name another broker,
    `PATIENCE_S` at most. After that it is COORDINATOR_NOT_AVAILABLE if the controller considers the holder dead too.

Version notes
    v1 asks for a kind of key (0 group, 1 transaction); v3 is flexible; v4 asks for several keys (KIP-699).

Not here: transactions. A request for a transaction's coordinator is refused with a code that clients take as final. An
unknown kind of key is INVALID_REQUEST.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from klog.errors import CoordinatorNotAvailable, KlogError, TransactionsNotServed, UsageError
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, error_fields, handles
from klog.server.image import BrokerImage
from klog.server.parts import Parts

GROUP = 0
TRANSACTION = 1
PATIENCE_S = 1.0
"""Slots move within a fifth of it when a broker dies. Later requests of the connection wait as long."""


@handles(ApiKey.FIND_COORDINATOR, 0, 4)
async def handle(request: Request, parts: Parts) -> Answer:
    entity = request.entity
    keys = entity.coordinator_keys if request.head.version >= 4 else [entity.key]
    kind = getattr(entity, "key_type", GROUP)
    if kind == GROUP:
        found = [
            _refused(CoordinatorNotAvailable(f"group {key!r} has no live coordinator at the moment"))
            if one is None or (address := one.address_of(request.listener)) is None
            else _named(one, *address)
            for key, one in zip(keys, await _find(parts, keys), strict=True)
        ]
    elif kind == TRANSACTION:
        found = [_refused(TransactionsNotServed())] * len(keys)
    else:
        found = [_refused(UsageError(f"the kind of key must be 0 (group), got {kind}"))] * len(keys)
    if request.head.version >= 4:
        return {"coordinators": [{**one, "key": key} for key, one in zip(keys, found, strict=True)]}
    return found[0]


async def _find(parts: Parts, groups: Sequence[str]) -> list[BrokerImage | None]:
    """The coordinator of each group, as soon as one listens; None if no broker does in time."""
    until_s = parts.runtime.loop.time() + PATIENCE_S
    while True:
        news = parts.image.news
        found = [parts.image.coordinator(group) for group in groups]
        holders = {one.broker_id: one for one in found if one is not None}
        if all(found) and not await parts.probes.refusing(holders, holders):
            return found
        try:
            async with asyncio.timeout_at(until_s):
                await news.wait()
        except TimeoutError:
            return found


def _named(one: BrokerImage, host: str, port: int) -> dict[str, Any]:
    return {**error_fields(None), "node_id": one.broker_id, "host": host, "port": port}


def _refused(error: KlogError) -> dict[str, Any]:
    return {**error_fields(error), "node_id": -1, "host": "", "port": -1}
