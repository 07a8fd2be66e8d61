"""Which broker coordinates which groups: 64 slots (rule G1, `coordination.group_slots`), given out by the controller.

What has to change is a pure decision, `decide`; `Slots` writes it, all slots that change hands in one multi behind the
controller's fence, and tells everybody. It is asked in every settling, before partitions are: it is one small write,
and groups whose coordinator is gone stand still.

Rules
    * A slot stays with its holder for as long as that very incarnation lives. Dead is who is not registered, or is
      refused; who shuts down gives its slots away while it still serves.
    * Only a broker that answers the controller is given a slot: a registration outlives its broker, and a slot given
      to a dead one would have to be given again.
    * Each holds as many as any other, give or take one, with no more moves than that takes. A broker that comes up
      gets its share, so that a cluster restarted one by one is in balance again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from klog.coordination import group_slots
from klog.coordination.group_slots import SLOTS, SlotHolder
from klog.errors import BadVersion, NodeExists, NoNode
from klog.server.executors import Purpose

if TYPE_CHECKING:
    from klog.server.broker import Broker
    from klog.server.controller.controller import Controller

log = logging.getLogger(__name__)

VERDICTS_WITHIN_S = 0.3
"""How long a new controller waits until each broker has answered or refused: milliseconds, and then no slot moves
twice. One that does neither is paused or cut off, and is not waited for any longer."""


def decide(holders: Mapping[int, SlotHolder], staying: Mapping[int, int], takers: Collection[int]) -> dict[int, int]:
    """Slot -> the broker it is to be given to: the slots that change hands, or are a holder's under an old incarnation.

    ``staying`` is broker id -> incarnation of those that may keep what they hold, ``takers`` those of them that may be
    given more. {} without takers: who holds a slot holds it to its end.
    """
    if not takers:
        return {}
    held: dict[int, list[int]] = {broker_id: [] for broker_id in sorted(takers)}
    homeless: list[int] = []
    for slot in range(SLOTS):
        holder = holders.get(slot)
        if holder is not None and (holder.broker_id in takers or staying.get(holder.broker_id) == holder.incarnation):
            held.setdefault(holder.broker_id, []).append(slot)
        else:
            homeless.append(slot)

    def least() -> int:
        return min(takers, key=lambda one: (len(held[one]), one))

    for slot in homeless:
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


class Slots:
    """Event loop only; ZooKeeper is asked in threads."""

    def __init__(self, controller: Controller, broker: Broker) -> None:
        self._controller = controller
        self._broker = broker
        self._waiting: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """A term begins: nothing moves before all brokers have been heard or refused, for a short while."""
        self._waiting = self._broker.loop.call_later(VERDICTS_WITHIN_S, self._wait_no_more)

    def stop(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _wait_no_more(self) -> None:
        self._waiting = None
        self._controller.unsettle(())

    async def settle(self) -> None:
        """Give out what has no live holder, and even out; under the controller's lock. Raises KlogError."""
        context = self._controller.context
        staying = context.staying
        takers = {one for one, incarnation in staying.items() if context.heard.get(one) == incarnation}
        if self._waiting is not None and len(takers) < len(staying):
            return
        given = decide(context.group_slots, staying, takers)
        if not given:
            return
        holders = [self._next(slot, broker_id, staying[broker_id]) for slot, broker_id in sorted(given.items())]
        zookeeper = self._broker.zookeeper
        try:
            written = await self._broker.executors.run(
                Purpose.ELECTIONS, group_slots.write_many, zookeeper, holders, self._controller.fence
            )
        except (BadVersion, NodeExists, NoNode):
            await self._broker.executors.run(Purpose.ELECTIONS, self._controller.check_term)
            # Nobody but the controller writes them: an earlier one's last write arrived late, or somebody's hand.
            context.group_slots = await self._broker.executors.run(Purpose.ELECTIONS, group_slots.read_all, zookeeper)
            raise
        context.group_slots |= written
        self._controller.tell_slots()
        counts = Counter(holder.broker_id for holder in context.group_slots.values())
        shown = ", ".join(f"broker {one}: {count}" for one, count in sorted(counts.items()))
        log.info("%d of %d slots of groups have another coordinator (%s)", len(given), SLOTS, shown)

    def _next(self, slot: int, broker_id: int, incarnation: int) -> SlotHolder:
        known = self._controller.context.group_slots.get(slot)
        if known is None:
            return SlotHolder(slot, broker_id, incarnation, term=1)
        return SlotHolder(slot, broker_id, incarnation, known.term + 1, known.version)
