"""TLS on a broker's connections: OpenSSL writes to the socket directly.

Strategy
    `TlsSocket` looks like a non-blocking socket to `klog.net.connection`: what must wait raises BlockingIOError.
    Measured against an SSLObject with memory buffers (asyncio's way), for a gigabyte in pieces of 64 KB: 0.47 s of CPU
    time instead of 0.53 for sending, 0.67 s for receiving in both; and no buffer of ours holds ciphertext.

    Ranges of files are read and encrypted in pieces of `PIECE_BYTES`. They are in the page cache by then, as for
    sendfile: the rest is read ahead in a thread before the answer is made.

Rules
    * A write that must wait is repeated with the same bytes: OpenSSL has encrypted some of them. So the piece is kept
      until it is sent; a piece of a file is read again, so that a peer which takes nothing holds no memory.
    * The first byte is checked to be TLS before OpenSSL allocates memory for the peer.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

PIECE_BYTES: Final = 128 * 1024
"""Measured in turns with 64, 256 and 512 KB: 0.93 of the CPU time of 64 KB; larger ones gain nothing."""
HANDSHAKE_RECORD: Final = 0x16
"""The first byte of every TLS connection."""


_SCRATCH: Final = memoryview(bytearray(PIECE_BYTES))
"""Buffer for reads of files; a process has one event loop with connections."""


class WaitsToWrite(BlockingIOError):
    """A read must wait until the socket is writable: for an answer of the handshake."""


class NotTls(OSError):
    """The peer's first byte is not TLS."""


class TlsSocket:
    """The server's side of TLS on a connected, non-blocking socket. Raises OSError where the peer violates TLS."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._plain: socket.socket | None = sock
        """The plain socket, until the peer's first byte has come."""
        self._context = context
        self._tls: ssl.SSLSocket | None = None
        self._is_shaken = False
        self._read: Callable[[int, memoryview], int] = _not_shaken
        """OpenSSL's own read: SSLSocket would add two calls per record of 16 KB."""
        self._piece = memoryview(b"")
        """Bytes that OpenSSL has begun to write."""
        self._range_bytes = 0
        """The same for a range of a file, which is read again."""

    @property
    def family(self) -> int:
        return self._any.family

    @property
    def is_shaken(self) -> bool:
        """Whether the handshake is done."""
        return self._is_shaken

    @property
    def has_more(self) -> bool:
        """Whether OpenSSL holds decrypted bytes, which the loop cannot see."""
        return self._tls is not None and self._tls.pending() > 0

    def peer_certificate(self) -> dict[str, Any] | None:
        """The peer's verified certificate; None without one."""
        assert self._tls is not None
        return self._tls.getpeercert() or None

    def shake(self) -> None:
        """Continue the handshake. Raises BlockingIOError while it waits for the peer."""
        tls = self._tls
        if tls is None:
            assert self._plain is not None
            first = self._plain.recv(1, socket.MSG_PEEK)
            if not first:
                raise ConnectionResetError("the peer ended it before it said anything")
            if first[0] != HANDSHAKE_RECORD:
                raise NotTls
            tls = self._tls = self._context.wrap_socket(self._plain, server_side=True, do_handshake_on_connect=False)
            self._plain = None
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            raise BlockingIOError from None
        except ssl.SSLWantWriteError:
            raise WaitsToWrite from None
        self._is_shaken = True
        self._read = tls._sslobj.read  # type: ignore[attr-defined]

    def give_up(self) -> None:
        """Call after a failed handshake: detaches OpenSSL, nothing more is sent."""
        assert self._tls is not None
        self._tls.shutdown(socket.SHUT_WR)

    def discard(self) -> int:
        """Read and drop bytes after a failed handshake; returns how many, 0 at the end."""
        return len(self._any.recv(PIECE_BYTES))

    def recv_into(self, target: memoryview) -> int:
        """socket.recv_into, after the handshake; 0 at the end."""
        read, got, wanted = self._read, 0, len(target)
        while got < wanted:
            try:
                count = read(wanted - got, target[got:])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):  # to write: it is sent with the next answer
                break
            except ssl.SSLEOFError:  # it ended without close_notify
                return got
            if not count:
                return got
            got += count
        if not got:
            raise BlockingIOError
        return got

    def send(self, data: bytes | bytearray | memoryview) -> int:
        """socket.send; after a BlockingIOError the data must begin with the same bytes."""
        if not self._piece:
            self._piece = memoryview(data)[:PIECE_BYTES]
        return self._send_piece()

    def sendmsg(self, parts: list[bytes | bytearray | memoryview]) -> int:
        """socket.sendmsg; packs small parts into one record."""
        if not self._piece:
            run, size = [], 0
            for part in parts:
                run.append(memoryview(part)[: PIECE_BYTES - size])
                size += len(run[-1])
                if size == PIECE_BYTES:
                    break
            self._piece = memoryview(b"".join(run))
        return self._send_piece()

    def sendfile(self, out: int, file: int, position: int, count: int) -> int:
        """os.sendfile; ``out`` is this socket."""
        if self._piece:
            return self._send_piece()
        target = _SCRATCH[: self._range_bytes or count]
        read = os.preadv(file, [target], position)
        if not read:
            return 0
        self._range_bytes = read
        sent = self._encrypt(target[:read])
        self._range_bytes = read - sent
        return sent

    def _send_piece(self) -> int:
        sent = self._encrypt(self._piece)
        self._piece = self._piece[sent:]
        return sent

    def _encrypt(self, piece: memoryview) -> int:
        assert self._tls is not None
        try:
            return self._tls.send(piece)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            raise BlockingIOError from None

    def fileno(self) -> int:
        return self._any.fileno()

    def setsockopt(self, level: int, name: int, value: int) -> None:
        self._any.setsockopt(level, name, value)

    def getsockopt(self, level: int, name: int, size: int) -> bytes:
        return self._any.getsockopt(level, name, size)

    def setblocking(self, flag: bool) -> None:
        self._any.setblocking(flag)

    def close(self) -> None:
        """Send close_notify, if there is room for it, and close."""
        tls = self._tls
        if tls is not None and self._is_shaken and not (self._piece or self._range_bytes):
            try:
                tls._sslobj.shutdown()  # type: ignore[attr-defined]  # unwrap() would wait for the peer's close_notify
            except (OSError, ValueError, AttributeError):
                pass
        self._any.close()

    @property
    def _any(self) -> socket.socket:
        found = self._tls if self._tls is not None else self._plain
        assert found is not None
        return found


def _not_shaken(count: int, target: memoryview) -> int:
    raise AssertionError("nothing is read before the handshake is done")
