"""A small HTTP server for what a broker shows beside its own protocol: metrics, the registry of schemas.

Strategy
    The standard library's server, loaded by `HttpServer.open` alone: whoever serves nothing over HTTP pays nothing. It
    serves in threads of its own, one a connection, so that no request holds up the event loop.

Limits
    A peer that is silent for `SILENT_S` is hung up on; HTTP/1.0, one request a connection. It speaks plain text and
    knows no users: it belongs where a broker's port may be.
"""

from __future__ import annotations

import errno
import logging
import socket
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from klog.errors import PortInUse, SurroundingsError

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

log = logging.getLogger(__name__)

SILENT_S: Final = 5.0
RAW_TARGET: Final = "klog.raw_target"
"""Where an application finds the request's target as it was sent: WSGI's own PATH_INFO has ``%2F`` decoded already."""

Application = Callable[..., Iterable[bytes]]
"""WSGI's (PEP 3333)."""


class HttpServer:
    """A listening socket and the thread that serves it. Made and closed by the owner thread."""

    def __init__(self, server: WSGIServer, address: str) -> None:
        self.address = address
        """``host:port``."""
        self._server = server
        threading.Thread(target=server.serve_forever, name=f"http {address}", daemon=True).start()

    @classmethod
    def open(cls, application: Application, host: str, port: int, *, what: str, flag: str) -> HttpServer:
        """Listen; port 0 is a free one, an empty host every interface. Blocks for the imports; any thread.

        ``what`` is served, and ``flag`` chooses its port, in the words of PortInUse and SurroundingsError.
        """
        server = _server(application, host, port, what, flag)
        shown = host or "0.0.0.0"
        return cls(server, f"[{shown}]:{server.server_port}" if ":" in shown else f"{shown}:{server.server_port}")

    def close(self) -> None:
        """Stop listening, at once; the thread ends by itself, when it next looks whether it should."""
        threading.Thread(target=self._server.shutdown, name="http end", daemon=True).start()
        self._server.server_close()


def _server(application: Application, host: str, port: int, what: str, flag: str) -> WSGIServer:
    from socketserver import TCPServer, ThreadingMixIn
    from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

    class Server(ThreadingMixIn, WSGIServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        daemon_threads = True
        block_on_close = False

        def server_bind(self) -> None:
            """As WSGIServer's, without asking a name server who we are."""
            TCPServer.server_bind(self)
            self.server_name, self.server_port = host, self.socket.getsockname()[1]
            self.setup_environ()

        def handle_error(self, request: Any, client_address: Any) -> None:
            log.debug("a request of %s failed", client_address, exc_info=True)

    class Handler(WSGIRequestHandler):
        timeout = SILENT_S

        def get_environ(self) -> dict[str, Any]:
            return {**super().get_environ(), RAW_TARGET: self.path}

        def log_message(self, format: str, *arguments: Any) -> None:
            log.debug("%s: %s", self.client_address[0], format % arguments)

    try:
        server = Server((host, port), Handler)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(
                f"cannot serve {what} at {host}:{port}: the port is in use",
                hint=f"`ss -ltnp 'sport = :{port}'` shows by whom; choose another with {flag}",
            ) from None
        raise SurroundingsError(f"cannot serve {what} at {host}:{port}: {error.strerror}") from None
    server.set_app(application)
    return server
