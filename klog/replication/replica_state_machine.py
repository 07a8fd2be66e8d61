"""The states of a replica in the controller, and their transitions. Kafka's names and table.

NonExistent          none, or deleted
New                  to be created: a new partition's, or a reassignment's
Online               a follower or leader
Offline              its broker is dead or its disk offline
DeletionStarted      its broker has the request to delete it
DeletionSuccessful   its broker has deleted it
DeletionIneligible   its broker is dead or has failed to delete it; retried when it is back
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
"""The transitions. From DeletionIneligible a deletion is retried by way of Offline."""


def follows(before: ReplicaStage, after: ReplicaStage) -> bool:
    return after in TABLE[before]


def check(before: ReplicaStage, after: ReplicaStage, what: object) -> None:
    """Assert a transition: an invalid one is a bug of the controller."""
    assert follows(before, after), f"{what} cannot go from {before.value} to {after.value}"
