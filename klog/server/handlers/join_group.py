"""JoinGroup: v0-7.

Behaviour
    A member comes, or comes again, and says what it wants for each protocol that it knows. Answered when all that live
    have come, or their time is over, and the new generation is written; the leader is told what everybody wants.

Version notes
    v0 has no rebalance time-out: its session's counts. From v4 a member without an id is given one with
    MEMBER_ID_REQUIRED and comes again (KIP-394). v5 has static members (KIP-345). v6 is flexible. v7 says the protocol
    type (KIP-559), and null for no protocol.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from klog.protocol.apis import ApiKey
from klog.server.dispatch import Request, handles
from klog.server.groups.acts import Refused
from klog.server.groups.members import Join
from klog.server.groups.requests import client_id_of, host_of, ms

if TYPE_CHECKING:
    from klog.server.broker import Broker

ASKS_TWICE_FROM = 4


@handles(ApiKey.JOIN_GROUP, 0, 7)
async def handle(broker: Broker, request: Request) -> dict[str, Any]:
    entity, version = request.entity, request.head.version
    instance_id = getattr(entity, "group_instance_id", None)
    client_id = client_id_of(request)
    session_timeout_ms = ms(entity.session_timeout)
    join = Join(
        member_id=entity.member_id,
        instance_id=instance_id,
        client_id=client_id,
        host=host_of(request),
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=ms(entity.rebalance_timeout) if version >= 1 else session_timeout_ms,
        protocol_type=entity.protocol_type,
        protocols=tuple((one.name, bytes(one.metadata)) for one in entity.protocols),
        new_id=f"{client_id if instance_id is None else instance_id}-{uuid.uuid4()}",
        must_ask_twice=version >= ASKS_TWICE_FROM,
    )
    joined = await broker.groups.join(entity.group_id, join)
    if isinstance(joined, Refused):
        return {
            "error_code": joined.error.wire,
            "generation_id": -1,
            "protocol_type": None,
            "protocol_name": None if version >= 7 else "",
            "leader": "",
            "member_id": joined.member_id,
            "members": [],
        }
    return {
        "error_code": 0,
        "generation_id": joined.generation,
        "protocol_type": joined.protocol_type,
        "protocol_name": joined.protocol,
        "leader": joined.leader,
        "member_id": joined.member_id,
        "members": [
            {"member_id": member_id, "group_instance_id": instance, "metadata": metadata}
            for member_id, instance, metadata in joined.members
        ],
    }
