"""Whether a group kept its promises, from what its members said and what ZooKeeper had. Pure.

* a partition has one owner in a generation, and a generation is never used twice;
* what is committed was read before, and never goes back;
* every message that was acknowledged to the producer was read by somebody.

An event is what a member says (`tests.cluster.group_member`), with ``at``, the machine's monotonic clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Events = Sequence[Mapping[str, Any]]
Sample = tuple[float, Mapping[int, int]]
"""(when, partition -> what was committed then)"""


def judge_owners(members: Mapping[str, Events]) -> None:
    """AssertionError for a partition with two owners in a generation, or a member whose generations go back."""
    owners: dict[tuple[int, int], set[str]] = defaultdict(set)
    for name, events in members.items():
        claims = [one for one in events if one["is"] == "owner"]
        generations = [one["generation"] for one in claims]
        assert generations == sorted(generations), f"{name}: generations go back: {generations}"
        for one in claims:
            for partition in one["partitions"]:
                owners[one["generation"], partition].add(name)
    doubled = {where: names for where, names in owners.items() if len(names) > 1}
    assert not doubled, f"more than one owner of (generation, partition): {doubled}"


def judge_commits(members: Iterable[Events], samples: Sequence[Sample]) -> None:
    """AssertionError for a commit of what nobody had read when it was seen, or one that takes another back."""
    reads = sorted(
        (event["at"], int(partition), offsets[-1])
        for events in members
        for event in events
        if event["is"] == "read"
        for partition, offsets in event["offsets"].items()
    )
    farthest: dict[int, int] = {}
    before: Mapping[int, int] = {}
    at = 0
    for when, offsets in samples:
        while at < len(reads) and reads[at][0] <= when:
            _, partition, offset = reads[at]
            farthest[partition] = max(offset, farthest.get(partition, -1))
            at += 1
        for partition, offset in offsets.items():
            assert offset <= farthest.get(partition, -1) + 1, f"partition {partition}: {offset} is committed, not read"
            assert offset >= before.get(partition, 0), f"partition {partition}: {before[partition]}, and then {offset}"
        before = offsets


def judge_reads(members: Iterable[Events], acknowledged: Mapping[int, Iterable[int]]) -> None:
    """AssertionError for an offset that was acknowledged to the producer and that no member has read."""
    read: dict[int, set[int]] = defaultdict(set)
    for events in members:
        for event in events:
            if event["is"] == "read":
                for partition, offsets in event["offsets"].items():
                    read[int(partition)].update(offsets)
    for partition, offsets in acknowledged.items():
        missed = sorted(set(offsets) - read[partition])
        assert not missed, f"partition {partition}: {len(missed)} were never read: {missed[:5]}"
