"""The partition's state in the registry, and how a leader writes it: rules R2, Z1, Z2, as `isr_writer` does it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from klog.coordination.partition_states import PartitionState
from klog.replication.isr import IsrChange
from klog.replication.led_partition import LedPartition
from tests.simulation.registry import LOST, OK, Check, Node, Put

if TYPE_CHECKING:
    from tests.simulation.replica import Replica

STATE, TOPIC = "/state", "/topic"
AGAIN_S = 0.1


def state_of(node: Node | None) -> PartitionState | None:
    return None if node is None else replace(node.data, version=node.version)


def data_of(state: PartitionState) -> PartitionState:
    """What is written of a state: all but its version."""
    return replace(state, version=-1)


class StateWriter:
    """One replica's."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._process = replica.process
        self._world = replica.world
        self._rules = replica.rules
        self._broker_id = replica.broker_id

    def write(self, partition: LedPartition, change: IsrChange) -> None:
        """Rules R2, Z1, Z2: as `klog.server.replicas.isr_writer`."""
        if partition.change is not change or partition.resigned:
            return
        if partition.incarnation != self._process.incarnation:
            self._replica.step_down(partition)
            return
        wanted = partition.changed(change)
        after = replace(wanted, version=change.state_version + 1)
        self._world.say("broker %d wants ISR %s: %s", self._broker_id, change.isr, change.reason)

        def done(outcome: str, _: object) -> None:
            if outcome == OK or (outcome == LOST and not self._rules.holds("R2 doubt")):
                self._isr_written(partition, change, after)
            elif not self._rules.holds("Z2"):  # taken for a failure, whatever it was
                partition.change = None
                partition._count()
            elif outcome == LOST:
                self._process.after(AGAIN_S, self.write, partition, change)
            else:
                self.read(look)

        def look(outcome: str, nodes: dict[str, Node | None]) -> None:
            found = state_of(nodes[STATE]) if outcome == OK else None
            if partition.change is not change or partition.resigned:
                return
            if found is not None:
                self._replica.seen_version = max(self._replica.seen_version, found.version)
            if outcome == LOST:
                self._process.after(AGAIN_S, self.write, partition, change)
            elif found == after:
                self._isr_written(partition, change, after)
            elif (
                found is not None
                and found.version != change.state_version
                and (found.leader, found.leader_epoch) == (self._broker_id, partition.leader_epoch)
            ):
                self._replica.adopt(found)
            else:
                self._replica.step_down(partition)

        self.put(wanted, change.state_version, done)

    def _isr_written(self, partition: LedPartition, change: IsrChange, state: PartitionState) -> None:
        if partition.change is change and not partition.resigned:
            partition.isr_written(change, state.version)
            self._replica.state_version = max(self._replica.state_version, state.version)
            self._process.report_isr()

    def put(self, state: PartitionState, version: int, done: Any) -> None:
        """Fenced by the topic's node and our own registration (rule Z1)."""
        fence: Sequence[Check] = ()
        if self._rules.holds("Z1 registration"):
            fence = (Check(TOPIC, 0), self._process.fence)
        self._process.session.multi([*fence, Put(STATE, data_of(state), version)], done)

    def read(self, done: Any) -> None:
        self._process.session.read([STATE], done)
