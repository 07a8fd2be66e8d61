"""A small HTTP server for metrics and the schema registry.

Strategy
    The standard library's server, imported by `HttpServer.open` alone, so that it costs nothing where HTTP is off. One
    thread per connection, so that no request delays the event loop.

Limits
    `CONNECTIONS_MAX` connections, one thread each; further ones wait in the kernel's queue. Where one waits there, the
    connection ends whose peer has neither sent nor taken anything for the longest, and for `STALLED_S` at least. A
    whole request must arrive within `REQUEST_S`, its answer be taken within `ANSWER_S`, however often a byte moves; a
    request has `REQUEST_BYTES_MAX` at most. An application may return an iterator, which makes each piece when the one
    before was taken. HTTP/1.0, one request per connection, plain text, no authentication: open the port only where a
    broker's port may be open.
"""

from __future__ import annotations

import io
import logging
import re
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from klog.clock import SYSTEM_CLOCK, Clock
from klog.errors import listen_error
from klog.names import host_port

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

log = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 32
QUEUE_MAX: Final = 128
"""Connections in the kernel's queue."""
STALLED_S: Final = 1.0
REQUEST_S: Final = 10.0
ANSWER_S: Final = 30.0
REQUEST_BYTES_MAX: Final = 5 * 1024 * 1024
"""The largest request: head and body."""
SENT_AT_ONCE_BYTES: Final = 64 * 1024
ERROR_CHARS_MAX: Final = 300
RAW_TARGET: Final = "klog.raw_target"
"""WSGI key of the request's target as sent: in WSGI's own PATH_INFO ``%2F`` is decoded already."""

_AUTHORITY: Final = re.compile(r"https?://[^/?#]*", re.IGNORECASE)
"""Scheme and host before the path, in a request as to a proxy."""

Application = Callable[..., Iterable[bytes]]
"""WSGI's (PEP 3333)."""


class HttpServer:
    """A listening socket and its thread. Created and closed by the owner thread."""

    def __init__(self, server: WSGIServer, address: str) -> None:
        self.address = address
        """``host:port``."""
        self._server = server
        threading.Thread(target=server.serve_forever, name=f"http {address}", daemon=True).start()

    @classmethod
    def open(
        cls,
        application: Application,
        host: str,
        port: int,
        *,
        what: str,
        flag: str,
        clock: Clock = SYSTEM_CLOCK,
    ) -> HttpServer:
        """Listen; port 0 is a free one, an empty host every interface. Blocks for imports; any thread.

        ``what`` is served and ``flag`` sets its port, for the messages of PortInUse and HostError.
        """
        try:
            server = _server(application, host, port, clock)
        except OSError as error:
            raise listen_error(f"serve {what} at {host_port(host, port)}", port, error, flag) from None
        return cls(server, host_port(host or "0.0.0.0", server.server_port))

    def close(self) -> None:
        """Stop listening at once; the thread ends at its next poll."""
        threading.Thread(target=self._server.shutdown, name="http end", daemon=True).start()
        self._server.server_close()


class _Deadline:
    """Sets a socket's time-out to the rest of ``seconds``; raises TimeoutError when none is left."""

    def __init__(self, sock: socket.socket, seconds: float, clock: Clock) -> None:
        self._socket = sock
        self._clock = clock
        self._until_s = clock.monotonic_s() + seconds

    def apply(self) -> None:
        left_s = self._until_s - self._clock.monotonic_s()
        if left_s <= 0:
            raise TimeoutError("the time is over")
        self._socket.settimeout(left_s)


class _Waits:
    """Connections that wait for their peers, and since when."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_s: dict[socket.socket, float] = {}

    @contextmanager
    def of(self, sock: socket.socket) -> Iterator[None]:
        self._since_s[sock] = self._clock.monotonic_s()
        try:
            yield
        finally:
            self._since_s.pop(sock, None)

    def end_longest(self) -> None:
        """End the connection that has waited for the longest, if for `STALLED_S`."""
        until_s = self._clock.monotonic_s() - STALLED_S
        stalled = [(since_s, sock) for sock, since_s in list(self._since_s.items()) if since_s <= until_s]
        if stalled:
            with suppress(OSError):  # it has just ended
                min(stalled, key=itemgetter(0))[1].shutdown(socket.SHUT_RDWR)


class _Incoming(io.RawIOBase):
    """A request's bytes, up to a number of bytes and a time. Raises TimeoutError."""

    def __init__(self, sock: socket.socket, clock: Clock, waits: _Waits) -> None:
        self._socket = sock
        self._waits = waits
        self._deadline = _Deadline(sock, REQUEST_S, clock)
        self._bytes_left = REQUEST_BYTES_MAX

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._deadline.apply()
        with self._waits.of(self._socket):
            size = self._socket.recv_into(memoryview(buffer)[: self._bytes_left])
        self._bytes_left -= size
        return size


