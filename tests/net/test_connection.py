"""The broker's side of a socket: frames in any pieces, answers in order, bounded for whoever does not read."""

from __future__ import annotations

import asyncio
import select
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from klog.errors import MalformedRequest, PortInUse
from klog.net import turns
from klog.net.connection import IOVECS_MAX, WAITING_BYTES_MAX, Connection, Reply
from klog.net.memory_pool import Pace
from klog.net.server import Server
from klog.net.shared import SocketLimits
from tests.chance import noise
from tests.net.serving import FRAME_BYTES_MAX, connect, echo, frame, serving
from tests.rows import each
from tests.until import until

REPLIES_MAX = SocketLimits(FRAME_BYTES_MAX).replies_max


class Range(NamedTuple):
    file: object
    position: int
    size: int


def read_exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = sock.recv(size - len(data))
        if not piece:
            raise EOFError(f"{len(data)} of {size} bytes")
        data += piece
    return bytes(data)


BODIES = [b"x", b"yy" * 40, b"", bytes(range(256)) * 600, b"end"]
STREAM = b"".join(frame(body) for body in BODIES if body)


@each("piece", [1, 3, 5, 4096, 65536, len(STREAM)])
def test_frames_arrive_whole_however_they_are_cut(piece: int) -> None:
    with serving(echo) as (port, _, _), connect(port) as sock:
        stream = STREAM if piece > 5 else STREAM[:120]
        whole = len(stream) if piece > 5 else 4 + 1 + 4 + 80
        for at in range(0, len(stream), piece):
            sock.sendall(stream[at : at + piece])
        assert read_exactly(sock, whole) == stream[:whole]


def test_answers_keep_the_order_of_the_requests_when_they_are_ready_in_another() -> None:
    waiting: list[Reply] = []

    def reversed_answers(connection: Connection, view: memoryview, reply: Reply) -> None:
        waiting.append(reply)
        if len(waiting) == 20:
            for number, one in reversed(list(enumerate(waiting))):
                one.send(frame(bytes([number])))

    with serving(reversed_answers) as (port, _, _), connect(port) as sock:
        sock.sendall(frame(b"q") * 20)
        assert read_exactly(sock, 5 * 20) == b"".join(frame(bytes([n])) for n in range(20))


def test_an_answer_of_bytes_and_file_ranges_comes_out_in_one_piece(tmp_path: Path) -> None:
    content = noise(3_000_000)
    path = tmp_path / "segment"
    path.write_bytes(content)
    with path.open("rb") as file:

        def ranges(connection: Connection, view: memoryview, reply: Reply) -> None:
            reply.send(b"head", Range(file, 10, 2_500_000), b"between", Range(file, 0, 5), b"tail")

        expected = b"head" + content[10:2_500_010] + b"between" + content[:5] + b"tail"
        with serving(ranges) as (port, _, _), connect(port) as sock:
            sock.sendall(frame(b"q") * 3)
            assert read_exactly(sock, 3 * len(expected)) == expected * 3


def test_large_ranges_to_several_at_once_come_out_whole_and_in_order(tmp_path: Path) -> None:
    content = noise(2_000_000)
    path = tmp_path / "segment"
    path.write_bytes(content)
    expected = b"head" + content[7:1_500_007] + b"tail"
    with path.open("rb") as file:

        def ranges(connection: Connection, view: memoryview, reply: Reply) -> None:
            reply.send(b"head", Range(file, 7, 1_500_000), b"tail")

        def one(port: int) -> None:
            with connect(port) as sock:
                for _ in range(5):
                    sock.sendall(frame(b"q") * 4)
                    assert read_exactly(sock, 4 * len(expected)) == expected * 4

        with serving(ranges) as (port, _, _), ThreadPoolExecutor(6) as threads:
            for done in [threads.submit(one, port) for _ in range(6)]:
                done.result(60)


