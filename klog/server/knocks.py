"""Whether brokers that clients are about to be sent to listen at all.

What the controller has said last may be a moment old: a broker that was killed is named until another has been elected
in its place, and a client that is sent to it waits as long as its next try takes, a second and more. So who is about to
name a broker knocks at its door first. Knocks are shared: whoever asks while one is under way, or within a moment after
it, gets the same answer, so a thousand clients that ask at once cost each broker one connection. When a connection of
this broker's own with another ends, what was found out about that one before counts no more.

A refusal can lie (rule R6): a balancer or a firewall may refuse for a broker that lives. Who refuses for longer than
its session would have lasted without it, and is registered all the while, is believed to live.
Event loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from klog.server.image import BrokerImage
from klog.server.reach import knock

FRESH_S: Final = 0.01
"""For so long an answer is passed on. A client asks some milliseconds after its broker has died, at the soonest."""
SILENCE_FRESH_S: Final = 2.0
"""... where nobody answered in time, which says nothing, and takes long to find out."""
DOORS_MAX: Final = 10_000
"""Doors remembered; the oldest is forgotten first."""

NEVER_S: Final = float("-inf")

_Door = tuple[str, int, int]
"""Host, port, incarnation."""


@dataclass(slots=True)
class _Knocked:
    """The last knock at a door. ``opened``: None while nobody knows."""

    task: asyncio.Task[None] | None = None
    opened: bool | None = None
    ended_s: float = NEVER_S
    is_doubted: bool = False
    """Something has happened since it began: what it finds is old."""
    refused_since_s: float | None = None


class Knocks:
    """See the module. ``lies_after_s``: the time-out of brokers' sessions."""

    def __init__(self, own_id: int, lies_after_s: float) -> None:
        self._own_id = own_id
        self._lies_after_s = lies_after_s
        self._doors: dict[_Door, _Knocked] = {}
        self._last: dict[int, _Knocked] = {}
        """Broker id -> the last door of its that was knocked at."""

    def known(
        self, brokers: Mapping[int, BrokerImage], broker_ids: Collection[int], asked_s: float | None = None
    ) -> set[int] | None:
        """Who of them refuses, or is not among ``brokers``; None where it takes a knock to know.

        ``asked_s``: what was found out since then is good enough, however long ago it is.
        """
        now_s = asyncio.get_running_loop().time()
        found = set()
        for broker_id in broker_ids:
            if broker_id == self._own_id:
                continue
            one = brokers.get(broker_id)
            if one is None:
                found.add(broker_id)
                continue
            knocked = self._doors.get(_door(one))
            if knocked is None or knocked.task is not None:
                return None
            fresh_s = SILENCE_FRESH_S if knocked.opened is None else FRESH_S
            if now_s - knocked.ended_s > fresh_s and (asked_s is None or knocked.ended_s < asked_s):
                return None
            if knocked.refused_since_s is not None and now_s - knocked.refused_since_s < self._lies_after_s:
                found.add(broker_id)
        return found

    async def refusing(self, brokers: Mapping[int, BrokerImage], broker_ids: Collection[int]) -> set[int]:
        """Who of them refuses connections, or is not among ``brokers``; whoever does not answer refuses nothing."""
        asked_s = asyncio.get_running_loop().time()
        while (found := self.known(brokers, broker_ids, asked_s)) is None:
            unknown = [one for one in broker_ids if self.known(brokers, [one], asked_s) is None]
            await asyncio.wait([self._knock(brokers[one]) for one in unknown])
        return found

    def doubt(self, broker_id: int) -> None:
        """A connection with it has ended: whatever was found out before is old."""
        knocked = self._last.get(broker_id)
        if knocked is not None:
            knocked.ended_s = NEVER_S
            knocked.is_doubted = knocked.task is not None

    def _knock(self, one: BrokerImage) -> asyncio.Task[None]:
        door = _door(one)
        knocked = self._doors.get(door)
        if knocked is None:
            while len(self._doors) >= DOORS_MAX:  # of incarnations long gone
                del self._doors[next(iter(self._doors))]
            knocked = self._doors[door] = _Knocked()
        self._last[one.broker_id] = knocked
        if knocked.task is None:
            knocked.task = asyncio.ensure_future(self._go(one, knocked))
        return knocked.task

    async def _go(self, one: BrokerImage, knocked: _Knocked) -> None:
        try:
            knocked.opened = await knock(*_door(one)[:2])
        finally:
            now_s = asyncio.get_running_loop().time()
            knocked.task = None
            knocked.ended_s = NEVER_S if knocked.is_doubted else now_s
            knocked.is_doubted = False
            if knocked.opened is not False:
                knocked.refused_since_s = None
            elif knocked.refused_since_s is None:
                knocked.refused_since_s = now_s


def _door(one: BrokerImage) -> _Door:
    """Where brokers reach it."""
    where = (one.inter_host, one.inter_port) if one.inter_port > 0 else (one.host, one.port)
    return *where, one.incarnation
