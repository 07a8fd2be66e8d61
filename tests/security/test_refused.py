"""What a listener with TLS or SASL refuses, and how the broker names it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from cryptography.x509.oid import NameOID

from klog.admin.brokers import BrokerSetting, broker_settings
from klog.client.blocking import BlockingChannel
from klog.client.cluster import Cluster
from klog.config import BrokerConfig
from klog.coordination.embedded import ZooKeeperServer
from klog.errors import CannotConnect, InvalidConfig, MalformedRequest
from klog.net.channel import Channel
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.security import sasl_client
from klog.security.client_security import ClientSecurity
from klog.security.errors import SaslAuthenticationFailed
from klog.security.scram import ScramClient, ScramMechanism
from klog.server.listener_security import check_settings
from tests.broker_fixture import RunningBroker
from tests.hand_clock import HandClock
from tests.rows import each
from tests.security.broker_doors import Doors, add_user, listen_to, pem, ports_of, unique
from tests.security.certificates import DAY, Authority
from tests.server.wire import RawConnection, check_log, resident_bytes
from tests.tools.verbs import check

DELAY_MS = 150
SESSION_MS = 400
LONG_S = 60


@pytest.fixture(scope="module")
def doors(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    folder = tmp_path_factory.mktemp("refused")
    authority = Authority(folder)
    broker = RunningBroker(folder, f"{zookeeper.address}/{unique('refused')}")
    broker.listen = listen_to("PLAINTEXT", "SSL", "MUTUAL", "ELSEWHERE", "SHORT", "SASL_PLAINTEXT", "SASL_SSL")
    broker.settings = {
        **pem(folder, authority),
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}"
            for name, protocol in {
                **{one: one for one in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")},
                "MUTUAL": "SSL",
                "ELSEWHERE": "SSL",
                "SHORT": "SASL_PLAINTEXT",
            }.items()
        ),
        "listener.name.elsewhere.ssl.keystore.location": str(
            authority.issue(folder / "elsewhere.pem", "elsewhere.example", ends=7 * DAY)
        ),
        "listener.name.short.connections.max.reauth.ms": str(SESSION_MS),
        "listener.name.sasl_ssl.connections.max.reauth.ms": str(LONG_S * 1000),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=(.*?),OU=Sales$/$1/L",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": 'P required user_bob="bobs";',
        "connection.failed.authentication.delay.ms": str(DELAY_MS),
        "listener.name.short.connection.failed.authentication.delay.ms": "0",
        "klog.certificate.warning.days": "20",
    }
    add_user(broker, "alice", "correct horse")
    with broker.running():
        yield Doors(broker, ports_of(broker), authority)


def raw(doors: Doors, listener: str) -> RawConnection:
    return RawConnection(doors.address(listener))


@contextlib.contextmanager
def mid_login(doors: Doors, listener: str, mechanism: str) -> Iterator[RawConnection]:
    """A connection that has chosen its mechanism."""
    with raw(doors, listener) as sock:
        assert sock.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism=mechanism).error_code.value == 0
        yield sock


def connect(doors: Doors, listener: str) -> socket.socket:
    return socket.create_connection(("localhost", doors.ports[listener]), 10)


def framed(key: int, version: int, **values: object) -> bytes:
    return codec.encode_request(codec.request(key, version, **values), 7, "test")


def test_plain_bytes_on_a_tls_port_are_named(doors: Doors) -> None:
    with raw(doors, "SSL") as sock:
        sock.put(ApiKey.API_VERSIONS, 0)
        assert sock.is_closed_by_broker()
    doors.broker.wait_for_log("WARNING", "not TLS")


@each("key", [ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.GREET, 999])
def test_before_the_login_everything_else_ends_the_connection(doors: Doors, key: int) -> None:
    with raw(doors, "SASL_PLAINTEXT") as sock:
        sock.send(struct.pack(">ihhih", 10, key, 0, 1, -1))
        assert sock.is_closed_by_broker()


def test_the_first_frames_are_small(doors: Doors) -> None:
    with raw(doors, "SASL_PLAINTEXT") as sock:
        sock.send(struct.pack(">ihh", 65537, ApiKey.SASL_AUTHENTICATE, 2))
        assert sock.is_closed_by_broker()
    with raw(doors, "SASL_PLAINTEXT") as sock:
        assert sock.ask(ApiKey.API_VERSIONS, 0).error_code.value == 0


def test_three_hundred_in_the_middle_of_a_handshake_or_a_login_take_little(doors: Doors) -> None:
    """Half a message of TLS each, and half a request of the largest size before a login; others log in meanwhile."""
    hello = first_message(doors)
    half_login = struct.pack(">ihh", 65536, ApiKey.SASL_AUTHENTICATE, 2) + bytes(30_000)
    before = resident_bytes(doors.broker.pid)
    with contextlib.ExitStack() as stack:
        for number in range(300):
            listener, said = ("SASL_SSL", hello[: len(hello) // 2]) if number % 2 else ("SASL_PLAINTEXT", half_login)
            stack.enter_context(connect(doors, listener)).sendall(said)
        settings = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "alice", "sasl.password": "correct horse"}
        admin = AdminClient(doors.librdkafka("SASL_SSL", **settings))
        assert admin.list_topics(timeout=20).brokers
        assert resident_bytes(doors.broker.pid) - before < 60_000_000


def first_message(doors: Doors) -> bytes:
    """With which a client begins TLS."""
    out = ssl.MemoryBIO()
    context = ssl.create_default_context(cafile=str(doors.authority.path))
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost").do_handshake()
    return out.read()


def test_an_unknown_mechanism_is_answered_with_those_there_are(doors: Doors) -> None:
    with raw(doors, "SASL_PLAINTEXT") as sock:
        found = sock.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="GSSAPI")
        assert (found.error_code.value, found.mechanisms) == (33, ("PLAIN", "SCRAM-SHA-256"))
        assert sock.is_closed_by_broker()


def test_a_listener_without_sasl_says_so(doors: Doors) -> None:
    with raw(doors, "PLAINTEXT") as sock:
        assert sock.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code.value == 34


def plain_login(doors: Doors, name: str, password: str) -> tuple[int, str | None, float]:
    """The error's code and words, and the seconds that they took."""
    with mid_login(doors, "SASL_PLAINTEXT", "PLAIN") as sock:
        began_s = time.monotonic()
        found = sock.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=f"\0{name}\0{password}".encode())
        took_s = time.monotonic() - began_s
        code: int = found.error_code.value
        assert sock.is_closed_by_broker() if code else sock.ask(ApiKey.METADATA, 1, topics=()).brokers
        return code, found.error_message, took_s


