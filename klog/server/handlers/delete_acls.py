"""DeleteAcls: v1-3.

Behaviour
    Removes the ACLs that match any of the filters, as they are in ZooKeeper, in one step for each pattern, which is an
    act. The answer names what each filter removed; a filter that matches nothing removes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from klog.coordination import acls
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import KlogError
from klog.protocol.apis import ApiKey
from klog.security.permissions import Binding, Filter, Pattern
from klog.server.dispatch import Answer, Request, error_fields, handles
from klog.server.executors import Purpose
from klog.server.handlers.describe_acls import acl_fields, filter_of, keeper
from klog.server.parts import Parts
from klog.server.runtime import Runtime


@handles(ApiKey.DELETE_ACLS, 1, 3)
async def handle(request: Request, parts: Parts) -> Answer:
    results: list[dict[str, Any]] = []
    async for one in request.in_turn(request.entity.filters):
        try:
            keeper(parts)
            removed, failed = await _remove(parts.runtime, filter_of(one), request)
        except KlogError as error:
            results.append({**error_fields(error), "matching_acls": []})
        else:
            first = next(iter(failed.values()), None)
            results.append({**error_fields(first), "matching_acls": [_fields(one, failed) for one in removed]})
    if parts.access is not None:
        await parts.access.acl_keeper.look()
    return {"filter_results": results}


async def _remove(runtime: Runtime, chosen: Filter, request: Request) -> tuple[list[Binding], dict[Pattern, KlogError]]:
    """The removed ACLs, and the patterns with errors."""
    found = await runtime.executors.run(Purpose.ACLS, _matching, runtime.zookeeper, chosen)
    removed: list[Binding] = []
    failed: dict[Pattern, KlogError] = {}
    async for pattern, those in request.in_turn(acls.by_pattern(found).items()):

        def without(there: acls.State, pattern: Pattern = pattern) -> acls.State:
            return frozenset(one for one in there if not chosen.matches(Binding(pattern, one)))

        try:
            before, after = await runtime.executors.run(
                Purpose.ACLS, acls.change, runtime.zookeeper, pattern, without, request.actor
            )
        except KlogError as error:
            failed[pattern] = error.bare()
            removed += [Binding(pattern, one) for one in sorted(those)]
        else:
            removed += [Binding(pattern, one) for one in sorted(before - after)]
    return removed, failed


def _matching(zookeeper: ZooKeeper, chosen: Filter) -> Sequence[Binding]:
    """In a thread."""
    there = acls.read_all(zookeeper).acls
    every = (Binding(pattern, acl) for pattern, those in there.items() for acl in those)
    return [one for one in every if chosen.matches(one)]


def _fields(binding: Binding, failed: dict[Pattern, KlogError]) -> dict[str, Any]:
    return {
        **error_fields(failed.get(binding.pattern)),
        "resource_type": binding.pattern.kind,
        "resource_name": binding.pattern.name,
        "pattern_type": binding.pattern.pattern_type,
        **acl_fields(binding),
    }
