"""The client's side of a connection: requests out, answers in, matched by correlation id. Event loop only."""

from __future__ import annotations

import asyncio
import errno
import functools
import itertools
import logging
import math
import os
import re
import secrets
import ssl
import struct
from collections.abc import Callable, Iterator
from typing import Any

from klog.errors import CannotConnect, KlogError, MalformedRequest, TimedOut, UnsupportedVersion
from klog.names import host_port
from klog.net.client_tls import client_context, hint_after, lost, tls_failed
from klog.net.login import log_in
from klog.protocol import codec, klog_apis
from klog.protocol.apis import ApiKey, api_name
from klog.protocol.introduction import Introduction
from klog.security.client_security import OPEN, ClientSecurity
from klog.security.sasl_client import AUTHENTICATE_VERSION

_log = logging.getLogger(__name__)

FRAME_BYTES_MAX = 256 * 1024 * 1024
"""A larger answer counts as invalid bytes; Kafka's own clients stop at 100 to 2,000 MB."""

Trace = Callable[[str, str, float], None]
"""Called after each request with (what, where, milliseconds)."""


class NoAnswer(CannotConnect):
    """Connected, but the first request got no answer in time."""


@functools.cache
def _correlation_ids() -> Iterator[int]:
    return itertools.count(secrets.randbelow(2**30))


def next_number() -> int:
    """A correlation id, unique in this process and very likely among processes: a client recognises its own acts by
    it."""
    return next(_correlation_ids()) & 0x7FFF_FFFF


class Channel:
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
        self.address = address
        self.versions: dict[int, tuple[int, int]] = {}
        """Key -> (lowest, highest) version that the broker serves, from ApiVersions."""
        self._reader = reader
        self._writer = writer
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._trace = trace
        self._waiting: dict[int, tuple[int, int, asyncio.Future[Any]]] = {}
        self._receiving = asyncio.create_task(self._receive())
        self._renewal: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None
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
        except (TimedOut, MalformedRequest, UnsupportedVersion, CannotConnect) as error:
            await channel.close()
            kind = NoAnswer if isinstance(error, TimedOut) else CannotConnect
            raise kind(
                f"{address}: something listens there, but it does not answer as a broker ({error.message})",
                hint=hint_after(error, security),
            ) from None
        except BaseException:
            await channel.close()
            raise
        finally:
            if introducing is not None:
                introducing.cancel()  # and where it is done, asyncio does not report an unawaited error
        return channel

    async def _introduce(self, introduction: Introduction, timeout_s: float) -> None:
        """Prove the cluster's secret; sent behind the first request, before its answer has come."""
        greeted = await self.request(introduction.greeting(), timeout_s=timeout_s)
        introduction.check(await self.request(introduction.proof(greeted), timeout_s=timeout_s))

    async def _ask_versions(self, timeout_s: float) -> None:
        """ApiVersions v3 (KIP-511); a broker too old for it answers error 35 in v0's form, and is asked again in v0."""
        for version in (3, 0):
            asked = codec.request(
                ApiKey.API_VERSIONS,
                version,
                client_software_name=klog_apis.SOFTWARE_NAME,
                client_software_version="1",
            )
            answer = await self.request(asked, timeout_s=timeout_s)
            if answer.error_code.value == 0:
                self.versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
                return
        raise UnsupportedVersion(f"{self.address} refuses ApiVersions with error {answer.error_code.name}")

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

    def version_for(self, key: int, highest: int, lowest: int = 0) -> int:
        """The highest version that both sides speak. Raises UnsupportedVersion if they share none."""
        low, high = self.versions.get(key, (1, 0))
        version = min(high, highest)
        if version < max(low, lowest) or low > high:
            raise UnsupportedVersion(
                f"{self.address} does not serve {api_name(key)} in versions {lowest} to {highest}"
                + (f" (it has {low} to {high})" if low <= high else "")
            )
        return version

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
        correlation_id = next_number()
        future: asyncio.Future[Any] = loop.create_future()
        key, version = int(entity.__api_key__), int(entity.__version__)
        if self._receiving.done():
            raise CannotConnect(f"{self.address}: the connection is closed")
        self._waiting[correlation_id] = (key, version, future)
        try:
            self._writer.write(codec.encode_request(entity, correlation_id, client_id or self._client_id))
            async with asyncio.timeout(wait_s):
                return await future
        except TimeoutError:
            raise TimedOut(f"{self.address}: no answer to {api_name(key)} within {wait_s:g} s") from None
        finally:
            self._waiting.pop(correlation_id, None)
            del future  # else it and the error raised here would be a cycle
            if self._trace is not None:
                self._trace(f"{api_name(key)} v{version}", self.address, (loop.time() - began) * 1000)

    async def _receive(self) -> None:
        """Give each answer to its request. When the connection ends, fail the rest."""
        why: KlogError = CannotConnect(f"{self.address}: the broker closed the connection")
        try:
            while True:
                (size,) = struct.unpack(">i", await self._reader.readexactly(4))
                if not 4 <= size <= FRAME_BYTES_MAX:
                    raise MalformedRequest(f"{self.address}: an answer claims {size} bytes")
                frame = await self._reader.readexactly(size)
                (correlation_id,) = struct.unpack_from(">i", frame)
                waiting = self._waiting.get(correlation_id)
                if waiting is None or waiting[2].done():
                    continue  # it has timed out
                key, version, future = waiting
                try:
                    _, entity = _decode(frame, key, version)
                except MalformedRequest as error:
                    future.set_exception(error.bare())
                else:
                    future.set_result(entity)
        except ssl.SSLError as error:
            why = lost(self.address, error)
        except (asyncio.IncompleteReadError, OSError):
            pass
        except MalformedRequest as error:
            why = error.bare()
        finally:
            self._writer.close()
            for _, _, future in self._waiting.values():
                if not future.done():
                    future.set_exception(why.bare())

    async def close(self) -> None:
        """Close the connection. Requests that still wait raise CannotConnect."""
        if self._renewal is not None:
            self._renewal.cancel()
        if self._renewing is not None:
            self._renewing.cancel()
        self._receiving.cancel()
        self._writer.close()
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


def _decode(frame: bytes, key: int, version: int) -> tuple[int, Any]:
    """`codec.decode_response`; a refusal of ApiVersions comes in v0's form whatever was asked (KIP-511)."""
    if key == ApiKey.API_VERSIONS and version > 0 and frame[4:6] == b"\x00\x23":
        return codec.decode_response(frame, key, 0)
    return codec.decode_response(frame, key, version)
