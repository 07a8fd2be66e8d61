"""How many connections there may be: in all, of a listener, of an address; and which gives way to a broker's."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest

from klog.net import server as server_module
from klog.net.admission import Admission, ConnectionLimits, Full, Victims
from klog.net.arrivals import AddressLimits, ArrivalLimits, Arrivals
from klog.net.connection import Connection, Reply
from klog.net.server import ConnectionSetup, Server, plain_address
from klog.net.shared import SocketLimits
from klog.security.rates import Windows
from tests.rows import each
from tests.until import until_async

WITHIN_S = 30.0
CLIENTS, BROKERS = "CLIENTS", "BETWEEN"
WAIT = b"wait"
"""A request that is not answered."""


def admitted(limits: ConnectionLimits, clients: int, brokers: int) -> Admission:
    found = Admission(limits)
    for listener, count in ((CLIENTS, clients), (BROKERS, brokers)):
        for _ in range(count):
            found.enter(listener, "10.0.0.1")
    return found


TOTAL = Full("max.connections", is_own=False)
OWN = Full("listener.name.between.max.connections", is_own=True)


@each(
    ("clients", "brokers", "of_clients", "of_brokers"),
    [
        (0, 0, None, None),
        (9, 0, None, None),
        (10, 0, TOTAL, None),  # a broker still comes in, and a client gives way
        (10, 1, TOTAL, TOTAL),  # as long as none has given way the next one waits
        (8, 3, TOTAL, OWN),
        (6, 3, None, OWN),
    ],
)
def test_what_keeps_a_listener_from_taking_one_more(
    clients: int, brokers: int, of_clients: Full | None, of_brokers: Full | None
) -> None:
    limits = ConnectionLimits(total=10, per_listener={BROKERS: 3}, listener_of_brokers=BROKERS)
    found = admitted(limits, clients, brokers)
    assert (found.full(CLIENTS), found.full(BROKERS)) == (of_clients, of_brokers)


def test_brokers_alone_are_bounded_by_the_total_too() -> None:
    found = admitted(ConnectionLimits(total=4, listener_of_brokers=BROKERS), 0, 4)
    assert found.full(BROKERS) == TOTAL


def test_where_clients_use_the_listener_too_it_has_no_privilege() -> None:
    assert admitted(ConnectionLimits(total=4), 0, 4).full(BROKERS) == TOTAL


def test_an_address_may_have_a_bound_of_its_own() -> None:
    found = Admission(ConnectionLimits(per_ip=1, per_ip_overrides={"10.0.0.2": 2, "10.0.0.3": 0}))
    found.enter(CLIENTS, "10.0.0.1")
    found.enter(CLIENTS, "10.0.0.2")
    assert [found.too_many_of(f"10.0.0.{number}") for number in (1, 2, 3, 4)] == [True, False, True, False]
    found.leave(CLIENTS, "10.0.0.1")
    assert not found.too_many_of("10.0.0.1")
    assert dict(found.of_address) == {"10.0.0.2": 1}


@dataclass(eq=False)
class OneOfMany:
    listener: str = CLIENTS
    is_broker: bool = False
    due_s: float = math.inf
    idle: bool = True
    last_active_s: float = 0.0
    closed: bool = False


def test_who_gives_way_first() -> None:
    nameless = OneOfMany(due_s=100.0, last_active_s=90.0, idle=False)
    oldest, newest = OneOfMany(last_active_s=1.0), OneOfMany(last_active_s=50.0)
    asking = OneOfMany(last_active_s=0.5, idle=False)
    spared = [OneOfMany(BROKERS, last_active_s=0.1), OneOfMany(is_broker=True, last_active_s=0.1)]
    there = [asking, newest, *spared, oldest, nameless]
    victims: Victims[OneOfMany] = Victims(BROKERS)
    order = []
    while (one := victims.next(there)) is not None:
        order.append(one)
        there.remove(one)
    assert order == [nameless, oldest, newest, asking]
    assert there == spared


def test_who_has_said_something_since_it_was_chosen_stays_for_now() -> None:
    there = [OneOfMany(last_active_s=float(number)) for number in range(4)]
    victims: Victims[OneOfMany] = Victims(None)
    assert victims.next(there) is there[0]
    there[1].last_active_s = 99.0
    there[2].closed = True
    assert victims.next(there) is there[3]
    assert victims.next([there[1]]) is there[1]


def test_an_ipv4_address_counts_as_such_on_a_socket_of_ipv6() -> None:
    assert [plain_address(one) for one in ("::ffff:10.0.0.1", "10.0.0.1", "::1", "::ffff:1")] == [
        "10.0.0.1",
        "10.0.0.1",
        "::1",
        "::ffff:1",
    ]


# --- with sockets ---


def echo(connection: Connection, view: memoryview, reply: Reply) -> None:
    if bytes(view) != WAIT:
        reply.send(struct.pack(">i", len(view)) + bytes(view))


@contextlib.asynccontextmanager
async def listening(
    limits: ConnectionLimits,
    on_full: Callable[[str, str, int, str], None] | None = None,
    arrivals: ArrivalLimits = ArrivalLimits(),
) -> AsyncIterator[tuple[Server, int, int]]:
    """A server, its port for clients and its port for brokers."""
    server = Server(
        echo,
        limits=SocketLimits(1 << 20),
        idle_max_s=600,
        connection_limits=limits,
        arrival_limits=arrivals,
        on_full=on_full,
    )
    try:
        yield (
            server,
            server.listen("127.0.0.1", 0, ConnectionSetup(CLIENTS)),
            server.listen("127.0.0.1", 0, ConnectionSetup(BROKERS)),
        )
    finally:
        server.close()


class Peer:
    """A client's socket; its connection may still wait in the kernel's queue."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S)
        self.socket.setblocking(False)

    async def asks(self, what: bytes = b"x") -> bool:
        """Whether it is answered; False where its connection has ended."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(WITHIN_S):
                await loop.sock_sendall(self.socket, struct.pack(">i", len(what)) + what)
                return what == WAIT or len(await loop.sock_recv(self.socket, 100)) == 4 + len(what)
        except ConnectionError:
            return False


async def test_brokers_come_in_where_clients_have_taken_all_places(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    limits = ConnectionLimits(total=6, listener_of_brokers=BROKERS)
    async with listening(limits) as (server, port, brokers_port):
        clients = [Peer(port) for _ in range(6)]
        for one in clients:
            assert await one.asks()
        assert await clients[0].asks(WAIT)
        waiting = Peer(port)  # in the kernel's queue
        brokers = []
        for number in range(4):
            brokers.append(Peer(brokers_port))
            assert await brokers[-1].asks()
            assert server.admission.total == 6
            assert server.admission.gave_way == number + 1
        # The longest idle ones have ended; the one that waits for an answer has not.
        gone = [not await one.asks() for one in clients[1:5]]
        assert gone == [True] * 4
        assert await clients[5].asks()
        for one in clients[5:]:
            one.socket.close()
        assert await waiting.asks(), "a place became free"
        for one in [*clients, *brokers, waiting]:
            one.socket.close()
    assert sum("max.connections" in text and "broker" in text for text in caplog.messages) == 1, "one line of its kind"


async def test_a_listener_may_have_a_bound_of_its_own_and_others_go_on() -> None:
    told: list[tuple[str, str, int]] = []

    limits = ConnectionLimits(total=100, per_listener={CLIENTS: 20})
    async with listening(limits, lambda *one: told.append(one[:3])) as (server, port, brokers_port):
        clients = [Peer(port) for _ in range(20)]
        for one in clients:
            assert await one.asks()
        waiting, other = Peer(port), Peer(brokers_port)
        assert await other.asks()
        assert server.admission.of_listener[CLIENTS] == 20
        assert server.full_listeners == (CLIENTS,)
        clients[0].socket.close()
        assert await waiting.asks()
        for one in [*clients, waiting, other]:
            one.socket.close()
        await until_async(lambda: not server.full_listeners, WITHIN_S)
    ((listener, reason, count),) = told
    assert (listener, count) == (CLIENTS, 20)
    assert "listener.name.clients.max.connections" in reason


@pytest.mark.slow
async def test_a_listener_takes_connections_no_faster_than_its_rate(caplog: pytest.LogCaptureFixture) -> None:
    """At once as many as all windows but one allow; then as many in a second, and brokers go on."""
    rate, windows = 40, Windows(2, 0.5)

    caplog.set_level(logging.WARNING)
    limits = ArrivalLimits(windows, total=rate, listener_of_brokers=BROKERS)
    async with listening(ConnectionLimits(), arrivals=limits) as (server, port, brokers_port):
        began_s = time.monotonic()
        clients = [Peer(port) for _ in range(4 * rate)]
        others = [Peer(brokers_port) for _ in range(5)]
        assert all([await one.asks() for one in others])
        assert server.admission.of_listener[CLIENTS] < len(clients), "the brokers have not waited for the clients"
        assert all([await one.asks() for one in clients])
        took_s = time.monotonic() - began_s
        least_s = (len(clients) - rate * windows.all_s) / rate
        assert took_s > 0.9 * least_s  # what is let in at a window's end counts as one or two more
        assert 0 < server.arrivals.slowed_s[CLIENTS] < took_s + 1 and BROKERS not in server.arrivals.slowed_s
        for one in [*clients, *others]:
            one.socket.close()
    assert sum("max.connection.creation.rate" in text for text in caplog.messages) == 1


def test_the_rate_of_a_listener_bounds_it_and_no_other() -> None:
    limits = ArrivalLimits(Windows(2, 1.0), total=100, per_listener={CLIENTS: 5}, listener_of_brokers=BROKERS)
    found = Arrivals(limits)
    for _ in range(30):
        found.count(CLIENTS, 1000.0)
    wait_s, setting = found.wait_s(CLIENTS, 1000.0)
    assert (wait_s, setting) == (30 / 5 - 1, "listener.name.clients.max.connection.creation.rate")
    assert found.wait_s("OTHERS", 1000.0)[0] == found.wait_s(BROKERS, 1000.0)[0] == 0
    for _ in range(100):
        found.count("OTHERS", 1000.0)
    assert found.wait_s("OTHERS", 1000.0) == (pytest.approx(0.3), "max.connection.creation.rate")
    assert found.wait_s(BROKERS, 1000.0)[0] == 0


def test_who_never_stops_trying_still_has_its_rate() -> None:
    """An address that connects ten times too fast comes in as often as its quota allows; brokers are not asked."""
    noted = []
    found = Arrivals(ArrivalLimits(Windows(2, 1.0), listener_of_brokers=BROKERS))
    assert found.held_s(CLIENTS, "::1", 0.0) == 0
    found.address_limits = AddressLimits({"::1": 10.0}.get, lambda ip, wait_s: noted.append((ip, wait_s)))
    let_in = 0
    for number in range(1000):
        held_s = found.held_s(CLIENTS, "::1", 1000 + number / 100)
        assert held_s <= 1
        let_in += not held_s
        assert found.held_s(BROKERS, "::1", 1000 + number / 100) == found.held_s(CLIENTS, "::2", 1000.0) == 0
    assert 0.9 * 100 <= let_in <= 100 + 2 * 10
    assert {ip for ip, _ in noted} == {"::1"} and len(noted) == 1000 - let_in


async def test_connections_beyond_a_quota_are_held_and_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "HELD_MAX", 3)
    limits = ArrivalLimits(Windows(11, 0.5), listener_of_brokers=BROKERS)
    async with listening(ConnectionLimits(), arrivals=limits) as (server, port, brokers_port):
        server.arrivals.address_limits = AddressLimits(lambda ip: 0.2, lambda ip, wait_s: None)
        first, *_ = peers = [Peer(port) for _ in range(7)]
        assert await asyncio.gather(*(one.asks() for one in peers)) == [True] + [False] * 6
        peers += [last := Peer(brokers_port)]
        assert await last.asks() and await first.asks()
        assert server.admission.total == 2
        peers += [Peer(port) for _ in range(3)]  # these are held where the server ends
        for one in peers:
            one.socket.close()


async def test_one_address_with_too_many_is_named_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    async with listening(ConnectionLimits(per_ip=2)) as (server, port, _):
        clients = [Peer(port) for _ in range(2)]
        for one in clients:
            assert await one.asks()
        for _ in range(50):
            refused = Peer(port)
            assert not await refused.asks()
            refused.socket.close()
        assert server.admission.refused == 50
        assert server.admission.total == 2
        for one in clients:
            one.socket.close()
    assert sum("max.connections.per.ip" in text for text in caplog.messages) == 1


async def test_who_waits_for_an_answer_is_not_idle(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A long poll, or a follower that waits for its leader's next bytes, is not; after its answer it may be."""
    monkeypatch.setattr(server_module, "SWEEP_EVERY_S", 0.02)
    caplog.set_level(logging.INFO, logger="klog.net.connection")
    polls: list[Reply] = []

    def handle(connection: Connection, view: memoryview, reply: Reply) -> None:
        polls.append(reply)

    server = Server(handle, limits=SocketLimits(1 << 20), idle_max_s=0.2)
    port = server.listen("127.0.0.1", 0)
    try:
        poll, idle = Peer(port), Peer(port)
        assert await poll.asks(WAIT)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(WITHIN_S):
            assert await loop.sock_recv(idle.socket, 1) == b""
            for _ in range(20):  # sweeps, in each of which it has been silent for long enough
                await asyncio.sleep(0.02)
            assert len(server.connections) == 1
            polls[0].send(b"\0\0\0\1x")
            assert await loop.sock_recv(poll.socket, 100) == b"\0\0\0\1x"
            assert await loop.sock_recv(poll.socket, 1) == b""
        assert server.idle_closed == 2
        for one in (poll, idle):
            one.socket.close()
    finally:
        server.close()
    assert sum("connections.max.idle.ms" in text for text in caplog.messages) == 2
