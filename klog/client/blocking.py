"""A blocking connection to one broker: for Spark's tasks and other places that have a thread and no event loop.

Requests may be sent ahead: `send` writes one, `receive` reads the next answer, and a broker answers a connection's
requests in the order they came. One thread at a time.
"""

from __future__ import annotations

import math
import socket
from collections import deque
from typing import Any

from klog.clock import SYSTEM_CLOCK, Clock
from klog.errors import CannotConnect, KlogError, MalformedRequest, TimedOut
from klog.names import host_port
from klog.net.client_tls import client_context, lost, tls_failed
from klog.net.conversation import NOT_A_BROKER, SIZE_BYTES, VERSIONS_ASKED, Conversation, Sent, versions_request
from klog.net.login import new_login
from klog.protocol.apis import ApiKey
from klog.security.client_security import OPEN, ClientSecurity
from klog.security.sasl_client import AUTHENTICATE_VERSION

FETCHED_BYTES_MAX = 512 * 1024 * 1024
"""A larger answer is malformed: fetches ask for far less, but one batch larger than their limit is sent whole."""

SOCKET_BUFFER_BYTES = 4 * 1024 * 1024
"""Holds the next answer while the one before it is decoded."""


class BlockingChannel(Conversation):
    """One connection; made by `connect`, which also learns what the broker serves."""

    def __init__(
        self, connection: socket.socket, address: str, client_id: str, timeout_s: float, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        super().__init__(address, client_id)
        self._socket = connection
        self._timeout_s = timeout_s
        self._clock = clock
        self._sent: deque[Sent] = deque()
        self._security: ClientSecurity | None = None
        self._renewed_by = math.inf
        """When to authenticate again (KIP-368), between requests."""

    @classmethod
    def connect(
        cls,
        host: str,
        port: int,
        *,
        connect_timeout_s: float = 3.0,
        timeout_s: float = 10.0,
        client_id: str = "klog",
        clock: Clock = SYSTEM_CLOCK,
        security: ClientSecurity = OPEN,
    ) -> BlockingChannel:
        """A channel whose broker has answered ApiVersions; CannotConnect, with host and port, otherwise."""
        address = host_port(host, port)
        try:
            connection = socket.create_connection((host, port), connect_timeout_s)
        except TimeoutError:
            raise CannotConnect(f"{address}: no connection within {connect_timeout_s:g} s") from None
        except OSError as error:
            raise CannotConnect(f"{address}: {error.strerror or error}") from None
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER_BYTES)
        if security.is_encrypted:
            try:
                connection = client_context(security).wrap_socket(connection, server_hostname=host)
            except (OSError, ValueError) as error:  # TLS's errors are OSErrors
                connection.close()
                raise tls_failed(address, error) from None
        channel = cls(connection, address, client_id, timeout_s, clock)
        try:
            for version in VERSIONS_ASKED:
                if channel.learn_versions(version, channel.request(versions_request(version))):
                    break
            if security.is_authenticated:
                channel._authenticate(security)
        except NOT_A_BROKER as error:
            channel.close()
            raise channel.not_a_broker(error, security) from None
        except BaseException:
            channel.close()
            raise
        channel.frame_bytes_max = FETCHED_BYTES_MAX
        return channel

    def _authenticate(self, security: ClientSecurity) -> None:
        login = new_login(security, self.address, self.version_for(ApiKey.SASL_AUTHENTICATE, AUTHENTICATE_VERSION))
        request = login.next()
        while request is not None:
            request = login.next(self.request(request))
        self._renewed_by = self._clock.monotonic_s() + login.renewed_after_s
        self._security = security

    def send(self, entity: Any) -> None:
        """Write a request; its answer comes from `receive`, after those of the requests before it."""
        if not self._sent and self._clock.monotonic_s() >= self._renewed_by and self._security is not None:
            self._renewed_by = math.inf  # the requests of authentication pass here, too
            self._authenticate(self._security)
        sent, frame = self.encode(entity)
        self._sent.append(sent)
        try:
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(frame)
        except TimeoutError:
            raise TimedOut(f"{self.address}: {sent.name} could not be sent in {self._timeout_s:g} s") from None
        except OSError as error:
            raise lost(self.address, error) from None

    def receive(self, *, timeout_s: float | None = None) -> Any:
        """The answer to the oldest request sent; TimedOut, CannotConnect (connection lost), MalformedRequest."""
        sent = self._sent.popleft()
        deadline = self._clock.monotonic_s() + (self._timeout_s if timeout_s is None else timeout_s)
        size = self.frame_bytes(self._read(SIZE_BYTES, deadline, sent))
        answered = self.decode(self._read(size, deadline, sent))
        if answered is None or answered[0] != sent:
            raise MalformedRequest(
                f"{self.address}: another answer than that to {sent.name} {sent.number}, which was due"
            )
        if isinstance(answered[1], KlogError):
            raise answered[1]
        return answered[1]

    def request(self, entity: Any, *, timeout_s: float | None = None) -> Any:
        """Send a request and read its answer; nothing else may be under way."""
        assert not self._sent, "answers to earlier requests are still due"
        self.send(entity)
        return self.receive(timeout_s=timeout_s)

    def _read(self, size: int, deadline: float, sent: Sent) -> memoryview:
        data = bytearray(size)
        view = memoryview(data)
        got = 0
        try:
            while got < size:
                self._socket.settimeout(max(deadline - self._clock.monotonic_s(), 0.001))
                read = self._socket.recv_into(view[got:])
                if read == 0:
                    raise CannotConnect(f"{self.address}: the broker closed the connection")
                got += read
        except TimeoutError:
            raise TimedOut(f"{self.address}: no answer to {sent.name} in time") from None
        except OSError as error:
            raise lost(self.address, error) from None
        return view.toreadonly()

    def close(self) -> None:
        """End the connection; may be called twice."""
        self._socket.close()
