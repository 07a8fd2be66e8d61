"""The members of a group: protocols and deadline of each, and the protocol that all share."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from klog.coordination.group_states import MemberState
from klog.groups.bounds import MEMBER_OVERHEAD_BYTES, PENDING_MAX

NEVER_S = math.inf
PENDING_S = 3.0
"""Time for which a rebalance waits for a client to join again with the id that it was given. Clients take milliseconds;
Kafka waits for a session time-out, so a client that has died delays the whole group."""


class Caller(NamedTuple):
    """A member as its request names it. Generation -1 without an id: a consumer outside any group protocol."""

    member_id: str
    instance_id: str | None
    generation: int


class Sync(NamedTuple):
    """A SyncGroup request. ``protocol``: type and name, if the request has them. ``assignments``: of the leader."""

    caller: Caller
    protocol: tuple[str | None, str | None]
    assignments: Mapping[str, bytes]


class Leave(NamedTuple):
    """A LeaveGroup request: (member id, instance id) of each."""

    leaving: tuple[tuple[str, str | None], ...]


class MakeNode(NamedTuple):
    """Create the group's node before it has members, to fence commits."""


class Join(NamedTuple):
    """A JoinGroup request. ``new_id``: the id for a member without one.

    ``must_ask_twice``: a dynamic member without an id is given one, and becomes a member when it joins again (KIP-394).
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    new_id: str
    must_ask_twice: bool = False

    @property
    def size_bytes(self) -> int:
        """Approximate size of such a member."""
        return MEMBER_OVERHEAD_BYTES + sum(len(name) + len(metadata) for name, metadata in self.protocols)


Asked = Join | Sync | Leave | MakeNode
"""Answered with `Joined`, `Synced`, `Left` or `Made` of `klog.groups.outcomes`, or with `Refused`."""


class Pending(NamedTuple):
    """An id that was given out. ``awaited_until_s``: until when a rebalance waits for it; NEVER_S: no longer."""

    awaited_until_s: float
    until_s: float


def give_id(pending: dict[str, Pending], join: Join, now_s: float) -> None:
    """Note the id with which this client must join again; of too many the oldest is dropped."""
    session_s = join.session_timeout_ms / 1000
    pending[join.new_id] = Pending(now_s + min(session_s, PENDING_S), now_s + session_s)
    if len(pending) > PENDING_MAX:
        del pending[next(iter(pending))]


@dataclass(slots=True)
class Member:
    """A member. ``joining`` and ``syncing``: where to answer a waiting request of that kind, else None.

    ``deadline_s``: when it is removed without a heartbeat; NEVER_S while one of its requests waits.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    session_timeout_s: float
    rebalance_timeout_s: float
    protocols: tuple[tuple[str, bytes], ...]
    """By preference, each with the member's metadata for it (a consumer's subscription)."""
    assignment: bytes = b""
    deadline_s: float = NEVER_S
    joining: Any = None
    syncing: Any = None
    is_new: bool = True
    """Not in a generation yet: it does not know its id, so it cannot send heartbeats."""
    is_restored: bool = False
    """Read from ZooKeeper, which has only the chosen one of its protocols."""
    has_synced: bool = field(default=False)
    """In this generation."""
    counted_bytes: int = 0
    """Its size when `MemberTable.count` last counted it."""

    @property
    def size_bytes(self) -> int:
        """Approximately, with metadata and assignment."""
        said = sum(len(name) + len(metadata) for name, metadata in self.protocols)
        return MEMBER_OVERHEAD_BYTES + said + len(self.assignment)

    def heartbeat_ms(self, now_s: float) -> int | None:
        """Milliseconds since its last heartbeat; None while one of its requests waits."""
        if self.deadline_s == NEVER_S or self.joining is not None:
            return None
        return max(0, round((now_s - self.deadline_s + self.session_timeout_s) * 1000))

    def metadata(self, protocol: str) -> bytes:
        """Its metadata for this protocol; b"" for one that it does not support."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def wants(self, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        """Whether these are the protocols that it already has."""
        if self.is_restored:
            return self.protocols[0] in protocols if self.protocols else False
        return self.protocols == protocols

    def takes(self, join: Join) -> None:
        """Take the settings of this request."""
        self.client_id, self.host = join.client_id, join.host
        self.session_timeout_s = join.session_timeout_ms / 1000
        self.rebalance_timeout_s = join.rebalance_timeout_ms / 1000
        self.protocols = join.protocols
        self.is_restored = False

    def state(self, protocol: str, assignment: bytes) -> MemberState:
        """The member as it is written to ZooKeeper."""
        return MemberState(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.host,
            round(self.session_timeout_s * 1000),
            round(self.rebalance_timeout_s * 1000),
            self.metadata(protocol),
            assignment,
        )


def member_of(join: Join, member_id: str) -> Member:
    """A new member."""
    return Member(
        member_id,
        join.instance_id,
        join.client_id,
        join.host,
        join.session_timeout_ms / 1000,
        join.rebalance_timeout_ms / 1000,
        join.protocols,
    )


def restored(state: MemberState, protocol: str, now_s: float) -> Member:
    """A member from ZooKeeper; it has one session time-out to send a heartbeat."""
    return Member(
        state.member_id,
        state.instance_id,
        state.client_id,
        state.host,
        state.session_timeout_ms / 1000,
        state.rebalance_timeout_ms / 1000,
        ((protocol, state.metadata),),
        state.assignment,
        deadline_s=now_s + state.session_timeout_ms / 1000,
        is_new=False,
        is_restored=True,
    )


def common_protocols(members: Collection[Member]) -> set[str]:
    """The protocols that all members support."""
    known = [{name for name, _ in member.protocols} for member in members]
    return set.intersection(*known) if known else set()


def select_protocol(members: Sequence[Member]) -> str:
    """The protocol that most members prefer among those that all support; of several the first member's choice."""
    candidates = common_protocols(members)
    votes = Counter(next(name for name, _ in member.protocols if name in candidates) for member in members)
    return max(votes, key=lambda name: votes[name])  # a Counter keeps the order of the first votes