def test_an_unknown_user_and_a_wrong_password_look_the_same(doors: Doors) -> None:
    assert plain_login(doors, "alice", "correct horse")[:2] == (0, None)
    wrong = [plain_login(doors, *one) for one in (("alice", "correct hors"), ("carol", "correct horse"))]
    assert {one[:2] for one in wrong} == {(58, wrong[0][1])}
    assert all(one[2] >= DELAY_MS / 1000 for one in wrong)
    assert "correct hors" not in doors.broker.log_text


def test_a_request_behind_the_login_is_not_answered_before_it(doors: Doors) -> None:
    with mid_login(doors, "SASL_PLAINTEXT", "PLAIN") as sock:
        login = framed(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"\0alice\0wrong")
        sock.send(login + framed(ApiKey.METADATA, 1, topics=None))
        assert sock.is_closed_by_broker()


@each("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_of_passwords_sent_one_behind_the_other_none_is_answered(doors: Doors, mechanism: str) -> None:
    """Else hundreds could be tried in the time that a wrong one takes."""
    with mid_login(doors, "SASL_PLAINTEXT", mechanism) as sock:
        right = b"\0alice\0correct horse" if mechanism == "PLAIN" else b"n,,n=alice,r=abc"
        sock.send(
            framed(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"\0alice\0wrong" if mechanism == "PLAIN" else right)
            + framed(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=right)
        )
        assert sock.is_closed_by_broker()


@each("between", [ApiKey.SASL_HANDSHAKE, ApiKey.API_VERSIONS])
def test_nothing_is_asked_while_a_password_is_looked_at(doors: Doors, between: ApiKey) -> None:
    with mid_login(doors, "SASL_PLAINTEXT", "PLAIN") as sock:
        other = {"mechanism": "PLAIN"} if between is ApiKey.SASL_HANDSHAKE else {}
        login = framed(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"\0alice\0correct horse")
        sock.send(login + framed(between, 1 if other else 0, **other))
        assert sock.is_closed_by_broker()


def test_a_request_beside_a_renewed_login_is_served_as_before_it(doors: Doors) -> None:
    with mid_login(doors, "SHORT", "PLAIN") as sock:
        login = framed(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"\0alice\0correct horse")
        sock.send(login)
        assert sock.take(ApiKey.SASL_AUTHENTICATE, 2).error_code.value == 0
        sock.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        sock.send(login + framed(ApiKey.METADATA, 1, topics=()))
        assert sock.take(ApiKey.SASL_AUTHENTICATE, 2).error_code.value == 0
        assert sock.take(ApiKey.METADATA, 1).brokers


def raw_login(sock: RawConnection, mechanism: str, message: bytes) -> bytes | None:
    """What comes back behind its length, in SASL as it was before 2017; None where the connection ends."""
    assert sock.ask(ApiKey.SASL_HANDSHAKE, 0, mechanism=mechanism).error_code.value == 0
    return raw_step(sock, message)


def raw_step(sock: RawConnection, message: bytes) -> bytes | None:
    sock.send(struct.pack(">i", len(message)) + message)
    try:
        return sock.answer()
    except EOFError:
        return None


def test_messages_without_kafkas_head(doors: Doors) -> None:
    asked = framed(ApiKey.METADATA, 1, topics=())
    with raw(doors, "SASL_PLAINTEXT") as sock:
        assert raw_login(sock, "PLAIN", b"\0alice\0correct horse") == b""
        assert sock.ask(ApiKey.METADATA, 1, topics=()).brokers
    client = ScramClient(ScramMechanism.SHA_256, "alice", "correct horse", b"a-nonce")
    with raw(doors, "SASL_PLAINTEXT") as sock:
        first = raw_login(sock, "SCRAM-SHA-256", client.first())
        assert first is not None
        last = raw_step(sock, client.final(first))
        assert last is not None
        client.check(last)
        assert sock.ask(ApiKey.METADATA, 1, topics=()).brokers
    for message in (b"\0alice\0wrong", b"\0", asked[4:], framed(ApiKey.API_VERSIONS, 0)):
        with raw(doors, "SASL_PLAINTEXT") as sock:
            began_s = time.monotonic()
            assert raw_login(sock, "PLAIN", message) is None
            assert time.monotonic() - began_s >= DELAY_MS / 1000
    with raw(doors, "SASL_PLAINTEXT") as sock:
        sock.ask(ApiKey.SASL_HANDSHAKE, 0, mechanism="PLAIN")
        sock.send(struct.pack(">i", 65537))
        assert sock.is_closed_by_broker()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_client_of_0_10(doors: Doors, mechanism: str) -> None:
    old = {"api.version.request": "false", "broker.version.fallback": "0.10.0"}
    user = {"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": "correct horse"}
    assert AdminClient(doors.librdkafka("SASL_PLAINTEXT", **old, **user)).list_topics(timeout=10).brokers


def test_users_of_a_listener_are_those_of_its_jaas_line(doors: Doors) -> None:
    settings = {"sasl.mechanism": "PLAIN", "sasl.username": "bob", "sasl.password": "bobs"}
    assert AdminClient(doors.librdkafka("SASL_SSL", **settings)).list_topics(timeout=10).brokers
    with pytest.raises(KafkaException):
        AdminClient(doors.librdkafka("SASL_SSL", **{**settings, "sasl.username": "alice"})).list_topics(timeout=1)


def tls(doors: Doors, listener: str, certificate: Path | None) -> bytes:
    """What a client gets that shows this certificate, and asks for the versions."""
    context = ssl.create_default_context(cafile=str(doors.authority.path))
    if certificate is not None:
        context.load_cert_chain(certificate)
    try:
        with connect(doors, listener) as plain, context.wrap_socket(plain, server_hostname="localhost") as sock:
            sock.settimeout(10)
            sock.sendall(framed(ApiKey.API_VERSIONS, 0))
            return sock.recv(65536)
    except (ssl.SSLError, ConnectionError):
        return b""


def test_a_client_shows_a_certificate_that_holds_and_that_a_rule_fits(doors: Doors, tmp_path: Path) -> None:
    sales = [(NameOID.ORGANIZATIONAL_UNIT_NAME, "Sales"), (NameOID.COMMON_NAME, "Dora")]
    ours, others = doors.authority, Authority(tmp_path, "another authority")
    assert tls(doors, "MUTUAL", ours.issue(tmp_path / "good.pem", "dora", subject=sales))
    assert not tls(doors, "MUTUAL", None)
    assert not tls(doors, "MUTUAL", ours.issue(tmp_path / "old.pem", "dora", subject=sales, ends=timedelta(hours=-1)))
    assert not tls(doors, "MUTUAL", others.issue(tmp_path / "other.pem", "dora", subject=sales))
    assert not tls(doors, "MUTUAL", ours.issue(tmp_path / "unfit.pem", "dora"))
    doors.broker.wait_for_log("expired")
    doors.broker.wait_for_log("ssl.principal.mapping.rules", "CN=dora")


def test_settings_of_single_listeners_are_shown_and_their_secrets_are_not(doors: Doors) -> None:
    async def ask() -> dict[str, BrokerSetting]:
        async with await Cluster.connect(doors.address("PLAINTEXT")) as cluster:
            return {one.name: one for one in await broker_settings(cluster)}

    found = asyncio.run(ask())
    auth = found["listener.name.mutual.ssl.client.auth"]
    assert (auth.value, auth.source, auth.default) == ("required", "start", "none")
    assert found["ssl.client.auth"].value == "none"
    secret = found["listener.name.sasl_ssl.plain.sasl.jaas.config"]
    assert (secret.value, secret.source) == (None, "start")
    assert "bobs" not in repr(found)


def login(sock: RawConnection, name: str = "alice") -> tuple[int, float]:
    """Error code and the session's length in seconds."""
    sock.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
    found = sock.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=f"\0{name}\0correct horse".encode())
    return found.error_code.value, found.session_lifetime.total_seconds()


