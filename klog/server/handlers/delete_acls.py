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
from klog.server.handlers.describe_acls import acl_fields, filter_of, keeper, pattern_fields
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
            matching = [
                {**error_fields(failed.get(one.pattern)), **pattern_fields(one.pattern), **acl_fields(one.acl)}
                for one in removed
            ]
            results.append({**error_fields(first), "matching_acls": matching})
    if parts.access is not None:
        await parts.access.acl_keeper.look()
    return {"filter_results": results}


async def _remove(runtime: Runtime, chosen: Filter, request: Request) -> tuple[list[Binding], dict[Pattern, KlogError]]:
    """The removed ACLs, and the patterns with errors."""
    found = await runtime.at_zookeeper(Purpose.ACLS, _matching, chosen)
    removed: list[Binding] = []
    failed: dict[Pattern, KlogError] = {}
    async for pattern, those in request.in_turn(acls.by_pattern(found).items()):

        def without(there: acls.State, pattern: Pattern = pattern) -> acls.State:
            return frozenset(one for one in there if not chosen.matches(Binding(pattern, one)))

        gone = frozenset(those)
        try:
            before, after = await runtime.at_zookeeper(Purpose.ACLS, acls.change, pattern, without, request.actor)
            gone = before - after
        except KlogError as error:
            failed[pattern] = error.bare()
        removed += [Binding(pattern, one) for one in sorted(gone)]
    return removed, failed


def _matching(zookeeper: ZooKeeper, chosen: Filter) -> Sequence[Binding]:
    """In a thread."""
    there = acls.read_all(zookeeper).acls
    every = (Binding(pattern, acl) for pattern, those in there.items() for acl in those)
    return [one for one in every if chosen.matches(one)]
