"""The listener: accepts, limits and sweeps connections. Event loop only.

A fleet reconnects all at once. The broker empties the kernel's queue in one go, since a client that finds it full
retries a second later; it sets connections up piece by piece, and serves the others in between. `admission` decides how
many there may be, and which are closed.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from klog.errors import HostError, listen_error
from klog.names import host_port
from klog.net.admission import Admission, ConnectionLimits, Victims
from klog.net.arrivals import ArrivalLimits, Arrivals
from klog.net.connection import Connection, OnFrame
from klog.net.shared import Shared, SocketLimits
from klog.net.tls import TlsConnection
from klog.net.tls_socket import TlsSocket
from klog.net.unsent import Unsent

log = logging.getLogger(__name__)

BACKLOG_MAX = 2**31 - 1
"""The kernel lowers it to net.core.somaxconn."""
ACCEPTS_A_TURN = 4096
"""The default size of the kernel's queue; accepted within some 20 ms."""
WELCOME_S = 0.005
"""Time for setting up connections per turn of the loop; then existing ones are served."""
SWEEP_EVERY_S = 1.0
ABANDONED_S = 30.0
"""Silence after which a connection that is not read, as too many answers wait, is checked for its peer's end. What the
peer sent before (produce with acks=0) is handled first."""
PAUSE_S = 1.0
"""Between attempts to accept again; the end of a connection triggers one at once."""
NO_LONGER_FULL: Final = 0.9
"""Below this part of the connections that it had when full, a listener counts as no longer full, and the log says
so."""
HELD_MAX: Final = 256
"""Connections beyond their address's quota that wait to be closed. They do not count as connections."""
_NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class ConnectionSetup(NamedTuple):
    """Settings for the connections of a listener."""

    listener: str = "PLAINTEXT"
    context: Callable[[], ssl.SSLContext] | None = None
    """The TLS context for the next connection; None for plaintext."""
    on_shaken: Callable[[Connection, dict[str, Any] | None], None] | None = None
    """Called after the TLS handshake with the peer's certificate."""
    on_connected: Callable[[Connection], None] | None = None
    """Called with each connection before anything is read from it."""


OnFull = Callable[[str, str, int, str], None]
"""Called when a listener stops accepting: listener, reason, number of connections, and the address with the most."""


