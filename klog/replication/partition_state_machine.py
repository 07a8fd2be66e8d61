"""The states of a partition in the controller, and which may follow which. Kafka's names and table.

    NonExistent   it was never made, or is deleted
    New           it has replicas, and no leader yet
    Online        it has a leader
    Offline       its leader is dead, and no replica may lead

Concurrency: none; a table and two functions.
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
"""What may follow each state. Online to Online is another leader."""


def follows(before: PartitionStage, after: PartitionStage) -> bool:
    return after in TABLE[before]


def check(before: PartitionStage, after: PartitionStage, what: object) -> None:
    """Our own invariant: a wrong step is a bug of the controller, not anybody's bad input."""
    assert follows(before, after), f"{what} cannot go from {before.value} to {after.value}"
