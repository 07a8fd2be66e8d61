"""A broker that is fed with damaged frames from inside: ``python -m tests.fuzzing.inside``, and then a broker's own
command line.

The broker is a real one, with its ZooKeeper, its logs and its listeners, which others ask meanwhile. The frames take
the way of those that a socket brings, from the connection's handler on: the gate of SASL, the dispatcher, the
permissions, the handlers, and the encoding of answers into a socket that is read. What is spared is the round trip,
and a new connection for each frame that is malformed. Plans and findings are files in the folder ``KLOG_FUZZ``.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import os
import random
import socket
import sys
import threading
import time
import traceback
from collections import Counter, deque
from pathlib import Path
from typing import Any, Final

from klog.errors import PeerError
from klog.net.connection import Connection, Reply
from klog.net.server import ConnectionSetup, Server
from klog.security.principal import Principal
from klog.server.authentication import BEFORE
from klog.server.broker import Broker
from tests.fuzzing.frames import STOPPERS, Frame, Frames

FOLDER: Final = "KLOG_FUZZ"
TURN_S: Final = 0.004
"""So long the frames have the loop; then it belongs to the others."""
WAITING_MAX: Final = 200
"""Answers that one connection may owe before another one takes its place."""
CONNECTIONS: Final = 24
PATIENCE_S: Final = 2.0
"""A connection whose request takes longer is ended by its peer."""
SAVED: Final = 400
"""Frames that are kept for a finding: one that fails later is among them."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """``who``: nobody (before a login), anonymous, a user's name, or root, who may do everything."""

    seed: int
    frames: int
    who: tuple[str, ...]
    keys: tuple[int, ...] | None = None


class Findings(logging.Handler):
    """What the broker's log says that it must not say, with the frames before it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(logging.ERROR)
        self.last: deque[tuple[str, int, int, str]] = deque(maxlen=SAVED)
        self.count = 0
        self._folder = folder
        self._known: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.note(record.exc_info[1])

    def note(self, error: BaseException) -> None:
        text = "".join(traceback.format_exception(error))
        where = text[-400:]
        self._known[where] += 1
        if self._known[where] > 1:
            return
        self.count += 1
        found = {"traceback": text, "frames": list(self.last)}
        (self._folder / f"finding-{self.count}.json").write_text(json.dumps(found, indent=1))


class Peer:
    """One connection of the broker's, over a pair of sockets of which the other is read and forgotten."""

    def __init__(self, server: Server, setup: ConnectionSetup, who: str) -> None:
        self.who = who
        ours, self._theirs = socket.socketpair()
        self._theirs.setblocking(False)
        self.connection: Connection = server._connection(ours, "127.77.0.1:1", setup)
        server.connections.add(self.connection)
        server.admission.enter(setup.listener, "127.77.0.1")
        if who not in ("nobody", "anonymous"):
            self.connection.principal = Principal.user(who)
        self.busy_since_s: float | None = None
        self._is_over = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._theirs.fileno(), self._read)

    def _read(self) -> None:
        try:
            while piece := self._theirs.recv(1 << 16):
                del piece
        except BlockingIOError:
            return
        except OSError:
            pass
        self._loop.remove_reader(self._theirs.fileno())

    @property
    def is_busy(self) -> bool:
        waits_for_login = self.who == "nobody" and any(one.parts is None for one in self.connection._replies)
        if self.connection._reading and not waits_for_login:
            self.busy_since_s = None
            return False
        if self.busy_since_s is None:
            self.busy_since_s = self._loop.time()
        return True

    @property
    def is_spent(self) -> bool:
        if self._is_over or self.connection.closed or len(self.connection._replies) > WAITING_MAX:
            return True
        return self.busy_since_s is not None and self._loop.time() - self.busy_since_s > PATIENCE_S

    def take(self, frame: Frame) -> str:
        """answered, waits, malformed; or what the handler raised."""
        connection = self.connection
        reply = Reply(connection)
        connection._replies.append(reply)
        try:
            connection._on_frame(connection, memoryview(bytearray(frame.body)), reply)
        except PeerError:
            self._is_over = self.who == "nobody"  # else what follows is refused for what came before
            if not connection.closed and reply.parts is None:
                reply.nothing()
            return "malformed"
        return "waits" if reply.parts is None else "answered"

    def close(self) -> None:
        self.connection.close(None)
        self._loop.remove_reader(self._theirs.fileno())
        self._theirs.close()


