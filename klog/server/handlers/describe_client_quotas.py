"""DescribeClientQuotas: v0-1 (KIP-546, KIP-612): the quotas of users, client ids and addresses.

Behaviour
    Those that match all components of the filter, as this broker has read them in ZooKeeper: a name, the default, or
    any. A strict filter leaves out entities that have more than it names; one without components matches all. Two
    components of one type are INVALID_REQUEST, as is ``ip`` beside another type; types other than ``user``,
    ``client-id`` and ``ip`` are UNSUPPORTED_VERSION, as in Kafka.

Version notes
    v1 is flexible.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from klog.errors import InvalidRequest, UnsupportedVersion
from klog.protocol.apis import ApiKey
from klog.security.quotas import DEFAULT, ENTITY_TYPES, Entity
from klog.server.dispatch import Answer, Request, handles
from klog.server.parts import Parts

IP: Final = "ip"
EXACT: Final = 0
IS_DEFAULT: Final = 1
ANY: Final = 2

Matches = Callable[[str | None], bool]


@handles(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, may_refuse=True)
async def handle(request: Request, parts: Parts) -> Answer:
    entries = []
    matches = _filter(request.entity)
    there = list(parts.quota_keeper.quotas.items())  # it may change while others have their turn
    async for entity, values in request.in_turn(there):
        if all(matching(name) for matching, name in zip(matches, entity, strict=True)):
            shown = [{"key": str(key), "value": value} for key, value in values.items()]
            entries.append({"entity": entity_fields(entity), "values": shown})
    return {"entries": entries}


def entity_fields(entity: Entity) -> list[dict[str, Any]]:
    """An entity in an answer: the default has no name."""
    return [
        {"entity_type": kind, "entity_name": None if name == DEFAULT else name}
        for kind, name in zip(ENTITY_TYPES, entity, strict=True)
        if name is not None
    ]


def check_type(kind: str) -> str:
    """Raise UnsupportedVersion for an entity type that has no quotas in klog."""
    if kind not in ENTITY_TYPES:
        raise UnsupportedVersion(f"quotas belong to {', '.join(ENTITY_TYPES)}, not to entities of type {kind[:40]!r}")
    return kind


def _filter(asked: Any) -> list[Matches]:
    """The filter for user name, client id and address; None matches entities without one."""
    found: dict[str, Matches] = {}
    for one in asked.components:
        kind = check_type(one.entity_type)
        if kind in found:
            raise InvalidRequest(f"the filter names {kind} more than once")
        found[kind] = _matches(kind, one)
    if IP in found and len(found) > 1:
        raise InvalidRequest(
            f"the filter names {IP} beside {', '.join(sorted(found.keys() - {IP}))}: no entity has both"
        )
    rest: Matches = (lambda name: name is None) if asked.strict and found else (lambda _: True)
    return [found.get(kind, rest) for kind in ENTITY_TYPES]


def _matches(kind: str, component: Any) -> Matches:
    how, wanted = component.match_type, component.match
    if how == EXACT and wanted:
        return lambda name: name == wanted
    if how == IS_DEFAULT:
        return lambda name: name == DEFAULT
    if how == ANY:
        return lambda name: name is not None
    raise InvalidRequest(f"the filter for {kind} has match type {how}{' without a name' if how == EXACT else ''}")