def test_a_session_ends_unless_the_client_logs_in_again(doors: Doors) -> None:
    with raw(doors, "SHORT") as sock:
        assert login(sock) == (0, SESSION_MS / 1000)
        until_s = time.monotonic() + 1.5 * SESSION_MS / 1000
        while time.monotonic() < until_s:
            assert login(sock) == (0, SESSION_MS / 1000)
            sock.ask(ApiKey.METADATA, 1, topics=())
        time.sleep(SESSION_MS / 1000)
        sock.put(ApiKey.METADATA, 1, topics=())
        assert sock.is_closed_by_broker()


def test_a_blocking_channel_logs_in_again(doors: Doors) -> None:
    clock = HandClock()
    channel = BlockingChannel.connect(
        "localhost",
        doors.ports["SHORT"],
        clock=clock,
        security=ClientSecurity("SASL_PLAINTEXT", "SCRAM-SHA-256", "alice", "correct horse"),
    )
    asked = codec.request(ApiKey.METADATA, 1, topics=())
    try:
        for _ in range(2):
            time.sleep(1.1 * SESSION_MS / 1000)  # the broker's session ends; by the hand clock nothing has passed yet
            clock.move(SESSION_MS / 1000)
            assert channel.request(asked).brokers
        time.sleep(1.1 * SESSION_MS / 1000)
        with pytest.raises(CannotConnect):
            channel.request(asked)
    finally:
        channel.close()


