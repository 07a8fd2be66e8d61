"""The states of a partition in the controller, and their transitions. Kafka's names and table.

NonExistent   never created, or deleted
New           it has replicas, and no leader yet
Online        it has a leader
Offline       its leader is dead, and no replica may lead
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class PartitionStage(Enum):
    NON_EXISTENT = "NonExistent"
    NEW = "New"
    ONLINE = "Online"
    OFFLINE = "Offline"


TABLE: Final[dict[PartitionStage, frozenset[PartitionStage]]] = {
    PartitionStage.NON_EXISTENT: frozenset({PartitionStage.NEW}),
    PartitionStage.NEW: frozenset({PartitionStage.ONLINE, PartitionStage.OFFLINE}),
    PartitionStage.ONLINE: frozenset({PartitionStage.ONLINE, PartitionStage.OFFLINE}),
    PartitionStage.OFFLINE: frozenset({PartitionStage.ONLINE, PartitionStage.OFFLINE, PartitionStage.NON_EXISTENT}),
}
"""The transitions. Online to Online is a new leader."""


def follows(before: PartitionStage, after: PartitionStage) -> bool:
    return after in TABLE[before]


def check(before: PartitionStage, after: PartitionStage, what: object) -> None:
    """Assert a transition: an invalid one is a bug of the controller."""
    assert follows(before, after), f"{what} cannot go from {before.value} to {after.value}"
