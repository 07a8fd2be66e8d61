"""Calls between processes: delayed, overtaken, lost on the way there or back, refused truly or falsely.

A call that is lost is never answered; its sender has to look at its own clock. When the process that was asked dies,
its connections end, which the asker hears of unless the way is cut.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tests.simulation.world import Process, World


class Refused:
    """Nobody listens there, or so it looks (rule R6)."""


class Ended:
    """The connection ended before there was an answer."""


REFUSED, ENDED = Refused(), Ended()


class Host(Protocol):
    """Where processes run, one after the other; `serve` of the process answers."""

    process: Any


class Call:
    """One request that was heard; it is answered once, now or later, by the process that heard it."""

    __slots__ = ("_asker", "_done", "_network", "_source", "_target", "answered", "at")

    def __init__(
        self, network: Network, source: int, asker: Process, target: int, done: Callable[[Any], object]
    ) -> None:
        self._network, self._source, self._asker, self._target, self._done = network, source, asker, target, done
        self.answered = False
        self.at = network.world.now

    def answer(self, value: Any) -> None:
        if self.answered:
            return
        self.answered = True
        network = self._network
        if network.is_lost(self._target, self._source):
            return
        self._asker.after(network.world.delay_s(), self._done, value)


class Network:
    """Between brokers by id; clients have negative ids and are never cut off, only unlucky."""

    def __init__(self, world: World, hosts: dict[int, Any]) -> None:
        self.world = world
        self.hosts = hosts
        self.cut: dict[tuple[int, int], int] = {}
        """(from, to) -> by how many faults."""
        self.lying: dict[int, int] = {}
        """Brokers whose address refuses though they live."""
        self.loss = 0.0
        self._open: dict[int, dict[Call, None]] = {one: {} for one in hosts}

    def is_lost(self, source: int, target: int) -> bool:
        return bool(self.cut.get((source, target))) or (self.loss > 0 and self.world.draw.random() < self.loss)

    def call(
        self,
        source: int,
        asker: Process,
        target: int,
        verb: str,
        arguments: tuple[Any, ...],
        done: Callable[[Any], object],
    ) -> None:
        """``done(answer)``, REFUSED or ENDED; or nothing ever."""
        if self.lying.get(target) and source > 0:
            asker.after(0.001, done, REFUSED)
        elif not self.is_lost(source, target):
            self.world.after(self.world.delay_s(), self._arrive, source, asker, target, verb, arguments, done)

    def _arrive(
        self,
        source: int,
        asker: Process,
        target: int,
        verb: str,
        arguments: tuple[Any, ...],
        done: Callable[[Any], object],
    ) -> None:
        process = self.hosts[target].process
        if process is None or not process.is_listening:
            if not self.is_lost(target, source):
                asker.after(0.001, done, REFUSED)
            return
        call = Call(self, source, asker, target, done)
        opened = self._open[target]
        if len(opened) > 64:
            for one in [one for one in opened if one.answered]:
                del opened[one]
        opened[call] = None
        process.do(process.serve, (call, verb, arguments))

    def process_died(self, host: int) -> None:
        """Its kernel closes its connections: whoever waits for an answer is told."""
        for call in self._open[host]:
            call.answer(ENDED)
        self._open[host].clear()
        for other, where in self.hosts.items():
            if other != host and where.process is not None and not self.is_lost(host, other):
                where.process.after(self.world.delay_s(), where.process.connection_ended, host)
