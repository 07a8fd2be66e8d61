"""The first cause of findings of `klog check`, each in a sentence, as `klog why` finds it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from klog.errors import GroupIdNotFound, KlogError
from klog.tools.why.gathering import find
from klog.tools.why.group_causes import GroupFacts, why_group

if TYPE_CHECKING:
    from klog.admin.findings import Finding
    from klog.tools.why.steps import Known, Step

SOUGHT_MAX: Final = 20
WITHIN_S: Final = 10.0
GROUP_KINDS: Final = frozenset({
    "group-stopped", "idle-members", "lag", "never-committed", "offset-behind-end", "offset-below-start",
    "unowned-partitions",
})  # fmt: skip
KINDS: Final = GROUP_KINDS | {
    "at-min-isr", "dead-broker", "log-dir-full", "log-dir-offline", "offline-partitions", "reassignment-stalls",
    "silent-broker", "under-min-isr", "under-replicated",
}  # fmt: skip
"""The findings that have a cause behind them. Others are about settings, and say all there is."""

OfGroup = Callable[[str], Awaitable[GroupFacts]]
"""What is known of a group. GroupIdNotFound."""


async def first_causes(known: Known, findings: Sequence[Finding], of_group: OfGroup) -> dict[str, str]:
    """WHAT of a finding -> its first cause; without those that have none. Only `SOUGHT_MAX` are looked for, and none
    after `WITHIN_S`. Only ``of_group`` asks the cluster."""
    sought: dict[str, str] = {}
    for one in findings:
        if one.kind in KINDS:
            sought.setdefault(one.what, one.kind)
    found: dict[str, str] = {}
    try:
        async with asyncio.timeout(WITHIN_S):
            for what, kind in list(sought.items())[:SOUGHT_MAX]:
                cause = await _cause(known, what, kind, of_group)
                if cause is not None:
                    found[what] = _sentence(cause)
    except (TimeoutError, KlogError):
        pass  # those that were found by then
    return found


async def _cause(known: Known, what: str, finding: str, of_group: OfGroup) -> Step | None:
    kind, _, name = what.partition(" ")
    if finding in GROUP_KINDS:
        name = name.rpartition(", partition ")[0] or name
        try:
            steps = why_group(known, await of_group(name))
        except GroupIdNotFound:
            return None
    else:
        steps = find(known, kind, name.partition(", ")[0]) or []
    return next((step for step in reversed(steps) if step.do is not None), None)


def _sentence(cause: Step) -> str:
    when = "" if cause.time is None else f"{cause.time:%Y-%m-%d %H:%M:%S}: "
    return f"{when}{cause.what} ({cause.evidence})"
