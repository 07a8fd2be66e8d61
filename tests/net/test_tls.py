"""Connections over TLS: any sizes and pieces come through whole, whoever does not shake hands is let go."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pytest

from klog.net import server as server_module
from klog.net import tls as tls_module
from klog.net.connection import Connection, Reply
from klog.net.server import ConnectionSetup, Server
from klog.net.shared import SocketLimits
from klog.net.tls_context import Store, TlsSettings, server_context
from tests.net.serving import echo
from tests.rows import each
from tests.security.certificates import Authority
from tests.until import until_async

WITHIN_S = 30.0
FRAME_MAX = 4 * 1024 * 1024


@dataclass(frozen=True)
class Range:
    file: BinaryIO
    position: int
    size: int


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def context(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    path = authority.issue(tmp_path_factory.mktemp("tls") / "server.pem")
    return server_context(TlsSettings(Store("ssl.keystore", location=str(path)), Store("ssl.truststore")))


@contextlib.contextmanager
def listening(
    context: ssl.SSLContext, on_frame: Callable[[Connection, memoryview, Reply], None]
) -> Iterator[tuple[Server, int]]:
    server = Server(on_frame, limits=SocketLimits(FRAME_MAX), idle_max_s=60.0)
    try:
        yield server, server.listen("127.0.0.1", 0, ConnectionSetup("SSL", lambda: context))
    finally:
        server.close()


async def client_of(authority: Authority, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    trusting = ssl.create_default_context(cafile=str(authority.path))
    return await asyncio.open_connection("127.0.0.1", port, ssl=trusting, server_hostname="localhost")


SIZES = (1, 2, 3, 4, 5, 4095, 16_383, 16_384, 16_385, 65_535, 65_536, 65_537, 1_048_575, 1_048_577, 3_000_000)


@each("piece", [1_000_000, 16_384, 701])
async def test_frames_of_any_size_in_pieces_of_any_size(
    authority: Authority, context: ssl.SSLContext, piece: int
) -> None:
    frames = [bytes([at % 251]) * size for at, size in enumerate(SIZES if piece > 1000 else SIZES[:12])]
    sent = b"".join(struct.pack(">i", len(one)) + one for one in frames)
    with listening(context, echo) as (_, port):
        reader, writer = await client_of(authority, port)

        async def write() -> None:
            for at in range(0, len(sent), piece):
                writer.write(sent[at : at + piece])
                await writer.drain()

        writing = asyncio.ensure_future(write())
        assert await reader.readexactly(len(sent)) == sent
        await writing
        writer.close()


async def test_ranges_of_files_come_whole_to_a_client_that_takes_them_slowly(
    authority: Authority, context: ssl.SSLContext, tmp_path: Path
) -> None:
    """The kernel's buffers are small, so that most writes must wait in the middle of a piece."""
    data = bytes(range(256)) * 2_000
    (tmp_path / "file").write_bytes(data)
    with (tmp_path / "file").open("rb") as file:

        def ranges(connection: Connection, frame: memoryview, reply: Reply) -> None:
            size = len(data) - 100
            reply.send(
                struct.pack(">i", size + 7),
                b"before:",
                Range(file, 100, 70_000),
                Range(file, 70_100, size - 70_000),
            )

        with listening(context, ranges) as (server, port):
            server._limits = SocketLimits(FRAME_MAX, send_buffer_bytes=32768)
            got: list[bytes] = []

            def take() -> None:
                raw = socket.create_connection(("127.0.0.1", port), WITHIN_S)
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
                trusting = ssl.create_default_context(cafile=str(authority.path))
                with trusting.wrap_socket(raw, server_hostname="localhost") as sock:
                    sock.sendall(struct.pack(">i", 1) + b"?" + struct.pack(">i", 1) + b"?")
                    left = 2 * (len(data) - 100 + 11)
                    while left:
                        got.append(sock.recv(min(left, 5000)))
                        left -= len(got[-1])

            await asyncio.to_thread(take)
            answer = struct.pack(">i", len(data) - 100 + 7) + b"before:" + data[100:]
            assert b"".join(got) == answer * 2


