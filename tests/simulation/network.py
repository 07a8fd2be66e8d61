"""Calls between processes: delayed, overtaken, lost on the way there or back, refused truly or falsely.

A call that is lost is never answered; its sender has to look at its own clock. When the process that was asked dies,
its connections end, which the asker hears of unless the way is cut.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(slots=True, eq=False)
class Call:
    """One request; once it is heard it is answered once, now or later, by the process that heard it."""

    network: Network
    source: int
    asker: Process
    target: int
    verb: str
    arguments: tuple[Any, ...]
    done: Callable[[Any], object]
    at: float = 0.0
    """When it was heard."""
    answered: bool = False

    def answer(self, value: Any) -> None:
        if self.answered:
            return
        self.answered = True
        if not self.network.is_lost(self.target, self.source):
            self.asker.after(self.network.world.delay_s(), self.done, value)


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
            call = Call(self, source, asker, target, verb, arguments, done)
            self.world.after(self.world.delay_s(), self._arrive, call)

    def _arrive(self, call: Call) -> None:
        process = self.hosts[call.target].process
        if process is None or not process.is_listening:
            if not self.is_lost(call.target, call.source):
                call.asker.after(0.001, call.done, REFUSED)
            return
        call.at = self.world.now
        opened = self._open[call.target]
        if len(opened) > 64:
            for one in [one for one in opened if one.answered]:
                del opened[one]
        opened[call] = None
        process.do(process.serve, (call,))

    def process_died(self, host: int) -> None:
        """Its kernel closes its connections: whoever waits for an answer is told."""
        for call in self._open[host]:
            call.answer(ENDED)
        self._open[host].clear()
        for other, where in self.hosts.items():
            if other != host and where.process is not None and not self.is_lost(host, other):
                where.process.after(self.world.delay_s(), where.process.connection_ended, host)
