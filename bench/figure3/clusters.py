"""The clusters of the demo: started by what `klog up` does, on free ports, each in its own folder."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.figure3.part import is_paused
from klog.admin import local_cluster
from klog.admin.local_broker import controller_of
from klog.admin.local_state import Part as Server
from klog.coordination.embedded import is_free
from klog.errors import HostError, KlogError, PortInUse

PORTS: Final = range(12_000, 21_000)
"""Below those that systems give to connections: one of these would meet a broker that is started again."""
PORTS_TRIED: Final = 100
STARTS_MAX: Final = 5
HEAP_BYTES: Final = 128 << 20
"""Of each ZooKeeper server, which has three brokers and a few topics."""


class DemoCluster:
    """One of them. `start` and `repair` one at a time, by any thread; the rest by any thread."""

    def __init__(self, name: str, folder: Path, home: Path, brokers: int) -> None:
        self.name = name
        self.folder = folder / name
        self._home = home
        self._brokers = brokers
        self._lock = threading.Lock()
        self.bootstrap = ""
        self.zookeeper = ""

    def start(self) -> None:
        """Ready for clients. Errors of `local_cluster.up`; a port that another process took meanwhile is replaced."""
        for attempt in range(1, STARTS_MAX + 1):
            first = _free_ports(self._brokers)
            try:
                found, _ = local_cluster.up(
                    self.folder,
                    self._home,
                    brokers=self._brokers,
                    port=first,
                    zookeeper_heap_bytes=HEAP_BYTES,
                )
            except (PortInUse, HostError):
                if attempt == STARTS_MAX or _are_free(first, self._brokers):
                    raise
            else:
                self.bootstrap, self.zookeeper = found.bootstrap, found.zookeeper
                return

    def repair(self) -> str | None:
        """Start what is missing; what went wrong, or None. It can be tried again."""
        with self._lock:
            try:
                local_cluster.up(self.folder, self._home)
            except KlogError as error:
                return error.message
        return None

    def servers(self) -> list[Server]:
        """ZooKeeper and the brokers, those that are down included."""
        found = local_cluster.look(self.folder)
        return [] if found is None else list(found.parts)

    def brokers(self) -> list[Server]:
        """Those that live."""
        return [one for one in self.servers() if one.kind == "broker" and one.identity is not None]

    def controller(self) -> Server | None:
        live = [one for one in self.brokers() if one.identity is not None and not is_paused(one.identity.pid)]
        number = controller_of(live)
        return next((one for one in live if one.id == number), None)

    def troubles(self) -> Iterator[str]:
        """What is down or paused now."""
        for one in self.servers():
            if one.identity is None:
                yield f"{one.name} is down"
            elif is_paused(one.identity.pid):
                yield f"{one.name} is paused"


def _free_ports(count: int) -> int:
    """The first of so many ports in a row that are free now, anywhere in `PORTS`."""
    draw = random.SystemRandom()  # two demos that start together should not meet
    for _ in range(PORTS_TRIED):
        first = draw.randrange(PORTS.start, PORTS.stop - count)
        if _are_free(first, count):
            return first
    raise PortInUse(f"no {count} free ports in a row were found", hint="close other programs that listen")


def _are_free(first: int, count: int) -> bool:
    return all(map(is_free, range(first, first + count)))
