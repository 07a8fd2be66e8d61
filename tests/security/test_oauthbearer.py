"""OAUTHBEARER against a key set in a file: stock clients get in, and what an attacker tries is refused alike."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiokafka.abc import AbstractTokenProvider as AioProvider
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka.net.sasl.oauth import AbstractTokenProvider as PythonProvider

import klog
from klog.client.blocking import BlockingChannel
from klog.client.security_files import read_security
from klog.client.servers import Servers, librdkafka_servers, properties_of
from klog.config import BrokerConfig
from klog.coordination.embedded import ZooKeeperServer
from klog.errors import InvalidConfig, NoSuchThing, UsageError
from klog.host.secret_command import SecretUnavailable
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.security import bearer
from klog.security.errors import SaslAuthenticationFailed
from klog.server.listener_security import check_settings
from klog.server.token_keys import FILE_BYTES_MAX, TokenKeys
from tests.broker_fixture import RunningBroker
from tests.hand_clock import HandClock
from tests.rows import each
from tests.security.broker_doors import Doors, listen_to, pem, ports_of, unique
from tests.security.certificates import Authority
from tests.security.stock_clients import by_aiokafka, by_kafka_python, consumed
from tests.security.tokens import AUDIENCE, ISSUER, Signer, claims, encoded, write_keys
from tests.server.wire import RawConnection

DELAY_MS = 80
SKEW_S = 1
LISTENER = "listener.name.sasl_ssl.oauthbearer.sasl.oauthbearer."


@dataclass(frozen=True)
class Provided:
    """The broker, and who signs tokens for it."""

    doors: Doors
    signer: Signer
    key_file: Path


@pytest.fixture(scope="module")
def provided(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provided]:
    folder = tmp_path_factory.mktemp("bearer")
    authority, signer, key_file = Authority(folder), Signer("RS256"), folder / "key set.json"
    write_keys(key_file, signer.public(), Signer("ES256", "unused").public())
    broker = RunningBroker(folder, f"{zookeeper.address}/{unique('bearer')}")
    broker.listen = listen_to("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL")
    broker.settings = {
        **pem(folder, authority),
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{folder}/key%20set.json",
        "sasl.oauthbearer.expected.audience": f"{AUDIENCE},others",
        "sasl.oauthbearer.clock.skew.seconds": str(SKEW_S),
        f"{LISTENER}expected.issuer": ISSUER,
        "connection.failed.authentication.delay.ms": str(DELAY_MS),
        "authorizer.class.name": "klog",
        "super.users": "User:alice;User:ANONYMOUS",
    }
    with broker.running():
        yield Provided(Doors(broker, ports_of(broker), authority), signer, key_file)


# --- stock clients


def test_librdkafka(provided: Provided) -> None:
    asked: list[float] = []

    def token(_: str) -> tuple[str, float]:
        asked.append(time.monotonic())
        end_s = time.time() + 0.8
        return provided.signer.token(claims(exp=end_s)), end_s

    settings = provided.doors.librdkafka("SASL_SSL", **{"sasl.mechanism": "OAUTHBEARER", "oauth_cb": token})
    topic = unique("t")
    producer = Producer(settings)
    sent = 0
    until_s = time.monotonic() + 2.3  # a session of 1.8 s ends meanwhile
    while time.monotonic() < until_s:
        producer.produce(topic, b"%d" % sent)
        sent += 1
        assert producer.flush(10) == 0
        producer.poll(0.05)
    assert consumed(settings, topic, sent) == [b"%d" % number for number in range(sent)]
    assert len(asked) >= 3


def test_kafka_python(provided: Provided) -> None:
    class Provider(PythonProvider):  # type: ignore[misc]
        def token(self) -> str:
            return provided.signer.token()

    login = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": Provider()}
    by_kafka_python(provided.doors, "SASL_SSL", **login)


async def test_aiokafka(provided: Provided) -> None:
    class Provider(AioProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return provided.signer.token()

    login = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": Provider()}
    await by_aiokafka(provided.doors, "SASL_PLAINTEXT", **login)


def test_librdkafka_with_a_token_of_another_is_refused(provided: Provided) -> None:
    errors: list[Any] = []
    settings = provided.doors.librdkafka(
        "SASL_SSL",
        **{
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (Signer("RS256").token(), time.time() + 100),
            "error_cb": errors.append,
        },
    )
    producer = Producer(settings)
    with pytest.raises(KafkaException):
        producer.list_topics(timeout=1)
    producer.poll(0)
    assert any("invalid_token" in str(one) or "OAUTHBEARER" in str(one) for one in errors)


# --- klog's own


def properties(provided: Provided, token_file: Path) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
        "sasl.oauthbearer.token.endpoint.url": f"file://{token_file}",
        "ssl.ca.location": str(provided.doors.authority.path),
    }


def test_klogs_producer_and_consumer(provided: Provided, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text(provided.signer.token() + "\n")
    settings = {name.replace(".", "_"): value for name, value in properties(provided, token_file).items()}
    topic = unique("t")
    with klog.Producer(bootstrap_servers=provided.doors.address("SASL_SSL"), **settings) as producer:
        producer.send(topic, b"one")
    consumer = klog.Consumer(
        provided.doors.broker.zookeeper, topic, auto_offset_reset="smallest", consumer_timeout_ms=15_000, **settings
    )
    try:
        (stream,) = consumer.create_message_streams({topic: 1})[topic]
        assert next(iter(stream)).value == b"one"
    finally:
        consumer.shutdown()


def test_a_connection_reads_the_token_again(provided: Provided, tmp_path: Path) -> None:
    token_file, clock = tmp_path / "token", HandClock()
    token_file.write_text(provided.signer.token())
    channel = BlockingChannel.connect(
        "localhost",
        provided.doors.ports["SASL_SSL"],
        security=read_security(properties(provided, token_file), "test"),
        clock=clock,
    )
    asked = codec.request(ApiKey.METADATA, 1, topics=())
    try:
        for _ in range(2):
            clock.move(300)
            assert channel.request(asked).brokers
        token_file.write_text(provided.signer.token(claims(sub="eve")))
        assert channel.request(asked).brokers
        clock.move(300)
        with pytest.raises(SaslAuthenticationFailed):  # it is of another user
            channel.request(asked)
    finally:
        channel.close()


def test_a_token_of_a_command_is_printed_for_each_login(provided: Provided, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    security = read_security(properties(provided, tmp_path / "none"), "test", ("cat", str(token_file)))
    with pytest.raises(SecretUnavailable, match="cat"):
        BlockingChannel.connect("localhost", provided.doors.ports["SASL_SSL"], security=security)
    token_file.write_text(provided.signer.token())
    BlockingChannel.connect("localhost", provided.doors.ports["SASL_SSL"], security=security).close()
    servers = Servers(provided.doors.address("SASL_SSL"), security)
    assert AdminClient(librdkafka_servers(servers)).list_topics(timeout=10).brokers
    with pytest.raises(UsageError, match="command"):
        properties_of(servers)


def test_a_refused_token_is_named(provided: Provided, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    security = read_security(properties(provided, token_file), "test")
    port = provided.doors.ports["SASL_SSL"]
    with pytest.raises(NoSuchThing, match=str(token_file)):
        BlockingChannel.connect("localhost", port, security=security)
    for text in ("", "opaque-planted", provided.signer.token(claims(exp=None))):
        token_file.write_text(text)
        with pytest.raises(SaslAuthenticationFailed, match=str(token_file)) as caught:
            BlockingChannel.connect("localhost", port, security=security)
        assert "planted" not in caught.value.message
    token_file.write_text(Signer("RS256").token())
    with pytest.raises(SaslAuthenticationFailed, match=f"localhost:{port}"):
        BlockingChannel.connect("localhost", port, security=security)


# --- attacks


class Client(RawConnection):
    """One connection of a client that says what the test wants."""

    def __init__(self, provided: Provided) -> None:
        super().__init__(provided.doors.address("SASL_PLAINTEXT"))

    def show(self, message: bytes) -> Any:
        assert self.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="OAUTHBEARER").error_code.value == 0
        return self.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=message)


def shown(provided: Provided, token: str) -> tuple[object, ...]:
    """All that a client learns of a refused token."""
    with Client(provided) as client:
        began_s = time.monotonic()
        first = client.show(bearer.client_message(token))
        assert time.monotonic() - began_s >= DELAY_MS / 1000
        last = client.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=bearer.ACKNOWLEDGEMENT)
        assert client.is_closed_by_broker()
        return (
            *(first.error_code.value, first.error_message, bytes(first.auth_bytes), first.session_lifetime),
            *(last.error_code.value, last.error_message, bytes(last.auth_bytes)),
        )


def test_every_refused_token_looks_the_same(provided: Provided) -> None:
    signer, now = provided.signer, time.time()
    head, body, end = signer.token().split(".")
    stranger = Signer("RS256", signer.kid)
    cases = [
        ("expired", signer.token(claims(exp=now - 3600))),
        ("nbf", signer.token(claims(nbf=now + 3600))),
        ("audience", signer.token(claims(aud="someone"))),
        ("signature", stranger.token()),
        ("algorithm", f"{encoded({'alg': 'none'})}.{body}."),
        ("(kid)", signer.token(kid="no-such-key")),
        ("it cannot be read", f"{head[:-1]}!.{body}.{end}".replace("!", "=")),
        ("claims cannot be read", signer.token(b"[" * 30_000)),
        ("sub.claim.name", signer.token(claims(sub=None))),
        ("too long", signer.token(claims(sub="x" * 2000))),
        ("it cannot be read", "x" * 60_000),
        ("it cannot be read", f"{head}.{body}.{end}AAA"),
    ]
    learned = {shown(provided, token) for _, token in cases}
    assert len(learned) == 1
    first, last = next(iter(learned))[:4], next(iter(learned))[4:]
    assert first[0] == 0 and first[2] == bearer.REFUSAL
    assert last[0] == 58 and last[2] == b""
    for reason, _ in cases:
        provided.doors.broker.wait_for_log("WARNING", "OAUTHBEARER", reason, timeout_s=2)
    provided.doors.broker.wait_for_log("no-such-key", timeout_s=2)
    assert body not in provided.doors.broker.log_text and end not in provided.doors.broker.log_text


@each("message", [b"", b"\x01", b"n,,\x01auth=Bearer \x01\x01", b"\0alice\0secret", b"n,,\x01" + b"a" * 60_000])
def test_malformed_messages_end_the_connection(provided: Provided, message: bytes) -> None:
    with Client(provided) as client:
        found = client.show(message)
        assert (found.error_code.value, bytes(found.auth_bytes)) == (58, b"")
        assert client.is_closed_by_broker()


def test_after_a_refusal_nothing_else_is_answered(provided: Provided) -> None:
    bad = bearer.client_message(Signer("RS256").token())
    for key, version, values in (
        (ApiKey.METADATA, 1, {"topics": ()}),
        (ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "OAUTHBEARER"}),
        (ApiKey.API_VERSIONS, 0, {}),
    ):
        with Client(provided) as client:
            assert bytes(client.show(bad).auth_bytes) == bearer.REFUSAL
            client.put(key, version, **values)
            assert client.is_closed_by_broker()
    with Client(provided) as client:  # not even a good token
        assert bytes(client.show(bad).auth_bytes) == bearer.REFUSAL
        good = bearer.client_message(provided.signer.token())
        assert client.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=good).error_code.value == 58
        assert client.is_closed_by_broker()


def test_a_token_too_large_for_a_stranger_ends_the_connection(provided: Provided) -> None:
    with Client(provided) as client, pytest.raises((EOFError, ConnectionError)):
        client.show(bearer.client_message("x" * 70_000))


def test_the_session_ends_with_the_token(provided: Provided) -> None:
    def message(lifetime_s: float, **others: Any) -> bytes:
        return bearer.client_message(provided.signer.token(claims(exp=time.time() + lifetime_s, **others)))

    with Client(provided) as client, Client(provided) as forgetful:
        for one in (client, forgetful):
            assert 0 < one.show(message(0.5)).session_lifetime.total_seconds() <= 0.6 + SKEW_S
            assert one.ask(ApiKey.METADATA, 1, topics=()).brokers
        assert 50 < client.show(message(60)).session_lifetime.total_seconds() <= 60.1 + SKEW_S
        time.sleep(0.6 + SKEW_S)  # the first tokens end
        assert client.ask(ApiKey.METADATA, 1, topics=()).brokers
        forgetful.put(ApiKey.METADATA, 1, topics=())
        assert forgetful.is_closed_by_broker()
        assert client.show(message(60, sub="eve")).error_code.value == 58
        assert client.is_closed_by_broker()


def test_settings_of_one_listener_and_its_mechanism(provided: Provided) -> None:
    """The issuer is checked on SASL_SSL alone."""
    token = provided.signer.token(claims(iss="another"))
    with Client(provided) as client:
        assert client.show(bearer.client_message(token)).error_code.value == 0
    settings = {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: (token, time.time() + 100)}
    with pytest.raises(KafkaException):
        Producer(provided.doors.librdkafka("SASL_SSL", **settings)).list_topics(timeout=1)
    provided.doors.broker.wait_for_log("expected.issuer", "another")


def test_a_changed_key_set_is_taken_in(provided: Provided) -> None:
    new = Signer("ES384", "two")
    broker = provided.doors.broker
    text = provided.key_file.read_text()
    provided.key_file.write_text('{"keys": []}')
    broker.wait_for_log("ERROR", "SASL_PLAINTEXT", "key set")
    with Client(provided) as client:
        assert client.show(bearer.client_message(provided.signer.token())).error_code.value == 0
        write_keys(provided.key_file, new.public())
        broker.wait_for_log("INFO", "SASL_PLAINTEXT", "token keys", "have changed")
        with Client(provided) as other:
            assert bytes(other.show(bearer.client_message(provided.signer.token())).auth_bytes) == bearer.REFUSAL
        with Client(provided) as other:
            assert bytes(other.show(bearer.client_message(new.token())).auth_bytes) == b""
        assert client.ask(ApiKey.METADATA, 1, topics=()).brokers  # who is in stays until its token ends
    provided.key_file.write_text(text)


@each("url", [None, "", "https://login.example/jwks", "file://elsewhere/x", "/etc/x", "file:///none"])
def test_keys_that_cannot_be_read(url: str | None) -> None:
    given = {} if url is None else {"sasl.oauthbearer.jwks.endpoint.url": url}
    with pytest.raises(InvalidConfig, match=r"sasl\.oauthbearer\.jwks\.endpoint\.url"):
        TokenKeys(BrokerConfig.parse(given, "test"), "SASL_SSL")


def test_a_key_set_has_a_largest_size(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(" " * (FILE_BYTES_MAX + 1))
    with pytest.raises(InvalidConfig, match=str(FILE_BYTES_MAX)):
        TokenKeys(BrokerConfig.parse({"sasl.oauthbearer.jwks.endpoint.url": f"file://{path}"}, "test"), "SASL_SSL")


def test_a_listener_without_keys() -> None:
    given = {
        "listeners": "SASL_SSL://h:1,PLAINTEXT://h:2",
        "listener.name.sasl_ssl.sasl.enabled.mechanisms": "OAUTHBEARER",
    }
    with pytest.raises(InvalidConfig, match=r"sasl\.oauthbearer\.jwks\.endpoint\.url"):
        check_settings(BrokerConfig.parse(given, "test"))
    check_settings(BrokerConfig.parse({**given, f"{LISTENER}jwks.endpoint.url": "file:///keys"}, "test"))
