"""ACLs: who may do what. By Kafka's requests, but for `check`, which only klog's brokers answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from klog.client.answers import check as check_answer
from klog.client.cluster import Cluster
from klog.errors import NoSuchThing, Refused
from klog.protocol.apis import ApiKey
from klog.security.permissions import (
    ANY_HOST,
    Acl,
    Binding,
    Filter,
    Operation,
    Pattern,
    PatternType,
    Permission,
    Resource,
    ResourceType,
    word_of_number,
)

VERSION_MAX = 3
VERSION_MIN = 1
LEARN_S = 2.0
"""As long is waited, after a change, for each broker to have read it."""


@dataclass(frozen=True, slots=True)
class AclRow:
    """One ACL. ``resource`` is ``topic:orders``; ``pattern`` literal or prefixed; ``permission`` Allow or Deny."""

    principal: str
    permission: str
    operation: str
    resource: str
    pattern: str
    host: str


@dataclass(frozen=True, slots=True)
class CheckRow:
    """Whether a principal may do what was asked, and which rule decides."""

    allowed: bool
    rule: str


def row(binding: Binding) -> AclRow:
    """An ACL as it is shown."""
    pattern, acl = binding
    return AclRow(
        acl.principal,
        acl.permission.title,
        acl.operation.title,
        str(Resource(pattern.kind, pattern.name)),
        pattern.pattern_type.title.lower(),
        acl.host,
    )


async def read_acls(cluster: Cluster, chosen: Filter) -> list[Binding]:
    """The ACLs that match, sorted. Raises SecurityDisabled where brokers check no permissions."""
    answer = await cluster.to_any(ApiKey.DESCRIBE_ACLS, VERSION_MAX, VERSION_MIN, **_filter_fields(chosen))
    check_answer(answer)
    return sorted(_binding(resource, one) for resource in answer.resources for one in resource.acls)


async def add_acls(cluster: Cluster, bindings: Sequence[Binding]) -> None:
    """Write ACLs; one that is there already stays. Raises the first error."""
    creations = [
        {
            "resource_type": one.pattern.kind,
            "resource_name": one.pattern.name,
            "resource_pattern_type": one.pattern.pattern_type,
            "principal": one.acl.principal,
            "host": one.acl.host,
            "operation": one.acl.operation,
            "permission_type": one.acl.permission,
        }
        for one in bindings
    ]
    answer = await cluster.to_any(ApiKey.CREATE_ACLS, VERSION_MAX, VERSION_MIN, creations=creations)
    for result in answer.results:
        check_answer(result)
    await _let_all_read(cluster, [filter_of(one) for one in bindings])


async def remove_acls(cluster: Cluster, filters: Sequence[Filter]) -> list[Binding]:
    """Remove the ACLs that match any of the filters; those removed. Raises the first error."""
    answer = await cluster.to_any(
        ApiKey.DELETE_ACLS, VERSION_MAX, VERSION_MIN, filters=[_filter_fields(one) for one in filters]
    )
    removed = []
    for result in answer.filter_results:
        check_answer(result)
        for one in result.matching_acls:
            check_answer(one)
            removed.append(_binding(one, one))
    await _let_all_read(cluster, filters)
    return sorted(set(removed))


async def _let_all_read(cluster: Cluster, changed: Sequence[Filter]) -> None:
    """Ask each broker about the change: it reads what was written before it answers. One that is away does later."""
    for one in changed[:1]:
        await cluster.to_each(ApiKey.DESCRIBE_ACLS, VERSION_MAX, VERSION_MIN, wait_s=LEARN_S, **_filter_fields(one))


async def refuse_missing(cluster: Cluster, bindings: Sequence[Binding]) -> None:
    """NoSuchThing where one of these ACLs is not there."""
    there = set(await read_acls(cluster, Filter()))
    missing = [one for one in bindings if one not in there]
    if missing:
        raise NoSuchThing(f"there is no ACL {missing[0]!s}", hint="`klog acl list` shows the ACLs")


def filter_of(binding: Binding) -> Filter:
    """The filter that matches this ACL alone."""
    pattern, acl = binding
    return Filter(*pattern, principal=acl.principal, host=acl.host, operation=acl.operation, permission=acl.permission)


async def check(
    cluster: Cluster, principal: str, operation: Operation, resource: Resource, host: str = ANY_HOST
) -> CheckRow:
    """Whether the principal may do that, as the broker that is asked decides. Refused on plain Kafka."""
    if not cluster.is_klog:
        raise Refused("this is not a klog cluster: only klog says which rule decides")
    answer = await cluster.to_any(
        ApiKey.CHECK_PERMISSION,
        0,
        principal=principal,
        host=host,
        operation=operation,
        resource_type=resource.kind,
        resource_name=resource.name,
    )
    check_answer(answer)
    return CheckRow(bool(answer.is_allowed), str(answer.rule))


def _binding(resource: Any, acl: Any) -> Binding:
    return Binding(
        Pattern(
            word_of_number(ResourceType, resource.resource_type),
            str(resource.resource_name),
            word_of_number(PatternType, resource.pattern_type),
        ),
        Acl(
            str(acl.principal),
            str(acl.host),
            word_of_number(Operation, acl.operation),
            word_of_number(Permission, acl.permission_type),
        ),
    )


def _filter_fields(chosen: Filter) -> dict[str, Any]:
    return {
        "resource_type_filter": chosen.kind,
        "resource_name_filter": chosen.name,
        "pattern_type_filter": chosen.pattern_type,
        "principal_filter": chosen.principal,
        "host_filter": chosen.host,
        "operation": chosen.operation,
        "permission_type": chosen.permission,
    }
