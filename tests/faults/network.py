"""TCP proxies before brokers and ZooKeeper, so that a connection can be cut without privileges.

Every node has a gate: a port that others reach it by. A gate knows who opened each connection, so that what flows from
one node to another can be stopped by itself, in one direction, and as in a network that is gone: nothing is
refused and nothing is closed, bytes and closings wait until the link is back. A gate that is shut refuses, as the
kernel does for a process that died.

`Network` is called from any thread; its sockets live on an event loop in a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeVar

import psutil

from bench.processes import free_port

HOST = "127.0.0.1"
CLIENT = "client"
"""Who opened a connection, where it is none of the nodes."""
CHUNK_BYTES = 256 * 1024
TICK_S = 0.05

T = TypeVar("T")


@dataclass
class Gate:
    """The way to one node. ``source`` is who opens connections here, where that is always the same."""

    node: str
    port: int
    target_port: int
    source: str | None = None
    server: asyncio.Server | None = None
    transports: set[asyncio.WriteTransport] = field(default_factory=set)


class Network:
    """Gates and the links between the nodes behind them. Thread-safe; `close` ends every connection."""

    def __init__(self, owner_of: Callable[[int, int], str] | None = None) -> None:
        """``owner_of(port, gate's port)``: which node has the connection from there to there; CLIENT where none."""
        self._owner_of = owner_of or (lambda port, gate_port: CLIENT)
        self._gates: list[Gate] = []
        self._links: dict[tuple[str, str], asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self.late_s = 0.0
        """The longest that the loop was held up: by so much the proxies, not the brokers, were late."""
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._thread.start()
        self._loop.call_soon_threadsafe(self._tick, time.monotonic())

    def close(self) -> None:
        async def end() -> None:
            for gate in self._gates:
                self._shut(gate)
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

        self._call(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _tick(self, due: float) -> None:
        now = time.monotonic()
        self.late_s = max(self.late_s, now - due)
        self._loop.call_at(self._loop.time() + TICK_S, self._tick, now + TICK_S)

    def add(self, node: str, target_port: int, *, source: str | None = None) -> Gate:
        """A gate before a node's port, open; its own port is a free one."""
        gate = Gate(node, free_port(), target_port, source)
        self._gates.append(gate)
        self.open(gate)
        return gate

    def open(self, gate: Gate) -> None:
        self._call(self._listen(gate))

    def shut(self, gate: Gate) -> None:
        """Refuse, and reset what is there: the process behind it is dead."""

        async def shut() -> None:
            self._shut(gate)

        self._call(shut())

    def cut(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Nothing flows from the first to the second node of each pair until `heal`."""
        self._each(pairs, asyncio.Event.clear)

    def heal(self, pairs: Iterable[tuple[str, str]] | None = None) -> None:
        """Of all links unless told which. What waited goes on."""
        self._each(list(self._links) if pairs is None else pairs, asyncio.Event.set)

    def _each(self, pairs: Iterable[tuple[str, str]], change: Callable[[asyncio.Event], None]) -> None:
        async def each() -> None:
            for source, target in pairs:
                change(self._link(source, target))

        self._call(each())

    def _call(self, what: Awaitable[T]) -> T:
        async def run() -> T:
            return await what

        future: Future[T] = asyncio.run_coroutine_threadsafe(run(), self._loop)
        return future.result(30)

    def _link(self, source: str, target: str) -> asyncio.Event:
        """Set while bytes flow from one node to the other. Loop only."""
        if (source, target) not in self._links:
            self._links[source, target] = flows = asyncio.Event()
            flows.set()
        return self._links[source, target]

    async def _listen(self, gate: Gate) -> None:
        if gate.server is not None:
            return

        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = self._loop.create_task(self._serve(gate, reader, writer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        gate.server = await asyncio.start_server(accepted, HOST, gate.port, limit=CHUNK_BYTES)

    def _shut(self, gate: Gate) -> None:
        if gate.server is not None:
            gate.server.close()
            gate.server = None
        for transport in list(gate.transports):
            _reset(transport)

    async def _serve(self, gate: Gate, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        source = gate.source or self._owner_of(writer.get_extra_info("peername")[1], gate.port)
        there, back = self._link(source, gate.node), self._link(gate.node, source)
        gate.transports.add(writer.transport)
        inner: asyncio.StreamWriter | None = None
        try:
            # Without either direction there is no handshake: the connection waits, as it does for a lost SYN.
            await there.wait()
            await back.wait()
            try:
                inner_reader, inner = await asyncio.open_connection(HOST, gate.target_port, limit=CHUNK_BYTES)
            except OSError:
                return
            for stream in (writer, inner):
                with contextlib.suppress(OSError):  # the side is gone already: the pumps find out
                    stream.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            gate.transports.add(inner.transport)
            await asyncio.gather(_pump(reader, inner, there), _pump(inner_reader, writer, back))
        finally:
            for one in (writer, inner):
                if one is not None:
                    gate.transports.discard(one.transport)
                    _reset(one.transport)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: asyncio.Event) -> None:
    """Bytes, and then the end, from one side to the other. A side that is gone is for the other direction to tell."""
    try:
        while data := await reader.read(CHUNK_BYTES):
            await link.wait()
            writer.write(data)
            await writer.drain()
    except OSError:
        await link.wait()
        _reset(writer.transport)
        return
    await link.wait()
    if not writer.transport.is_closing() and writer.can_write_eof():
        try:
            writer.write_eof()
        except OSError:
            pass


def _reset(transport: asyncio.WriteTransport) -> None:
    """Close with a RST, as the kernel does for the sockets of a process that was killed with data unread."""
    connection = transport.get_extra_info("socket")
    if connection is not None and not transport.is_closing():
        try:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except OSError:
            pass
    transport.abort()


def owner_of_port(port: int, gate_port: int, processes: dict[str, int]) -> str:
    """Which of the processes (name -> pid) has the connection between these ports; CLIENT where none has.

    By both of them: the kernel gives one local port to several connections at once if they go to different places.
    """
    for name, pid in processes.items():
        with contextlib.suppress(psutil.Error):  # the process has ended
            for one in psutil.Process(pid).net_connections("tcp4"):
                if one.raddr and (one.laddr.port, one.raddr.port) == (port, gate_port):
                    return name
    return CLIENT
