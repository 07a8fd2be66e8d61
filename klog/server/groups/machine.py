"""The phases of a group, and what each of them answers: all that depends on a group's phase stands here.

                     ┌────────────────────────────────── changed ───────────────────────────────────┐
                     ▼                                                                               │
    EMPTY ─changed─▶ PREPARING ─generation─▶ COMPLETING ─assigned─▶ STABLE ──────────────────────────┘
      ▲                │ ▲                        │
      └────emptied─────┘ └────────changed─────────┘        any of them ─removed─▶ DEAD

A group is *prepared* while its members join: each is heard before a generation begins. A generation begins with its
list of members, *completes* when its leader has said who reads what, and is stable until a member comes, goes, or
wants something else. The names of the phases are those that Kafka shows.
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
    """A member has come, gone, or changed what it wants."""
    EMPTIED = auto()
    """Nobody is left."""
    GENERATION = auto()
    """All that live have joined, and a new generation is written."""
    ASSIGNED = auto()
    """The generation's leader has said who reads what, and it is written."""
    REMOVED = auto()
    """The group is deleted, or no longer this coordinator's."""


FOLLOWS: dict[tuple[Phase, Event], Phase] = {
    (Phase.EMPTY, Event.CHANGED): Phase.PREPARING,
    (Phase.EMPTY, Event.REMOVED): Phase.DEAD,
    (Phase.PREPARING, Event.EMPTIED): Phase.EMPTY,
    (Phase.PREPARING, Event.GENERATION): Phase.COMPLETING,
    (Phase.PREPARING, Event.REMOVED): Phase.DEAD,
    (Phase.COMPLETING, Event.ASSIGNED): Phase.STABLE,
    (Phase.COMPLETING, Event.CHANGED): Phase.PREPARING,
    (Phase.COMPLETING, Event.REMOVED): Phase.DEAD,
    (Phase.STABLE, Event.CHANGED): Phase.PREPARING,
    (Phase.STABLE, Event.REMOVED): Phase.DEAD,
}

Answers = dict[Phase, type[KlogError] | None]
"""What a request of a member in the group's own generation gets; None: it is granted."""

HEARTBEAT: Answers = {
    Phase.EMPTY: UnknownMemberId,
    Phase.PREPARING: RebalanceInProgress,
    Phase.COMPLETING: None,
    Phase.STABLE: None,
    Phase.DEAD: CoordinatorNotAvailable,
}
SYNC: Answers = {
    Phase.EMPTY: UnknownMemberId,
    Phase.PREPARING: RebalanceInProgress,
    Phase.COMPLETING: None,
    Phase.STABLE: None,
    Phase.DEAD: CoordinatorNotAvailable,
}
COMMIT: Answers = {
    Phase.EMPTY: UnknownMemberId,
    # Members commit what they have read before they join again: the partitions are theirs until then.
    Phase.PREPARING: None,
    # They have joined, so they have committed, or it is too late: somebody else may be given the partition now.
    Phase.COMPLETING: RebalanceInProgress,
    Phase.STABLE: None,
    Phase.DEAD: CoordinatorNotAvailable,
}


def after(phase: Phase, event: Event) -> Phase:
    """The phase that follows; KeyError for what cannot happen: our error."""
    return FOLLOWS[phase, event]