class Feeder:
    """Carries out a plan on the broker's loop."""

    def __init__(self, broker: Broker, folder: Path, plan: Plan, frames: tuple[Frames, Frames]) -> None:
        self._broker = broker
        self._folder = folder
        self._plan = plan
        self._frames, self._before_login = frames
        self._findings = Findings(folder)
        self._outcomes: Counter[str] = Counter()
        self._gated = next((one for one in broker.server._sockets.values() if one.on_connected is not None), None)
        self._open = next(one for one in broker.server._sockets.values() if not one.on_connected and not one.context)
        self._tasks_left = 0
        """Work that goes on long after all connections have ended."""
        self._peers: list[Peer] = []
        self._next = 0

    async def run(self) -> None:
        logging.getLogger().addHandler(self._findings)
        done, began_s, said_s = 0, time.monotonic(), 0.0
        cpu_s = time.process_time()
        idle, is_idle = 0, False
        tasks = len(asyncio.all_tasks())
        self._peers = [self._new(number) for number in range(CONNECTIONS)]
        while done < self._plan.frames:
            until_s = time.perf_counter() + TURN_S
            while time.perf_counter() < until_s and done < self._plan.frames:
                peer = self._peer()
                if is_idle := peer is None:
                    idle += 1
                    break
                frame = (self._before_login if peer.who == "nobody" and done % 4 else self._frames).next()
                if peer.who == "root" and frame.key in STOPPERS:
                    continue
                done += 1
                self._findings.last.append((peer.who, frame.key, frame.version, frame.body.hex()))
                try:
                    self._outcomes[f"{peer.who} {peer.take(frame)}"] += 1
                except Exception as error:
                    self._outcomes[f"{peer.who} failed"] += 1
                    self._findings.note(error)
                    peer.close()
            await asyncio.sleep(0.001 if is_idle else 0)
            if time.monotonic() - said_s > 2:
                said_s = time.monotonic()
                self._say(done, said_s - began_s, time.process_time() - cpu_s, idle)
        for peer in self._peers:
            peer.close()
        for _ in range(600):  # members' sessions and long polls have ends of their own
            if len(asyncio.all_tasks()) <= tasks + 3:
                break
            await asyncio.sleep(0.1)
        self._tasks_left = max(0, len(asyncio.all_tasks()) - tasks)
        self._say(done, time.monotonic() - began_s, time.process_time() - cpu_s, idle, is_done=True)

    def _peer(self) -> Peer | None:
        """One that takes a frame now; those that are spent give way to new ones."""
        for _ in range(len(self._peers)):
            self._next = (self._next + 1) % len(self._peers)
            peer = self._peers[self._next]
            if peer.is_spent:
                peer.close()
                self._peers[self._next] = peer = self._new(self._next)
            if not peer.is_busy:
                return peer
        return None

    def _new(self, number: int) -> Peer:
        who = self._plan.who[number % len(self._plan.who)]
        setup = self._gated if who == "nobody" and self._gated is not None else self._open
        return Peer(self._broker.server, setup, who)

    def _say(self, done: int, seconds: float, cpu_s: float, idle: int, *, is_done: bool = False) -> None:
        beside = self._folder / "progress.new"
        said = {
            "frames": done,
            "seconds": round(seconds, 1),
            "cpu_s": round(cpu_s, 1),
            "idle": idle,
            "done": is_done,
            "findings": self._findings.count,
            "outcomes": dict(self._outcomes),
            "threads": threading.active_count(),
            "tasks": len(tasks := asyncio.all_tasks()),
            "most_tasks": dict(Counter(_innermost(one) for one in tasks).most_common(6)),
            "tasks_left": self._tasks_left,
            "connections": len(self._broker.server.connections),
        }
        beside.write_text(json.dumps(said))
        beside.rename(self._folder / "progress.json")


def _innermost(task: asyncio.Task[Any]) -> str:
    """Where a task waits."""
    at: Any = task.get_coro()
    way = [getattr(at, "__qualname__", "")]
    while (inner := getattr(at, "cr_await", None)) is not None and hasattr(inner, "cr_code"):
        at = inner
        way.append(at.__qualname__)
    return " ".join(way[-3:])


async def _wait_for_plans(broker: Broker, folder: Path) -> None:
    """Each plan that is put into the folder is carried out."""
    path = folder / "plan.json"
    while True:
        if path.exists():
            read: Any = json.loads(path.read_text())
            path.unlink()
            plan = Plan(read["seed"], read["frames"], tuple(read["who"]), read["keys"] and tuple(read["keys"]))
            frames = await asyncio.to_thread(_frames, plan)
            await Feeder(broker, folder, plan, frames).run()
        await asyncio.sleep(0.02)


def _frames(plan: Plan) -> tuple[Frames, Frames]:
    """Of all requests, and of those that are answered before a login."""
    return Frames(random.Random(plan.seed), plan.keys), Frames(random.Random(plan.seed), sorted(BEFORE))


def _plant() -> None:
    begin_upkeep = Broker._begin_upkeep

    def begin(broker: Broker) -> None:
        begin_upkeep(broker)
        broker.runtime.spawn(_wait_for_plans(broker, Path(os.environ[FOLDER])))

    Broker._begin_upkeep = begin  # type: ignore[method-assign]


if __name__ == "__main__":
    from klog.__main__ import main

    sys.argv = ["klog", *sys.argv[sys.argv.index("klog") + 1 :]]
    _plant()
    sys.exit(main())
