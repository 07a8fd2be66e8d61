"""Requests that have come in part: bounded together (rule P2), and one always goes on."""

from __future__ import annotations

import contextlib
import logging
import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from functools import partial

import pytest

from klog.net import connection as connection_module
from klog.net import server as server_module
from klog.net.connection import Connection, Reply
from klog.net.memory_pool import LITTLE_BYTES, TINY_BYTES, MemoryPool, Pace
from klog.net.shared import SCRATCH_BYTES, SPARE_BYTES_MAX, SPARE_BYTES_MIN, SPARES_MAX, Shared
from tests.chance import seed_of
from tests.net.serving import connect, serving
from tests.until import until

WITHIN_S = 30.0
BOUND = 8 << 20
REQUEST = 4 << 20


class Holder:
    """A connection whose peer sends a request piece by piece, whenever it is read from."""

    def __init__(self, pool: MemoryPool, request_bytes: int) -> None:
        self.pool = pool
        self.request_bytes = request_bytes
        self.came = 0
        self.buffer = 0
        self.waits = False

    @property
    def is_done(self) -> bool:
        return self.came == self.request_bytes

    def comes(self, size: int) -> None:
        """So much more of it has been received, at most what the buffer has room for."""
        self.came = min(self.came + size, max(self.buffer, TINY_BYTES), self.request_bytes)
        if self.is_done:
            self.pool.release(self)
        elif self.came >= self.buffer:
            self.memory_freed()

    def memory_freed(self) -> None:
        wanted = min(self.request_bytes, max(2 * self.came, TINY_BYTES))
        self.waits = not self.pool.try_allocate(self, wanted, self.request_bytes)
        if not self.waits:
            self.buffer = wanted


def test_a_pool_full_of_halves_empties() -> None:
    draw = random.Random(seed_of("a room full of halves"))
    for bound in (0, 100_000, BOUND):
        soon: list[Callable[[], None]] = []
        pool = MemoryPool(bound, soon.append)
        holders = [Holder(pool, draw.choice((30_000, 900_000, 3_000_000))) for _ in range(60)]
        largest = max(one.request_bytes for one in holders)
        for _ in range(1_000_000):
            reading = [one for one in holders if not one.is_done and not one.waits]
            if not reading:
                break
            draw.choice(reading).comes(draw.randrange(1, 400_000))
            while soon:
                soon.pop(0)()
            assert pool.bytes <= bound + largest + TINY_BYTES * len(holders)
        assert all(one.is_done for one in holders), "nobody is read from, and some have not ended"
        assert pool.bytes == 0
        assert not pool.is_low


def test_large_requests_leave_room_for_little_ones() -> None:
    pool = MemoryPool(BOUND, lambda act: None)
    for _ in range(20):
        large = Holder(pool, 100 << 20)
        large.came = 1 << 20
        large.memory_freed()
    assert pool.is_waited_for
    little = Holder(pool, LITTLE_BYTES)
    little.came = LITTLE_BYTES // 2
    little.memory_freed()
    assert not little.waits


def test_without_a_bound_nobody_waits() -> None:
    pool = MemoryPool(float("inf"), lambda act: None)
    one = Holder(pool, 1 << 40)
    one.came = 1 << 39
    one.memory_freed()
    assert not one.waits
    assert not pool.is_low
    pool.release(one)
    assert not pool.is_low


def echo_length(connection: Connection, view: memoryview, reply: Reply) -> None:
    reply.send(struct.pack(">ii", 4, len(view)))


bounded = partial(serving, echo_length, 100 << 20, unfinished_bytes_max=BOUND)


def answer(sock: socket.socket) -> int:
    """How long the request was, says the server; EOFError where it has ended the connection."""
    data = b""
    while len(data) < 8:
        try:
            piece = sock.recv(8 - len(data))
        except ConnectionResetError:
            piece = b""
        if not piece:
            raise EOFError
        data += piece
    found: int = struct.unpack(">ii", data)[1]
    return found


def stuffed(sock: socket.socket, data: bytes | memoryview) -> int:
    """Send until nobody takes any more for a moment; how much went."""
    sent = 0
    sock.settimeout(0.2)
    with contextlib.suppress(TimeoutError):
        while sent < len(data):
            sent += sock.send(data[sent : sent + 65536])
    sock.settimeout(WITHIN_S)
    return sent


