"""What `klog status` finds about groups: their offsets, their members, and what the members own."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from klog.admin.health.findings import WARNING, Finding
from klog.coordination import paths
from klog.names import first_few
from klog.render.counts import counted
from klog.render.value_texts import duration_text, moment_text

if TYPE_CHECKING:
    from klog.admin.health.group_looks import GroupOffset
    from klog.admin.health.snapshot import Snapshot
    from klog.client.metadata import Metadata

PATIENCE_MS: Final = 300_000
"""Members that began less than this ago may commit yet."""
SETTLED_MS: Final = 10_000
"""Members of a group that changed less than this ago may be sharing its partitions out."""
FAR_BEHIND_MS: Final = 3_600_000
"""A message that waits for so long for a group that reads."""
NAMED_MAX: Final = 5


def groups(snapshot: Snapshot, metadata: Metadata, max_lag: int | None) -> Iterator[Finding]:
    """The findings about groups."""
    yield from _offsets(snapshot, metadata, max_lag)
    if max_lag is None:
        yield from _never_committed(snapshot, metadata)
    yield from _stopped(snapshot, metadata)
    yield from _far_behind(snapshot)
    yield from _no_member(snapshot, metadata)
    yield from _members(snapshot)


def _offsets(snapshot: Snapshot, metadata: Metadata, max_lag: int | None) -> Iterator[Finding]:
    for one in snapshot.groups:
        what = f"group {one.group}, partition {one.partition}"
        if one.partition.topic not in metadata.topics:
            node = f"/consumers/{one.group}/offsets/{one.partition.topic}"
            lives = any(look.name == one.group and look.members for look in snapshot.group_looks)
            do = f"delete {node}" if lives else f"`klog group delete {shlex.quote(one.group)}`, or delete {node}"
            yield Finding(WARNING, what, "no such topic", "a topic", do, "offset-without-topic")
        elif one.partition.partition not in metadata.topics[one.partition.topic].partitions:
            do = f"delete {paths.consumer_offset(one.group, *one.partition)}"
            yield Finding(WARNING, what, "no such partition", "a partition", do, "offset-without-partition")
        elif one.offset is None:
            if max_lag is not None:
                do = f"look at its consumers, and whether they commit: `klog group describe {shlex.quote(one.group)}`"
                found = "its member has never committed, and there are messages"
                yield Finding(WARNING, what, found, f"lag of at most {max_lag:,}", do, "never-committed")
        elif one.start is not None and one.offset < one.start:
            found = f"offset {one.offset} is below the log's start"
            do = "consume faster, or raise the retention: removed messages are skipped"
            yield Finding(WARNING, what, found, f"{one.start} or later", do, "offset-below-start")
        elif one.end is not None and one.offset > one.end:
            found = f"offset {one.offset} is behind the log's end"
            rewind = f"`klog group rewind {shlex.quote(one.group)} --to end`"
            do = f"check whether the topic was deleted and created again, then {rewind}"
            yield Finding(WARNING, what, found, f"{one.end} at most", do, "offset-behind-end")
        elif max_lag is not None and one.lag is not None and one.lag > max_lag:
            found = f"lags by {counted(one.lag, 'message')}"
            do = f"look at its consumers: `klog group describe {shlex.quote(one.group)}`"
            yield Finding(WARNING, what, found, f"at most {max_lag:,}", do, "lag")


def _never_committed(snapshot: Snapshot, metadata: Metadata) -> Iterator[Finding]:
    """Groups whose members read, and have not committed anything for a while."""
    for look in snapshot.group_looks:
        mine = [one for one in snapshot.groups if one.group == look.name and one.partition.topic in metadata.topics]
        never = [one.partition for one in mine if one.offset is None]
        if not look.members or not never or len(never) < len(mine) or snapshot.now_ms - look.since_ms < PATIENCE_MS:
            continue
        found = f"its {counted(len(look.members), 'member')} never committed; there are messages in {_named(never)}"
        do = f"let it commit (enable.auto.commit=true); `klog status group {shlex.quote(look.name)}`"
        yield Finding(WARNING, f"group {look.name}", found, "committed offsets", do, "never-committed")


def _stopped(snapshot: Snapshot, metadata: Metadata) -> Iterator[Finding]:
    for name, mine in _by_group(one for one in snapshot.groups if one.is_stopped):
        longest_ms = max(one.waiting_ms or 0 for one in mine)
        first = mine[0].partition
        node = metadata.topics[first.topic].partitions.get(first.partition) if first.topic in metadata.topics else None
        because = f"topic {first.topic}" if node is not None and node.leader is None else None
        waited = f"messages wait for {duration_text(longest_ms)}"
        found = f"stopped moving in {_named([one.partition for one in mine])}: {waited}, and nothing is committed"
        do = f"`klog status group {shlex.quote(name)}`"
        yield Finding(WARNING, f"group {name}", found, "commits while messages wait", do, "group-stopped", because)


def _far_behind(snapshot: Snapshot) -> Iterator[Finding]:
    """Groups that read and commit, and are far behind in time."""
    late = (one for one in snapshot.groups if (one.waiting_ms or 0) > FAR_BEHIND_MS and not one.is_stopped)
    for name, mine in _by_group(late):
        longest_ms = max(one.waiting_ms or 0 for one in mine)
        found = (
            f"far behind in {_named([one.partition for one in mine])}: messages wait for {duration_text(longest_ms)}"
        )
        do = f"`klog lag {shlex.quote(name)}` shows whether it catches up; else more consumers, up to one a partition"
        yield Finding(WARNING, f"group {name}", found, "messages read within an hour", do, "group-far-behind")


def _no_member(snapshot: Snapshot, metadata: Metadata) -> Iterator[Finding]:
    """Groups without a member, while messages wait for them."""
    for look in snapshot.group_looks:
        mine = [one for one in snapshot.groups if one.group == look.name and one.partition.topic in metadata.topics]
        unread = sum(one.lag or 0 for one in mine)
        since_ms = look.since_ms or max((one.committed_ms or 0 for one in mine), default=0)
        if look.members or not unread or snapshot.now_ms - since_ms < PATIENCE_MS:
            continue
        since = f" since {moment_text(since_ms)}" if since_ms else ""
        found = f"{counted(unread, 'message')} unread, no member{since}"
        do = f"start its consumers; or `klog group delete {shlex.quote(look.name)}`, if it is no longer needed"
        yield Finding(WARNING, f"group {look.name}", found, "a member, or nothing unread", do, "no-member")


def _by_group(some: Iterable[GroupOffset]) -> Iterator[tuple[str, list[GroupOffset]]]:
    found: dict[str, list[GroupOffset]] = {}
    for one in some:
        found.setdefault(one.group, []).append(one)
    yield from found.items()


def _members(snapshot: Snapshot) -> Iterator[Finding]:
    for look in snapshot.group_looks:
        if snapshot.now_ms - look.since_ms < SETTLED_MS:
            continue
        if look.unowned:
            found = f"no live consumer owns {_named(look.unowned)}"
            do = f"restart its consumers; `klog group describe {shlex.quote(look.name)}` shows who owns what"
            yield Finding(WARNING, f"group {look.name}", found, "an owner each", do, "unowned-partitions")
        if look.idle:
            found = f"{counted(len(look.idle), 'member')} own nothing: {_named(look.idle)}"
            do = "more partitions (`klog topic alter TOPIC -p N`), or fewer members"
            yield Finding(WARNING, f"group {look.name}", found, "partitions for each member", do, "idle-members")


def _named(names: Sequence[object]) -> str:
    return first_few(names, NAMED_MAX, ",")