def hello(authority: Authority) -> bytes:
    """A client's first message."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    trusting = ssl.create_default_context(cafile=str(authority.path))
    client = trusting.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@each("share", [0.0, 0.01, 0.5, 1.0])
async def test_a_handshake_that_does_not_go_on_ends(
    authority: Authority, context: ssl.SSLContext, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_module, "HANDSHAKE_S", 0.1)
    monkeypatch.setattr(server_module, "SWEEP_EVERY_S", 0.05)
    with listening(context, echo) as (server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        message = hello(authority)
        writer.write(message[: int(share * len(message))])
        while await reader.read(65536):
            pass
        assert not server.connections
        writer.close()
        await writer.wait_closed()


async def test_every_byte_of_a_clients_first_message_may_be_wrong(
    authority: Authority, context: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    """Each connection ends, or is answered; the others are served, and the log says little."""
    message = hello(authority)
    caplog.set_level(logging.WARNING)
    with listening(context, echo) as (server, port):
        for at in range(0, len(message), 3):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(message[:at] + bytes([message[at] ^ 0x41]) + message[at + 1 :])
            writer.write_eof()
            with contextlib.suppress(ConnectionResetError):
                while await reader.read(65536):
                    pass
            writer.close()
        reader, writer = await client_of(authority, port)
        writer.write(struct.pack(">i", 2) + b"ok")
        assert await reader.readexactly(6) == struct.pack(">i", 2) + b"ok"
        writer.close()
        assert server.shared.rejected_peers.count > 10
    assert 0 < len(caplog.records) < 40


def mutual_context(authority: Authority, folder: Path) -> ssl.SSLContext:
    """A server's that wants a certificate of the authority."""
    mutual = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    mutual.load_cert_chain(authority.issue(folder / "server.pem"))
    mutual.load_verify_locations(authority.path)
    mutual.verify_mode = ssl.CERT_REQUIRED
    return mutual


@each("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_client_reads_why_its_certificate_is_refused_behind_its_first_requests(
    authority: Authority, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """By TLS 1.3 it sends them before the broker has looked at its certificate, and its writes succeed meanwhile."""
    mutual = mutual_context(authority, tmp_path)
    with listening(mutual, echo) as (server, port):
        is_refused = threading.Event()

        def speak() -> str:
            trusting = ssl.create_default_context(cafile=str(authority.path))
            trusting.minimum_version = trusting.maximum_version = version
            try:
                raw = socket.create_connection(("127.0.0.1", port), WITHIN_S)
                with trusting.wrap_socket(raw, server_hostname="localhost") as sock:
                    assert is_refused.wait(WITHIN_S)
                    for _ in range(5):
                        sock.sendall(bytes(100_000))
                    sock.recv(1)
            except ssl.SSLError as error:
                return error.reason or ""
            return "nothing"

        speaking = asyncio.ensure_future(asyncio.to_thread(speak))
        await until_async(lambda: server.shared.rejected_peers.count)
        is_refused.set()
        reason = await speaking
        assert "ALERT" in reason and ("CERTIFICATE_REQUIRED" in reason or "HANDSHAKE_FAILURE" in reason)
        await until_async(lambda: not server.connections)


async def test_a_refused_peer_that_goes_on_sending_is_let_go(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_module, "LINGER_S", 0.2)
    mutual = mutual_context(authority, tmp_path)
    with listening(mutual, echo) as (server, port):
        for most in (0, 50 * tls_module.LINGER_BYTES_MAX):  # it is silent; it does not end
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(hello(authority)[:-1] + b"!" + bytes(1000))
            before = server.shared.rejected_peers.count
            with contextlib.suppress(ConnectionError):
                for _ in range(0, most, 65536):
                    writer.write(bytes(65536))
                    await writer.drain()
                writer.write(bytes(1000))
                while await reader.read(65536):
                    pass
            await until_async(lambda: not server.connections)
            assert server.shared.rejected_peers.count == before + 1
            writer.close()


async def test_plain_bytes_hold_no_memory_of_openssl(context: ssl.SSLContext) -> None:
    with listening(context, echo) as (server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read(100) == b""
        assert server.shared.rejected_peers.count == 1
