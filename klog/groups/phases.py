"""The phases of a group, and what is answered in each: everything that depends on a group's phase.

                     ┌────────────────────────────────── changed ───────────────────────────────────┐
                     ▼                                                                               │
    EMPTY ─changed─▶ PREPARING ─generation─▶ COMPLETING ─assigned─▶ STABLE ──────────────────────────┘
      ▲                │ ▲                        │
      └────emptied─────┘ └────────changed─────────┘                                 DEAD: another broker coordinates it

A group *prepares* while its members join, before a generation begins. A generation begins with its list of members,
*completes* when its leader has assigned the partitions, and is stable until a member joins, leaves, or changes its
subscription. The names of the phases are those that Kafka shows.
"""

from __future__ import annotations

from enum import Enum, auto

from klog.errors import CoordinatorNotAvailable, KlogError, RebalanceInProgress, UnknownMemberId


class Phase(Enum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Event(Enum):
    CHANGED = auto()
    """A member has joined, left, or changed its subscription."""
    EMPTIED = auto()
    """The last member has left."""
    GENERATION = auto()
    """All live members have joined, and a new generation is written."""
    ASSIGNED = auto()
    """The leader has assigned the partitions, and that is written."""


FOLLOWS: dict[tuple[Phase, Event], Phase] = {
    (Phase.EMPTY, Event.CHANGED): Phase.PREPARING,
    (Phase.PREPARING, Event.EMPTIED): Phase.EMPTY,
    (Phase.PREPARING, Event.GENERATION): Phase.COMPLETING,
    (Phase.COMPLETING, Event.ASSIGNED): Phase.STABLE,
    (Phase.COMPLETING, Event.CHANGED): Phase.PREPARING,
    (Phase.STABLE, Event.CHANGED): Phase.PREPARING,
}

Answers = dict[Phase, type[KlogError] | None]
"""The answer to a member's request in the current generation; None: granted."""

HEARTBEAT: Answers = {
    Phase.EMPTY: UnknownMemberId,
    Phase.PREPARING: RebalanceInProgress,
    Phase.COMPLETING: None,
    Phase.STABLE: None,
    Phase.DEAD: CoordinatorNotAvailable,
}
SYNC = HEARTBEAT
COMMIT: Answers = {
    Phase.EMPTY: UnknownMemberId,
    # Members commit what they have read before they join again: the partitions are theirs until then.
    Phase.PREPARING: None,
    # They have joined, so they have committed; later commits are too late: a partition may have another owner now.
    Phase.COMPLETING: RebalanceInProgress,
    Phase.STABLE: None,
    Phase.DEAD: CoordinatorNotAvailable,
}


def after(phase: Phase, event: Event) -> Phase:
    """The next phase; KeyError for an impossible event, which is an internal error."""
    return FOLLOWS[phase, event]
