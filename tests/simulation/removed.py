"""The rules of the design, and how each is taken out of a world: the simulation has to notice.

Some are a question of the shell (`Rules.holds`), others are taken out of the core here, by putting in its place what a
design without the rule does. That is why these reach into private parts: there is no switch in klog to turn one off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from klog.coordination.partition_states import PartitionState
from klog.errors import KlogError
from klog.replication import divergence, leader_election
from klog.replication.isr import IsrChange
from klog.replication.leader_election import Decision, ElectionInput, NoLeader
from klog.replication.led_partition import LedPartition
from klog.storage.log import LogEnd


def _anyone_alive(state: PartitionState, situation: ElectionInput) -> tuple[int, ...]:
    """Whoever has the id counts, whatever it lost when it was another incarnation."""
    return tuple(one for one in state.isr if situation.serves(one))


_first_back = leader_election._first_back


def _not_waiting(
    state: PartitionState, replicas: tuple[int, ...], situation: ElectionInput, first_epoch: int
) -> Decision | NoLeader:
    """The best of those who are back leads, whoever is missing."""
    missing = [one for one in state.isr if not situation.serves(one) or one not in situation.facts]
    without = replace(
        situation,
        live={**situation.live, **dict.fromkeys(missing, 0)},
        facts={**situation.facts, **dict.fromkeys(missing)},
        offline=situation.offline - set(missing),
    )
    return _first_back(state, replicas, without, first_epoch)


def _count_new_isr_only(self: LedPartition) -> None:
    counted = self.state.isr if self.change is None else self.change.isr
    self._counted = tuple(one for one in counted if one != self.broker_id)


def _check_no_epoch(self: LedPartition, leader_epoch: int, broker_id: int, incarnation: int) -> None:
    pass


_propose_isr = LedPartition.propose_isr


def _propose_by_id(self: LedPartition, now_s: float, alive: Mapping[int, int], *arguments: Any) -> IsrChange | None:
    """A position is a broker's, whichever incarnation it was that said it."""
    for one, position in self._positions.items():
        if one in alive:
            self._positions[one] = position._replace(incarnation=alive[one])
    return _propose_isr(self, now_s, alive, *arguments)


_adopt = LedPartition.adopt


def _adopt_and_remember(self: LedPartition, replicas: tuple[int, ...], state: PartitionState) -> bool:
    """What was said before somebody left the ISR still counts."""
    said = dict(self._positions)
    is_newer = _adopt(self, replicas, state)
    self._positions |= said
    return is_newer


_flushed = LedPartition.flushed


def _advance_unflushed(self: LedPartition, end: LogEnd) -> None:
    _flushed(self, self.log.end)


_append = LedPartition.append


def _append_and_count(self: LedPartition, records: memoryview) -> Any:
    result = _append(self, records)
    _flushed(self, self.log.end)
    return result


def _acknowledge_all(self: LedPartition, error: KlogError) -> None:
    """Whoever waits is told that all is well, though another leads by now."""
    waiting, self._waiting = self._waiting, []
    for one in waiting:
        one.waiter.committed(None)


def _dead_stay(state: PartitionState, situation: ElectionInput) -> None:
    return None


Patch = tuple[object, str, Callable[..., Any]]

PATCHES: Mapping[str, tuple[Patch, ...]] = {
    "R1 uninterrupted": ((leader_election, "uninterrupted", _anyone_alive),),
    "R1 wait for all": ((leader_election, "_first_back", _not_waiting),),
    "R2": ((LedPartition, "_count", _count_new_isr_only),),
    "R3 epoch": ((LedPartition, "check_replica", _check_no_epoch),),
    "R3 incarnation": ((LedPartition, "propose_isr", _propose_by_id), (LedPartition, "adopt", _adopt_and_remember)),
    "R3 agreement": ((divergence, "disagreement", lambda log, last_epoch, end_address: None),),
    "D4 leader": ((LedPartition, "flushed", _advance_unflushed), (LedPartition, "append", _append_and_count)),
    "R5": ((leader_election, "without_dead", _dead_stay),),
    "R9": ((LedPartition, "failed", _acknowledge_all),),
}
"""The others are asked for by name where the shell obeys them."""


@contextmanager
def taken_out(without: frozenset[str]) -> Iterator[None]:
    with ExitStack() as stack:
        for rule in without:
            for target, name, instead in PATCHES.get(rule, ()):
                stack.enter_context(patch.object(target, name, instead))
        yield
