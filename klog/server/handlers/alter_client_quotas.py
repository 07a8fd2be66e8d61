"""AlterClientQuotas: v0-1 (KIP-546, KIP-612): sets quotas of users, client ids and addresses, and removes them.

Behaviour
    Every broker writes to ZooKeeper itself, as Kafka's do: all changes of one entity in one step, which is an act. Each
    entity is answered by itself; of one with an error nothing is changed. INVALID_REQUEST for an entity that cannot
    be, an empty name, a quota or a value that does not exist or that the entity cannot have, and what is named twice. A
    quota to remove need not exist. The answer comes when this broker has read the change; the others read it soon.

Version notes
    v1 is flexible.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from klog.coordination import quotas
from klog.errors import InvalidRequest
from klog.protocol.apis import ApiKey
from klog.security.quotas import (
    DEFAULT,
    ENTITY_TYPES,
    Entity,
    QuotaKey,
    check_entity,
    check_kind,
    check_value,
    parse_key,
)
from klog.server.dispatch import Answer, Request, handles, outcome
from klog.server.executors import Purpose
from klog.server.handlers.describe_client_quotas import check_type
from klog.server.parts import Parts
from klog.server.zookeeper_admission import Kind


@handles(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1)
async def handle(request: Request, parts: Parts) -> Answer:
    times_named = Counter(_named(one) for one in request.entity.entries)

    async def change(asked: Any) -> None:
        if times_named[_named(asked)] > 1:
            raise InvalidRequest("the request names this entity more than once")
        entity, changes = _entity(asked), _changes(asked)
        for key in changes:
            check_kind(entity, key)
        if not request.entity.validate_only:
            if any(value is not None for value in changes.values()):
                parts.zookeeper_admission.new(Kind.RULES)
            await parts.runtime.at_zookeeper(Purpose.ACLS, quotas.change, entity, changes, request.actor)

    entries = [
        {
            **await outcome(change(asked)),
            "entity": [{"entity_type": one.entity_type, "entity_name": one.entity_name} for one in asked.entity],
        }
        async for asked in request.in_turn(request.entity.entries)
    ]
    if not request.entity.validate_only and any(not one["error_code"] for one in entries):
        await parts.quota_keeper.look()
    return {"entries": entries}


def _named(asked: Any) -> frozenset[tuple[str, str | None]]:
    return frozenset((one.entity_type, one.entity_name) for one in asked.entity)


def _entity(asked: Any) -> Entity:
    names: dict[str, str] = {}
    for one in asked.entity:
        kind = check_type(one.entity_type)
        if kind in names:
            raise InvalidRequest(f"the entity has more than one {kind}")
        if one.entity_name == "":
            raise InvalidRequest(f"the {kind} of an entity cannot be empty; null is the default")
        names[kind] = DEFAULT if one.entity_name is None else one.entity_name
    return check_entity(Entity(*map(names.get, ENTITY_TYPES)))


def _changes(asked: Any) -> dict[QuotaKey, float | None]:
    changes: dict[QuotaKey, float | None] = {}
    for one in asked.ops:
        key = parse_key(one.key)
        if key in changes:
            raise InvalidRequest(f"{key} is named more than once")
        changes[key] = None if one.remove else check_value(key, one.value)
    return changes
