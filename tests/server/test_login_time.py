"""A listener with SASL before a client has shown who it is: little bytes, little time, however lively the client."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import AsyncIterator

import pytest

from klog.net import server as server_module
from klog.net.connection import Connection, Reply
from klog.net.server import ConnectionSetup, Server
from klog.net.shared import SocketLimits
from klog.server import authentication
from klog.server.authentication import Mechanisms, SaslListener
from klog.server.executors import Executors
from tests.rows import each
from tests.server.wire import framed, head

API_VERSIONS = 18
FIRST_MAX = 2_000
WITHIN_S = 30.0


def answer(connection: Connection, view: memoryview, reply: Reply) -> None:
    """Of the broker behind the listener."""
    reply.send(framed(b"answered"))


@contextlib.asynccontextmanager
async def gated() -> AsyncIterator[int]:
    """The port of a listener with SASL."""
    executors = Executors()
    listener = SaslListener(
        Mechanisms(("SCRAM-SHA-256",), lambda mechanism, user: None, lambda mechanism: None, {}, b"salt" * 8),
        executors,
        answer,
        first_frame_bytes_max=FIRST_MAX,
        frame_bytes_max=1 << 20,
        failure_delay_s=0.0,
        session_s=0.0,
    )
    server = Server(answer, limits=SocketLimits(1 << 20), idle_max_s=600)
    try:
        yield server.listen("127.0.0.1", 0, ConnectionSetup("SASL", on_connected=listener.on_connected))
    finally:
        server.close()
        executors.close()


async def ends(sock: socket.socket, ask_every_s: float | None = None) -> bool:
    """Whether the broker ends the connection within the time; meanwhile it is asked what anybody may ask."""
    loop = asyncio.get_running_loop()
    sock.setblocking(False)
    try:
        async with asyncio.timeout(WITHIN_S):
            while True:
                if ask_every_s is not None:
                    await loop.sock_sendall(sock, framed(head(API_VERSIONS, 0)))
                    await asyncio.sleep(ask_every_s)
                if not await loop.sock_recv(sock, 1000):
                    return True
    except ConnectionError:
        return True
    except TimeoutError:
        return False


@each("ask_every_s", [None, 0.02], ids=["silent", "lively"])
async def test_a_client_that_does_not_log_in_has_little_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, ask_every_s: float | None
) -> None:
    monkeypatch.setattr(server_module, "SWEEP_EVERY_S", 0.02)
    monkeypatch.setattr(authentication, "AUTHENTICATED_WITHIN_S", 0.3)
    caplog.set_level(logging.INFO, logger="klog.net.connection")

    async with gated() as port:
        with socket.create_connection(("127.0.0.1", port)) as sock:
            assert await ends(sock, ask_every_s)
    assert [record.name for record in caplog.records] == ["klog.net.connection"]


async def test_a_client_that_does_not_log_in_may_send_little(caplog: pytest.LogCaptureFixture) -> None:
    async with gated() as port:
        loop = asyncio.get_running_loop()
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.setblocking(False)
            whole = head(API_VERSIONS, 0)
            await loop.sock_sendall(sock, framed(whole + bytes(FIRST_MAX - len(whole))))
            assert await loop.sock_recv(sock, 1000) == framed(b"answered")
            await loop.sock_sendall(sock, struct.pack(">i", FIRST_MAX + 1))
            assert await ends(sock)
    assert str(FIRST_MAX) in caplog.text
