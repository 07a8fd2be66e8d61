"""CreateAcls: v1-3.

Behaviour
    Every broker writes to ZooKeeper itself, as Kafka's do: the ACLs of one pattern in one step, which is an act. An ACL
    that is there already stays, without an error. The answer comes when this broker has read the change; the others
    read it soon, and before they answer DescribeAcls.
"""

from __future__ import annotations

from typing import Any

from klog.coordination import acls
from klog.errors import KlogError
from klog.protocol.apis import ApiKey
from klog.security.permissions import (
    Acl,
    Binding,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    check_binding,
    word_of_number,
)
from klog.server.dispatch import Answer, Request, error_fields, handles
from klog.server.executors import Purpose
from klog.server.handlers.describe_acls import keeper
from klog.server.parts import Parts
from klog.server.zookeeper_admission import Kind


@handles(ApiKey.CREATE_ACLS, 1, 3)
async def handle(request: Request, parts: Parts) -> Answer:
    asked: list[Binding | KlogError] = []
    async for one in request.in_turn(request.entity.creations):
        try:
            keeper(parts)
            asked.append(_binding(one))
        except KlogError as error:
            asked.append(error.bare())
    failed: dict[Pattern, KlogError] = {}
    by_pattern = acls.by_pattern([one for one in asked if not isinstance(one, KlogError)])
    async for pattern, wanted in request.in_turn(by_pattern.items()):
        try:
            parts.zookeeper_admission.new(Kind.RULES, len(wanted))
            await parts.runtime.at_zookeeper(Purpose.ACLS, acls.change, pattern, frozenset(wanted).union, request.actor)
        except KlogError as error:
            failed[pattern] = error.bare()
    if parts.access is not None:
        await parts.access.acl_keeper.look()
    outcomes = [one if isinstance(one, KlogError) else failed.get(one.pattern) for one in asked]
    return {"results": [error_fields(one) for one in outcomes]}


def _binding(asked: Any) -> Binding:
    return check_binding(
        Binding(
            Pattern(
                word_of_number(ResourceType, asked.resource_type),
                asked.resource_name,
                word_of_number(PatternType, asked.resource_pattern_type),
            ),
            Acl(
                asked.principal,
                asked.host,
                word_of_number(Operation, asked.operation),
                word_of_number(Permission, asked.permission_type),
            ),
        )
    )
