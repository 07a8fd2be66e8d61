"""InitProducerId: v0-4.

Behaviour
    A new producer id with epoch 0, from a block that the broker has reserved in ZooKeeper. A producer that names its id
    and epoch (v3, KIP-360) gets a new id too: it no longer needs its old sequences.

Not here: transactions; a transactional id is refused with a code that clients take as final. The answer has no field
for a message.
"""

from __future__ import annotations

from klog.errors import TransactionsNotServed
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.parts import Parts


@handles(ApiKey.INIT_PRODUCER_ID, 0, 4, may_refuse=True)
async def handle(request: Request, parts: Parts) -> Answer:
    if request.entity.transactional_id is not None:
        raise TransactionsNotServed
    return {"producer_id": await parts.producer_ids.next(), "producer_epoch": 0}
