"""Signed tokens and key sets: each algorithm, and what an attacker would try."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import time
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from klog.errors import InvalidConfig
from klog.security import bearer
from klog.security.errors import SaslAuthenticationFailed
from klog.security.json_web_keys import KeySet
from klog.security.json_web_token import ALGORITHMS, Bearer, InvalidToken, TokenRules, bearer_of, unchecked_end_s
from tests.rows import each
from tests.security.tokens import AUDIENCE, ISSUER, Signer, claims, encoded

RULES = TokenRules((AUDIENCE, "other"), ISSUER, skew_s=10)
SIGNERS = {one: Signer(one, one) for one in ("RS256", "ES256", "ES384")}
RSA, EC = SIGNERS["RS256"], SIGNERS["ES256"]


def key_set(*keys: object) -> KeySet:
    return KeySet.parse(json.dumps({"keys": keys}).encode())


KEYS = key_set(*(one.public() for one in SIGNERS.values()))


def check(token: str, keys: KeySet = KEYS, rules: TokenRules = RULES) -> Bearer:
    return bearer_of(token, keys.find, rules, time.time())


def refused(token: str, keys: KeySet = KEYS, rules: TokenRules = RULES) -> InvalidToken:
    with pytest.raises(InvalidToken) as caught:
        check(token, keys, rules)
    return caught.value


@each("algorithm", ALGORITHMS)
def test_each_algorithm(algorithm: str) -> None:
    signer = SIGNERS.get(algorithm) or Signer(algorithm)
    keys = key_set(signer.public(alg=algorithm))
    body = claims(exp=time.time() + 100)
    found = check(signer.token(body), keys)
    assert found == Bearer("alice", body["exp"] + RULES.skew_s)
    assert check(signer.token(kid=None), keys).name == "alice"
    head, middle, signature = signer.token().split(".")
    other = "B" if signature[5] != "B" else "C"
    assert "signature" in refused(f"{head}.{middle}.{signature[:5]}{other}{signature[6:]}", keys).reason
    assert "signature" in refused(f"{head}.{encoded(claims(sub='root'))}.{signature}", keys).reason
    assert "signature" in refused(f"{head}.{middle}.", keys).reason


@each(
    ("changed", "named"),
    [
        ({"exp": time.time() - 11}, "expired"),
        ({"exp": None}, "exp"),
        ({"exp": "9999999999"}, "exp"),
        ({"exp": True}, "exp"),
        ({"exp": 1e300}, "exp"),
        ({"exp": 10**4000}, "exp"),
        ({"nbf": time.time() + 36_000}, "nbf"),
        ({"iat": time.time() + 36_000}, "iat"),
        ({"aud": None}, "audience"),
        ({"aud": "kafka2"}, "audience"),
        ({"aud": ["a", "b"]}, "audience"),
        ({"aud": {"kafka": 1}}, "aud"),
        ({"aud": [AUDIENCE, 1]}, "aud"),
        ({"iss": None}, "issuer"),
        ({"iss": ISSUER + "/"}, "issuer"),
        ({"iss": [ISSUER]}, "issuer"),
        ({"sub": None}, "sub"),
        ({"sub": ""}, "sub"),
        ({"sub": ["alice"]}, "sub"),
        ({"sub": "a\ud800"}, "sub"),
        ({"scope": 5}, "scope"),
        ({"scope": [["a"]]}, "scope"),
    ],
)
def test_claims_that_are_refused(changed: dict[str, Any], named: str) -> None:
    assert named in refused(RSA.token(claims(**changed))).reason


@each(
    "changed",
    [
        {"exp": -5.0},
        {"nbf": 5.0},
        {"iat": None},
        {"aud": ["x", "other"]},
        {"scope": "a b"},
        {"scope": ["a"]},
        {"other": "x" * 20_000},
    ],
)
def test_claims_that_are_accepted(changed: dict[str, Any]) -> None:
    """Times, here from now on, may be wrong by the skew of the clocks (in a test under load, by less)."""
    times = {name: time.time() + of_s for name, of_s in changed.items() if isinstance(of_s, float)}
    assert check(RSA.token(claims(**(changed | times))), rules=RULES._replace(skew_s=600)).name == "alice"


def test_other_names_of_claims_and_nothing_expected() -> None:
    rules = TokenRules(name_claim="client_id", scope_claim="scp")
    token = EC.token(claims(aud=None, iss=None, client_id="billing", scope=5))
    assert check(token, rules=rules).name == "billing"


def test_no_signature_and_shared_secrets() -> None:
    middle = encoded(claims())
    for name in ("none", "None", "NONE", "", None, "HS256", "rs256", ["RS256"], {"RS256": 1}):
        for end in ("", RSA.token().split(".")[2]):
            assert "algorithm" in refused(f"{encoded({'alg': name, 'kid': 'RS256'})}.{middle}.{end}").reason
    for format in (PublicFormat.PKCS1, PublicFormat.SubjectPublicKeyInfo):
        for encoding in (Encoding.PEM, Encoding.DER):
            secret = RSA.key.public_key().public_bytes(encoding, format)
            signed = f"{encoded({'alg': 'HS256', 'kid': 'RS256'})}.{middle}"
            mac = hmac.new(secret, signed.encode(), hashlib.sha256).digest()
            assert "algorithm" in refused(f"{signed}.{encoded(mac)}").reason
    with pytest.raises(InvalidConfig, match="kty"):
        key_set({"kty": "oct", "k": encoded(b"secret" * 8), "kid": "one"})


def test_keys_are_found_by_kid_and_fit_their_algorithm() -> None:
    assert refused(RSA.token(kid="another\n\x1b[31m")).found == "'another\\n\\x1b[31m'"
    assert "Key ID" in refused(RSA.token(kid=5)).found
    assert "kid" in refused(RSA.token(kid="ES256")).reason  # of another kind
    assert "RS512" in refused(RSA.token(alg="RS512"), key_set(RSA.public(alg="RS256"))).reason
    assert "kid" in refused(RSA.token(kid=None), key_set(RSA.public(), Signer("RS256", "two").public())).reason
    stranger = Signer("RS256", "RS256")
    assert "signature" in refused(stranger.token()).reason
    assert "signature" in refused(stranger.token(jwk=stranger.public(), jku="file:///tmp/k", x5c=["AA=="])).reason
    assert "critical" in refused(RSA.token(crit=["o" * 1000])).found
    assert "b64" in refused(RSA.token(crit=["b64"], b64=False)).found
    assert "signature" in refused(EC.token(alg="ES256", kid="ES256")[:-2]).reason
    zero = f"{encoded({'alg': 'ES256', 'kid': 'ES256'})}.{encoded(claims())}.{encoded(bytes(64))}"
    assert "signature" in refused(zero).reason


@each(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"keys": {}}',
        b'{"keys": []}',
        b'{"keys": [5, null]}',
        b'{"keys": [' + b'{"kty": "RSA"},' * 1001 + b"{}]}",
        b"[" * 100_000,
        b'{"keys": [], "keys": []}',
        b"\xff\xfe",
    ],
)
def test_what_is_no_key_set(data: bytes) -> None:
    with pytest.raises(InvalidConfig):
        KeySet.parse(data)


def test_keys_that_are_not_used_are_named() -> None:
    others = [
        RSA.public(use="enc"),
        RSA.public(key_ops=["encrypt"]),
        RSA.public(alg="RSA-OAEP"),
        RSA.public(n=encoded(b"\xff" * 128)),
        RSA.public(n="AQ=="),
        EC.public(crv="secp256k1"),
        EC.public(y=EC.public()["x"]),
        {"kty": "OKP", "crv": "Ed25519"},
    ]
    found = key_set(*others, RSA.public(key_ops=["verify"]))
    assert len(found.keys) == 1 and len(found.skipped) == len(others)
    assert [one.split(":")[0] for one in found.skipped] == [f"key {number}" for number in range(1, len(others) + 1)]


def signed_raw(header: bytes, body: bytes) -> str:
    signed = f"{encoded(header)}.{encoded(body)}"
    return f"{signed}.{encoded(RSA.sign(signed.encode()))}"


HEADER = b'{"alg":"RS256","kid":"RS256"}'


@each(
    "body",
    [
        b'{"a":' * 60_000,
        b'{"sub":' + b"[" * 60_000 + b"]" * 60_000 + b"}",
        b'{"sub":"a","sub":"root"}',
        b'{"exp":NaN,"sub":"a"}',
        b'{"exp":Infinity,"sub":"a"}',
        b'{"exp":' + b"9" * 50_000 + b"}",
        b'"text"',
        b"\xff",
        b'{"sub":"a"} x',
    ],
)
def test_json_that_reads_in_two_ways_or_in_none(body: bytes) -> None:
    """Also where the issuer has signed it."""
    began_s = time.process_time()
    assert "claims" in refused(signed_raw(HEADER, body)).reason
    assert re.search(r"\bread\b", refused(signed_raw(body, b"{}")).reason)
    assert time.process_time() - began_s < 1


@each(
    "spoilt",
    [
        lambda head, body, end: f"{head}=.{body}.{end}",
        lambda head, body, end: f"{head}.{body}.{end}.",
        lambda head, body, end: f"{head}.{body}",
        lambda head, body, end: f"{head}.{body}.{end}A",
        lambda head, body, end: f"{head}.{body}.+{end}",
        lambda head, body, end: f"{head}\n.{body}.{end}",
        lambda head, body, end: f" {head}.{body}.{end}",
        lambda head, body, end: f"{head}.{body}.{end}/",
        lambda head, body, end: "." * 60_000,
        lambda head, body, end: "é.é.é",
        lambda head, body, end: "",
    ],
)
def test_malformed_base64(spoilt: Any) -> None:
    refused(spoilt(*RSA.token().split(".")))


def test_the_last_bits_of_base64_are_zero() -> None:
    """256 bytes end in a digit of which two bits count: three other digits would decode to the same."""
    token = RSA.token()
    assert token[-1] in "AQgw"
    assert "padding" in refused(token[:-1] + {"A": "B", "Q": "R", "g": "h", "w": "x"}[token[-1]]).found


@given(
    st.text(max_size=200) | st.binary(max_size=200).map(lambda data: f"{encoded(data)}.{encoded(data)}.{encoded(data)}")
)
def test_any_text(token: str) -> None:
    refused(token)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=8,
    ),
    st.sampled_from(["sub", "aud", "iss", "exp", "nbf", "iat", "scope"]),
)
def test_any_value_of_a_claim(value: Any, name: str) -> None:
    body = claims(**{name: value})
    try:
        found = check(EC.token(body))
    except InvalidToken:
        return
    assert found.name == body["sub"] and found.ends_s > time.time()


def test_when_a_token_ends_by_itself() -> None:
    assert unchecked_end_s(EC.token(claims(exp=12345))) == 12345
    for token in ("", "opaque", "a.b.c", EC.token(claims(exp=None)), EC.token({"exp": "x"})):
        with pytest.raises(InvalidToken):
            unchecked_end_s(token)


# --- the wire


@each(
    ("message", "found"),
    [
        (bearer.client_message("a.b-_.c"), ("a.b-_.c", "")),
        (b"n,a=alice,\x01auth=Bearer T\x01\x01", ("T", "alice")),
        (b"n,a=a=2Cb=3D,\x01auth=Bearer T\x01\x01", ("T", "a,b=")),
        (b"n,,\x01host=h\x01port=9\x01auth=bEARER   T\x01x=\x01\x01", ("T", "")),
        (b"", None),
        (b"\x01", None),
        (b"n,,\x01\x01", None),
        (b"y,,\x01auth=Bearer T\x01\x01", None),
        (b"p=tls-unique,,\x01auth=Bearer T\x01\x01", None),
        (b"n,a=,\x01auth=Bearer T\x01\x01", None),
        (b"n,a=a=b,\x01auth=Bearer T\x01\x01", None),
        (b"n,,\x01auth=Bearer T\x01", None),
        (b"n,,\x01auth=Bearer T\x01\x01x", None),
        (b"n,,\x01auth=Basic T\x01\x01", None),
        (b"n,,\x01auth=Bearer T U\x01\x01", None),
        (b"n,,\x01auth=Bearer T\x01auth=Bearer U\x01\x01", None),
        (b"n,,\x01auth=Bearer \xff\x01\x01", None),
        (b"n,,\x01a1=x\x01auth=Bearer T\x01\x01", None),
    ],
)
def test_messages(message: bytes, found: tuple[str, str] | None) -> None:
    if found is None:
        with pytest.raises(SaslAuthenticationFailed):
            bearer.parse_message(message)
    else:
        assert bearer.parse_message(message) == found


@given(st.binary(max_size=100) | st.binary(max_size=60).map(lambda data: b"n,,\x01auth=Bearer " + data + b"\x01\x01"))
def test_any_message(message: bytes) -> None:
    try:
        assert bearer.parse_message(message).token.isascii()
    except SaslAuthenticationFailed:
        pass


@each("piece", [b"n,a=" + b"a" * 65_000, b"n,,\x01" + b"a=b\x01" * 16_000, b"n,,\x01auth=Bearer" + b" " * 65_000])
def test_long_messages_take_no_time(piece: bytes) -> None:
    began_s = time.process_time()
    with pytest.raises(SaslAuthenticationFailed):
        bearer.parse_message(piece)
    assert time.process_time() - began_s < 0.5
