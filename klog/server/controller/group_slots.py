"""Assigns coordinators to groups: the controller assigns 64 slots to brokers (rule G1, `coordination.group_slots`).

The pure function `decide` chooses the slots that change hands. `GroupSlots` writes all of them in one multi behind the
controller's fence and sends them to every broker. It runs in every reconciliation, before the partitions: it is one
small write, and a group without a coordinator cannot progress.

Rules
    * A slot stays with its holder while that incarnation is alive. A broker is dead when it is not registered or
      refuses connections. A broker that shuts down gives its slots away while it still serves.
    * Only a broker that answers the controller gets a slot: a registration outlives its broker, and a slot given to a
      dead broker would have to move again.
    * All brokers hold the same number of slots, within one, with the fewest possible moves. A broker that starts gets
      its share, so a rolling restart ends up balanced.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Mapping

from klog.coordination import group_slots
from klog.coordination.group_slots import SLOTS, SlotHolder
from klog.errors import BadVersion, NodeExists, NoNode
from klog.server.controller.broker_channels import BrokerChannels
from klog.server.controller.controller_state import ControllerState
from klog.server.runtime import Runtime

log = logging.getLogger(__name__)

VERDICTS_WITHIN_S = 0.3
"""How long a new controller waits for each broker to answer or refuse, so that no slot moves twice. Both take
milliseconds; a broker that does neither is paused or cut off."""


def decide(holders: Mapping[int, SlotHolder], staying: Mapping[int, int], takers: Collection[int]) -> dict[int, int]:
    """Slot -> new holder, for slots that change hands or whose holder has a new incarnation.

    ``staying``: broker id -> incarnation of brokers that may keep their slots. ``takers``: those of them that may get
    more. {} without takers: each holder keeps its slots.
    """
    if not takers:
        return {}
    held: dict[int, list[int]] = {broker_id: [] for broker_id in sorted(takers)}
    free: list[int] = []
    for slot in range(SLOTS):
        holder = holders.get(slot)
        if holder is not None and (holder.broker_id in takers or staying.get(holder.broker_id) == holder.incarnation):
            held.setdefault(holder.broker_id, []).append(slot)
        else:
            free.append(slot)

    def least() -> int:
        return min(takers, key=lambda one: (len(held[one]), one))

    for slot in free:
        held[least()].append(slot)
    while True:
        most, fewest = max(held, key=lambda one: len(held[one])), least()
        if len(held[most]) - len(held[fewest]) <= 1:
            break
        held[fewest].append(held[most].pop())
    return {
        slot: broker_id
        for broker_id, slots in held.items()
        for slot in slots
        if (known := holders.get(slot)) is None
        or (known.broker_id, known.incarnation) != (broker_id, staying[broker_id])
    }


class GroupSlots:
    """Event loop only; ZooKeeper is called in threads."""

    def __init__(self, runtime: Runtime, state: ControllerState, channels: BrokerChannels) -> None:
        self._runtime = runtime
        self._state = state
        self._channels = channels
        self._is_waiting = False

    def start(self) -> None:
        """A term begins: until all brokers have answered or refused, or a short time is over, no slot moves."""
        self._is_waiting = True
        self._state.spawn(self._wait())

    async def _wait(self) -> None:
        await asyncio.sleep(VERDICTS_WITHIN_S)
        self._is_waiting = False
        self._state.mark_dirty(())

    async def reconcile(self) -> None:
        """Assign slots without a live holder, and balance; under the controller's lock. Raises KlogError."""
        context = self._state.context
        staying = context.staying
        takers = {one for one in staying if context.brokers[one].is_heard}
        if self._is_waiting and len(takers) < len(staying):
            return
        given = decide(context.group_slots, staying, takers)
        if not given:
            return
        holders = []
        for slot, broker_id in sorted(given.items()):
            known = context.group_slots.get(slot)
            term, version = (1, -1) if known is None else (known.term + 1, known.version)
            holders.append(SlotHolder(slot, broker_id, staying[broker_id], term, version))
        zookeeper = self._runtime.zookeeper
        try:
            written = await self._state.run(group_slots.write_many, zookeeper, holders, self._state.fence)
        except (BadVersion, NodeExists, NoNode):
            await self._state.run(self._state.check_term)
            # Only the controller writes them: an earlier one's last write arrived late, or an operator wrote.
            context.group_slots = await self._state.run(group_slots.read_all, zookeeper)
            raise
        context.group_slots |= written
        self._channels.send_slots()
        counts = Counter(holder.broker_id for holder in context.group_slots.values())
        shown = ", ".join(f"broker {one}: {count}" for one, count in sorted(counts.items()))
        log.info("moved %d of %d group slots to another coordinator (%s)", len(given), SLOTS, shown)
