"""InitProducerId: v0-4.

Behaviour
    A new producer id with epoch 0, from a block that the broker has taken in ZooKeeper. A producer that names its id
    and epoch (v3, KIP-360) gets a new id too: its old sequences are of no use to it any more.

Not here: transactions; a transactional id is refused with a code that clients take as final. No sentence fits in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.errors import KlogError, TransactionsNotServed
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Request, handles

if TYPE_CHECKING:
    from klog.server.broker import Broker


@handles(ApiKey.INIT_PRODUCER_ID, 0, 4)
async def handle(broker: Broker, request: Request) -> dict[str, Any]:
    try:
        if request.entity.transactional_id is not None:
            raise TransactionsNotServed
        producer_id = await broker.producer_ids.next()
    except KlogError as error:
        return {"error_code": error.wire, "producer_id": -1, "producer_epoch": -1}
    return {"error_code": 0, "producer_id": producer_id, "producer_epoch": 0}