@pytest.mark.slow
def test_twenty_half_requests_are_held_within_the_bound_and_all_come_through() -> None:
    request = struct.pack(">i", REQUEST) + bytes(REQUEST)
    with (
        bounded() as (port, server, ask),
        contextlib.ExitStack() as closing,
    ):
        peers = [closing.enter_context(connect(port)) for _ in range(20)]
        sent = [stuffed(one, request[: REQUEST * 3 // 4]) for one in peers]
        held = ask(lambda: server.shared.memory_pool.bytes)
        assert isinstance(held, int)
        assert BOUND // 2 < held <= BOUND + REQUEST + TINY_BYTES * len(peers) + SCRATCH_BYTES
        with connect(port) as other:  # meanwhile others are served, in two pieces too
            for size in (10, 5_000, LITTLE_BYTES // 2):
                other.sendall(struct.pack(">i", size) + bytes(size // 2))
                other.sendall(bytes(size - size // 2))
                assert answer(other) == size
        sending = [
            threading.Thread(target=one.sendall, args=(request[at:],)) for one, at in zip(peers, sent, strict=True)
        ]
        for thread in sending:
            thread.start()
        for one, thread in zip(peers, sending, strict=True):
            assert answer(one) == REQUEST
            thread.join(WITHIN_S)
        assert ask(lambda: (server.shared.memory_pool.bytes, server.shared.memory_pool.is_low)) == (0, False)


def test_a_broker_has_room_where_clients_have_taken_it_all() -> None:
    """Its requests come in pieces, and none waits for what the clients do with theirs."""
    half = struct.pack(">i", REQUEST) + bytes(REQUEST // 2)
    with (
        bounded() as (port, server, ask),
        contextlib.ExitStack() as closing,
    ):
        broker = closing.enter_context(connect(port))
        broker.sendall(struct.pack(">i", 1) + b"x")
        assert answer(broker) == 1

        def prove() -> None:
            (one,) = server.connections
            one.is_broker = True

        ask(prove)
        left = {closing.enter_context(connect(port)): memoryview(half) for _ in range(20)}
        deadline = time.monotonic() + WITHIN_S
        while not ask(lambda: server.shared.memory_pool.is_waited_for):
            assert time.monotonic() < deadline
            left = {one: rest[stuffed(one, rest) :] for one, rest in left.items()}  # a busy server takes them late
        for _ in range(3):
            broker.sendall(half)
            broker.sendall(bytes(REQUEST - REQUEST // 2))
            assert answer(broker) == REQUEST
        assert ask(lambda: server.shared.memory_pool.is_waited_for), "the clients have had to wait all the while"


def test_who_holds_room_and_goes_leaves_it() -> None:
    with bounded() as (port, _, _):
        for _ in range(3):
            peers = [connect(port) for _ in range(20)]
            for one in peers:
                stuffed(one, struct.pack(">i", REQUEST) + bytes(REQUEST // 2))
            for one in peers:
                one.close()
        with connect(port) as other:
            other.sendall(struct.pack(">i", REQUEST) + bytes(REQUEST))
            assert answer(other) == REQUEST


def test_a_frame_that_does_not_get_on_ends_its_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_module, "SWEEP_EVERY_S", 0.02)
    monkeypatch.setattr(connection_module, "PACE", Pace(0.3, 1000))
    caplog.set_level(logging.INFO, logger="klog.net.connection")
    with (
        bounded() as (port, _, _),
        connect(port) as head,
        connect(port) as half,
        connect(port) as drip,
    ):
        half.sendall(struct.pack(">i", 500_000) + bytes(100_000))
        drip.sendall(struct.pack(">i", 500_000) + bytes(100_000))
        head.sendall(struct.pack(">i", 100_000))
        with pytest.raises(EOFError):
            answer(half)
        with contextlib.suppress(ConnectionError):  # a byte now and then is no progress
            for _ in range(1000):
                drip.sendall(b"x")
                drip.settimeout(0.03)
                with contextlib.suppress(TimeoutError):
                    if not drip.recv(1):
                        break
            else:
                pytest.fail("a byte now and then kept it open")
        with pytest.raises(EOFError):  # its length alone had come
            answer(head)
    assert all(getattr(record, "peer", None) for record in caplog.records) and len(caplog.records) >= 3


@pytest.mark.slow
def test_while_others_wait_for_room_a_frame_has_to_hurry_and_who_waits_waits_for_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_module, "SWEEP_EVERY_S", 0.02)
    monkeypatch.setattr(connection_module, "PACE_FULL", Pace(0.2, 1 << 20))
    monkeypatch.setattr(connection_module, "MEMORY_WAIT_S", 0.4)
    caplog.set_level(logging.INFO, logger="klog.net.connection")
    half = struct.pack(">i", REQUEST) + bytes(REQUEST // 2)
    with (
        bounded(unfinished_bytes_max=REQUEST) as (port, _, _),
        contextlib.ExitStack() as closing,
    ):
        alone = closing.enter_context(connect(port))
        stuffed(alone, half)
        alone.settimeout(0.6)
        with pytest.raises(TimeoutError):  # nobody waits: it has its time
            alone.recv(1)
        peers = [closing.enter_context(connect(port)) for _ in range(10)]
        for one in peers:
            with contextlib.suppress(ConnectionError):
                stuffed(one, half)
        alone.settimeout(WITHIN_S)
        with pytest.raises(EOFError):  # it has come first, and is in everybody's way
            answer(alone)
        until(lambda: "queued.max.request.bytes" in caplog.text, lambda: caplog.text, WITHIN_S)
        assert any("room" in text and "queued.max" not in text for text in caplog.messages)
        monkeypatch.setattr(
            connection_module, "MEMORY_WAIT_S", WITHIN_S
        )  # a busy machine is no reason to refuse this one
        with connect(port) as other:
            other.sendall(struct.pack(">i", REQUEST) + bytes(REQUEST))
            assert answer(other) == REQUEST


def test_small_buffers_that_a_frame_has_outgrown_do_not_keep_its_own_from_being_used_again() -> None:
    """As a frame of a megabyte leaves them, time and again: each would be zeroed, and its pages faulted in."""
    shared = Shared()
    megabyte = 1 << 20
    made = set()
    for _ in range(20):
        outgrown = [memoryview(bytearray(SPARE_BYTES_MIN << number)) for number in range(4)]
        for one in outgrown:
            shared.give_back(one)
        buffer = shared.take(megabyte, megabyte)
        made.add(id(buffer.obj))
        shared.give_back(buffer)
    assert len(made) == 1
    shared.give_back(memoryview(bytearray(SPARE_BYTES_MAX + 1)))
    assert len(shared._spare) == SPARES_MAX and max(map(len, shared._spare)) == megabyte
    for _ in range(SPARES_MAX):
        shared.give_back(memoryview(bytearray(SPARE_BYTES_MAX)))
    assert sum(map(len, shared._spare)) == SPARE_BYTES_MAX
