"""The client's side of a connection: requests out, answers in, matched by correlation id.

Used by the admin operations and, in time, by brokers among themselves. Event loop only.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import struct
from collections.abc import Callable
from typing import Any

from klog.errors import CannotConnect, KlogError, MalformedRequest, TimedOut, UnsupportedVersion
from klog.protocol import codec, klog_apis
from klog.protocol.apis import ApiKey, api_name
from klog.protocol.introduction import Introduction

FRAME_BYTES_MAX = 256 * 1024 * 1024
"""A larger answer is taken for invalid bytes; Kafka's own clients stop at 100 to 2,000 MB."""

Trace = Callable[[str, str, float], None]
"""Called after each request with (what, where, milliseconds)."""


class NoAnswer(CannotConnect):
    """The connection was made, and its first request got no answer: a process listens there, and does nothing."""


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
        """What the broker serves: key -> (lowest, highest) version, from ApiVersions."""
        self._reader = reader
        self._writer = writer
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._trace = trace
        self._correlation_id = 0
        self._waiting: dict[int, tuple[int, int, asyncio.Future[Any]]] = {}
        self._receiving = asyncio.create_task(self._receive())

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
    ) -> Channel:
        """A channel whose broker has said what it speaks.

        ``introduction``: of a broker to a broker; both have then shown that they know the cluster's secret, with one
        round trip more. Raises CannotConnect (refused, unreachable, no answer in time) with host and port in it, and
        ClusterAuthorizationFailed for who does not know the secret, or does not believe that we do.
        """
        address = f"{host}:{port}"
        try:
            async with asyncio.timeout(connect_timeout_s):
                reader, writer = await asyncio.open_connection(host, port)
        except TimeoutError:
            raise CannotConnect(f"{address}: no connection within {connect_timeout_s:g} s") from None
        except OSError as error:
            raise CannotConnect(
                f"{address}: {_reason(error)}", is_refused=set(_numbers(error)) == {errno.ECONNREFUSED}
            ) from None
        channel = cls(reader, writer, address=address, client_id=client_id, timeout_s=timeout_s, trace=trace)
        answer_s = min(connect_timeout_s, timeout_s)
        introducing = None if introduction is None else asyncio.create_task(channel._introduce(introduction, answer_s))
        try:
            await channel._ask_versions(answer_s)
            if introducing is not None:
                await introducing
        except (TimedOut, MalformedRequest, UnsupportedVersion, CannotConnect) as error:
            await channel.close()
            kind = NoAnswer if isinstance(error, TimedOut) else CannotConnect
            raise kind(
                f"{address}: something listens there, but it does not answer as a broker ({error.message})"
            ) from None
        except BaseException:
            await channel.close()
            raise
        finally:
            if introducing is not None:
                introducing.cancel()  # and where it is done, asyncio does not report an error that no task awaits
        return channel

    async def _introduce(self, introduction: Introduction, timeout_s: float) -> None:
        """Written behind the first request, before its answer has come."""
        greeted = await self.request(introduction.greeting(), timeout_s=timeout_s)
        introduction.check(await self.request(introduction.proof(greeted), timeout_s=timeout_s))

    async def _ask_versions(self, timeout_s: float) -> None:
        """KIP-511's ApiVersions v3; a broker too old for it answers 35 in v0's form, and is asked again in v0."""
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

    @property
    def is_closed(self) -> bool:
        """Whether the connection has ended; requests then raise CannotConnect."""
        return self._receiving.done()

    @property
    def receiving(self) -> asyncio.Task[None]:
        """The task that takes the answers; it ends with the connection."""
        return self._receiving

    async def wait_closed(self) -> None:
        """Return when the connection has ended, by either side."""
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
        """Send a request and wait for its answer's entity; TimedOut or CannotConnect (connection lost) otherwise.

        ``client_id``: the channel's unless given.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._correlation_id += 1
        correlation_id = self._correlation_id
        future: asyncio.Future[Any] = loop.create_future()
        key, version = int(entity.__api_key__), int(entity.__version__)
        if self._receiving.done():
            raise CannotConnect(f"{self.address}: the connection is closed")
        self._waiting[correlation_id] = (key, version, future)
        wait_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            self._writer.write(codec.encode_request(entity, correlation_id, client_id or self._client_id))
            async with asyncio.timeout(wait_s):
                return await future
        except TimeoutError:
            raise TimedOut(f"{self.address}: no answer to {api_name(key)} within {wait_s:g} s") from None
        finally:
            self._waiting.pop(correlation_id, None)
            del future  # else it and the error that it has raised here would hold each other
            if self._trace is not None:
                self._trace(f"{api_name(key)} v{version}", self.address, (loop.time() - began) * 1000)

    async def _receive(self) -> None:
        """Hand each answer to the request that waits for it. When the connection ends, fail the rest."""
        lost: KlogError = CannotConnect(f"{self.address}: the broker closed the connection")
        try:
            while True:
                (size,) = struct.unpack(">i", await self._reader.readexactly(4))
                if not 4 <= size <= FRAME_BYTES_MAX:
                    raise MalformedRequest(f"{self.address}: an answer claims {size} bytes")
                frame = await self._reader.readexactly(size)
                (correlation_id,) = struct.unpack_from(">i", frame)
                waiting = self._waiting.get(correlation_id)
                if waiting is None or waiting[2].done():
                    continue  # its asker gave up
                key, version, future = waiting
                try:
                    _, entity = _decode(frame, key, version)
                except MalformedRequest as error:
                    future.set_exception(error.bare())
                else:
                    future.set_result(entity)
        except (asyncio.IncompleteReadError, OSError):
            pass
        except MalformedRequest as error:
            lost = error.bare()
        finally:
            self._writer.close()
            for _, _, future in self._waiting.values():
                if not future.done():
                    future.set_exception(lost.bare())

    async def close(self) -> None:
        """End the connection. Requests that still wait raise CannotConnect."""
        self._receiving.cancel()
        self._writer.close()
        await asyncio.wait([self._receiving])
        try:
            await self._writer.wait_closed()
        except OSError:
            pass


def _reason(error: OSError) -> str:
    """Why there is no connection, in the system's words; asyncio wraps them, once for each address of a name."""
    words = dict.fromkeys(os.strerror(number) for number in _numbers(error) if number > 0)
    return ", ".join(words) or error.strerror or str(error)


def _numbers(error: OSError) -> list[int]:
    return [error.errno] if error.errno else [int(number) for number in re.findall(r"\[Errno (\d+)\]", str(error))]


def _decode(frame: bytes, key: int, version: int) -> tuple[int, Any]:
    """As `codec.decode_response`; a refusal of ApiVersions comes in v0's form whatever was asked (KIP-511)."""
    if key == ApiKey.API_VERSIONS and version > 0 and frame[4:6] == b"\x00\x23":
        return codec.decode_response(frame, key, 0)
    return codec.decode_response(frame, key, version)
