"""SCRAM against the RFC's example, against itself, and against every message with one byte changed."""

from __future__ import annotations

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.errors import MalformedRequest
from klog.security.errors import SaslAuthenticationFailed
from klog.security.sasl import PlainExchange
from klog.security.scram import ScramClient, ScramCredential, ScramMechanism, ScramServer, nonce_of
from tests.rows import each

SHA_256 = ScramMechanism.SHA_256
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
PENCIL = ScramCredential.of_password(SHA_256, "pencil", SALT, 4096)
NONCES = b"rOprNGfwEbeRWgbNEkqO", b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"


def pair(
    name: str = "user", password: str = "pencil", known: str = "user", mechanism: ScramMechanism = SHA_256
) -> tuple[ScramClient, ScramServer]:
    credential = PENCIL if mechanism is SHA_256 else ScramCredential.of_password(mechanism, "pencil", SALT, 4096)
    client = ScramClient(mechanism, name, password, NONCES[0])
    return client, ScramServer(mechanism, {known: credential}.get, NONCES[1], b"salting")


def test_the_example_of_rfc_7677() -> None:
    client, server = pair()
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    first = server.first(client.first())
    assert first == (b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    final = client.final(first)
    assert final == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    last = server.final(final)
    assert last == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    client.check(last)
    assert server.name == "user"


@each("mechanism", list(ScramMechanism))
def test_a_wrong_password_and_an_unknown_name_fail_at_the_same_step(mechanism: ScramMechanism) -> None:
    for client, server in (pair(password="pencils", mechanism=mechanism), pair(name="nobody", mechanism=mechanism)):
        final = client.final(server.first(client.first()))
        with pytest.raises(SaslAuthenticationFailed):
            server.final(final)
        with pytest.raises(SaslAuthenticationFailed):
            server.final(final)


def test_an_unknown_name_always_has_the_same_salt_and_another_than_other_names() -> None:
    def salt(name: str) -> bytes:
        client, server = pair(name=name)
        return server.first(client.first()).split(b",")[1]

    assert salt("a") == salt("a") != salt("b")


def test_an_unknown_name_looks_like_the_others() -> None:
    """Other salts by other mechanisms, as users have; length and iterations as most have them."""
    usual = ScramCredential.of_password(SHA_256, "p", b"x" * 64, 8192)
    seen = set()
    for mechanism, like in ((SHA_256, None), (SHA_256, usual), (ScramMechanism.SHA_512, None)):
        first = ScramServer(mechanism, {}.get, NONCES[1], b"salting", like).first(b"n,,n=nobody,r=abc")
        _, salt, iterations = first.split(b",")
        size = len(base64.b64decode(salt.removeprefix(b"s=")))
        assert (size, iterations) == ((24, b"i=4096") if like is None else (64, b"i=8192"))
        seen.add(salt[:20])
    assert len(seen) >= 2 and len(ScramMechanism) == 2


def test_a_proof_has_one_text() -> None:
    """Base64 leaves two bits over behind 32 bytes."""
    client, server = pair()
    final = client.final(server.first(client.first()))
    alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    other = alphabet[alphabet.index(final[-2]) + 1]
    with pytest.raises(SaslAuthenticationFailed):
        server.final(final[:-2] + bytes([other]) + final[-1:])


def test_a_message_counts_once() -> None:
    client, server = pair()
    final = client.final(server.first(client.first()))
    server.final(final)
    with pytest.raises(SaslAuthenticationFailed):
        server.final(final)
    _, another = pair()
    another.first(client.first())
    _, fresh = pair()
    with pytest.raises(SaslAuthenticationFailed):
        fresh.final(final)
    other_nonce = ScramServer(SHA_256, {"user": PENCIL}.get, b"another", b"salting")
    other_nonce.first(client.first())
    with pytest.raises(SaslAuthenticationFailed):
        other_nonce.final(final)


def test_the_nonce_of_older_librdkafka_counts_and_no_other_prefix() -> None:
    """It sends the client's own nonce twice: Kafka's brokers take whatever ends as it should."""

    def answer(prefix: bytes) -> bytes:
        client, server = pair()
        first = client.first()
        challenge = server.first(first)
        bare = b"c=biws,r=" + prefix + challenge.split(b",")[0][2:]
        salted = hashlib.pbkdf2_hmac("sha256", b"pencil", SALT, 4096)
        key = SHA_256.hmac(salted, b"Client Key")
        signature = SHA_256.hmac(SHA_256.hash(key), first[3:] + b"," + challenge + b"," + bare)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        return server.final(bare + b",p=" + base64.b64encode(proof))

    assert answer(b"").startswith(b"v=")
    assert answer(NONCES[0]).startswith(b"v=")
    for prefix in (b"x", NONCES[1], NONCES[0] * 2, NONCES[0][:-1]):
        with pytest.raises(SaslAuthenticationFailed):
            answer(prefix)


@each(
    "message",
    [
        b"",
        b"n,,n=user",
        b"n,,r=x,n=user",
        b"p=tls-unique,,n=user,r=x",
        b"n,a=other,n=user,r=x",
        b"n,,m=ext,n=user,r=x",
        b"n,,n=us=er,r=x",
        b"n,,n=\xff,r=x",
        b"n,,n=" + b"u" * 2000 + b",r=x",
        b"n,,n=user,r=",
        b"n,,n=,r=x",
        b"n,,n=user,r=\x00",
        b"n,,n=user,r=x,y",
        b"z,,n=user,r=x",
    ],
)
def test_first_messages_that_are_refused(message: bytes) -> None:
    with pytest.raises(SaslAuthenticationFailed):
        pair()[1].first(message)


def test_an_extension_that_is_not_mandatory_is_no_fault() -> None:
    assert pair()[1].first(b"y,,n=user,r=abc,x=1").startswith(b"r=abc")


def test_a_name_may_be_acted_for_that_is_the_clients_own() -> None:
    server = pair()[1]
    server.first(b"y,a=user,n=user,r=x,f=y")
    assert server.name == "user"


def test_every_byte_of_every_message_counts() -> None:
    client, server = pair()
    first = client.first()
    challenge = server.first(first)
    final = client.final(challenge)
    last = server.final(final)
    for at in range(len(final)):
        for flip in (1, 0x20, 0x80):
            _, again = pair()
            again.first(first)
            with pytest.raises(SaslAuthenticationFailed):
                again.final(final[:at] + bytes([final[at] ^ flip]) + final[at + 1 :])
    for at in range(len(challenge)):
        changed = challenge[:at] + bytes([challenge[at] ^ 1]) + challenge[at + 1 :]
        try:
            answer = ScramClient(SHA_256, "user", "pencil", NONCES[0]).final(changed)
        except SaslAuthenticationFailed:
            continue
        _, again = pair()
        again.first(first)
        with pytest.raises(SaslAuthenticationFailed):
            again.final(answer)
    for at in range(len(last)):
        with pytest.raises(SaslAuthenticationFailed):
            client.check(last[:at] + bytes([last[at] ^ 1]) + last[at + 1 :])


@given(st.binary(max_size=200))
def test_bytes_that_mean_nothing_are_refused(data: bytes) -> None:
    client, server = pair()
    for receive in (server.first, server.final, client.final, client.check):
        try:
            receive(data)
        except SaslAuthenticationFailed:
            continue
        assert receive == server.first and data.startswith((b"n,", b"y,"))


@given(
    st.text(min_size=1, max_size=30).filter(lambda one: "\0" not in one),
    st.text(max_size=30),
    st.binary(min_size=1, max_size=9),
)
def test_any_name_and_password(name: str, password: str, drawn: bytes) -> None:
    try:
        name.encode(), password.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which no peer can send
        return
    credential = ScramCredential.of_password(SHA_256, password, SALT, 4096)
    client = ScramClient(SHA_256, name, password, nonce_of(drawn))
    server = ScramServer(SHA_256, {name: credential}.get, b"server", b"")
    client.check(server.final(client.final(server.first(client.first()))))
    assert server.name == name


def test_a_client_does_not_stretch_for_ever_nor_too_little() -> None:
    for iterations in (b"1", b"4095", b"1000001", b"9999999"):
        client = pair()[0]
        with pytest.raises(SaslAuthenticationFailed):
            client.final(b"r=" + NONCES[0] + b"more,s=c2FsdA==,i=" + iterations)


@each("mechanism", list(ScramMechanism))
def test_a_credential_as_text(mechanism: ScramMechanism) -> None:
    one = ScramCredential.of_password(mechanism, "p", b"salt", 4096)
    assert ScramCredential.parse(str(one), mechanism) == one
    assert "salt" not in repr(one) and str(one) not in repr(one)
    for text in ("", "salt=", str(one).replace("iterations=4096", "iterations=0"), str(one).replace("salt=", "s=")):
        with pytest.raises(MalformedRequest):
            ScramCredential.parse(text, mechanism)
    other = next(each for each in ScramMechanism if each is not mechanism)
    with pytest.raises(MalformedRequest):
        ScramCredential.parse(str(one), other)


@each("users", [{"user": "pencil"}, {}])
def test_plain(users: dict[str, str]) -> None:
    def exchange() -> PlainExchange:
        return PlainExchange(users, lambda one, name: PENCIL if (one, name) == (SHA_256, "user") else None, PENCIL)

    step = exchange().step(b"\0user\0pencil")
    assert str(step.principal) == "User:user" and step.answer == b""
    assert str(exchange().step(b"user\0user\0pencil").principal) == "User:user"
    for message in (
        b"",
        b"user\0pencil",
        b"\0user\0pencil\0",
        b"\0user\0",
        b"\0\0pencil",
        b"\0user\0pencils",
        b"\0other\0pencil",
        b"other\0user\0pencil",
        b"\0\xff\0pencil",
        b"\0user\0" + b"p" * 2000,
    ):
        with pytest.raises(SaslAuthenticationFailed):
            exchange().step(message)
