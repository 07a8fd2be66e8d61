"""Decisions of a group: answers to waiting requests, and writes that must come first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from klog.coordination.group_states import GroupState
from klog.errors import KlogError


class Joined(NamedTuple):
    """``members`` (id, instance id, metadata) only in the leader's answer."""

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
    """``member_id``: the id with which a client that had none must join again."""

    error: KlogError
    member_id: str = ""


class Left(NamedTuple):
    """An error or None for each leaving member, in the order of the request."""

    errors: tuple[KlogError | None, ...]


class Made(NamedTuple):
    """The group has a node in ZooKeeper."""


Result = Joined | Synced | Left | Made | Refused


class Answer(NamedTuple):
    """``to``: as the request passed it."""

    to: Any
    what: Result


class Write(NamedTuple):
    """Write this state over its version; then call `written`, `replaced` or `write_failed`."""

    state: GroupState


Outcome = Answer | Write


@dataclass(slots=True)
class Writing:
    """A write under way; outcomes and answers that follow it."""

    state: GroupState
    then: Callable[[float], None]
    answers: list[Answer]
    is_in_doubt: bool = False