async def test_a_channel_logs_in_again_between_its_requests(doors: Doors, monkeypatch: pytest.MonkeyPatch) -> None:
    """PLAIN is looked at in a thread of the broker, which takes no other request meanwhile."""
    monkeypatch.setattr(sasl_client, "RENEWED_AT", 0.03 / LONG_S)
    logins = 0

    def trace(what: str, where: str, ms: float) -> None:
        nonlocal logins
        logins += what.startswith("SaslAuthenticate")

    channel = await Channel.connect(
        "localhost",
        doors.ports["SASL_SSL"],
        security=ClientSecurity("SASL_SSL", "PLAIN", "bob", "bobs", doors.authority.path.read_text()),
        trace=trace,
    )

    async def ask() -> None:
        while logins < 5:
            await channel.request(codec.request(ApiKey.METADATA, 1, topics=()))

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(ask())
    finally:
        await channel.close()


def test_a_client_stays_the_user_that_it_is(doors: Doors) -> None:
    add_user(doors.broker, "eve", "correct horse")
    with raw(doors, "SHORT") as sock:
        assert login(sock)[0] == 0
        assert login(sock, "eve")[0] == 58
        assert sock.is_closed_by_broker()


def test_a_certificate_that_ends_soon_is_told(doors: Doors) -> None:
    doors.broker.wait_for_log("WARNING", "listener ELSEWHERE", " days")
    found = asyncio.run(check(doors.address("PLAINTEXT"), None, ["brokers"]))
    (one,) = [one for one in found if one.kind == "certificate-ends"]
    assert (one.severity, one.what) == ("warning", "broker 1, listener ELSEWHERE") and " 7 days" in one.found


