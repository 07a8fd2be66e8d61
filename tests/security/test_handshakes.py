"""Handshakes that fail: named to the client, with what to do, and in the broker's log; the others are served meanwhile.

Certificates that are expired, of another host, of another authority, or missing; plain bytes to TLS and the reverse;
handshakes that stop half way, on either side; versions of TLS that are too old, and renegotiation.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from klog.client.blocking import BlockingChannel
from klog.coordination.embedded import ZooKeeperServer
from klog.errors import CannotConnect
from klog.net.channel import Channel
from klog.net.tls import HANDSHAKE_S
from klog.security.client_security import OPEN, ClientSecurity
from tests.broker_fixture import RunningBroker
from tests.cli.runner import Ran, klog
from tests.security.broker_doors import Doors, listen_to, pem, ports_of, unique
from tests.security.certificates import Authority

NAMES = ("SSL", "EXPIRED", "ELSEWHERE", "OTHERS", "MUTUAL")
HELLO = b"\x16\x03\x01\x00\xf0\x01\x00\x00\xec\x03\x03"
"""The beginning of a client's first message, which announces 240 bytes."""


@pytest.fixture(scope="module")
def doors(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    folder = tmp_path_factory.mktemp("handshakes")
    authority, other = Authority(folder), Authority(folder, "another authority")
    broker = RunningBroker(folder, f"{zookeeper.address}/{unique('handshakes')}")
    broker.listen = listen_to("PLAINTEXT", *NAMES)
    own = {
        "expired": authority.issue(folder / "expired.pem", ends=timedelta(hours=-1)),
        "elsewhere": authority.issue(folder / "elsewhere.pem", "elsewhere.example"),
        "others": other.issue(folder / "others.pem"),
    }
    broker.settings = {
        **pem(folder, authority),
        "listener.security.protocol.map": ",".join(("PLAINTEXT:PLAINTEXT", *(f"{name}:SSL" for name in NAMES))),
        "listener.name.mutual.ssl.client.auth": "required",
        **{f"listener.name.{name}.ssl.keystore.location": str(path) for name, path in own.items()},
    }
    with broker.running():
        yield Doors(broker, ports_of(broker), authority)


def tls(doors: Doors, certificate: Path | None = None) -> ClientSecurity:
    own = None if certificate is None else certificate.read_text()
    return ClientSecurity("SSL", authorities=doors.authority.path.read_text(), certificate=own, key=own)


def blocking(port: int, security: ClientSecurity, wait_s: float = 10.0) -> None:
    BlockingChannel.connect("localhost", port, connect_timeout_s=wait_s, timeout_s=wait_s, security=security).close()


def on_a_loop(port: int, security: ClientSecurity, wait_s: float = 10.0) -> None:
    async def play() -> None:
        channel = await Channel.connect(
            "localhost", port, connect_timeout_s=wait_s, timeout_s=wait_s, security=security
        )
        await channel.close()

    asyncio.run(play())


Connect = Callable[..., None]
CONNECTS = [pytest.param(blocking, id="blocking"), pytest.param(on_a_loop, id="asyncio")]


@pytest.mark.parametrize("connect", CONNECTS)
@pytest.mark.parametrize(
    ("listener", "said", "hint", "logged"),
    [
        ("EXPIRED", "expired", "another certificate", "certificate expired"),
        ("ELSEWHERE", "'localhost'", "name", "bad certificate"),
        ("OTHERS", "issuer", "ssl.truststore.location", "unknown ca"),
        ("MUTUAL", "", "ssl.keystore.location", "not return"),
        ("PLAINTEXT", "without TLS", None, "are TLS"),
    ],
)
def test_what_a_client_is_told(
    doors: Doors, connect: Connect, listener: str, said: str, hint: str | None, logged: str
) -> None:
    with pytest.raises(CannotConnect) as failed:
        connect(doors.ports[listener], tls(doors))
    assert doors.address(listener) in failed.value.message and said in failed.value.message
    assert (hint or "") in (failed.value.hint or "") and (hint is None) == (failed.value.hint is None)
    says_why = connect is blocking or listener in ("MUTUAL", "PLAINTEXT")  # asyncio ends a handshake without an alert
    doors.broker.wait_for_log("WARNING", "127.0.0.1", logged if says_why else "")


@pytest.mark.parametrize("connect", CONNECTS)
@pytest.mark.parametrize(("own", "logged"), [("expired", "has expired"), ("others", "issuer certificate")])
def test_a_client_whose_certificate_does_not_hold(doors: Doors, connect: Connect, own: str, logged: str) -> None:
    """By TLS 1.3 a broker finds out only after the client's side of the handshake is done. The client learns where to
    look."""
    with pytest.raises(CannotConnect) as failed:
        connect(doors.ports["MUTUAL"], tls(doors, doors.broker.folder / f"{own}.pem"))
    assert "certificate" in (failed.value.hint or "")
    doors.broker.wait_for_log("WARNING", "127.0.0.1", logged)


def test_a_command_without_tls_names_a_listener_with_it(doors: Doors) -> None:
    ran = klog("topic", "list", "-B", doors.address("SSL"), "-o", "json")
    assert ran.code == 1
    assert "speaks TLS" in ran.error["message"] and "security.protocol" in ran.error["hint"]
    with pytest.raises(CannotConnect):
        on_a_loop(doors.ports["SSL"], OPEN)


def test_a_command_with_pkcs12_stores(doors: Doors, tmp_path: Path) -> None:
    own = doors.authority.issue(tmp_path / "own.p12", "alice", password=b"of own")
    trusted = doors.authority.trust_store(tmp_path / "trust.p12", b"of trust")
    settings = {
        "security.protocol": "SSL",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": own,
        "ssl.keystore.password": "of own",
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": trusted,
        "ssl.truststore.password": "of trust",
    }
    config = tmp_path / "client.properties"

    def listing() -> Ran:
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return klog("broker", "list", "-B", doors.address("MUTUAL"), "--client-config", config, "-o", "json")

    assert [row["broker"] for row in listing().rows] == [1]
    for name in ("ssl.keystore.password", "ssl.truststore.password"):
        right, settings[name] = settings[name], "wrong"
        ran = listing()
        assert ran.code == 2 and "PKCS12" in ran.error["message"] and str(right) not in ran.stderr
        settings[name] = right


def test_half_a_handshake_holds_nobody_up(doors: Doors) -> None:
    """Two hundred that say the beginning of a hello and no more; `tests/net/test_tls.py` has the end of their time."""
    halves = [socket.create_connection(("localhost", doors.ports["SSL"])) for _ in range(200)]
    try:
        for number, one in enumerate(halves):
            one.sendall(HELLO[: 1 + number % len(HELLO)])
        for connect in (blocking, on_a_loop):
            connect(doors.ports["SSL"], tls(doors), HANDSHAKE_S / 2)
    finally:
        for one in halves:
            one.close()


@pytest.mark.parametrize("connect", CONNECTS)
def test_a_server_that_stops_half_way_is_given_up(doors: Doors, connect: Connect) -> None:
    with socket.create_server(("localhost", 0)) as silent:
        accepted: list[socket.socket] = []
        thread = threading.Thread(target=lambda: accepted.append(silent.accept()[0]))
        thread.start()
        with pytest.raises(CannotConnect) as failed:
            connect(silent.getsockname()[1], tls(doors), 0.3)
        thread.join()
        accepted[0].close()
    assert failed.value.message.partition(": ")[2]


def shaken(doors: Doors, version: ssl.TLSVersion) -> str | None:
    """The version that comes about with a client that has this one alone."""
    context = ssl.create_default_context(cafile=str(doors.authority.path))
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = version
    plain = socket.create_connection(("localhost", doors.ports["SSL"]))
    with plain, context.wrap_socket(plain, server_hostname="localhost") as sock:
        return sock.version()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_downgrade_below_tls_1_2_is_refused(doors: Doors) -> None:
    assert shaken(doors, ssl.TLSVersion.TLSv1_3) == "TLSv1.3"
    assert shaken(doors, ssl.TLSVersion.TLSv1_2) == "TLSv1.2"
    for version in (ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1):
        with pytest.raises(ssl.SSLError):
            shaken(doors, version)
    doors.broker.wait_for_log("WARNING", "unsupported protocol")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_renegotiation_is_refused(doors: Doors) -> None:
    """`R` on a line of its own makes `openssl s_client` ask for it."""
    asked = subprocess.run(
        ["openssl", "s_client", "-tls1_2", "-connect", doors.address("SSL"), "-CAfile", str(doors.authority.path)],
        input=b"R\n",
        capture_output=True,
        timeout=20,
        check=False,
    )
    said = asked.stdout + asked.stderr
    assert b"RENEGOTIATING" in said and b"no renegotiation" in said, said.decode()
    blocking(doors.ports["SSL"], tls(doors))
