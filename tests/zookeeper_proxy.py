"""A TCP proxy before a ZooKeeper server that loses answers or goes silent on command.

It reads the frames of both directions (length, then xid; a client's frame has its operation behind the xid), so that it
can let a write through and lose exactly its answer: the case of rule Z2.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

CREATE, DELETE, EXISTS, GET_DATA, SET_DATA, GET_CHILDREN, MULTI, MULTI_READ = 1, 2, 3, 4, 5, 8, 14, 22
WRITES = frozenset({CREATE, DELETE, SET_DATA, MULTI})


class ZooKeeperProxy:
    """`address` forwards to `target`. Thread-safe; `close` ends every connection."""

    def __init__(self, target: tuple[str, int], port: int = 0) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", port))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()
        self._connections: list[socket.socket] = []
        self._open = threading.Event()
        self._open.set()
        self._lose: Callable[[int, bytes], bool] | None = None
        self._before_close: Callable[[], object] | None = None
        self.lost = 0
        """How many answers were lost."""
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_answer_of(
        self,
        operations: frozenset[int] = WRITES,
        then: Callable[[], object] | None = None,
        *,
        after: int = 0,
        of: bytes = b"",
    ) -> None:
        """The next such request with ``of`` in it (``after`` so many more) reaches the server; its answer does not come
        back, and the connection breaks.

        `then` runs when the server has answered, before the client can notice.
        """
        left = after

        def lose(operation: int, frame: bytes) -> bool:
            nonlocal left
            if operation not in operations or of not in frame:
                return False
            left -= 1
            return left < 0

        self._before_close = then
        self._lose = lose

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Nothing gets through in either direction, and nothing is closed: a network that is gone."""
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    def cut(self) -> None:
        """Break every connection; new ones are taken."""
        with self._lock:
            connections, self._connections = self._connections, []
        for connection in connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self) -> None:
        try:
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._listener.close()
        self._open.set()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            with self._lock:
                self._connections += [client, server]
            doomed: list[int] = []  # the xid whose answer is to be lost
            threading.Thread(target=self._requests, args=(client, server, doomed), daemon=True).start()
            threading.Thread(target=self._answers, args=(client, server, doomed), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, doomed: list[int]) -> None:
        first = True
        try:
            for frame in _frames(client):
                self._open.wait()
                if not first and len(frame) >= 12:
                    xid, operation = struct.unpack_from(">ii", frame, 4)
                    lose = self._lose
                    if lose is not None and xid > 0 and lose(operation, frame):
                        self._lose = None
                        doomed.append(xid)
                first = False
                server.sendall(frame)
        except OSError:
            pass
        _shut(client, server)

    def _answers(self, client: socket.socket, server: socket.socket, doomed: list[int]) -> None:
        first = True
        try:
            for frame in _frames(server):
                self._open.wait()
                if not first and doomed and struct.unpack_from(">i", frame, 4)[0] == doomed[0]:
                    self.lost += 1
                    if self._before_close is not None:
                        self._before_close()
                    break
                first = False
                client.sendall(frame)
        except OSError:
            pass
        _shut(client, server)


def _frames(connection: socket.socket) -> Iterator[bytes]:
    """Frames with their length in front; what is no frame (`srvr` and its answer) is passed on as it comes."""
    buffer = b""
    while True:
        part = connection.recv(65536)
        if not part:
            return
        buffer += part
        while len(buffer) >= 4:
            size = struct.unpack_from(">I", buffer)[0]
            if size > 16 * 1024 * 1024:
                yield buffer
                buffer = b""
                break
            if len(buffer) < 4 + size:
                break
            yield buffer[: 4 + size]
            buffer = buffer[4 + size :]


def _shut(*connections: socket.socket) -> None:
    for connection in connections:
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        connection.close()
