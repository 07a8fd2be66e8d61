"""Few threads, and who says nothing, or a byte now and then, has a thread for a bounded time."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from klog.clock import SYSTEM_CLOCK, Clock
from klog.net import http_server
from klog.net.http_server import HttpServer
from tests.hand_clock import HandClock
from tests.rows import each

WITHIN_S = 30.0
MOST = 4


def echo(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    data = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)) or b"nothing"
    start_response("200 OK", [("Content-Length", str(len(data)))])
    return [data]


def large(_: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    start_response("200 OK", [])
    return (bytes(1 << 20) for _ in range(100))


@contextlib.contextmanager
def serving(application: http_server.Application, clock: Clock = SYSTEM_CLOCK) -> Iterator[int]:
    server = HttpServer.open(application, "127.0.0.1", 0, what="an echo", flag="--port", clock=clock)
    try:
        yield int(server.address.rpartition(":")[2])
    finally:
        server.close()


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Of a server with few connections, and little patience."""
    monkeypatch.setattr(http_server, "CONNECTIONS_MAX", MOST)
    monkeypatch.setattr(http_server, "REQUEST_S", 0.5)
    with serving(echo) as found:
        yield found


def ask(port: int, body: bytes | None = None) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", data=body, timeout=WITHIN_S) as answer:
        data: bytes = answer.read()
        return data


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S)


def is_ended(sock: socket.socket) -> bool:
    with contextlib.suppress(ConnectionResetError):
        while sock.recv(65536):
            pass
    return True


def http_threads() -> int:
    return sum("process_request_thread" in one.name for one in threading.enumerate())


@pytest.mark.slow
def test_those_that_say_nothing_have_their_time_and_take_few_threads(port: int) -> None:
    with contextlib.ExitStack() as closing:
        silent = [closing.enter_context(connect(port)) for _ in range(2 * MOST)]
        for one in silent[::2]:
            one.sendall(b"GET / HTTP/1.1\r\nHost: x")
        for one in silent[1::2]:
            one.sendall(b"POST / HTTP/1.1\r\nContent-Length: 100\r\n\r\nhalf")
        assert ask(port) == b"nothing"
        assert ask(port, b"body") == b"body"
        assert http_threads() <= MOST
        assert is_ended(silent[0])


@each("start", [b"GET / HTTP/1.1\r\nX: ", b"POST / HTTP/1.1\r\nContent-Length: 100000\r\n\r\n"])
def test_a_byte_now_and_then_is_no_request(start: bytes) -> None:
    clock = HandClock()
    with serving(echo, clock) as port, connect(port) as drip:
        drip.sendall(start)
        drip.settimeout(0.02)
        sent, begun_s = 0, time.monotonic()
        while time.monotonic() - begun_s < WITHIN_S:
            if sent > 3:
                clock.move(0.6 * http_server.REQUEST_S)
            sent += 1
            try:
                drip.sendall(b"x")
                if not drip.recv(1):
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        else:
            pytest.fail("a byte now and then kept it open")
        assert sent > 5, "until its time was over it was kept open"


def test_an_answer_is_to_be_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "ANSWER_S", 0.3)
    begun = threading.Event()

    def noted(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        begun.set()
        return large(environ, start_response)

    with serving(noted) as port, connect(port) as deaf:
        deaf.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert begun.wait(WITHIN_S)
        begun_s = time.monotonic()
        while http_threads() and time.monotonic() - begun_s < WITHIN_S:
            time.sleep(0.01)
            deaf.settimeout(0.01)
            with contextlib.suppress(TimeoutError, ConnectionError):
                deaf.recv(1)  # a byte now and then is not enough
        assert http_threads() == 0


def test_a_head_without_end_is_cut_off(port: int) -> None:
    with connect(port) as one:
        one.sendall(b"GET / HTTP/1.1\r\n")
        with contextlib.suppress(ConnectionError):
            for number in range(100):
                one.sendall(b"X-%d: " % number + b"y" * 65_000 + b"\r\n")
            one.sendall(b"Y: z" * 100_000)
        assert is_ended(one)
    assert ask(port) == b"nothing"


def failing(_: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    raise ValueError("\x1b]0;x\x07\n" * 1_000)


def failing_late(_: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    start_response("200 OK", [])
    yield b"some"
    raise ValueError("late")


def answer_to(port: int, request: bytes) -> bytes:
    with connect(port) as one:
        one.sendall(request)
        answer = b""
        while data := one.recv(65536):
            answer += data
        return answer


def test_a_request_that_fails_is_one_line_and_no_traceback(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Any peer can make a request fail, as often as it likes."""
    with serving(failing) as port:
        assert answer_to(port, b"GET / HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.0 500 ")
    with serving(failing_late) as port:
        assert answer_to(port, b"GET / HTTP/1.0\r\n\r\n").endswith(b"some")
    assert capfd.readouterr().err == ""
    (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert vars(record)["peer"].startswith("127.0.0.1:")
    assert "\x1b" not in record.getMessage() and "\n" not in record.getMessage() and len(record.getMessage()) < 500


def test_a_length_of_very_many_digits(capfd: pytest.CaptureFixture[str]) -> None:
    """Python converts 4,300 digits at most."""
    with serving(large) as port, connect(port) as one:  # the server waits for the rest until the deadline
        one.sendall(b"POST / HTTP/1.0\r\nContent-Length: %s\r\n\r\n" % (b"9" * 5_000))
        assert one.recv(100).startswith(b"HTTP/1.0 200 ")
    assert capfd.readouterr().err == ""


def test_a_body_that_does_not_come_is_no_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    clock, begun = HandClock(), threading.Event()

    def noted(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        begun.set()
        return echo(environ, start_response)

    with serving(noted, clock) as port, connect(port) as one:
        one.sendall(b"POST / HTTP/1.0\r\nContent-Length: 100\r\n\r\nhalf")
        assert begun.wait(WITHIN_S)
        clock.move(http_server.REQUEST_S)
        one.sendall(b"more")
        assert one.recv(100).startswith(b"HTTP/1.0 408 ")
    assert capfd.readouterr().err == ""
