"""What `klog check` reports, and which finding is the cause of which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from klog.render.counts import counted

CRITICAL: Final = "critical"
WARNING: Final = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. ``kind`` is its name for scripts, ``do`` what helps.

    ``because``: the WHAT of the finding that is its cause. ``consequences``: how many findings this one causes.
    """

    severity: str
    what: str
    found: str
    expected: str
    do: str
    kind: str = field(metadata={"wide": True})
    because: str | None = field(default=None, metadata={"wide": True})
    consequences: int = field(default=0, metadata={"wide": True})


def in_order(found: Sequence[Finding]) -> list[Finding]:
    """Causes first, the critical ones before others, each followed by its consequences.

    A rule names the cause that it suspects; without that finding there is no cause.
    """
    by_what: dict[str, Finding] = {}
    for one in found:
        by_what.setdefault(one.what, one)
    roots = {id(one): _root(one, by_what) for one in found}
    below: dict[str, list[Finding]] = {}
    for one in found:
        root = roots[id(one)]
        if root is not one:
            below.setdefault(root.what, []).append(replace(one, because=root.what))
    ordered: list[Finding] = []
    for one in sorted((one for one in found if roots[id(one)] is one), key=lambda one: one.severity != CRITICAL):
        mine = below.pop(one.what, [])
        ordered.append(replace(one, because=None, consequences=len(mine)))
        ordered += sorted(mine, key=lambda each: each.severity != CRITICAL)
    return ordered


def _root(one: Finding, by_what: Mapping[str, Finding]) -> Finding:
    """The first cause: of a circle, the finding itself."""
    seen, found = {one.what}, one
    while found.because is not None and found.because in by_what:
        if found.because in seen:
            return one
        seen.add(found.because)
        found = by_what[found.because]
    return found


def folded(found: Sequence[Finding]) -> list[Finding]:
    """Of findings in their order the causes alone, with the number of their consequences."""
    kinds: dict[str, Counter[str]] = {}
    for one in found:
        if one.because is not None:
            kinds.setdefault(one.because, Counter())[one.kind] += 1
    return [
        replace(one, found=f"{one.found}. {_told(kinds[one.what])}") if one.consequences else one
        for one in found
        if one.because is None
    ]


def _told(kinds: Counter[str]) -> str:
    each = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common())
    return f"{counted(kinds.total(), 'consequence')}: {each} (-o wide)"
