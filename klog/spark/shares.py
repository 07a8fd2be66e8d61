"""How a limit over all partitions (``maxOffsetsPerTrigger``) is divided among them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def shares(waiting: Mapping[T, int], limit: int) -> dict[T, int]:
    """Each one's share of ``limit``, in proportion to what waits there; together exactly the limit, or all there is.

    Who has anything gets at least one, so that a quiet partition beside busy ones is read too; where even that is more
    than the limit, those with the most waiting get one each.
    """
    there = {one: count for one, count in waiting.items() if count > 0}
    total = sum(there.values())
    if total <= limit:
        return there
    if len(there) >= limit:
        most = sorted(there, key=lambda one: there[one], reverse=True)[:limit]
        return dict.fromkeys(most, 1)
    exact = {one: divmod(count * limit, total) for one, count in there.items()}
    found = {one: max(whole, 1) for one, (whole, _) in exact.items()}
    left = limit - sum(found.values())
    by_remainder = sorted((one for one in exact if exact[one][0]), key=lambda one: exact[one][1], reverse=True)
    for one in by_remainder[: max(left, 0)]:
        found[one] += 1
    for one in sorted(found, key=lambda one: found[one], reverse=True):  # what the smallest got is the largest's
        if left >= 0:
            break
        taken = min(found[one] - 1, -left)
        found[one] -= taken
        left += taken
    return found
