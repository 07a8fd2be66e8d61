"""The listener: accepts, bounds and sweeps connections. Event loop only.

A fleet that reconnects comes all at once. The broker accepts all that wait in the kernel's queue in one go, since a
client that finds it full tries again a second later; made into connections it is piece by piece, with the others served
between.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import socket
import sys
from collections import Counter, deque
from collections.abc import Mapping

from klog.errors import HostError, PortInUse
from klog.net.connection import Connection, Limits, OnFrame, Shared
from klog.net.unsent import Unsent

log = logging.getLogger(__name__)

BACKLOG_MAX = 2**31 - 1
"""The kernel makes of it what it allows (net.core.somaxconn)."""
ACCEPTS_A_TURN = 4096
"""What the kernel's queue holds by default, taken out within some 20 ms."""
WELCOME_S = 0.005
"""So long connections are made in a turn of the loop; then those that there are have theirs."""
SWEEP_EVERY_S = 1.0
ABANDONED_S = 30.0
"""Nothing is read from who waits for many answers, so that its end is not seen. What it sent before that is of worth,
as a producer's without acknowledgements, and is taken first."""
PAUSE_S = 1.0
"""Between attempts to accept again; a connection that ends makes it at once."""
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Server:
    """One listening socket and the connections that came through it."""

    def __init__(
        self,
        on_frame: OnFrame,
        *,
        limits: Limits,
        idle_max_s: float,
        connections_per_ip_max: int,
        connections_per_ip_overrides: Mapping[str, int] | None = None,
        connections_max: int = sys.maxsize,
        connections_max_from: str = "max.connections",
        backlog: int = -1,
        unfinished_bytes_max: float = math.inf,
    ) -> None:
        """``connections_max_from`` names the limit in the log; ``backlog`` -1 is what the kernel allows."""
        self.connections: set[Connection] = set()
        self._connections_max = connections_max
        self._connections_max_from = connections_max_from
        self._is_paused = False
        self._pause_is_known = False
        self._on_frame = on_frame
        self._limits = limits
        self._idle_max_s = idle_max_s
        self._per_ip_max = connections_per_ip_max
        self._per_ip_overrides = dict(connections_per_ip_overrides or {})
        self._backlog = BACKLOG_MAX if backlog < 0 else backlog
        self._accepted: deque[tuple[socket.socket, str, int]] = deque()
        """Taken out of the kernel's queue, and no connections yet."""
        self._per_ip: Counter[str] = Counter()
        self.shared = Shared(unfinished_bytes_max)
        self._unsent = Unsent(unfinished_bytes_max)
        self._drained = asyncio.Event()
        self._drained.set()
        self._sockets: list[socket.socket] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sweeping: asyncio.TimerHandle | None = None

    def listen(self, host: str, port: int) -> int:
        """Bind and take connections from now on; the port (the kernel's choice for 0). PortInUse when it is taken.

        May be called again, for another address.
        """
        self._loop = asyncio.get_running_loop()
        try:
            family, kind, proto, _, address = socket.getaddrinfo(
                host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
        except socket.gaierror as error:
            raise HostError(
                f"cannot listen on {host}:{port}: {error.strerror}", hint="give an address of this machine in --listen"
            ) from None
        sock = socket.socket(family, kind, proto)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.listen(self._backlog)
        except OSError as error:
            sock.close()
            if error.errno == errno.EADDRINUSE:
                raise PortInUse(
                    f"cannot listen on {host}:{port}: the port is in use",
                    hint=f"`ss -ltnp 'sport = :{port}'` shows the process; choose another with --listen HOST:PORT",
                ) from None
            raise HostError(f"cannot listen on {host}:{port}: {error.strerror}") from None
        sock.setblocking(False)
        self._sockets.append(sock)
        self._loop.add_reader(sock.fileno(), self._accept, sock)
        if self._sweeping is None:
            self._sweeping = self._loop.call_later(SWEEP_EVERY_S, self._sweep)
        bound: int = sock.getsockname()[1]
        return bound

    def _accept(self, listening: socket.socket) -> None:
        assert self._loop is not None
        for _ in range(ACCEPTS_A_TURN):
            if len(self.connections) + len(self._accepted) >= self._connections_max:
                self._pause(f"as many as there may be ({self._connections_max_from})")
                break
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError):
                break
            except ConnectionAbortedError:
                continue
            except OSError as error:
                if error.errno in _NO_DESCRIPTOR:
                    self._pause(f"{error.strerror} (`ulimit -n` is the limit)")
                    break
                raise
            ip = str(address[0])
            if self._per_ip[ip] >= self._per_ip_overrides.get(ip, self._per_ip_max):
                log.warning(
                    "refusing %s: it has %d connections (max.connections.per.ip)",
                    ip,
                    self._per_ip[ip],
                    extra={"peer": f"{ip}:{address[1]}"},
                )
                sock.close()
                continue
            self._per_ip[ip] += 1
            if not self._accepted:
                self._loop.call_soon(self._welcome)
            self._accepted.append((sock, ip, address[1]))

    def _welcome(self) -> None:
        """Make connections of what was accepted, for as long as others can wait."""
        assert self._loop is not None
        until_s = self._loop.time() + WELCOME_S
        while self._accepted:
            sock, ip, port = self._accepted.popleft()
            try:
                connection = Connection(
                    self._loop,
                    sock,
                    f"{ip}:{port}",
                    shared=self.shared,
                    limits=self._limits,
                    on_frame=self._on_frame,
                    on_sent=self._sent,
                    on_closed=self._closed,
                )
            except OSError as error:  # it has gone already, or the kernel has no room to watch it
                log.debug("%s:%d: %s", ip, port, error)
                sock.close()
                self._forget(ip)
            else:
                self.connections.add(connection)
            if self._loop.time() >= until_s:
                break
        if self._accepted:
            self._loop.call_soon(self._welcome)

    def _pause(self, reason: str) -> None:
        """Those who are connected are served on, new ones wait in the kernel's queue."""
        assert self._loop is not None
        if not self._pause_is_known:  # once, not every second for as long as it lasts
            self._pause_is_known = True
            most = ", ".join(f"{ip} ({count})" for ip, count in self._per_ip.most_common(3))
            log.error(
                "accepting pauses: %s; %d connections, most of them from %s",
                reason,
                len(self.connections),
                most or "no address",
            )
        self._is_paused = True
        for listening in self._sockets:
            self._loop.remove_reader(listening.fileno())
        self._loop.call_later(PAUSE_S, self._resume)

    def _resume(self) -> None:
        if self._is_paused and self._loop is not None:
            self._is_paused = False
            for listening in self._sockets:
                self._loop.add_reader(listening.fileno(), self._accept, listening)

    def _sent(self, connection: Connection) -> None:
        if not self._drained.is_set():
            self._sent_or_closed()

    def _closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self._sent(connection)
        self._forget(connection.address)
        self._resume()
        if self._pause_is_known and not self._is_paused and 10 * len(self.connections) < 9 * self._connections_max:
            self._pause_is_known = False
            log.info("accepting as before: %d connections", len(self.connections))

    def _forget(self, ip: str) -> None:
        self._per_ip[ip] -= 1
        if self._per_ip[ip] <= 0:
            del self._per_ip[ip]

    def _sweep(self) -> None:
        """Drop those who take nothing of what waits for them, who do not go on with what they send, who are idle."""
        assert self._loop is not None
        now = self._loop.time()
        for connection in list(self.connections):
            silent_s = now - connection.last_active_s
            overdue = connection.overdue(now)
            if overdue is not None:
                connection.close(overdue)
                continue
            if silent_s > ABANDONED_S and connection.is_abandoned():
                connection.close("its peer has ended it, and no answer is in sight")
            elif connection.idle and silent_s > self._idle_max_s:
                connection.close(f"idle for {silent_s:.0f} s (connections.max.idle.ms)")
        for connection, reason in list(self._unsent.too_slow(self.connections, now)):
            connection.close(reason)
        self._sweeping = self._loop.call_later(SWEEP_EVERY_S, self._sweep)

    def stop_accepting(self) -> None:
        """Refuse new connections from now on (the kernel does, as soon as the socket is closed)."""
        if self._loop is not None:
            for listening in self._sockets:
                self._loop.remove_reader(listening.fileno())
                listening.close()
            self._sockets.clear()
        if self._sweeping is not None:
            self._sweeping.cancel()

    async def drain(self, timeout_s: float) -> None:
        """Wait until what has been answered has been sent, within the time."""
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
            sock, ip, _ = self._accepted.popleft()
            sock.close()
            self._forget(ip)
        for connection in list(self.connections):
            connection.close(None)
