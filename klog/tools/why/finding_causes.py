"""The first cause of findings, each in a sentence, as `klog status SUBJECT` finds it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from klog.errors import GroupIdNotFound, KlogError
from klog.tools.why.causes import thing_of, why_thing
from klog.tools.why.group_causes import GroupFacts, why_group

if TYPE_CHECKING:
    from klog.admin.health.findings import Finding
    from klog.tools.why.steps import Known, Step

SOUGHT_MAX: Final = 20
BROKERS_MAX: Final = 3
WITHIN_S: Final = 10.0
GROUP_KINDS: Final = frozenset({
    "group-far-behind", "group-stopped", "idle-members", "lag", "never-committed", "no-member", "offset-behind-end",
    "offset-below-start",
    "topic-gone", "unowned-partitions",
})  # fmt: skip
KINDS: Final = GROUP_KINDS | {
    "at-min-isr", "dead-broker", "log-dir-full", "log-dir-offline", "offline-partitions", "reassignment-stalls",
    "silent-broker", "under-min-isr", "under-replicated",
}  # fmt: skip
"""The findings that have a cause behind them. Others are about settings, and say all there is."""

BROKER_KINDS: Final = frozenset({"dead-broker", "silent-broker"})
HISTORIC: Final = ("event ", "act ", "log ")
"""What the evidence of steps from the past begins with."""

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
                told = []
                for subject, name in _subjects(what, kind):
                    cause = await _cause(known, subject, name, kind, of_group)
                    if cause is not None:
                        # Several brokers of one fate are one sentence.
                        text = _sentence(cause)
                        is_shared = what.startswith("brokers ")
                        told.append(text.replace(f"broker {name} ", f"{what} ") if is_shared else text)
                if told:
                    found[what] = "; ".join(dict.fromkeys(told))
    except (TimeoutError, KlogError):
        pass  # those that were found by then
    return found


def _subjects(what: str, finding: str) -> list[tuple[str, str]]:
    """The kind and the name of what a finding is about; of several brokers the first `BROKERS_MAX`."""
    kind, _, name = what.partition(" ")
    if finding in GROUP_KINDS:
        return [(kind, name.rpartition(", partition ")[0] or name)]
    name = name.partition(", ")[0]
    return [("broker", one) for one in name.split(",")[:BROKERS_MAX]] if kind == "brokers" else [(kind, name)]


async def _cause(known: Known, kind: str, name: str, finding: str, of_group: OfGroup) -> Step | None:
    if finding in GROUP_KINDS:
        try:
            steps = why_group(known, await of_group(name))
        except GroupIdNotFound:
            return None
    else:
        there = thing_of(known, kind, name)
        steps = [] if there is None else why_thing(known, there)
    if finding in BROKER_KINDS:  # that it does not serve is the finding itself
        return next((one for one in reversed(steps) if one.evidence.startswith(HISTORIC)), None)
    return next((one for one in reversed(steps) if one.do is not None), None)


def _sentence(cause: Step) -> str:
    when = "" if cause.time is None else f" at {cause.time:%Y-%m-%d %H:%M:%S}"
    return f"{cause.what}{when} ({cause.evidence})"
