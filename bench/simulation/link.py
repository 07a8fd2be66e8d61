"""The network between the modelled controller and the brokers."""

from __future__ import annotations

from bench.simulation.costs import Assumed
from bench.simulation.virtual_time import VirtualLoop


class Link:
    """The controller's network: bytes leave one after the other."""

    def __init__(self, loop: VirtualLoop, assumed: Assumed) -> None:
        self._loop = loop
        self._assumed = assumed
        self._free_s = 0.0
        self.bytes = 0

    def arrives_s(self, size_bytes: int) -> float:
        self.bytes += size_bytes
        self._free_s = max(self._free_s, self._loop.time()) + size_bytes / self._assumed.link_bytes_s
        return self._free_s + self._assumed.network_s
