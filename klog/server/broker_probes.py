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
from klog.server.peer_probe import answers
from klog.server.runtime import Identity

FRESH_S: Final = 0.01
"""How long a result is shared. A client asks some milliseconds after its broker has died, at the earliest."""
SILENCE_FRESH_S: Final = 2.0
"""The same for a probe without an answer in time, which proves nothing and takes long."""
ADDRESSES_MAX: Final = 10_000
"""Addresses remembered; the oldest is forgotten first."""

NEVER_S: Final = float("-inf")

_Address = tuple[str, int, int]
"""Host, port, incarnation."""


@dataclass(slots=True)
class _Probe:
    """The last probe of an address. ``opened``: None while the result is not known."""

    task: asyncio.Task[None] | None = None
    opened: bool | None = None
    ended_s: float = NEVER_S
    is_doubted: bool = False
    """A connection has ended since the probe began: its result is void."""
    refused_since_s: float | None = None


class BrokerProbes:
    """See the module. ``lies_after_s``: the time-out of brokers' sessions."""

    def __init__(self, identity: Identity, lies_after_s: float) -> None:
        self._identity = identity
        self._lies_after_s = lies_after_s
        self._probes: dict[_Address, _Probe] = {}
        self._last: dict[int, _Probe] = {}
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
            if broker_id == self._identity.broker_id:
                continue
            one = brokers.get(broker_id)
            if one is None:
                found.add(broker_id)
                continue
            probe = self._probes.get(_address(one))
            if probe is None or probe.task is not None:
                return None
            fresh_s = SILENCE_FRESH_S if probe.opened is None else FRESH_S
            if now_s - probe.ended_s > fresh_s and (asked_s is None or probe.ended_s < asked_s):
                return None
            if probe.refused_since_s is not None and now_s - probe.refused_since_s < self._lies_after_s:
                found.add(broker_id)
        return found

    async def refusing(self, brokers: Mapping[int, BrokerImage], broker_ids: Collection[int]) -> set[int]:
        """Which of them refuse connections, or are not among ``brokers``; silence is not a refusal."""
        asked_s = asyncio.get_running_loop().time()
        while (found := self.known(brokers, broker_ids, asked_s)) is None:
            unknown = [one for one in broker_ids if self.known(brokers, [one], asked_s) is None]
            await asyncio.wait([self._probe(brokers[one]) for one in unknown])
        return found

    def doubt(self, broker_id: int) -> None:
        """A connection with this broker has ended: earlier results are void."""
        probe = self._last.get(broker_id)
        if probe is not None:
            probe.ended_s = NEVER_S
            probe.is_doubted = probe.task is not None

    def _probe(self, one: BrokerImage) -> asyncio.Task[None]:
        address = _address(one)
        probe = self._probes.get(address)
        if probe is None:
            while len(self._probes) >= ADDRESSES_MAX:  # of incarnations long gone
                del self._probes[next(iter(self._probes))]
            probe = self._probes[address] = _Probe()
        self._last[one.broker_id] = probe
        if probe.task is None:
            probe.task = asyncio.ensure_future(self._run(one, probe))
        return probe.task

    async def _run(self, one: BrokerImage, probe: _Probe) -> None:
        try:
            address = self._identity.peer_addresses.to(one.endpoints, one.inter_address)
            probe.opened = await answers(address.host, address.port, address.security)
        finally:
            now_s = asyncio.get_running_loop().time()
            probe.task = None
            probe.ended_s = NEVER_S if probe.is_doubted else now_s
            probe.is_doubted = False
            if probe.opened is not False:
                probe.refused_since_s = None
            elif probe.refused_since_s is None:
                probe.refused_since_s = now_s


def _address(one: BrokerImage) -> _Address:
    """The address for other brokers."""
    return *one.inter_address, one.incarnation
