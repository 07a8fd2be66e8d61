"""A fleet that connects all at once is taken in at once, and those that are connected are served meanwhile."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from klog.net import server as server_module
from klog.net.admission import ConnectionLimits
from klog.net.server import Server
from klog.net.shared import SocketLimits
from tests.net.serving import echo
from tests.rows import each

FLEET = 200
QUEUED_MAX = 28
"""Where tcp_info of a listening socket has the length that its queue may have (tcpi_sacked)."""


def a_server(limits: ConnectionLimits = ConnectionLimits(), **more: int) -> Server:
    return Server(echo, limits=SocketLimits(1 << 20), idle_max_s=600, connection_limits=limits, **more)


def system_allows() -> int:
    return int(Path("/proc/sys/net/core/somaxconn").read_text())


@each("wanted", [-1, 50])
async def test_the_queue_is_as_long_as_wanted_or_as_the_system_allows(wanted: int) -> None:
    server = a_server(backlog=wanted)
    server.listen("127.0.0.1", 0)
    try:
        told = next(iter(server._sockets)).getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
        (queued_max,) = struct.unpack_from("I", told, QUEUED_MAX)
        assert queued_max == (system_allows() if wanted < 0 else wanted)
    finally:
        server.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - a turn of the loop is what is counted here
            await asyncio.sleep(0)


def fleet(port: int, count: int = FLEET) -> Iterator[socket.socket]:
    for _ in range(count):
        one = socket.socket()
        one.connect(("127.0.0.1", port))
        yield one


async def test_all_that_wait_are_taken_in_one_go_and_others_are_served_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "WELCOME_S", 0.0)  # one a turn: what is to be seen does not hang on a clock
    server = a_server()
    port = server.listen("127.0.0.1", 0)
    clients = list(fleet(port))  # the loop stands still meanwhile: all of them wait in the kernel's queue
    turns = 0
    try:
        async with asyncio.timeout(30):
            while len(server._accepted) + len(server.connections) < FLEET:
                await asyncio.sleep(0)
                turns += 1
            assert turns < 5, "accepting took more than one go"
            assert len(server.connections) < FLEET // 2, "nobody else had a turn"
            while server._accepted:
                known = len(server.connections)
                await asyncio.sleep(0)
                assert len(server.connections) <= known + 1
        assert len(server.connections) == FLEET
    finally:
        server.close()
        for one in clients:
            one.close()


async def test_limits_count_those_that_have_no_connection_yet() -> None:
    server = a_server(ConnectionLimits(total=FLEET // 2))
    port = server.listen("127.0.0.1", 0)
    clients = list(fleet(port))
    try:
        await until(lambda: len(server.connections) >= FLEET // 2)
        assert len(server.connections) == FLEET // 2
        assert not server._accepted
        server.close()
        assert not server.admission.of_address
    finally:
        server.close()
        for one in clients:
            one.close()


async def test_who_has_gone_before_its_turn_leaves_nothing() -> None:
    server = a_server()
    port = server.listen("127.0.0.1", 0)
    for one in fleet(port):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, not an end
        one.close()
    (last,) = fleet(port, 1)
    try:
        last.sendall(b"\0\0\0\1x")
        last.setblocking(False)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(30):
            assert await loop.sock_recv(last, 5) == b"\0\0\0\1x"
        await until(lambda: len(server.connections) == 1)
        assert server.admission.total == 1
    finally:
        last.close()
        server.close()
