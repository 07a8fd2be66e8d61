"""The states of a replica in the controller, and which may follow which. Kafka's names and table.

    NonExistent          there is none, or it is deleted
    New                  it will be made: a new partition's, or a reassignment's
    Online               it follows a leader, or leads
    Offline              its broker is dead or its disk lost
    DeletionStarted      its broker has the request to delete it
    DeletionSuccessful   its broker has
    DeletionIneligible   its broker cannot now: it is dead, or has failed to; tried again when it is back

Concurrency: none; a table and two functions.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class ReplicaStage(Enum):
    NON_EXISTENT = "NonExistent"
    NEW = "New"
    ONLINE = "Online"
    OFFLINE = "Offline"
    DELETION_STARTED = "DeletionStarted"
    DELETION_SUCCESSFUL = "DeletionSuccessful"
    DELETION_INELIGIBLE = "DeletionIneligible"


_S = ReplicaStage
TABLE: Final[dict[ReplicaStage, frozenset[ReplicaStage]]] = {
    _S.NON_EXISTENT: frozenset({_S.NEW}),
    _S.NEW: frozenset({_S.ONLINE, _S.OFFLINE}),
    _S.ONLINE: frozenset({_S.ONLINE, _S.OFFLINE}),
    _S.OFFLINE: frozenset({_S.ONLINE, _S.OFFLINE, _S.DELETION_STARTED, _S.DELETION_INELIGIBLE}),
    _S.DELETION_STARTED: frozenset({_S.DELETION_SUCCESSFUL, _S.DELETION_INELIGIBLE}),
    _S.DELETION_INELIGIBLE: frozenset({_S.ONLINE, _S.OFFLINE}),
    _S.DELETION_SUCCESSFUL: frozenset({_S.NON_EXISTENT}),
}
"""What may follow each state. From DeletionIneligible a deletion begins again by way of Offline."""


def follows(before: ReplicaStage, after: ReplicaStage) -> bool:
    return after in TABLE[before]


def check(before: ReplicaStage, after: ReplicaStage, what: object) -> None:
    """Our own invariant: a wrong step is a bug of the controller, not anybody's bad input."""
    assert follows(before, after), f"{what} cannot go from {before.value} to {after.value}"
