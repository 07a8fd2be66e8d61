"""DescribeAcls: v1-3.

Behaviour
    The ACLs that match the filter; what any broker has written before is read first. SECURITY_DISABLED where the broker
    checks no permissions.

Version notes
    v1 has prefixed patterns (KIP-290). v2 is flexible.
"""

from __future__ import annotations

from typing import Any

from klog.protocol.apis import ApiKey
from klog.security.errors import SecurityDisabled
from klog.security.permissions import (
    Acl,
    Filter,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    word_of_number,
)
from klog.server.acl_keeper import AclKeeper
from klog.server.dispatch import Answer, Request, handles
from klog.server.parts import Parts


@handles(ApiKey.DESCRIBE_ACLS, 1, 3, may_refuse=True)
async def handle(request: Request, parts: Parts) -> Answer:
    resources: dict[Pattern, list[dict[str, Any]]] = {}
    chosen = filter_of(request.entity)
    there = keeper(parts)
    await there.look()
    async for one in request.in_turn(there.authorizer.bindings()):
        if chosen.matches(one):
            resources.setdefault(one.pattern, []).append(acl_fields(one.acl))
    return {"resources": [{**pattern_fields(pattern), "acls": found} for pattern, found in resources.items()]}


def keeper(parts: Parts) -> AclKeeper:
    """The broker's ACLs. Raises SecurityDisabled if it has none."""
    if parts.access is None:
        raise SecurityDisabled("the broker checks no permissions: authorizer.class.name is not set")
    return parts.access.acl_keeper


def filter_of(entity: Any) -> Filter:
    """The filter of a request. Raises InvalidRequest for unknown numbers."""
    return Filter(
        word_of_number(ResourceType, entity.resource_type_filter),
        entity.resource_name_filter,
        word_of_number(PatternType, entity.pattern_type_filter),
        entity.principal_filter,
        entity.host_filter,
        word_of_number(Operation, entity.operation),
        word_of_number(Permission, entity.permission_type),
    )


def pattern_fields(pattern: Pattern) -> dict[str, Any]:
    """A pattern in an answer."""
    return {"resource_type": pattern.kind, "resource_name": pattern.name, "pattern_type": pattern.pattern_type}


def acl_fields(acl: Acl) -> dict[str, Any]:
    """An ACL in an answer."""
    return {"principal": acl.principal, "host": acl.host, "operation": acl.operation, "permission_type": acl.permission}
