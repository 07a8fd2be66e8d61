"""The client's side of a connection: requests out, answers in, matched by correlation id. Event loop only."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import os
import re
import ssl
from collections.abc import Callable
from typing import Any

from klog.errors import CannotConnect, KlogError, MalformedRequest, TimedOut
from klog.names import host_port
from klog.net.client_tls import client_context, lost, tls_failed
from klog.net.conversation import (
    FRAME_BYTES_MAX,
    NOT_A_BROKER,
    SIZE_BYTES,
    VERSIONS_ASKED,
    Conversation,
    Sent,
    versions_request,
)
from klog.net.login import log_in
from klog.protocol.apis import ApiKey
from klog.protocol.introduction import Introduction
from klog.security.client_security import OPEN, ClientSecurity
from klog.security.sasl_client import AUTHENTICATE_VERSION

_log = logging.getLogger(__name__)

Trace = Callable[[str, str, float], None]
"""Called after each request with (what, where, milliseconds)."""


class Channel(Conversation):
    """One connection to one broker. Requests may overlap; each waits for its own answer."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        address: str,
        client_id: str,
        timeout_s: float,
        trace: Trace | None,
    ) -> None:
        super().__init__(address, client_id)
        self._reader = reader
        self._writer = writer
        self._timeout_s = timeout_s
        self._trace = trace
        self._waiting: dict[Sent, asyncio.Future[Any]] = {}
        self._receiving = asyncio.create_task(self._receive())
        self._renewal: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._is_handed_over = False
        self._may_ask = asyncio.Event()
        """Cleared during a login."""
        self._may_ask.set()

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        *,
        connect_timeout_s: float = 3.0,
        timeout_s: float = 10.0,
        client_id: str = "klog",
        trace: Trace | None = None,
        introduction: Introduction | None = None,
        security: ClientSecurity = OPEN,
        server_name: str | None = None,
    ) -> Channel:
        """Connect, ask the broker's versions, and log in.

        ``server_name``: the host in the broker's certificate, if it is not ``host``. ``introduction``: for a broker to
        a broker; proves the cluster's secret on both sides, with one more round trip. Raises CannotConnect (refused,
        unreachable, no answer in time) with host and port, and ClusterAuthorizationFailed where one side cannot prove
        the secret.
        """
        address = host_port(host, port)
        try:
            async with asyncio.timeout(connect_timeout_s):
                tls = client_context(security) if security.is_encrypted else None
                reader, writer = await asyncio.open_connection(
                    host,
                    port,
                    ssl=tls,
                    server_hostname=None if tls is None else server_name or host,
                    ssl_handshake_timeout=connect_timeout_s if tls is not None else None,
                )
        except ssl.SSLError as error:
            raise tls_failed(address, error) from None
        except TimeoutError:
            raise CannotConnect(f"{address}: no connection within {connect_timeout_s:g} s") from None
        except OSError as error:
            if security.is_encrypted and isinstance(error, ConnectionResetError):
                raise tls_failed(address, error) from None
            raise CannotConnect(
                f"{address}: {_reason(error)}", is_refused=set(_numbers(error)) == {errno.ECONNREFUSED}
            ) from None
        channel = cls(reader, writer, address=address, client_id=client_id, timeout_s=timeout_s, trace=trace)
        answer_s = min(connect_timeout_s, timeout_s)
        introducing = None
        try:
            if introduction is not None and not security.is_authenticated:  # else the broker answers it after the login
                introducing = asyncio.create_task(channel._introduce(introduction, answer_s))
            await channel._ask_versions(answer_s)
            if security.is_authenticated:
                await channel._authenticate(security, timeout_s)
                if introduction is not None:
                    await channel._introduce(introduction, answer_s)
            if introducing is not None:
                await introducing
        except NOT_A_BROKER as error:
            await channel.close()
            raise channel.not_a_broker(error, security) from None
        except BaseException:
            await channel.close()
            raise
        finally:
            if introducing is not None:
                introducing.cancel()  # and where it is done, asyncio does not report an unawaited error
        channel.frame_bytes_max = FRAME_BYTES_MAX
        return channel

    async def _introduce(self, introduction: Introduction, timeout_s: float) -> None:
        """Prove the cluster's secret; sent behind the first request, before its answer has come."""
        greeted = await self.request(introduction.greeting(), timeout_s=timeout_s)
        introduction.check(await self.request(introduction.proof(greeted), timeout_s=timeout_s))

    async def _ask_versions(self, timeout_s: float) -> None:
        for version in VERSIONS_ASKED:
            if self.learn_versions(version, await self.request(versions_request(version), timeout_s=timeout_s)):
                return

    async def _authenticate(self, security: ClientSecurity, timeout_s: float) -> None:
        """Log in by SASL, and again before the session expires (KIP-368)."""
        version = self.version_for(ApiKey.SASL_AUTHENTICATE, AUTHENTICATE_VERSION)

        async def ask(request: Any) -> Any:
            self._may_ask.clear()
            return await self._ask(request, timeout_s)

        try:
            renewed_after_s = await log_in(ask, security, self.address, version)
        finally:
            self._may_ask.set()
        if renewed_after_s < math.inf:
            loop = asyncio.get_running_loop()
            self._renewal = loop.call_later(renewed_after_s, self._renew, security, timeout_s)

    def _renew(self, security: ClientSecurity, timeout_s: float) -> None:
        self._renewing = asyncio.create_task(self._authenticate_again(security, timeout_s))

    async def _authenticate_again(self, security: ClientSecurity, timeout_s: float) -> None:
        """Log in again. If that fails, the broker closes the connection at the next request, which raises the error."""
        try:
            await self._authenticate(security, timeout_s)
        except KlogError as error:
            _log.warning("%s: not authenticated again: %s", self.address, error.message)

    @property
    def is_closed(self) -> bool:
        """Whether the connection has ended; requests then raise CannotConnect."""
        return self._receiving.done()

    @property
    def receiving(self) -> asyncio.Task[None]:
        """The task that receives answers; ends with the connection."""
        return self._receiving

    async def wait_closed(self) -> None:
        """Wait until either side closes the connection."""
        await asyncio.wait([self._receiving])

    async def request(self, entity: Any, *, timeout_s: float | None = None, client_id: str | None = None) -> Any:
        """Send a request and return the entity of its answer. Raises TimedOut, or CannotConnect (connection lost).

        ``client_id``: default is the channel's. Requests wait while the channel logs in again: a broker closes a
        connection that sends others meanwhile.
        """
        await self._may_ask.wait()
        return await self._ask(entity, self._timeout_s if timeout_s is None else timeout_s, client_id)

    async def _ask(self, entity: Any, wait_s: float, client_id: str | None = None) -> Any:
        loop = asyncio.get_running_loop()
        began = loop.time()
        if self._receiving.done():
            raise CannotConnect(f"{self.address}: the connection is closed")
        sent, frame = self.encode(entity, client_id)
        future: asyncio.Future[Any] = loop.create_future()
        self._waiting[sent] = future
        try:
            self._writer.write(frame)
            async with asyncio.timeout(wait_s):
                return await future
        except TimeoutError:
            raise TimedOut(f"{self.address}: no answer to {sent.name} within {wait_s:g} s") from None
        finally:
            del self._waiting[sent], future  # else it and the error raised here would be a cycle
            self.forget(sent)
            if self._trace is not None:
                self._trace(f"{sent.name} v{sent.version}", self.address, (loop.time() - began) * 1000)

    async def _receive(self) -> None:
        """Give each answer to its request. When the connection ends, fail the rest."""
        why: KlogError = CannotConnect(f"{self.address}: the broker closed the connection")
        try:
            while True:
                size = self.frame_bytes(await self._reader.readexactly(SIZE_BYTES))
                answered = self.decode(await self._reader.readexactly(size))
                if answered is None or (future := self._waiting[answered[0]]).done():
                    continue  # it has timed out
                if isinstance(answered[1], KlogError):
                    future.set_exception(answered[1])
                else:
                    future.set_result(answered[1])
        except ssl.SSLError as error:
            why = lost(self.address, error)
        except (asyncio.IncompleteReadError, OSError):
            pass
        except MalformedRequest as error:
            why = error.bare()
        finally:
            if not self._is_handed_over:
                self._writer.close()
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(why.bare())

    def hand_over(self, protocol: asyncio.BufferedProtocol) -> asyncio.Transport:
        """The connection, whose bytes go to ``protocol`` from now on; no answer may be due. Keep the channel as long:
        asyncio closes what nobody holds. Raises CannotConnect where it has ended."""
        assert not self._waiting, "answers are due"
        if self.is_closed or self._reader.at_eof():
            self._writer.close()
            raise CannotConnect(f"{self.address}: the connection is closed")
        self._is_handed_over = True
        self._receiving.cancel()
        if self._renewal is not None:  # a broker that has proved the cluster's secret need not log in again
            self._renewal.cancel()
        transport = self._writer.transport
        assert isinstance(transport, asyncio.Transport)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        return transport

    async def close(self) -> None:
        """Close the connection. Requests that still wait raise CannotConnect."""
        if self._renewal is not None:
            self._renewal.cancel()
        if self._renewing is not None:
            self._renewing.cancel()
        self._receiving.cancel()
        self._writer.close()
        if self._is_handed_over:  # the end is told to the protocol that has it
            return
        await asyncio.wait([self._receiving])
        try:
            await self._writer.wait_closed()
        except OSError:
            pass


def _reason(error: OSError) -> str:
    """Why the connection failed, in the system's words; asyncio wraps them, once per address of a name."""
    words = dict.fromkeys(os.strerror(number) for number in _numbers(error) if number > 0)
    return ", ".join(words) or error.strerror or str(error)


def _numbers(error: OSError) -> list[int]:
    return [error.errno] if error.errno else [int(number) for number in re.findall(r"\[Errno (\d+)\]", str(error))]
