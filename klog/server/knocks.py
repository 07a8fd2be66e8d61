"""Probes whether a broker listens, before an answer sends clients to it.

The controller's last update may be a moment old: it names a killed broker until another has been elected, and a client
that tries the killed one loses a second or more. So this broker probes a broker before it names it. Probes are shared:
requests during a probe, or within a moment after it, get the same result, so that a thousand clients that ask at once
cost each broker one connection. When one of this broker's own connections with another broker ends, earlier results
about that broker are void.

A refusal can be wrong (rule R6): a load balancer or a firewall may refuse connections to a live broker. A broker that
refuses for longer than the time-out of its session, and stays registered all that time, counts as alive.
Event loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from klog.server.image import BrokerImage
from klog.server.peer_probe import knock
from klog.server.runtime import Identity
from klog.server.ways import Ways

FRESH_S: Final = 0.01
"""How long a result is shared. A client asks some milliseconds after its broker has died, at the earliest."""
SILENCE_FRESH_S: Final = 2.0
"""The same for a probe without an answer in time, which proves nothing and takes long."""
DOORS_MAX: Final = 10_000
"""Addresses remembered; the oldest is forgotten first."""

NEVER_S: Final = float("-inf")

_Door = tuple[str, int, int]
"""Host, port, incarnation."""


@dataclass(slots=True)
class _Knocked:
    """The last probe of an address. ``opened``: None while the result is not known."""

    task: asyncio.Task[None] | None = None
    opened: bool | None = None
    ended_s: float = NEVER_S
    is_doubted: bool = False
    """A connection has ended since the probe began: its result is void."""
    refused_since_s: float | None = None


class Knocks:
    """See the module. ``lies_after_s``: the time-out of brokers' sessions."""

    def __init__(self, own_id: int, lies_after_s: float, identity: Identity | None = None) -> None:
        self._identity = identity
        self._own_id = own_id
        self._lies_after_s = lies_after_s
        self._doors: dict[_Door, _Knocked] = {}
        self._last: dict[int, _Knocked] = {}
        """Broker id -> the last probe of one of its addresses."""

    def known(
        self, brokers: Mapping[int, BrokerImage], broker_ids: Collection[int], asked_s: float | None = None
    ) -> set[int] | None:
        """Those that refuse, or are not among ``brokers``; None where only a new probe can tell.

        ``asked_s``: a result since then is recent enough, whatever its age.
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
        """Which of them refuse connections, or are not among ``brokers``; silence is not a refusal."""
        asked_s = asyncio.get_running_loop().time()
        while (found := self.known(brokers, broker_ids, asked_s)) is None:
            unknown = [one for one in broker_ids if self.known(brokers, [one], asked_s) is None]
            await asyncio.wait([self._knock(brokers[one]) for one in unknown])
        return found

    def doubt(self, broker_id: int) -> None:
        """A connection with this broker has ended: earlier results are void."""
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
            ways = Ways() if self._identity is None else self._identity.ways
            way = ways.to(one.endpoints, one.inter_address)
            knocked.opened = await knock(way.host, way.port, way.security)
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
    """The address that brokers use."""
    return *one.inter_address, one.incarnation
