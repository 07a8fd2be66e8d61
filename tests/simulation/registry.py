"""A model of ZooKeeper: one order of all writes, versions, multis, sessions that expire, ephemerals, watches.

A request may be lost before it is done or its answer after; the client hears the same in both cases (rule Z2). What was
told lost is never done later: a session's connection to another server is not taken before the first one is over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.simulation.world import Process, Violation, World

SESSION_S = 2.0
SLOW_S = 1.0

ANY = 1 << 30
OK, BAD, LOST = "ok", "bad version", "connection lost"


@dataclass
class Node:
    data: Any
    version: int
    created: int
    """The zxid that made it: an incarnation, for a broker's registration."""
    owner: int | None


class Check(NamedTuple):
    path: str
    version: int


class Put(NamedTuple):
    """``version`` -1: create; `ANY`: whatever stands there is replaced, which no rule allows."""

    path: str
    data: Any
    version: int
    is_ephemeral: bool = False


class Remove(NamedTuple):
    """``meant`` is what the remover believes to remove: only the laws look at it."""

    path: str
    version: int
    meant: Any = None


class Registry:
    def __init__(self, world: World) -> None:
        self.world = world
        self.nodes: dict[str, Node] = {}
        self.cut: dict[int, int] = {}
        """Broker ids that cannot reach it -> by how many faults."""
        self.zxid = 0
        self.troubles: dict[str, int] = {}
        """Of itself, ``away`` or ``slow`` -> by how many faults."""
        self.lost_share = 0.01
        """Of all requests; half of these are done all the same."""
        self._sessions: dict[int, Session] = {}
        self._count = 0
        world.after(0.1, self._tick)

    @property
    def is_away(self) -> bool:
        return bool(self.troubles.get("away"))

    def connect(self, process: Process, host: int, changed: Callable[[], object]) -> Session:
        self._count += 1
        session = Session(self, process, host, self._count, changed)
        self._sessions[session.number] = session
        return session

    def expire(self, number: int) -> None:
        session = self._sessions.pop(number)
        session.is_expired = True
        self.world.say("session %d of broker %d expires", number, session.host)
        gone = [path for path, node in self.nodes.items() if node.owner == number]
        for path in gone:
            del self.nodes[path]
        if gone:
            self.zxid += 1
            self._notify()

    def _tick(self) -> None:
        self.world.after(0.1, self._tick)
        if self.is_away:
            for session in self._sessions.values():
                session.heard_s = self.world.now  # a new leader of the ensemble gives every session its whole time
            return
        for session in list(self._sessions.values()):
            if self.world.now - session.heard_s > SESSION_S:
                self.expire(session.number)

    def do(self, session: Session, operations: Sequence[Check | Put | Remove]) -> tuple[str, int]:
        """All of them or none; the zxid with it."""
        for one in operations:
            node = self.nodes.get(one.path)
            if isinstance(one, Put) and one.version < 0:
                if node is not None and not any(isinstance(o, Remove) and o.path == one.path for o in operations):
                    return BAD, 0
            elif node is None or (one.version != ANY and node.version != one.version):
                return BAD, 0
        self.zxid += 1
        for one in operations:
            if isinstance(one, Remove):
                if one.meant is not None and self.nodes[one.path].data != one.meant:
                    raise Violation(
                        "a delete removes what it was meant for",
                        f"{one.path} held {self.nodes[one.path].data}, meant was {one.meant}",
                    )
                del self.nodes[one.path]
            elif isinstance(one, Put):
                node = self.nodes.get(one.path)
                if node is None:
                    owner = session.number if one.is_ephemeral else None
                    self.nodes[one.path] = Node(one.data, 0, self.zxid, owner)
                else:
                    node.data, node.version = one.data, node.version + 1
        if any(isinstance(one, Remove) or (isinstance(one, Put) and one.is_ephemeral) for one in operations):
            self._notify()
        return OK, self.zxid

    def _notify(self) -> None:
        for session in self._sessions.values():
            session.notify()


class Session:
    """A broker's way to the registry. Requests of one session are done in their order."""

    def __init__(
        self, registry: Registry, process: Process, host: int, number: int, changed: Callable[[], object]
    ) -> None:
        self.registry, self.process, self.host, self.number = registry, process, host, number
        self.heard_s = registry.world.now
        self.is_expired = False
        self._changed = changed
        self._has_missed = False
        self._last_s = 0.0

    @property
    def is_connected(self) -> bool:
        return not self.registry.is_away and not self.registry.cut.get(self.host)

    def ping(self) -> bool:
        """Stay alive; False when it is known that the session has expired."""
        if not self.is_connected:
            return True
        if self.is_expired:
            return False
        self.heard_s = self.registry.world.now
        if self._has_missed:
            self._has_missed = False
            self.process.after(0.001, self._changed)
        return True

    def notify(self) -> None:
        if self.is_connected:
            self.process.after(self.registry.world.delay_s(), self._changed)
        else:
            self._has_missed = True

    def multi(self, operations: Sequence[Check | Put | Remove], done: Callable[[str, int], object]) -> None:
        """``done(OK, zxid)``, ``done(BAD, 0)`` or ``done(LOST, 0)``."""
        self._send(lambda: self.registry.do(self, operations), done)

    def read(self, paths: Sequence[str], done: Callable[[str, dict[str, Node | None]], object]) -> None:
        """Copies of the nodes, all as they stood at one moment."""

        def look() -> tuple[str, dict[str, Node | None]]:
            nodes = self.registry.nodes
            found: dict[str, Node | None] = {}
            for path in paths:
                if path.endswith("/*"):
                    found |= {name: _copy(node) for name, node in nodes.items() if name.startswith(path[:-1])}
                else:
                    node = nodes.get(path)
                    found[path] = None if node is None else _copy(node)
            return OK, found

        self._send(look, done)

    def _send(self, act: Callable[[], tuple[str, Any]], done: Callable[[str, Any], object]) -> None:
        world = self.registry.world
        if not self.is_connected or self.is_expired:
            self.process.after(0.1, done, LOST, {})
            return
        slow_s = world.draw.random() * SLOW_S if self.registry.troubles.get("slow") else 0.0
        self._last_s = max(self._last_s + 1e-6, world.now + world.delay_s() + slow_s)
        world.after(self._last_s - world.now, self._arrive, act, done)

    def _arrive(self, act: Callable[[], tuple[str, Any]], done: Callable[[str, Any], object]) -> None:
        world = self.registry.world
        if self.is_expired:
            self.process.after(0.1, done, LOST, {})
            return
        lost_share = self.registry.lost_share if self.is_connected else 1.0
        chance = world.draw.random()
        if chance < lost_share:
            if chance < lost_share / 2 and not self.registry.is_away:
                act()
            self.process.after(0.05 + world.delay_s(), done, LOST, {})
            return
        outcome, value = act()
        self.process.after(world.delay_s(), done, outcome, value)


def _copy(node: Node) -> Node:
    return Node(node.data, node.version, node.created, node.owner)
