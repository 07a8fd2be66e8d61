"""What a group decides: answers to requests that wait, and what is to be written before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from klog.coordination.group_states import GroupState
from klog.errors import KlogError


class Limits(NamedTuple):
    """Settings of the broker."""

    session_min_ms: int = 6000
    session_max_ms: int = 1_800_000
    initial_delay_s: float = 0.0
    members_max: int = 2**31 - 1


class Joined(NamedTuple):
    """``members`` (id, instance id, metadata) is for the leader alone; the others get none."""

    generation: int
    protocol_type: str
    protocol: str
    leader: str
    member_id: str
    members: tuple[tuple[str, str | None, bytes], ...] = ()


class Synced(NamedTuple):
    protocol_type: str
    protocol: str
    assignment: bytes


class Refused(NamedTuple):
    """``member_id`` is what a join without one is told to come back with."""

    error: KlogError
    member_id: str = ""


class Left(NamedTuple):
    """An error, or None, for each that was to leave, in their order."""

    errors: tuple[KlogError | None, ...]


class Made(NamedTuple):
    """The group has a node in the registry."""


Result = Joined | Synced | Left | Made | Refused


class Answer(NamedTuple):
    """``to`` is what the request came with."""

    to: Any
    what: Result


class Write(NamedTuple):
    """Put this in place of the state at its version; then say `written`, `replaced` or `write_failed`."""

    state: GroupState


Act = Answer | Write


@dataclass(slots=True)
class Writing:
    """A write that is under way, what follows it, and what is to be said then."""

    state: GroupState
    then: Callable[[float], None]
    answers: list[Answer]
    is_in_doubt: bool = False
