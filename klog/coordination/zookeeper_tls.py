"""kazoo's connections over TLS, by a given context: kazoo makes one from files at each attempt, and by default checks
no host."""

from __future__ import annotations

import socket
import ssl
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler


class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc] # kazoo has no types
    """kazoo's threads, with sockets of this context."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__()
        self._context = context

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, timeout: float | None = None, **_: Any
    ) -> ssl.SSLSocket:
        """Connect, with the handshake, within ``timeout`` s."""
        plain = socket.create_connection(address, timeout)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self._context.wrap_socket(plain, server_hostname=hostname or address[0])
        except BaseException:
            plain.close()
            raise

    def select(self, rlist: list[Any], wlist: list[Any], xlist: list[Any], timeout: float | None = None) -> Any:
        """select, but decrypted bytes count as readable: one TLS record may have several answers."""
        decrypted = [one for one in rlist if isinstance(one, ssl.SSLSocket) and one.fileno() >= 0 and one.pending()]
        readable, writable, wrong = super().select(rlist, wlist, xlist, 0 if decrypted else timeout)
        return [*decrypted, *(one for one in readable if one not in decrypted)], writable, wrong
