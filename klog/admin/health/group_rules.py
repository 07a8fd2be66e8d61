"""What is wrong with a group: its offsets, its members, and what the members own. `klog status` shows it of all groups,
and `klog status group G` of one, with what history says of it (`klog.tools.why.group_causes`).
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from klog.admin.group_lag import LagRow
from klog.admin.health.findings import WARNING, Finding
from klog.admin.health.group_looks import GroupLook
from klog.admin.health.snapshot import Snapshot
from klog.coordination import paths
from klog.names import counted, first_few
from klog.render.value_texts import duration_text, moment_text

PATIENCE_MS: Final = 300_000
"""Members that began less than this ago may commit yet; what waits for less is not late."""
PATIENCE_OF_ONE_MS: Final = 30_000
"""What waits for less is not late in a group that is asked about: clients commit every 5 s unless told otherwise."""
SETTLED_MS: Final = 10_000
"""Members of a group that changed less than this ago may be sharing its partitions out."""
FAR_BEHIND_MS: Final = 3_600_000
"""A message that waits for so long for a group that reads."""
NAMED_MAX: Final = 5


def groups(snapshot: Snapshot, max_lag: int | None = None, *, alone: bool = False) -> Iterator[Finding]:
    """The findings about groups, group by group, those first that explain others. ``alone``: about the one group that
    somebody asks about, which then has less time."""
    looks = {look.name: look for look in snapshot.group_looks}
    rows: dict[str, list[LagRow]] = {name: [] for name in looks}
    for one in snapshot.groups:
        rows.setdefault(str(one.group), []).append(one)
    for name, mine in rows.items():
        of = _Of(snapshot, looks.get(name, GroupLook(name, ())), name in looks, mine, max_lag, alone)
        yield from (one for rule in _RULES for one in rule(of))


@dataclass(frozen=True, slots=True)
class _Of:
    """A group and its positions."""

    snapshot: Snapshot
    look: GroupLook
    is_known: bool
    """Whether its members could be read."""
    rows: Sequence[LagRow]
    max_lag: int | None
    alone: bool

    @property
    def name(self) -> str:
        """As a shell takes it."""
        return shlex.quote(self.look.name)

    @property
    def positions(self) -> list[LagRow]:
        """Those in partitions that exist."""
        return [one for one in self.rows if self.snapshot.metadata.lacking(one.place) is None]

    def is_since(self, ms: int) -> bool:
        """Its members have been these for so long, or nobody waits for that."""
        return self.alone or self.snapshot.now_ms - self.look.since_ms >= ms

    def is_stopped(self, one: LagRow) -> bool:
        """Messages wait, and nothing was committed for as long."""
        patience_ms = PATIENCE_OF_ONE_MS if self.alone else PATIENCE_MS
        return min(_waits_ms(one), self.snapshot.now_ms - _committed_ms(one)) > patience_ms

    def finding(self, kind: str, found: str, expected: str, do: str, at: LagRow | None = None) -> Finding:
        what = f"group {self.look.name}" + ("" if at is None else f", partition {at.place}")
        return Finding(WARNING, what, found, expected, do, kind)


# --- The rules --------------------------------------------------------------------------------------------------------


def _gone(of: _Of) -> Iterator[Finding]:
    """Topics that its members read, and that do not exist."""
    for topic in of.look.gone if of.is_since(SETTLED_MS) else ():
        name, was = shlex.quote(topic), "does not exist"
        do = f"`klog topic create {name}`, or other topics for its members"
        if topic in of.snapshot.deleted:
            was, do = "was deleted", f"`klog topic restore {name}`, or other topics for its members"
        yield of.finding("topic-gone", f"its members read topic {topic}, which {was}", "topics that exist", do)


def _outside(of: _Of) -> Iterator[Finding]:
    """Offsets outside of the log: retention was faster, or the topic is another."""
    for one in of.positions:
        offset, start, end = one.current_offset, one.log_start_offset, one.log_end_offset
        if offset is not None and start is not None and offset < start:
            found = f"retention deleted messages that the group had not read: offset {offset} is below the log's start"
            do = (
                "consume faster, or raise the topic's retention.ms; what was deleted is lost: "
                f"`klog group rewind {of.name} --to start` goes on with what there is"
            )
            yield of.finding("offset-below-start", found, f"{start} or later", do, one)
        elif offset is not None and end is not None and offset > end:
            found = f"offset {offset} is beyond the log's end"
            do = (
                f"check whether the topic was deleted and created again (`klog events topic {one.topic}`), "
                f"then `klog group rewind {of.name} --to end`"
            )
            yield of.finding("offset-behind-end", found, f"{end} at most", do, one)


def _no_member(of: _Of) -> Iterator[Finding]:
    """Messages wait, and nobody reads them."""
    unread = sum(one.lag or 0 for one in of.positions)
    if not of.is_known or of.look.members or not unread:
        return
    since_ms = of.look.since_ms or max(map(_committed_ms, of.positions), default=0)
    if not of.alone and of.snapshot.now_ms - since_ms < PATIENCE_MS:
        return
    since = f" since {moment_text(since_ms)}" if since_ms else ""
    do = f"start its consumers; or `klog group delete {of.name}`, if it is no longer needed"
    found = f"{counted(unread, 'message')} unread, no member{since}"
    yield of.finding("no-member", found, "a member, or nothing unread", do)


def _never_committed(of: _Of) -> Iterator[Finding]:
    """Members that read, and have not committed anything for a while; at once where a lag is not to be exceeded.

    A member of partitions without new messages has nothing to commit: where nobody asks about the group, it is well as
    long as another commits.
    """
    never = [one for one in of.positions if one.has_committed_nothing]
    committed = [one for one in of.positions if one.current_offset is not None]
    lazy = {str(one.owner) for one in never} - {str(one.owner) for one in committed}
    is_unasked = of.max_lag is None and not of.alone
    if not lazy or (is_unasked and (committed or not of.is_since(PATIENCE_MS))):
        return
    places = _named([one.place for one in never if one.owner in lazy])
    found = f"{_members(of.look, lazy)} never committed; there are messages in {places}"
    do = "let it commit: enable.auto.commit=true, or commit after each batch; if it only began, wait"
    yield of.finding("never-committed", found, "committed offsets", do)


def _unowned(of: _Of) -> Iterator[Finding]:
    if of.look.unowned and of.is_since(SETTLED_MS):
        do = (
            "restart its consumers, so that they share the partitions out again; "
            f"`klog group describe {of.name}` shows who owns what"
        )
        found = f"no live consumer owns {_named(of.look.unowned)}"
        yield of.finding("unowned-partitions", found, "an owner each", do)


def _stopped(of: _Of) -> Iterator[Finding]:
    mine = [one for one in of.positions if of.is_stopped(one)]
    if not mine:
        return
    first = mine[0].place
    because = f"topic {first.topic}" if of.snapshot.metadata.leader_of(first) is None else None
    members = _members(of.look, {str(one.owner) for one in mine})
    waited = f"messages wait for {duration_text(max(map(_waits_ms, mine)))}"
    found = f"{members} stopped committing in {_named([one.place for one in mine])}: {waited}"
    do = "look at its process: it sends heartbeats, and does not commit; a message that it cannot process, perhaps"
    yield replace(of.finding("group-stopped", found, "commits while messages wait", do), because=because)


def _far_behind(of: _Of) -> Iterator[Finding]:
    """It reads and commits, and is far behind in time."""
    mine = [one for one in of.positions if _waits_ms(one) > FAR_BEHIND_MS and not of.is_stopped(one)]
    if mine:
        waited = f"messages wait for {duration_text(max(map(_waits_ms, mine)))}"
        do = f"`klog lag {of.name}` shows whether it catches up; else more consumers, up to one a partition"
        found = f"far behind in {_named([one.place for one in mine])}: {waited}"
        yield of.finding("group-far-behind", found, "messages read within an hour", do)


def _idle(of: _Of) -> Iterator[Finding]:
    if of.look.idle and of.is_since(SETTLED_MS):
        found = f"{counted(len(of.look.idle), 'member')} own nothing: {_named(of.look.idle)}"
        do = "more partitions (`klog topic alter TOPIC -p N`), or fewer members; a standby may stay"
        yield of.finding("idle-members", found, "partitions for each member", do)


def _too_far(of: _Of) -> Iterator[Finding]:
    """More unread than is permitted."""
    for one in of.positions if of.max_lag is not None else ():
        if not one.is_outside and (one.lag or 0) > (of.max_lag or 0):
            do = f"look at its consumers: `klog group describe {of.name}`"
            found = f"lags by {counted(one.lag or 0, 'message')}"
            yield of.finding("lag", found, f"at most {of.max_lag:,}", do, one)


def _left_over(of: _Of) -> Iterator[Finding]:
    """Offsets of what is no longer there."""
    for one in of.rows:
        if one.current_offset is None or of.snapshot.metadata.lacking(one.place) is None:
            continue
        node, kind = paths.consumer_offset(of.look.name, *one.place), "partition"
        do = f"delete {node}"
        if one.topic not in of.snapshot.metadata.topics:
            node, kind = node.rpartition("/")[0], "topic"
            do = (
                f"delete {node}"
                if of.look.members or not of.is_known
                else f"`klog group delete {of.name}`, or delete {node}"
            )
        yield of.finding(f"offset-without-{kind}", f"no such {kind}", f"a {kind}", do, one)


_RULES = (_gone, _outside, _no_member, _never_committed, _unowned, _stopped, _far_behind, _idle, _too_far, _left_over)


def _waits_ms(one: LagRow) -> int:
    """How long the first unread message has been waiting for a member."""
    return one.lag_ms or 0 if one.owner and one.lag and one.committed else 0


def _committed_ms(one: LagRow) -> int:
    return 0 if one.committed is None else int(one.committed.timestamp() * 1000)


def _members(look: GroupLook, owners: Collection[str]) -> str:
    """``member m1 (client c, host h)``, by what owns their partitions: 0.8's consumers have an id for each thread."""
    named = [next((one for one in look.members if owner.startswith(one.member_id)), owner) for owner in sorted(owners)]
    return f"member{'s' if len(named) > 1 else ''} {_named(named)}"


def _named(names: Sequence[object]) -> str:
    return first_few(names, NAMED_MAX, ",")
