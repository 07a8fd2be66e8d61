"""A server whose loop runs in a thread of its own, and what its blocking clients do with their sockets."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from klog.net.connection import Connection, Reply
from klog.net.server import Server
from klog.net.shared import SocketLimits

WITHIN_S = 60.0
FRAME_BYTES_MAX = 1 << 20


@contextmanager
def serving(
    on_frame: Callable[[Connection, memoryview, Reply], None], frame_bytes_max: int = FRAME_BYTES_MAX, **options: Any
) -> Iterator[tuple[int, Server, Callable[[Callable[[], object]], object]]]:
    """Its port, itself, and a way to ask something of its loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def call(what: Callable[[], object]) -> object:
        return what()

    def ask(what: Callable[[], object]) -> object:
        return asyncio.run_coroutine_threadsafe(call(what), loop).result(WITHIN_S)

    async def begin() -> tuple[int, Server]:
        server = Server(on_frame, limits=SocketLimits(frame_bytes_max), idle_max_s=600, **options)
        return server.listen("127.0.0.1", 0), server

    port, server = asyncio.run_coroutine_threadsafe(begin(), loop).result(WITHIN_S)
    try:
        yield port, server, ask
    finally:
        ask(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(WITHIN_S)
        loop.close()


def connect(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def echo(connection: Connection, view: memoryview, reply: Reply) -> None:
    reply.send(frame(bytes(view)))
