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

Limits
    OpenSSL accepts handshake messages of up to 128 KB; the whole handshake must end within `HANDSHAKE_S`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

from klog.errors import PeerError
from klog.net.connection import Connection

PIECE_BYTES: Final = 128 * 1024
"""Measured in turns with 64, 256 and 512 KB: 0.93 of the CPU time of 64 KB; larger ones gain nothing."""
HANDSHAKE_S: Final = 10.0
LINGER_S: Final = 1.0
LINGER_BYTES_MAX: Final = 1024 * 1024
"""Time and bytes for which a peer is read after a failed handshake. Closing a socket with unread bytes resets it: the
peer's next write would fail before it reads the alert, and in TLS 1.3 its first request is under way."""
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


class TlsConnection(Connection):
    """A connection over TLS: begins with the handshake."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: TlsSocket, peer: str, **others: Any) -> None:
        super().__init__(loop, sock, peer, **others)
        self._tls = sock
        self._sendfile = sock.sendfile
        self._began_s = self.last_active_s
        self._looks_again = False
        self._left_to_discard: int | None = None
        """Bytes still to be read after a failed handshake."""
        self.on_shaken: Callable[[TlsConnection, dict[str, Any] | None], None] | None = None
        """Called after the handshake with the peer's certificate or None; may raise PeerError to refuse it."""

    def _receive(self) -> None:
        if self._left_to_discard is not None:
            self._discard()
            return
        if not self._tls.is_shaken and not self._shake():
            return
        super()._receive()
        self._look_again()

    def _read_on(self, replies_max: int | None = None) -> None:
        super()._read_on(replies_max)
        self._look_again()

    def _look_again(self) -> None:
        """Read again for bytes decrypted by OpenSSL, which the loop cannot see."""
        if not self._looks_again and self._reading and not self.closed and self._tls.has_more:
            self._looks_again = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._looks_again = False
        if self._reading and not self.closed:
            self._on_readable()

    def _shake(self) -> bool:
        """Continue the handshake; returns whether it is done. Its signature takes up to 1 ms, counted in `Turns`."""
        began_s = self._loop.time()
        try:
            self._tls.shake()
        except WaitsToWrite:
            self._loop.add_writer(self._fd, self._go_on_shaking)
            return False
        except BlockingIOError:
            return False
        except NotTls:
            self._shared.rejected_peers.log(self.peer, "these bytes are not TLS, and this listener speaks TLS alone")
            self.close(None)
            return False
        except ssl.SSLError as error:
            self._shared.rejected_peers.log(self.peer, f"no TLS comes about: {_failure(error)}")
            self._linger()
            return False
        except OSError as error:
            self.close(f"it ended in TLS's handshake: {error.strerror or error}")
            return False
        finally:
            self.turns.spent(self._loop.time() - began_s)
        self.last_active_s = self.received_s = self._loop.time()
        try:
            if self.on_shaken is not None:
                self.on_shaken(self, self._tls.peer_certificate())
        except PeerError as error:
            self._shared.rejected_peers.log(self.peer, error.message)
            self.close(None)
        return not self.closed

    def _linger(self) -> None:
        """Let the peer read the alert of a failed handshake, then close."""
        try:
            self._tls.give_up()
        except OSError:  # the peer has closed it
            self.close(None)
            return
        self._left_to_discard = LINGER_BYTES_MAX
        ending = self._loop.call_later(LINGER_S, self.close, None)
        self.at_end.add(ending.cancel)
        self._discard()

    def _discard(self) -> None:
        assert self._left_to_discard is not None
        try:
            read = self._tls.discard()
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            read = 0
        self._left_to_discard -= read
        if not read or self._left_to_discard <= 0:
            self.close(None)

    def _go_on_shaking(self) -> None:
        self._loop.remove_writer(self._fd)
        self._on_readable()

    def overdue(self, now_s: float) -> str | None:
        if not self._tls.is_shaken:
            waited_s = now_s - self._began_s
            return f"TLS's handshake was not done after {waited_s:.0f} s" if waited_s > HANDSHAKE_S else None
        return super().overdue(now_s)


def _failure(error: ssl.SSLError) -> str:
    """OpenSSL's reason in a few words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the peer's certificate is refused: {error.verify_message}"
    reason = (error.reason or str(error)).lower().replace("_", " ")
    return reason.removeprefix("sslv3 ").removeprefix("tlsv1 ").removeprefix("tlsv13 ")
