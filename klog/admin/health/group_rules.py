"""What `klog status` finds about groups: their offsets, their members, and what the members own."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from klog.admin.group_lag import LagRow
from klog.admin.health.findings import WARNING, Finding
from klog.admin.health.snapshot import Snapshot
from klog.coordination import paths
from klog.names import counted, first_few
from klog.render.value_texts import duration_text, moment_text

PATIENCE_MS: Final = 300_000
"""Members that began less than this ago may commit yet; what waits for less is not late."""
SETTLED_MS: Final = 10_000
"""Members of a group that changed less than this ago may be sharing its partitions out."""
FAR_BEHIND_MS: Final = 3_600_000
"""A message that waits for so long for a group that reads."""
NAMED_MAX: Final = 5


def groups(snapshot: Snapshot, max_lag: int | None) -> Iterator[Finding]:
    """The findings about groups."""
    yield from _offsets(snapshot, max_lag)
    if max_lag is None:
        yield from _never_committed(snapshot)
    yield from _stopped(snapshot)
    yield from _far_behind(snapshot)
    yield from _no_member(snapshot)
    yield from _members(snapshot)


def _offsets(snapshot: Snapshot, max_lag: int | None) -> Iterator[Finding]:
    for one in _positions(snapshot):
        what, group = f"group {one.group}, partition {one.place}", str(one.group)
        offset, start, end = one.current_offset, one.log_start_offset, one.log_end_offset
        if one.place.topic not in snapshot.metadata.topics:
            node = f"/consumers/{group}/offsets/{one.topic}"
            lives = any(look.name == group and look.members for look in snapshot.group_looks)
            do = f"delete {node}" if lives else f"`klog group delete {shlex.quote(group)}`, or delete {node}"
            yield Finding(WARNING, what, "no such topic", "a topic", do, "offset-without-topic")
        elif one.place.partition not in snapshot.metadata.topics[one.place.topic].partitions:
            do = f"delete {paths.consumer_offset(group, *one.place)}"
            yield Finding(WARNING, what, "no such partition", "a partition", do, "offset-without-partition")
        elif offset is None:
            if max_lag is not None:
                do = f"look at its consumers, and whether they commit: `klog group describe {shlex.quote(group)}`"
                found = "its member has never committed, and there are messages"
                yield Finding(WARNING, what, found, f"lag of at most {max_lag:,}", do, "never-committed")
        elif start is not None and offset < start:
            found = f"offset {offset} is below the log's start"
            do = "consume faster, or raise the retention: removed messages are skipped"
            yield Finding(WARNING, what, found, f"{start} or later", do, "offset-below-start")
        elif end is not None and offset > end:
            found = f"offset {offset} is beyond the log's end"
            rewind = f"`klog group rewind {shlex.quote(group)} --to end`"
            do = f"check whether the topic was deleted and created again, then {rewind}"
            yield Finding(WARNING, what, found, f"{end} at most", do, "offset-behind-end")
        elif max_lag is not None and one.lag is not None and one.lag > max_lag:
            found = f"lags by {counted(one.lag, 'message')}"
            do = f"look at its consumers: `klog group describe {shlex.quote(group)}`"
            yield Finding(WARNING, what, found, f"at most {max_lag:,}", do, "lag")


def _never_committed(snapshot: Snapshot) -> Iterator[Finding]:
    """Groups whose members read, and have not committed anything for a while."""
    for look in snapshot.group_looks:
        mine = [one for one in _positions(snapshot) if one.group == look.name and one.topic in snapshot.metadata.topics]
        never = [one.place for one in mine if one.current_offset is None]
        if not look.members or not never or len(never) < len(mine) or snapshot.now_ms - look.since_ms < PATIENCE_MS:
            continue
        found = f"its {counted(len(look.members), 'member')} never committed; there are messages in {_named(never)}"
        do = f"let it commit (enable.auto.commit=true); `klog status group {shlex.quote(look.name)}`"
        yield Finding(WARNING, f"group {look.name}", found, "committed offsets", do, "never-committed")


def _stopped(snapshot: Snapshot) -> Iterator[Finding]:
    for name, mine in _by_group(one for one in snapshot.groups if _is_stopped(snapshot, one)):
        longest_ms = max(map(_waits_ms, mine))
        first = mine[0].place
        is_led = first.topic not in snapshot.metadata.topics or snapshot.metadata.leader_of(first) is not None
        because = None if is_led else f"topic {first.topic}"
        waited = f"messages wait for {duration_text(longest_ms)}"
        found = f"stopped moving in {_named([one.place for one in mine])}: {waited}, and nothing is committed"
        do = f"`klog status group {shlex.quote(name)}`"
        yield Finding(WARNING, f"group {name}", found, "commits while messages wait", do, "group-stopped", because)


def _far_behind(snapshot: Snapshot) -> Iterator[Finding]:
    """Groups that read and commit, and are far behind in time."""
    late = (one for one in snapshot.groups if _waits_ms(one) > FAR_BEHIND_MS and not _is_stopped(snapshot, one))
    for name, mine in _by_group(late):
        longest_ms = max(map(_waits_ms, mine))
        found = f"far behind in {_named([one.place for one in mine])}: messages wait for {duration_text(longest_ms)}"
        do = f"`klog lag {shlex.quote(name)}` shows whether it catches up; else more consumers, up to one a partition"
        yield Finding(WARNING, f"group {name}", found, "messages read within an hour", do, "group-far-behind")


def _no_member(snapshot: Snapshot) -> Iterator[Finding]:
    """Groups without a member, while messages wait for them."""
    for look in snapshot.group_looks:
        mine = [one for one in _positions(snapshot) if one.group == look.name and one.topic in snapshot.metadata.topics]
        unread = sum(one.lag or 0 for one in mine)
        since_ms = look.since_ms or max(map(_committed_ms, mine), default=0)
        if look.members or not unread or snapshot.now_ms - since_ms < PATIENCE_MS:
            continue
        since = f" since {moment_text(since_ms)}" if since_ms else ""
        found = f"{counted(unread, 'message')} unread, no member{since}"
        do = f"start its consumers; or `klog group delete {shlex.quote(look.name)}`, if it is no longer needed"
        yield Finding(WARNING, f"group {look.name}", found, "a member, or nothing unread", do, "no-member")


def _positions(snapshot: Snapshot) -> Iterator[LagRow]:
    """What groups have committed, and what a member reads without having committed anything."""
    return (one for one in snapshot.groups if one.current_offset is not None or one.has_committed_nothing)


def _committed_ms(one: LagRow) -> int:
    return 0 if one.committed is None else int(one.committed.timestamp() * 1000)


def _waits_ms(one: LagRow) -> int:
    """How long the first unread message has been waiting for a member; 0 where that is within patience."""
    reads = one.owner and one.lag and one.committed
    return one.lag_ms if reads and one.lag_ms is not None and one.lag_ms > PATIENCE_MS else 0


def _is_stopped(snapshot: Snapshot, one: LagRow) -> bool:
    """Messages wait, and nothing was committed for as long."""
    return _waits_ms(one) > 0 and snapshot.now_ms - _committed_ms(one) > PATIENCE_MS


def _by_group(some: Iterable[LagRow]) -> Iterator[tuple[str, list[LagRow]]]:
    found: dict[str, list[LagRow]] = {}
    for one in some:
        found.setdefault(str(one.group), []).append(one)
    yield from found.items()


def _members(snapshot: Snapshot) -> Iterator[Finding]:
    for look in snapshot.group_looks:
        if snapshot.now_ms - look.since_ms < SETTLED_MS:
            continue
        if look.unowned:
            found = f"no live consumer owns {_named(look.unowned)}"
            do = f"restart its consumers; `klog group describe {shlex.quote(look.name)}` shows who owns what"
            yield Finding(WARNING, f"group {look.name}", found, "an owner each", do, "unowned-partitions")
        for topic in look.gone:
            name, was = shlex.quote(topic), "does not exist"
            do = f"`klog topic create {name}`, or other topics for it"
            if topic in snapshot.deleted:
                do, was = f"`klog topic restore {name}`, or other topics for it", "was deleted"
            found = f"its members read topic {topic}, which {was}"
            yield Finding(WARNING, f"group {look.name}", found, "topics that exist", do, "topic-gone")
        if look.idle:
            found = f"{counted(len(look.idle), 'member')} own nothing: {_named(look.idle)}"
            do = "more partitions (`klog topic alter TOPIC -p N`), or fewer members"
            yield Finding(WARNING, f"group {look.name}", found, "partitions for each member", do, "idle-members")


def _named(names: Sequence[object]) -> str:
    return first_few(names, NAMED_MAX, ",")
