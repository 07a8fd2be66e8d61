"""TLS on a broker's connections: OpenSSL writes to the socket itself, in the place of the plain one.

Strategy
    `TlsSocket` looks like a non-blocking socket to `klog.net.connection`: a read or a write that must wait raises
    BlockingIOError. Measured beside an SSLObject with buffers in memory (which asyncio's transport uses, too), for a
    gigabyte in pieces of 64 KB: sending takes 0.47 s of CPU time in place of 0.53, receiving 0.67 s as well; and no
    buffer of ours holds ciphertext.

    Ranges of files are read in pieces of `PIECE_BYTES` and encrypted. They are in the page cache by then, as for
    sendfile: what is not is read ahead in a thread before the answer is made.

Rules
    * A write that must wait is repeated with the same bytes: OpenSSL has encrypted a part of them. So the piece under
      way is kept until it has gone; one of a file is read again, so that a peer which takes nothing holds no memory.
    * The first byte tells TLS from all else, before OpenSSL holds memory for the peer.

Bound
    OpenSSL takes no handshake message beyond 128 KB; `HANDSHAKE_S` is the time for all of them.
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
"""Measured in turns with 64, 256 and 512 KB: sending takes 0.93 of the CPU time with 64, as with the larger ones."""
HANDSHAKE_S: Final = 10.0
LINGER_S: Final = 1.0
LINGER_BYTES_MAX: Final = 1024 * 1024
"""How long, and how much, is read on from a peer whose handshake has failed: a socket that is closed with unread bytes
is reset, and the peer's next write fails before it has read the alert. By TLS 1.3 its first request is under way."""
HANDSHAKE_RECORD: Final = 0x16
"""The first byte of every TLS connection."""


_SCRATCH: Final = memoryview(bytearray(PIECE_BYTES))
"""For what is read of files; a process has one event loop with connections."""


class WaitsToWrite(BlockingIOError):
    """A read must wait until something can be written: a handshake's answer."""


class NotTls(OSError):
    """The peer's first byte is not TLS's."""


class TlsSocket:
    """A server's side of TLS on a connected, non-blocking socket. OSError where the peer breaks TLS's rules."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._plain: socket.socket | None = sock
        """Until the peer's first byte has come."""
        self._context = context
        self._tls: ssl.SSLSocket | None = None
        self._is_shaken = False
        self._read: Callable[[int, memoryview], int] = _not_shaken
        """OpenSSL's own: SSLSocket's calls around it would be two more for each record of 16 KB."""
        self._piece = memoryview(b"")
        """What OpenSSL has in hand, of bytes."""
        self._range_bytes = 0
        """The same of a range of a file, which is read again."""

    @property
    def family(self) -> int:
        return self._any.family

    @property
    def is_shaken(self) -> bool:
        """Whether the handshake is done."""
        return self._is_shaken

    @property
    def has_more(self) -> bool:
        """Whether decrypted bytes wait in OpenSSL, of which the loop does not know."""
        return self._tls is not None and self._tls.pending() > 0

    def peer_certificate(self) -> dict[str, Any] | None:
        """The peer's certificate, which has been checked; None without one."""
        assert self._tls is not None
        return self._tls.getpeercert() or None

    def shake(self) -> None:
        """Do what can be done of the handshake. BlockingIOError where the peer's next word is waited for."""
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
        """After a handshake that failed: nothing more is sent, and OpenSSL has no part in it any longer."""
        assert self._tls is not None
        self._tls.shutdown(socket.SHUT_WR)

    def discard(self) -> int:
        """Read what the peer sends after that; how much it was, 0 at the end."""
        return len(self._any.recv(PIECE_BYTES))

    def recv_into(self, target: memoryview) -> int:
        """As much as there is and fits; 0 at the end. After the handshake."""
        read, got, wanted = self._read, 0, len(target)
        while got < wanted:
            try:
                count = read(wanted - got, target[got:])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):  # to write: an answer that goes with the next answer
                break
            except ssl.SSLEOFError:  # it ended without TLS's word of the end
                return got
            if not count:
                return got
            got += count
        if not got:
            raise BlockingIOError
        return got

    def send(self, data: bytes | bytearray | memoryview) -> int:
        """What follows a BlockingIOError must begin with the same bytes."""
        if not self._piece:
            self._piece = memoryview(data)[:PIECE_BYTES]
        return self._send_piece()

    def sendmsg(self, parts: list[bytes | bytearray | memoryview]) -> int:
        """The same for several parts, small ones in one record."""
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
        """As os.sendfile; ``out`` is this socket."""
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
        """Send TLS's word of the end, if there is room for it, and close."""
        tls = self._tls
        if tls is not None and self._is_shaken and not (self._piece or self._range_bytes):
            try:
                tls._sslobj.shutdown()  # type: ignore[attr-defined]  # unwrap() would wait for the peer's word
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
    """A connection over TLS: the handshake first, and then as any other."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: TlsSocket, peer: str, **others: Any) -> None:
        super().__init__(loop, sock, peer, **others)
        self._tls = sock
        self._sendfile = sock.sendfile
        self._began_s = self.last_active_s
        self._looks_again = False
        self._left_to_discard: int | None = None
        """Once the handshake has failed: how much more is read."""
        self.on_shaken: Callable[[TlsConnection, dict[str, Any] | None], None] | None = None
        """Called after the handshake with the peer's certificate, None without one. PeerError refuses it."""

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
        """The loop sees what the kernel has received, and not what OpenSSL has decrypted of it."""
        if not self._looks_again and self._reading and not self.closed and self._tls.has_more:
            self._looks_again = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._looks_again = False
        if self._reading and not self.closed:
            self._on_readable()

    def _shake(self) -> bool:
        """Whether the handshake is done. Its signature takes up to a millisecond, which the others' turn pays for."""
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
        """Let the peer read why its handshake has failed, and end the connection."""
        try:
            self._tls.give_up()
        except OSError:  # it has gone
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
