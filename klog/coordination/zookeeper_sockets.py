"""kazoo's threads and connections, with a cheaper wait and, where asked for, TLS by a given context.

kazoo makes an epoll instance for each wait, and waits five times for one answer: 0.2 ms of a write that takes 0.9.
Over TLS it makes a context from files at each attempt, and by default checks no host.
"""

from __future__ import annotations

import select
import socket
import ssl
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR | select.POLLNVAL
_WRITABLE = select.POLLOUT | select.POLLHUP | select.POLLERR | select.POLLNVAL
"""An error is found by the read or write that follows."""


class SocketHandler(SequentialThreadingHandler):  # type: ignore[misc] # kazoo has no types
    """kazoo's threads; its sockets are of this context if there is one."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        super().__init__()
        self._context = context

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, timeout: float | None = None, **_: Any
    ) -> socket.socket:
        """Connect, with the handshake, within ``timeout`` s."""
        plain = socket.create_connection(address, timeout)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is None:
                return plain
            return self._context.wrap_socket(plain, server_hostname=hostname or address[0])
        except BaseException:
            plain.close()
            raise

    def select(
        self,
        readers: list[socket.socket],
        writers: list[socket.socket],
        _: list[socket.socket],
        timeout_s: float | None = None,
    ) -> tuple[list[socket.socket], list[socket.socket], list[socket.socket]]:
        """As `select.select`; decrypted bytes count as readable, since one TLS record may have several answers."""
        decrypted = [one for one in readers if isinstance(one, ssl.SSLSocket) and one.fileno() >= 0 and one.pending()]
        events = dict.fromkeys(readers, select.POLLIN)
        for one in writers:
            events[one] = events.get(one, 0) | select.POLLOUT
        poll = select.poll()
        for one, wanted in events.items():
            poll.register(one, wanted)
        found = dict(poll.poll(0 if decrypted else None if timeout_s is None else timeout_s * 1000))
        readable = [one for one in readers if found.get(one.fileno(), 0) & _READABLE or one in decrypted]
        writable = [one for one in writers if found.get(one.fileno(), 0) & _WRITABLE]
        return readable, writable, []