def test_peers_that_go_away_in_the_middle_of_large_ranges_disturb_nobody(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(bytes(3_000_000))
    with path.open("rb") as file:

        def ranges(connection: Connection, view: memoryview, reply: Reply) -> None:
            if len(view) == 1:
                reply.send(Range(file, 0, 3_000_000))
            else:
                reply.send(frame(bytes(view)))

        with serving(ranges) as (port, _, _), connect(port) as good:
            for round_number in range(30):
                leaving = [connect(port) for _ in range(4)]
                for sock in leaving:
                    sock.sendall(frame(b"q") * 3)
                for sock in leaving:
                    read_exactly(sock, 1000 * (round_number + 1))
                    sock.close()
                good.sendall(frame(b"good"))
                assert read_exactly(good, 8) == frame(b"good")


def test_what_came_together_is_told_of_once_when_all_of_it_is_handed_on() -> None:
    waiting: list[Reply] = []
    together: list[int] = []

    def answer_all() -> None:
        together.append(len(waiting))
        while waiting:
            waiting.pop(0).send(frame(b"done"))

    with serving(lambda connection, view, reply: waiting.append(reply)) as (port, server, _):
        server.shared.on_handed_on = answer_all
        with connect(port) as sock:
            sock.sendall(frame(b"x") * 20)
            assert read_exactly(sock, 20 * 8) == frame(b"done") * 20
    assert together == [20]


def test_a_request_without_an_answer_does_not_hold_up_the_next() -> None:
    def every_second(connection: Connection, view: memoryview, reply: Reply) -> None:
        if view[0] % 2:
            reply.nothing()
        else:
            reply.send(frame(bytes(view)))

    with serving(every_second) as (port, _, _), connect(port) as sock:
        sock.sendall(b"".join(frame(bytes([n])) for n in range(10)))
        assert read_exactly(sock, 5 * 5) == b"".join(frame(bytes([n])) for n in range(0, 10, 2))


@each("size", [0, -1, -(2**31), FRAME_BYTES_MAX + 1, 2**31 - 1])
def test_a_length_that_lies_closes_that_connection_and_no_other(size: int) -> None:
    with serving(echo) as (port, _, _), connect(port) as good, connect(port) as bad:
        bad.sendall(struct.pack(">i", size) + b"whatever")
        assert bad.recv(1) == b""
        good.sendall(frame(b"still here"))
        assert read_exactly(good, 14) == frame(b"still here")


def test_bytes_that_mean_nothing_close_the_connection_and_name_the_peer(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(connection: Connection, view: memoryview, reply: Reply) -> None:
        raise MalformedRequest("no such thing")

    with serving(refuse) as (port, _, _), connect(port) as sock:
        sock.sendall(frame(b"??"))
        assert sock.recv(1) == b""
        assert f"127.0.0.1:{sock.getsockname()[1]}" in caplog.text
    assert "no such thing" in caplog.text


def test_whoever_does_not_read_is_read_from_no_more_and_costs_no_other_anything(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(bytes(1_000_000))
    handled = 0
    with path.open("rb") as file:

        def big(connection: Connection, view: memoryview, reply: Reply) -> None:
            nonlocal handled
            handled += 1
            if len(view) == 1:
                reply.send(Range(file, 0, 1_000_000))
            else:
                reply.send(frame(bytes(view)))

        with serving(big) as (port, _, _), connect(port) as deaf, connect(port) as good:
            deaf.setblocking(False)
            asked = 0
            try:
                while asked < 100_000:
                    deaf.send(frame(b"q") * 100)
                    asked += 100
            except BlockingIOError:
                pass
            good.sendall(frame(b"ok"))
            assert read_exactly(good, 6) == frame(b"ok")
            waiting_max = REPLIES_MAX + IOVECS_MAX  # for their answer, and for the socket
            assert handled <= waiting_max + 20  # and the few that the sockets' buffers took


@pytest.mark.slow
def test_whoever_takes_nothing_is_dropped_in_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("klog.net.unsent.PACE", Pace(0.5, 64 * 1024))
    path = tmp_path / "segment"
    path.write_bytes(bytes(20_000_000))
    with path.open("rb") as file:

        def big(connection: Connection, view: memoryview, reply: Reply) -> None:
            reply.send(Range(file, 0, 20_000_000))

        with serving(big) as (port, server, _), connect(port) as deaf:
            deaf.sendall(frame(b"q"))
            for _ in range(200):
                if not server.connections:
                    return
                select.select([], [], [], 0.05)
            raise AssertionError("the deaf client is still connected")


@pytest.mark.parametrize("slice_s", [turns.SLICE_S, 0.0], ids=["in few slices", "a slice each"])
def test_too_many_requests_in_one_piece_are_all_answered_in_their_time(
    slice_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "SLICE_S", slice_s)
    waiting: list[Reply] = []

    def later(connection: Connection, view: memoryview, reply: Reply) -> None:
        assert len(waiting) < REPLIES_MAX
        body = bytes(view)
        waiting.append(reply)
        if len(waiting) == REPLIES_MAX or int(body) == 2999:
            for one in waiting:
                asyncio.get_running_loop().call_soon(one.send, frame(body))
            waiting.clear()

    with serving(later) as (port, _, _), connect(port) as sock:
        sock.sendall(b"".join(frame(b"%04d" % n) for n in range(3000)))
        assert read_exactly(sock, 8 * 3000)[-8:] == frame(b"2999")


async def test_a_port_in_use_is_said_so() -> None:
    first = Server(echo, limits=SocketLimits(10), idle_max_s=1)
    port = first.listen("127.0.0.1", 0)
    second = Server(echo, limits=SocketLimits(10), idle_max_s=1)
    try:
        with pytest.raises(PortInUse, match=f"127.0.0.1:{port}"):
            second.listen("127.0.0.1", port)
    finally:
        first.close()
        second.close()


def test_large_answers_that_nobody_takes_stop_the_reading_and_are_all_sent_in_the_end() -> None:
    handled = 0
    answer = frame(bytes(WAITING_BYTES_MAX // 3))

    def large(connection: Connection, view: memoryview, reply: Reply) -> None:
        nonlocal handled
        handled += 1
        reply.send(answer)

    with serving(large) as (port, server, _), connect(port) as slow:
        slow.sendall(frame(b"q") * 50)
        until(lambda: handled > 0)
        assert handled <= 10, "the sockets' buffers take some, the rest waits unread"
        for _ in range(50):
            assert read_exactly(slow, len(answer)) == answer
        (connection,) = server.connections
        until(lambda: connection.idle)
        assert connection.waiting_bytes == 0


def test_a_connection_that_its_peer_has_ended_ends_though_nothing_is_read_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("klog.net.server.ABANDONED_S", 0.2)

    def never(connection: Connection, view: memoryview, reply: Reply) -> None:
        """It waits for what does not happen."""

    with serving(never) as (port, server, _), connect(port) as kept, connect(port) as left:
        for one in (kept, left):
            one.sendall(frame(b"q") * (REPLIES_MAX + 10))
        left.close()
        for _ in range(600):
            if len(server.connections) == 1:
                break
            select.select([], [], [], 0.05)
        assert {one.peer for one in server.connections} == {"{}:{}".format(*kept.getsockname())}


def test_whoever_takes_too_little_is_dropped_where_too_much_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("klog.net.server.SWEEP_EVERY_S", 0.02)
    monkeypatch.setattr("klog.net.unsent.PACE_FULL", Pace(0.2, 1 << 20))

    def answer(connection: Connection, view: memoryview, reply: Reply) -> None:
        reply.send(frame(bytes(16 << 20) if bytes(view) == b"much" else b"ok"))

    with serving(answer, unfinished_bytes_max=4 << 20) as (port, server, _):
        deaf = [connect(port) for _ in range(5)]
        try:
            for one in deaf:
                one.sendall(frame(b"much"))
            until(lambda: len(server.connections) == len(deaf))
            until(lambda: not server.connections)
            with connect(port) as good:
                good.sendall(frame(b"some"))
                assert read_exactly(good, 6) == frame(b"ok")
        finally:
            for one in deaf:
                one.close()
