"""The one answer about a cluster: a snapshot, problems by cause, and what history says of each cause."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from klog.admin.health.findings import Finding, causes
from klog.admin.health.rules import SUBJECTS, judge
from klog.admin.health.snapshot import Snapshot, Where, take_snapshot
from klog.client.positions import parse_position
from klog.errors import KlogError
from klog.tools.events import last_addresses
from klog.tools.why.finding_causes import KINDS, first_causes
from klog.tools.why.gathering import group_facts, known_of

if TYPE_CHECKING:
    from klog.client.cluster import Cluster
    from klog.coordination.zookeeper import ZooKeeper
    from klog.tools.why.group_causes import GroupFacts

LOOK_AGAIN_S: Final = 0.5
HISTORY: Final = "@-7d"
"""From where on causes are looked for in the events."""
HISTORY_WITHIN_S: Final = 10.0


class Answer(NamedTuple):
    """``findings``: causes first, each followed by its consequences."""

    snapshot: Snapshot
    findings: list[Finding]


async def look(
    where: Where, subjects: Sequence[str] = (), *, max_lag: int | None = None, wait_s: float = 0.0
) -> Answer:
    """The snapshot and the findings about these subjects (all without any), the critical ones first.

    With ``wait_s``: looked at again until nothing is wrong or the time is over. Only addresses that cannot be parsed
    are errors (UsageError); a cluster that does not answer is a finding.
    """
    chosen = tuple(subjects) or SUBJECTS
    deadline = asyncio.get_running_loop().time() + wait_s
    while True:
        snapshot = await take_snapshot(where, chosen, last_addresses)
        found = judge(snapshot, max_lag)
        if not found or asyncio.get_running_loop().time() + LOOK_AGAIN_S > deadline:
            return Answer(snapshot, found)
        await asyncio.sleep(LOOK_AGAIN_S)


async def with_causes(
    answer: Answer, cluster: Callable[[], Awaitable[Cluster]], zookeeper: Callable[[], Awaitable[ZooKeeper]]
) -> Answer:
    """The answer with what history says of why. What cannot be read of it is left out: the findings stand without."""
    snapshot, findings = answer
    sought = [one for one in causes(findings) if one.kind in KINDS]
    if not snapshot.answers or not sought:
        return answer
    try:
        connected = await cluster()

        async def of_group(name: str) -> GroupFacts:
            return await group_facts(connected, await zookeeper(), name, snapshot.silent)

        known = await known_of(connected, zookeeper, snapshot, parse_position(HISTORY), HISTORY_WITHIN_S)
        found = await first_causes(known, sought, of_group)
    except KlogError:
        return answer
    return Answer(snapshot, [replace(one, cause=found.get(one.what)) if one in sought else one for one in findings])
