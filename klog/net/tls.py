"""A client's connection over TLS.

Limits
    OpenSSL accepts handshake messages of up to 128 KB; the whole handshake must end within `HANDSHAKE_S`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Final

from klog.errors import PeerError
from klog.net.connection import Connection, OnFrame
from klog.net.shared import Shared, SocketLimits
from klog.net.tls_socket import NotTls, TlsSocket, WaitsToWrite

HANDSHAKE_S: Final = 10.0
LINGER_S: Final = 1.0
LINGER_BYTES_MAX: Final = 1024 * 1024
"""Time and bytes for which a peer is read after a failed handshake. Closing a socket with unread bytes resets it: the
peer's next write would fail before it reads the alert, and in TLS 1.3 its first request is under way."""


class TlsConnection(Connection):
    """A connection over TLS: begins with the handshake."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: TlsSocket,
        peer: str,
        *,
        shared: Shared,
        limits: SocketLimits,
        on_frame: OnFrame,
        on_sent: Callable[[Connection], None],
        on_closed: Callable[[Connection], None],
    ) -> None:
        # By name: mypyc hands on ``**others`` as if it were the next argument.
        super().__init__(
            loop, sock, peer, shared=shared, limits=limits, on_frame=on_frame, on_sent=on_sent, on_closed=on_closed
        )
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
