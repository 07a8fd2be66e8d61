"""The one answer about a cluster: a snapshot, problems by cause, and what history says of each cause, in a sentence."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from klog.admin.health.findings import Finding, causes
from klog.admin.health.rules import SUBJECTS, judge
from klog.admin.health.snapshot import Snapshot, Where, take_snapshot
from klog.client.cluster import Cluster
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import GroupIdNotFound, KlogError
from klog.tools.events import last_addresses
from klog.tools.why.causes import thing_of, why_thing
from klog.tools.why.gathering import group_facts, known_of
from klog.tools.why.group_causes import GroupFacts, why_group
from klog.tools.why.steps import EXPECTED, Known, Step

LOOK_AGAIN_S: Final = 0.5
SOUGHT_MAX: Final = 20
BROKERS_MAX: Final = 3
WITHIN_S: Final = 10.0
"""Of reading the events, and of finding the causes."""
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

        known = await known_of(connected, zookeeper, snapshot, WITHIN_S)
        found = await first_causes(known, sought, of_group)
    except KlogError:
        return answer
    return Answer(snapshot, [replace(one, cause=found.get(one.what)) if one in sought else one for one in findings])


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
            for what, finding in list(sought.items())[:SOUGHT_MAX]:
                told = []
                for subject, name in _subjects(what, finding):
                    cause = await _cause(known, subject, name, finding, of_group)
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
    """The first cause; None where it is no more than the finding says."""
    if finding in GROUP_KINDS:
        try:
            every = why_group(known, await of_group(name))
            steps = [one for one in every if not one.evidence.startswith(EXPECTED)]
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
