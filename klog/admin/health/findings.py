"""What the rules find, which finding is the cause of which, and what comes of a cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from klog.names import counted

CRITICAL: Final = "critical"
WARNING: Final = "warning"
NAMED_MAX: Final = 4
"""Topics, and consequences of other kinds, that are named; more are counted."""
FELT: Final[Mapping[str, str]] = {
    "offline-partitions": "{} without a leader: no reads, no writes",
    "under-min-isr": "{} refusing acks=all",
    "at-min-isr": "{} that will refuse acks=all with one more replica away",
    "under-replicated": "{} under-replicated",
}
"""Kinds of findings about partitions, the worst first, and what users feel of them."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. ``kind`` is its name for scripts, ``do`` what helps.

    ``cause``: what history says of why, where it is known. ``consequences``: what comes of it, in words, of a finding
    that is the cause of others. ``because``: the WHAT of the finding that is its cause. ``partitions``: of how many
    partitions it is.
    """

    severity: str
    what: str
    found: str
    expected: str = field(metadata={"wide": True})
    do: str
    kind: str = field(metadata={"wide": True})
    because: str | None = field(default=None, metadata={"wide": True})
    cause: str | None = None
    consequences: tuple[str, ...] = ()
    partitions: int = field(default=0, metadata={"wide": True})


def in_order(found: Sequence[Finding]) -> list[Finding]:
    """Causes first, the critical ones before others, each followed by its consequences.

    A rule names the cause that it suspects; without that finding there is no cause.
    """
    by_what: dict[str, Finding] = {}
    for one in found:
        for name in (one.what, *_each_of(one.what)):
            by_what.setdefault(name, one)
    roots = {id(one): _root(one, by_what) for one in found}
    below: dict[str, list[Finding]] = {}
    for one in found:
        root = roots[id(one)]
        if root is not one:
            below.setdefault(root.what, []).append(replace(one, because=root.what))
    ordered: list[Finding] = []
    for one in sorted((one for one in found if roots[id(one)] is one), key=lambda one: one.severity != CRITICAL):
        mine = below.pop(one.what, [])
        ordered.append(replace(one, because=None, consequences=tuple(_consequences(mine))))
        ordered += sorted(mine, key=lambda each: each.severity != CRITICAL)
    return ordered


def causes(found: Sequence[Finding]) -> list[Finding]:
    """Those that no other finding explains."""
    return [one for one in found if one.because is None]


def _each_of(what: str) -> list[str]:
    """``broker 2`` and ``broker 3`` of ``brokers 2,3``: what one of them causes, the finding about both causes."""
    kind, _, names = what.partition(" ")
    return [f"broker {one}" for one in names.split(",")] if kind == "brokers" else []


def _root(one: Finding, by_what: Mapping[str, Finding]) -> Finding:
    """The first cause: of a circle, the finding itself."""
    seen, found = {id(one)}, one
    while found.because is not None and found.because in by_what:
        found = by_what[found.because]
        if id(found) in seen:
            return one
        seen.add(id(found))
    return found


def _consequences(findings: Sequence[Finding]) -> list[str]:
    """``12 partitions refusing acks=all: payments (6), orders``: in words, what users feel first.

    What is worse about as many partitions of a topic says the rest.
    """
    told: list[str] = []
    worse: Counter[str] = Counter()
    for kind, form in FELT.items():
        mine = [one for one in findings if one.kind == kind and one.partitions > worse[one.what]]
        worse |= Counter({one.what: one.partitions for one in mine})
        if mine:
            count = sum(one.partitions for one in mine)
            told.append(f"{form.format(counted(count, 'partition'))}{_by_topic(mine)}")
    others = [one for one in findings if one.kind not in FELT]
    told += [f"{one.what}: {one.found}" for one in others[:NAMED_MAX]]
    if len(others) > NAMED_MAX:
        kinds = Counter(one.kind for one in others[NAMED_MAX:])
        told.append(f"{len(others) - NAMED_MAX} more: {', '.join(f'{count} {kind}' for kind, count in kinds.items())}")
    return told


def _by_topic(mine: Sequence[Finding]) -> str:
    """``: payments (6), orders``; the topics with the most first."""
    in_turn = sorted(mine, key=lambda one: (-one.partitions, one.what))
    names = [
        one.what.removeprefix("topic ") + (f" ({one.partitions})" if one.partitions > 1 else "")
        for one in in_turn[:NAMED_MAX]
    ]
    more = f" and {counted(len(mine) - NAMED_MAX, 'more topic')}" if len(mine) > NAMED_MAX else ""
    return f": {', '.join(names)}{more}"