def test_changed_certificates_are_taken_in(doors: Doors) -> None:
    def serial() -> str:
        context = ssl.create_default_context(cafile=str(doors.authority.path))
        with connect(doors, "SSL") as plain, context.wrap_socket(plain, server_hostname="localhost") as sock:
            return str(sock.getpeercert()["serialNumber"])  # type: ignore[index]

    before = serial()
    path = Path(doors.broker.settings["ssl.keystore.location"])
    path.write_text("nothing of use")
    doors.broker.wait_for_log("ERROR", "listener SSL")
    assert serial() == before
    doors.authority.issue(path, ends=7 * DAY)
    doors.broker.wait_for_log("INFO", "have changed")
    deadline = time.monotonic() + 10
    while serial() == before:
        assert time.monotonic() < deadline


def scram_login(
    doors: Doors, number: int = -1, change: Callable[[bytes], bytes] = lambda frame: frame
) -> tuple[str, list[bytes]]:
    """Of a login frame ``number`` is changed, or sent in part. What becomes of it, and the frames as they were sent."""
    client, frames = ScramClient(ScramMechanism.SHA_256, "alice", "correct horse", b"ofTheClient"), list[bytes]()
    with raw(doors, "SHORT") as sock:

        def ask(key: int, version: int, **values: object) -> Any:
            frame, is_changed = framed(key, version, **values), len(frames) == number
            frames.append(change(frame) if is_changed else frame)
            sock.send(frames[-1])
            if is_changed:
                sock.end_of_sending()
            found = sock.take(key, version)
            if found.error_code.value:
                raise SaslAuthenticationFailed("by the broker")
            return found

        try:
            ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="SCRAM-SHA-256")
            first = ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=client.first())
            last = ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=client.final(first.auth_bytes))
        except (EOFError, ConnectionError, MalformedRequest):
            return "ended", frames
        except SaslAuthenticationFailed:
            return "refused", frames
        client.check(last.auth_bytes)
        return "in", frames


