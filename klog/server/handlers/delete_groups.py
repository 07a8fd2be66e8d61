"""DeleteGroups: v0-2.

Behaviour
    A group in which nobody lives is forgotten with all that it has committed. NON_EMPTY_GROUP while somebody does,
    whichever way; GROUP_ID_NOT_FOUND for one that there is not.

Version notes
    v2 is flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.errors import KlogError
from klog.net.turns import Share
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Request, handles

if TYPE_CHECKING:
    from klog.server.broker import Broker


@handles(ApiKey.DELETE_GROUPS, 0, 2)
async def handle(broker: Broker, request: Request) -> dict[str, Any]:
    share = request.share()
    return {"results": [await _one(broker, name, share) for name in request.entity.groups_names]}


async def _one(broker: Broker, name: str, share: Share) -> dict[str, Any]:
    await share.breathe()
    try:
        await broker.groups.operators.delete(name)
    except KlogError as error:
        return {"group_id": name, "error_code": error.wire}
    return {"group_id": name, "error_code": 0}
