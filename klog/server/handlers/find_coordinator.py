"""FindCoordinator: v0-4: which broker coordinates a group.

Behaviour
    Any broker answers, from what the controller has said last: the holder of the group's slot (rule G1), at the address
    that clients are told. Clients ask when their coordinator has just died, which they see as early as the controller
    does, and one that is told of the dead again waits as long as its next try takes (librdkafka a second). So a broker
    knocks at the holder's door before it names it, and where nobody listens waits for the controller to name another,
    `PATIENCE_S` at most. After that: COORDINATOR_NOT_AVAILABLE while the controller too takes the holder for dead.

Version notes
    v1 asks for a kind of key (0 group, 1 transaction); v3 is flexible; v4 asks for several keys (KIP-699).

Not here: transactions. Whoever asks who coordinates one is told that nobody ever will, by a code that clients take as
final; a kind of key that nobody knows is an INVALID_REQUEST.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from klog.errors import CoordinatorNotAvailable, KlogError, TransactionsNotServed, UsageError
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Request, handles
from klog.server.image import BrokerImage

if TYPE_CHECKING:
    from klog.server.broker import Broker

GROUP = 0
TRANSACTION = 1
PATIENCE_S = 1.0
"""Slots move within a fifth of it when a broker dies. What else was asked over the connection waits as long."""


@handles(ApiKey.FIND_COORDINATOR, 0, 4)
async def handle(broker: Broker, request: Request) -> dict[str, Any]:
    entity = request.entity
    keys = entity.coordinator_keys if request.head.version >= 4 else [entity.key]
    kind = getattr(entity, "key_type", GROUP)
    if kind == GROUP:
        found = [
            _refused(CoordinatorNotAvailable(f"group {key!r} has no live coordinator at the moment"))
            if one is None
            else _named(one)
            for key, one in zip(keys, await _find(broker, keys), strict=True)
        ]
    elif kind == TRANSACTION:
        found = [_refused(TransactionsNotServed())] * len(keys)
    else:
        found = [_refused(UsageError(f"the kind of key is {kind}; 0 (group) is served"))] * len(keys)
    if request.head.version >= 4:
        return {"coordinators": [{**one, "key": key} for key, one in zip(keys, found, strict=True)]}
    return found[0]


async def _find(broker: Broker, groups: Sequence[str]) -> list[BrokerImage | None]:
    """The coordinator of each group, as soon as there is one that listens; None where there is none in time."""
    until_s = broker.loop.time() + PATIENCE_S
    while True:
        news = broker.image.news
        found = [broker.image.coordinator(group) for group in groups]
        holders = {one.broker_id: one for one in found if one is not None}
        if all(found) and not await broker.knocks.refusing(holders, holders):
            return found
        try:
            async with asyncio.timeout_at(until_s):
                await news.wait()
        except TimeoutError:
            return found


def _named(one: BrokerImage) -> dict[str, Any]:
    return {"error_code": 0, "error_message": None, "node_id": one.broker_id, "host": one.host, "port": one.port}


def _refused(error: KlogError) -> dict[str, Any]:
    return {
        "error_code": error.wire,
        "error_message": error.message,
        "node_id": -1,
        "host": "",
        "port": -1,
    }