class Server:
    """The listening sockets and their connections."""

    def __init__(
        self,
        on_frame: OnFrame,
        *,
        limits: SocketLimits,
        idle_max_s: float,
        connection_limits: ConnectionLimits = ConnectionLimits(),
        arrival_limits: ArrivalLimits = ArrivalLimits(),
        on_full: OnFull | None = None,
        backlog: int = -1,
        unfinished_bytes_max: float = math.inf,
    ) -> None:
        """``backlog`` -1: what the kernel allows."""
        self.connections: set[Connection] = set()
        self.admission = Admission(connection_limits)
        self.arrivals = Arrivals(arrival_limits)
        self.idle_closed = 0
        """Connections closed after connections.max.idle.ms."""
        self._victims = Victims(connection_limits.listener_of_brokers)
        self._paused: set[socket.socket] = set()
        """Listening sockets that accept nothing."""
        self._slowed: dict[socket.socket, asyncio.TimerHandle] = {}
        """Listening sockets beyond their rate, which accept again when the timer ends."""
        self._held: dict[socket.socket, asyncio.TimerHandle] = {}
        """Connections to be closed when the timer ends."""
        self._full: dict[str, tuple[bool, int]] = {}
        """Full listener -> whether by its own limit, and the number of connections then."""
        self._on_full = on_full
        self._resuming: asyncio.TimerHandle | None = None
        self._on_frame = on_frame
        self._limits = limits
        self._idle_max_s = idle_max_s
        self._backlog = BACKLOG_MAX if backlog < 0 else backlog
        self._accepted: deque[tuple[socket.socket, str, int, ConnectionSetup]] = deque()
        """Accepted, not set up yet."""
        self.shared = Shared(unfinished_bytes_max)
        self._unsent = Unsent(unfinished_bytes_max)
        self._drained = asyncio.Event()
        self._drained.set()
        self._sockets: dict[socket.socket, ConnectionSetup] = {}
        self._loop = asyncio.get_running_loop()
        self._sweeping: asyncio.TimerHandle | None = None

    def listen(self, host: str, port: int, setup: ConnectionSetup = ConnectionSetup()) -> int:
        """Bind and accept; returns the port (for 0 the kernel chooses one). Raises PortInUse.

        May be called again, for another address.
        """
        try:
            family, kind, proto, _, address = socket.getaddrinfo(
                host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
        except socket.gaierror as error:
            raise HostError(
                f"cannot listen on {host_port(host, port)}: {error.strerror}",
                hint="give an address of this machine in --listen",
            ) from None
        sock = socket.socket(family, kind, proto)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.listen(self._backlog)
        except OSError as error:
            sock.close()
            raise listen_error(f"listen on {host_port(host, port)}", port, error, "--listen HOST:PORT") from None
        sock.setblocking(False)
        self._sockets[sock] = setup
        self._loop.add_reader(sock.fileno(), self._accept, sock)
        if self._sweeping is None:
            self._sweeping = self._loop.call_later(SWEEP_EVERY_S, self._sweep)
        bound: int = sock.getsockname()[1]
        return bound

    def _accept(self, listening: socket.socket) -> None:
        admission, listener = self.admission, self._sockets[listening].listener
        for _ in range(ACCEPTS_A_TURN):
            if self.arrivals.is_limited and self._slows_down(listening):
                break
            full = admission.full(listener)
            if full is not None:
                self._pause(listening, f"as many as there may be ({full.limit})", is_own=full.is_own)
                break
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError):
                break
            except ConnectionAbortedError:
                continue
            except OSError as error:
                if error.errno in _NO_DESCRIPTOR:
                    self._pause(listening, f"{error.strerror} (`ulimit -n` is the limit)")
                    break
                raise
            ip = plain_address(str(address[0]))
            if admission.too_many_of(ip):
                admission.refuse(f"{ip}:{address[1]}", ip, self.shared.rejected_peers)
                sock.close()
                continue
            if self.arrivals.address_limits is not None:
                held_s = self.arrivals.held_s(listener, ip, self._loop.time())
                if held_s:
                    self._turn_away(sock, f"{ip}:{address[1]}", held_s)
                    continue
            admission.enter(listener, ip)
            if self.arrivals.is_limited:
                self.arrivals.count(listener, self._loop.time())
            if not self._accepted:
                self._loop.call_soon(self._welcome)
            self._accepted.append((sock, ip, address[1], self._sockets[listening]))
            if admission.needs_room():
                self._make_room()

    def _turn_away(self, sock: socket.socket, peer: str, held_s: float) -> None:
        """Close a connection after ``held_s``, reading nothing from it; at once where `HELD_MAX` wait already."""
        self.shared.rejected_peers.log(peer, "more connections came from its address than its quota allows")
        if len(self._held) >= HELD_MAX:
            sock.close()
            return
        self._held[sock] = self._loop.call_later(held_s, self._let_go, sock)

    def _let_go(self, sock: socket.socket) -> None:
        self._held.pop(sock).cancel()
        sock.close()

    def _make_room(self) -> None:
        """Close a connection in favour of a broker's."""
        victim = self._victims.next(self.connections)
        if victim is not None:
            self.admission.gave_way += 1
            self.shared.rejected_peers.log(victim.peer, "another broker needs its place (max.connections)")
            victim.close(None)

    def _welcome(self) -> None:
        """Set up accepted connections, for `WELCOME_S` at a time."""
        until_s = self._loop.time() + WELCOME_S
        while self._accepted:
            sock, ip, port, setup = self._accepted.popleft()
            try:
                connection = self._connection(sock, f"{ip}:{port}", setup)
            except OSError as error:  # it has ended, or the kernel has no memory to watch it
                log.debug("%s:%d: %s", ip, port, error)
                sock.close()
                self.admission.leave(setup.listener, ip)
            else:
                self.connections.add(connection)
            if self._loop.time() >= until_s:
                break
        if self._accepted:
            self._loop.call_soon(self._welcome)

    def _connection(self, sock: socket.socket, peer: str, setup: ConnectionSetup) -> Connection:
        kind: Callable[..., Connection] = Connection
        wire: socket.socket | TlsSocket = sock
        if setup.context is not None:
            sock.setblocking(False)
            kind, wire = TlsConnection, TlsSocket(sock, setup.context())
        made = kind(
            self._loop,
            wire,
            peer,
            shared=self.shared,
            limits=self._limits,
            on_frame=self._on_frame,
            on_sent=self._sent,
            on_closed=self._closed,
        )
        if isinstance(made, TlsConnection):
            made.on_shaken = setup.on_shaken
        made.listener = setup.listener
        if setup.on_connected is not None:
            setup.on_connected(made)
        return made

    def _slows_down(self, listening: socket.socket) -> bool:
        """Whether the listener exceeds its rate; if so it accepts nothing until it may."""
        listener = self._sockets[listening].listener
        wait_s, setting = self.arrivals.wait_s(listener, self._loop.time())
        if not wait_s:
            return False
        if self.arrivals.slow(listener, wait_s):  # logged once; then the metric tells
            log.warning(
                "listener %s takes connections as fast as %s allows, and no faster: others wait", listener, setting
            )
        self._loop.remove_reader(listening.fileno())
        self._slowed[listening] = self._loop.call_later(wait_s, self._take_again, listening)
        return True

    def _take_again(self, listening: socket.socket) -> None:
        del self._slowed[listening]
        self._loop.add_reader(listening.fileno(), self._accept, listening)

    def _pause(self, listening: socket.socket, reason: str, *, is_own: bool = False) -> None:
        """Stop accepting: open connections are served, new ones wait in the kernel's queue."""
        listener, admission = self._sockets[listening].listener, self.admission
        if listener not in self._full:  # logged once, not every second
            self._full[listener] = is_own, admission.of_listener[listener] if is_own else admission.total
            most = ", ".join(f"{ip} ({number})" for ip, number in admission.of_address.most_common(3))
            log.error(
                "accepting pauses at listener %s: %s; %d connections, most of them from %s",
                *(listener, reason, self._full[listener][1], most or "no address"),
            )
            if self._on_full is not None:
                self._on_full(listener, reason, self._full[listener][1], most)
        self._paused.add(listening)
        self._loop.remove_reader(listening.fileno())
        if self._resuming is None:
            self._resuming = self._loop.call_later(PAUSE_S, self._resume)

    def _resume(self) -> None:
        if self._resuming is not None:
            self._resuming.cancel()
            self._resuming = None
        paused, self._paused = self._paused, set()
        for listening in paused:
            if listening in self._sockets:
                self._loop.add_reader(listening.fileno(), self._accept, listening)

    def _sent(self, connection: Connection) -> None:
        if not self._drained.is_set():
            self._sent_or_closed()

    def _closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self._sent(connection)
        self.admission.leave(connection.listener, connection.address)
        if self._paused:
            self._resume()
        for listener, (is_own, was) in list(self._full.items()):
            count = self.admission.of_listener[listener] if is_own else self.admission.total
            if count < NO_LONGER_FULL * was:
                del self._full[listener]
                log.info("accepting at listener %s as before: %d connections", listener, count)

    @property
    def full_listeners(self) -> tuple[str, ...]:
        """Listeners that are full, or were a moment ago. Any thread."""
        return tuple(self._full)

    def _sweep(self) -> None:
        """Close connections that do not take answers, send requests too slowly, do not authenticate, or are idle."""
        now = self._loop.time()
        for connection in list(self.connections):
            silent_s = now - connection.last_active_s
            overdue = connection.overdue(now)
            if overdue is not None:
                connection.close(overdue)
                continue
            if now > connection.due_s:
                connection.close("it has not shown in time who it is")
            elif silent_s > ABANDONED_S and connection.is_abandoned():
                connection.close("its peer has ended it, and no answer is in sight")
            elif connection.idle and silent_s > self._idle_max_s:
                self.idle_closed += 1
                connection.close(f"idle for {silent_s:.0f} s (connections.max.idle.ms)")
        for connection, reason in list(self._unsent.too_slow(self.connections, now)):
            connection.close(reason)
        self._sweeping = self._loop.call_later(SWEEP_EVERY_S, self._sweep)

    def stop_accepting(self) -> None:
        """Close the listening sockets: the kernel refuses new connections."""
        for listening in self._sockets:
            self._loop.remove_reader(listening.fileno())
            listening.close()
        self._sockets.clear()
        for timer in (self._sweeping, self._resuming, *self._slowed.values()):
            if timer is not None:
                timer.cancel()

    async def drain(self, timeout_s: float) -> None:
        """Wait until all answers are sent, for ``timeout_s`` at most."""
        self._drained.clear()
        self._sent_or_closed()
        try:
            async with asyncio.timeout(timeout_s):
                await self._drained.wait()
        except TimeoutError:
            log.warning("some peers have not taken their answers within %g s", timeout_s)

    def _sent_or_closed(self) -> None:
        if not any(connection.waits_to_send for connection in self.connections):
            self._drained.set()

    def close(self) -> None:
        self.stop_accepting()
        while self._accepted:
            sock, ip, _, setup = self._accepted.popleft()
            sock.close()
            self.admission.leave(setup.listener, ip)
        for sock in list(self._held):
            self._let_go(sock)
        for connection in list(self.connections):
            connection.close(None)


def plain_address(address: str) -> str:
    """IPv4-mapped IPv6 addresses as IPv4; others unchanged."""
    return address.removeprefix("::ffff:") if "." in address else address
