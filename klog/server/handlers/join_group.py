"""JoinGroup: v0-7.

Behaviour
    A member joins, or joins again, with its metadata for each protocol that it supports. The coordinator answers when
    all live members have joined, or the rebalance time-out is over, and ZooKeeper has the new generation. The group's
    leader gets the metadata of all members.

Version notes
    v0 has no rebalance time-out: the session's time-out is used. From v4 a member without an id gets one with
    MEMBER_ID_REQUIRED and joins again (KIP-394). v5 has static members (KIP-345). v6 is flexible. v7 has the protocol
    type (KIP-559), and null for no protocol.
"""

from __future__ import annotations

import uuid
from datetime import timedelta

from klog.groups.bounds import CLIENT_ID_CHARS_MAX
from klog.groups.members import Join
from klog.groups.outcomes import Refused
from klog.net.connection import while_open
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.parts import Parts

ASKS_TWICE_FROM = 4
_MILLISECOND = timedelta(milliseconds=1)


@handles(ApiKey.JOIN_GROUP, 0, 7, waits=True)
async def handle(request: Request, parts: Parts) -> Answer:
    entity, version = request.entity, request.head.version
    instance_id = getattr(entity, "group_instance_id", None)
    client_id = (request.head.client_id or "")[:CLIENT_ID_CHARS_MAX]
    session_timeout_ms = entity.session_timeout // _MILLISECOND
    join = Join(
        member_id=entity.member_id,
        instance_id=instance_id,
        client_id=client_id,
        host=f"/{request.peer.rpartition(':')[0].strip('[]')}",  # in Kafka's form
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=entity.rebalance_timeout // _MILLISECOND if version >= 1 else session_timeout_ms,
        protocol_type=entity.protocol_type,
        protocols=tuple((one.name, bytes(one.metadata)) for one in entity.protocols),
        new_id=f"{client_id if instance_id is None else instance_id}-{uuid.uuid4()}",
        must_ask_twice=version >= ASKS_TWICE_FROM,
    )
    with while_open(request.connection):
        joined = await parts.groups.join(entity.group_id, join)
    if isinstance(joined, Refused):
        protocol = {"protocol_type": None, "protocol_name": None if version >= 7 else ""}
        about = {"generation_id": -1, "leader": "", "member_id": joined.member_id, "members": ()}
        return {"error_code": joined.error.wire, **protocol, **about}
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
