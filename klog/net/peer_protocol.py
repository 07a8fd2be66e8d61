"""Recognises ZooKeeper, HTTP and TLS where no broker answers."""

from __future__ import annotations

import asyncio
import ssl
from enum import StrEnum
from typing import Final

ASKED_S: Final = 0.4
"""Such servers answer in milliseconds; the user has waited already."""

ANSWER_BYTES_MAX: Final = 512


class PeerProtocol(StrEnum):
    """The protocol of a server, in words."""

    ZOOKEEPER = "a ZooKeeper"
    HTTP = "an HTTP server"
    TLS = "a TLS server"


async def peer_protocol(host: str, port: int) -> PeerProtocol | None:
    """The protocol at an address, from its first bytes; None if unknown."""
    # One after the other: a server that serves one connection at a time would answer neither.
    to_get = await _answer(host, port, b"GET / HTTP/1.0\r\n\r\n")
    if to_get is None:
        return None
    if to_get.startswith(b"HTTP/"):
        return PeerProtocol.HTTP
    if to_get[:2] in (b"\x15\x03", b"\x16\x03") or (not to_get and await _speaks_tls(host, port)):
        return PeerProtocol.TLS
    to_word = await _answer(host, port, b"srvr") or b""
    if to_word.startswith(b"Zookeeper version") or b"in the whitelist" in to_word or b"ZooKeeper" in to_word:
        return PeerProtocol.ZOOKEEPER
    return None


async def _speaks_tls(host: str, port: int) -> bool:
    """Whether a TLS handshake succeeds. Nothing is sent over it, so the certificate is not checked."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(ASKED_S):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except OSError:
        return False
    writer.close()
    return True


async def _answer(host: str, port: int, question: bytes) -> bytes | None:
    """The first bytes of an answer; empty if the connection was closed; None for silence, or no connection."""
    writer = None
    try:
        async with asyncio.timeout(ASKED_S):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(question)
            return await reader.read(ANSWER_BYTES_MAX)
    except ConnectionResetError:
        return b""
    except OSError:  # TimeoutError is one
        return None
    finally:
        if writer is not None:
            writer.close()
