"""Connections of brokers by TLS and SASL, for those that do not use a `klog.net.channel.Channel`.

A broker that has proved the cluster's secret need not log in again, so no session is renewed here.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any, Final

from klog.errors import CannotConnect, KlogError, MalformedRequest
from klog.names import host_port
from klog.net.client_tls import client_context
from klog.net.login import log_in
from klog.protocol import codec
from klog.security.client_security import ClientSecurity

ANSWER_BYTES_MAX: Final = 64 * 1024


async def open_streams(
    host: str,
    port: int,
    security: ClientSecurity,
    *,
    client_id: str = "klog",
    server_name: str | None = None,
    logs_in: bool = True,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """asyncio.open_connection with a TLS handshake and a login.

    ``server_name``: the host in the certificate, if it is not ``host``. Raises OSError (ssl.SSLError is one),
    SaslAuthenticationFailed, UnsupportedSaslMechanism, CannotConnect.
    """
    if security.is_open:
        return await asyncio.open_connection(host, port)
    context = client_context(security) if security.is_encrypted else None
    name = None if context is None else server_name or host
    reader, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=name)
    if security.is_authenticated and logs_in:
        try:
            await _log_in(reader, writer, security, host_port(host, port), client_id)
        except BaseException:
            writer.close()
            raise
    return reader, writer


async def _log_in(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, security: ClientSecurity, address: str, client_id: str
) -> None:
    async def ask(request: Any) -> Any:
        writer.write(codec.encode_request(request, 0, client_id))
        try:
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            if not 4 <= size <= ANSWER_BYTES_MAX:
                raise MalformedRequest(f"{address}: an answer claims {size} bytes")
            frame = await reader.readexactly(size)
        except asyncio.IncompleteReadError:
            raise CannotConnect(f"{address}: the broker closed the connection during the login") from None
        return codec.decode_response(frame, int(request.__api_key__), int(request.__version__))[1]

    await log_in(ask, security, address)


async def open_transport(
    make: Callable[[], asyncio.BufferedProtocol], host: str, port: int, security: ClientSecurity, client_id: str
) -> tuple[asyncio.Transport, object]:
    """A loop's create_connection, and an object to keep as long as the transport. Raises OSError where a login
    fails."""
    try:
        _, writer = await open_streams(host, port, security, client_id=client_id)
    except KlogError as error:
        raise ConnectionRefusedError(error.message) from None
    transport = writer.transport
    assert isinstance(transport, asyncio.Transport)
    protocol = make()
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    return transport, writer
