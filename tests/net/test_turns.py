"""What takes long is served one by one, and lets others pass."""

from __future__ import annotations

import asyncio
import itertools
import socket
import statistics
import threading
import time
from collections import Counter
from contextlib import ExitStack

import pytest

from klog.net.connection import Connection, Reply
from klog.net.turns import EXPENSIVE_S, TURN_S, Share, Turns
from tests.net.serving import connect, frame, serving

LONG_S = 2 * EXPENSIVE_S
WITHIN_S = 60.0


def hold() -> None:
    """The loop, for a long time."""
    time.sleep(LONG_S)


def test_a_request_that_comes_during_a_turn_is_served_in_the_next_one() -> None:
    """Behind one piece of the other address, whose connections wait all the time."""

    async def main() -> int:
        loop, turns, pieces = asyncio.get_running_loop(), Turns(), itertools.count(1)
        served: asyncio.Future[int] = loop.create_future()
        here, there = socket.socketpair()

        def piece() -> None:
            number = next(pieces)
            if number == 1:
                there.send(b"a request")
            if not served.done():
                turns.call_in_turn("crowd", piece, is_expensive=False)
            turns.spent(TURN_S)

        def readable() -> None:
            loop.remove_reader(here)
            turns.call_in_turn("other", lambda: served.set_result(next(pieces) - 1), is_expensive=False)

        with here, there:
            loop.add_reader(here, readable)
            turns.call_in_turn("crowd", piece, is_expensive=False)
            return await served

    assert asyncio.run(main()) == 2


async def test_a_task_has_its_turn_where_connections_take_all_of_each() -> None:
    turns, done = Turns(), asyncio.Event()

    def piece() -> None:
        turns.spent(TURN_S)
        if not done.is_set():
            turns.call_in_turn("crowd", piece, is_expensive=False)

    async def task() -> None:
        await turns.wait_for_turn("other")
        done.set()

    piece()
    waiting = asyncio.create_task(task())
    try:
        await asyncio.wait_for(asyncio.shield(waiting), WITHIN_S)
    finally:
        done.set()


@pytest.mark.slow
def test_who_asks_for_little_waits_for_few_who_ask_for_much() -> None:
    order: list[bytes] = []
    begun = threading.Event()

    def handle(connection: Connection, view: memoryview, reply: Reply) -> None:
        order.append(bytes(view))
        if order[-1] == b"much":
            begun.set()
            time.sleep(LONG_S)
        reply.send(frame(b"done"))

    with serving(handle) as (port, _, _), ExitStack() as stack:
        greedy = [stack.enter_context(connect(port)) for _ in range(8)]
        modest = stack.enter_context(connect(port))
        for one in greedy:
            one.sendall(frame(b"much") * 3)
        assert begun.wait(WITHIN_S)
        for _ in range(5):
            modest.sendall(frame(b"little"))
            assert modest.recv(100)
        for one in greedy:
            for _ in range(3 * 8):
                assert one.recv(1)
    assert order.count(b"much") == 24 and order.count(b"little") == 5
    # Until they are known to ask for much each of the eight has a turn like everybody; from then on one at a time does.
    between = [len(one) for one in _runs(order)]
    assert statistics.median(between[1:5]) <= 2, between


def _runs(order: list[bytes]) -> list[list[bytes]]:
    """What was handled between two modest requests."""
    runs: list[list[bytes]] = [[]]
    for one in order:
        if one == b"little":
            runs.append([])
        else:
            runs[-1].append(one)
    return runs


@pytest.mark.slow
def test_a_broker_waits_for_no_client_that_asks_for_much() -> None:
    order: list[bytes] = []
    begun = threading.Event()

    def handle(connection: Connection, view: memoryview, reply: Reply) -> None:
        what = bytes(view)
        if what == b"proof":
            connection.is_broker = True
        else:
            order.append(what)
            begun.set()
            time.sleep(2 * EXPENSIVE_S)
        reply.send(frame(b"done"))

    with serving(handle) as (port, _, _), ExitStack() as stack:
        greedy = [stack.enter_context(connect(port)) for _ in range(20)]
        broker = stack.enter_context(connect(port))
        broker.sendall(frame(b"proof"))
        assert broker.recv(8)
        for one in greedy:
            one.sendall(frame(b"much") * 3)
        assert begun.wait(WITHIN_S)
        for _ in range(5):  # it asks for much as well
            broker.sendall(frame(b"leadership"))
            assert broker.recv(8)
        for one in greedy:
            for _ in range(3 * 8):
                assert one.recv(1)
    assert (order.count(b"much"), order.count(b"leadership")) == (60, 5)
    at = [number for number, one in enumerate(order) if one == b"leadership"]
    # Two turns pass from its answer to its next request, each with the few that fit in. In the queue of those who ask
    # for much it would come behind nearly all of them.
    assert at[0] <= 40, at


def test_all_that_was_sent_is_handled_in_its_order_and_its_answers_are_taken() -> None:
    handled: list[int] = []

    def handle(connection: Connection, view: memoryview, reply: Reply) -> None:
        number = int(bytes(view[:6]))
        handled.append(number)
        if number % 10 == 0:
            time.sleep(2 * EXPENSIVE_S)
        reply.send(frame(bytes(view[:6])))

    with serving(handle) as (port, _, _), connect(port) as sock:
        sizes = [6, 100, 70_000]
        sock.sendall(b"".join(frame(b"%06d" % n + bytes(sizes[n % 3] - 6)) for n in range(60)))
        got = b""
        while len(got) < 10 * 60:
            got += sock.recv(1 << 16)
        assert got == b"".join(frame(b"%06d" % n) for n in range(60))
    assert handled == list(range(60))


@pytest.mark.slow
async def test_tasks_that_have_much_to_do_take_turns() -> None:
    begun: list[tuple[int, int]] = []

    turns, ticks = Turns(), 0

    async def much(number: int) -> None:
        share = Share(turns)
        for _ in range(3):
            await share.yield_if_due()
            begun.append((ticks, number))
            hold()

    async def tick() -> None:
        nonlocal ticks
        for ticks in itertools.count(1):  # noqa: B007
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    async with asyncio.timeout(WITHIN_S):
        await asyncio.gather(*(much(number) for number in range(4)))
    ticking.cancel()
    assert len(begun) == 12
    later = Counter(tick for tick, _ in begun[4:])  # each begins at once
    assert max(later.values()) <= 2, begun  # one that ends, and one that goes on