def test_one_byte_of_a_login_is_changed(doors: Doors) -> None:
    """Each byte of the message that proves the password; the broker's answers to the others are looked at as well."""
    outcome, whole = scram_login(doors)
    assert outcome == "in"
    harmless = {*range(8, 12), *range(14, 18)}  # the request's number, and what the client calls itself
    for number, frame in enumerate(whole):
        for at in range(0, len(frame), 1 if number == 2 else 3):
            outcome, _ = scram_login(doors, number, lambda frame, at=at: _changed(frame, at))  # type: ignore[misc]
            assert outcome in ("refused", "ended") or (number == 2 and at in harmless), (number, at)
    assert scram_login(doors)[0] == "in"
    check_log(doors.broker.log_text)


def _changed(frame: bytes, at: int) -> bytes:
    return frame[:at] + bytes([frame[at] ^ 1]) + frame[at + 1 :]


def test_half_a_login_ends_with_its_connection(doors: Doors) -> None:
    for number in range(3):
        for part in (0.1, 0.5, 0.9):
            outcome, _ = scram_login(doors, number, lambda frame, p=part: frame[: int(len(frame) * p)])  # type: ignore[misc]
            assert outcome == "ended"
    assert scram_login(doors)[0] == "in"
    check_log(doors.broker.log_text)


def test_a_login_that_was_heard_cannot_be_repeated(doors: Doors) -> None:
    outcome, heard = scram_login(doors)
    assert outcome == "in"
    with raw(doors, "SHORT") as sock:
        for key, version in ((ApiKey.SASL_HANDSHAKE, 1), (ApiKey.SASL_AUTHENTICATE, 2), (ApiKey.SASL_AUTHENTICATE, 2)):
            sock.send(heard.pop(0))
            found = sock.take(key, version)
        assert found.error_code.value == 58
        assert sock.is_closed_by_broker()


@each(
    "messages",
    [[b"c=biws,r=x,p=AAAA"], [b"n,,n=alice,r=a", b"n,,n=alice,r=a"], [b"p=tls-unique,,n=alice,r=a"], [b"\0" * 60000]],
    ids=["the last first", "the first twice", "channel binding", "zeros"],
)
def test_messages_that_scram_has_not_are_refused_in_the_same_words(doors: Doors, messages: list[bytes]) -> None:
    with mid_login(doors, "SHORT", "SCRAM-SHA-256") as sock:
        for message in messages:
            found = sock.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=message)
        assert (found.error_code.value, found.error_message) == (58, "authentication by SCRAM-SHA-256 failed")
        assert sock.is_closed_by_broker()


def test_a_strangers_wrong_passwords_lock_no_user_out(doors: Doors) -> None:
    with ThreadPoolExecutor(8) as threads:
        wrong = [threads.submit(plain_login, doors, "alice", f"wrong {number}") for number in range(24)]
        assert scram_login(doors)[0] == "in"
        assert plain_login(doors, "alice", "correct horse")[0] == 0
        assert {one.result()[0] for one in wrong} == {58}


def test_a_registry_that_asks_for_no_login_is_refused_where_every_listener_does() -> None:
    given = {"listeners": "SASL_SSL://h:1,SASL_PLAINTEXT://h:2", "schema.registry.port": "8081"}
    given |= {"sasl.enabled.mechanisms": "PLAIN", "inter.broker.listener.name": "SASL_SSL", "broker.id": "1"}
    with pytest.raises(InvalidConfig, match=r"schema\.registry\.port"):
        check_settings(BrokerConfig.parse(given))
    check_settings(BrokerConfig.parse({**given, "listeners": "SASL_SSL://h:1,PLAINTEXT://127.0.0.1:2"}))
    check_settings(BrokerConfig.parse({**given, "schema.registry.port": "0"}))
