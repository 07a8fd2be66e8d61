"""The proxies do to connections what a broken network and a dead process do."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.chance import noise
from tests.faults.network import CLIENT, HOST, Gate, Network, owner_of_port

TIMEOUT_S = 10.0
SILENCE_S = 0.15
"""How long nothing must come for it to count as cut."""


class Echo:
    """Sends back what it gets, a connection a thread."""

    def __init__(self) -> None:
        self._listener = socket.create_server((HOST, 0))
        self.port = self._listener.getsockname()[1]
        self.got: list[bytes] = []
        self.arrived = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(65536):
                    self.got.append(data)
                    self.arrived.set()
                    connection.sendall(data)
            except OSError:
                pass


@pytest.fixture
def echo() -> Iterator[Echo]:
    one = Echo()
    yield one
    one.close()


@pytest.fixture
def network() -> Iterator[Network]:
    one = Network()
    yield one
    one.close()


@pytest.fixture
def gate(network: Network, echo: Echo) -> Gate:
    return network.add("b1", echo.port)


def connected(gate: Gate) -> socket.socket:
    connection = socket.create_connection((HOST, gate.port), TIMEOUT_S)
    connection.settimeout(TIMEOUT_S)
    return connection


def echoed(connection: socket.socket, data: bytes) -> bool:
    connection.sendall(data)
    return connection.recv(len(data)) == data


def is_silent(connection: socket.socket) -> bool:
    connection.settimeout(SILENCE_S)
    try:
        return connection.recv(100) is None
    except TimeoutError:
        return True
    finally:
        connection.settimeout(TIMEOUT_S)


def test_bytes_go_through_both_ways_and_so_does_the_end(gate: Gate) -> None:
    with connected(gate) as connection:
        payload = noise(700_000)
        threading.Thread(target=connection.sendall, args=(payload,)).start()
        back = b""
        while len(back) < len(payload):
            back += connection.recv(1 << 20)
        assert back == payload
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""


@pytest.mark.parametrize(
    ("ways", "arrives"),
    [
        pytest.param([(CLIENT, "b1"), ("b1", CLIENT)], False, id="both"),
        pytest.param([("b1", CLIENT)], True, id="answers"),
        pytest.param([(CLIENT, "b1")], False, id="requests"),
    ],
)
def test_what_is_cut_neither_comes_nor_closes_until_it_is_healed(
    network: Network, gate: Gate, echo: Echo, ways: list[tuple[str, str]], arrives: bool
) -> None:
    with connected(gate) as connection:
        assert echoed(connection, b"a")
        echo.arrived.clear()
        network.cut(ways)
        connection.sendall(b"b")
        assert echo.arrived.wait(TIMEOUT_S if arrives else SILENCE_S) is arrives
        assert echo.got[-1] == (b"b" if arrives else b"a")
        assert is_silent(connection)
        network.heal()
        assert connection.recv(1) == b"b"


def test_a_connection_made_while_cut_waits(network: Network, gate: Gate) -> None:
    network.cut([("b1", CLIENT)])
    with connected(gate) as connection:
        connection.sendall(b"a")
        assert is_silent(connection)
        network.heal()
        assert connection.recv(1) == b"a"


def test_other_links_go_on(network: Network, gate: Gate) -> None:
    network.cut([("b2", "b1"), ("b1", "b2")])
    with connected(gate) as connection:
        assert echoed(connection, b"a")


def test_shut_refuses_and_resets_and_opens_again_on_the_same_port(network: Network, gate: Gate) -> None:
    with connected(gate) as connection:
        assert echoed(connection, b"a")
        network.shut(gate)
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
    with pytest.raises(ConnectionRefusedError):
        connected(gate)
    network.open(gate)
    with connected(gate) as connection:
        assert echoed(connection, b"a")


def test_a_target_that_refuses_resets(network: Network, gate: Gate, echo: Echo) -> None:
    echo.close()
    dead = network.add("b2", 1)
    with pytest.raises(ConnectionResetError), connected(dead) as connection:
        connection.recv(1)


def test_whose_connection_it_is_is_found_by_its_ports(echo: Echo) -> None:
    with socket.create_connection((HOST, echo.port)) as connection:
        port = connection.getsockname()[1]
        assert owner_of_port(port, echo.port, {"b7": os.getpid()}) == "b7"
        assert owner_of_port(port, echo.port, {"b7": 1 << 22}) == CLIENT
        assert owner_of_port(port, 1, {"b7": os.getpid()}) == CLIENT
    assert owner_of_port(1, echo.port, {"b7": os.getpid()}) == CLIENT