class _Outgoing(io.BufferedIOBase):
    """An answer's bytes. Raises TimeoutError if the peer has not taken them in time, counted from the first byte."""

    def __init__(self, sock: socket.socket, clock: Clock, waits: _Waits) -> None:
        self._socket = sock
        self._clock = clock
        self._waits = waits
        self._deadline: _Deadline | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self._deadline is None:
            self._deadline = _Deadline(self._socket, ANSWER_S, self._clock)
        for at in range(0, len(data), SENT_AT_ONCE_BYTES):
            self._deadline.apply()
            with self._waits.of(self._socket):
                self._socket.sendall(memoryview(data)[at : at + SENT_AT_ONCE_BYTES])  # the time-out: of the whole call
        return len(data)


def _guarded(application: Application) -> Application:
    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        try:
            return application(environ, start_response)
        except TimeoutError:
            return _failed(start_response, "408 Request Timeout", "the request took too long to come")
        except Exception as error:
            peer = f"{environ.get('REMOTE_ADDR')}:0"
            log.warning("a request of %s failed: %s", peer, repr(error)[:ERROR_CHARS_MAX], extra={"peer": peer})
            log.debug("%s", environ.get(RAW_TARGET), exc_info=True)
            return _failed(start_response, "500 Internal Server Error", "the request failed; the broker's log has more")

    return answer


def _failed(start_response: Callable[..., Any], status: str, why: str) -> list[bytes]:
    data = f"{why}\n".encode()
    start_response(status, [("Content-Type", "text/plain"), ("Content-Length", str(len(data)))])
    return [data]


class _Debug(io.TextIOBase):
    """Logs at debug what the standard library writes to stderr: a traceback per failed request, which any peer can
    cause."""

    def write(self, text: str) -> int:
        log.debug("%s", text)
        return len(text)


def _server(application: Application, host: str, port: int, clock: Clock) -> WSGIServer:
    from socketserver import TCPServer, ThreadingMixIn
    from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

    waits = _Waits(clock)

    class Server(ThreadingMixIn, WSGIServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        daemon_threads = True
        block_on_close = False
        request_queue_size = QUEUE_MAX
        room = threading.Semaphore(CONNECTIONS_MAX)

        def process_request(self, request: Any, client_address: Any) -> None:
            """Start a thread for a connection; wait while there are `CONNECTIONS_MAX`. In the accepting thread."""
            while not self.room.acquire(timeout=STALLED_S / 10):
                waits.end_longest()
            try:
                super().process_request(request, client_address)
            except BaseException:  # no thread could be started
                self.room.release()
                raise

        def process_request_thread(self, request: Any, client_address: Any) -> None:
            try:
                super().process_request_thread(request, client_address)
            finally:
                self.room.release()

        def server_bind(self) -> None:
            """WSGIServer's, without a DNS look-up of this host."""
            TCPServer.server_bind(self)
            self.server_name, self.server_port = host, self.socket.getsockname()[1]
            self.setup_environ()

        def handle_error(self, request: Any, client_address: Any) -> None:
            log.debug("a request of %s failed", client_address, exc_info=True)

    class Handler(WSGIRequestHandler):
        def setup(self) -> None:
            super().setup()
            self.rfile = io.BufferedReader(_Incoming(self.connection, clock, waits))
            self.wfile = _Outgoing(self.connection, clock, waits)

        def parse_request(self) -> bool:
            if not super().parse_request():
                return False
            if len(self.headers.get_all("Content-Length", [])) > 1:  # RFC 9112, section 6.3
                self.send_error(400, "more than one Content-Length")
                return False
            return True

        def get_environ(self) -> dict[str, Any]:
            self.path = _AUTHORITY.sub("", self.path)
            return {**super().get_environ(), RAW_TARGET: self.path}

        def get_stderr(self) -> Any:
            return _Debug()

        def log_message(self, format: str, *arguments: Any) -> None:
            log.debug("%s: %s", self.client_address[0], format % arguments)

    server = Server((host, port), Handler)
    server.set_app(_guarded(application))
    return server
