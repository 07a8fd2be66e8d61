"""An encrypted way into a broker: TLS, and a login by SCRAM-SHA-256 (RFC 5802, KIP-84), none of it klog's."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import ssl
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

MECHANISM = "SCRAM-SHA-256"
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
USER, PASSWORD = "bench", "a-password-of-the-bench"
"""Of a broker that lives as long as the run."""


class LoginRefused(Exception):
    """The broker did not accept the login, or could not prove that it knows the password's verifier."""


class Door(NamedTuple):
    """A port with TLS and SCRAM behind it, and the certificate that the broker must be signed with."""

    port: int
    authority: Path

    def context(self) -> ssl.SSLContext:
        return _context(self.authority)

    def stock_settings(self) -> dict[str, object]:
        """librdkafka's."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority),
            "sasl.mechanism": MECHANISM,
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }


@cache
def _context(authority: Path) -> ssl.SSLContext:
    """One for all connections, as clients have it."""
    return ssl.create_default_context(cafile=str(authority))


def log_in(ask: Callable[[int, int, bytes], memoryview]) -> None:
    """``ask(key, version, body)`` sends a request and returns its answer, correlation id included."""
    answer = ask(SASL_HANDSHAKE, 1, _string(MECHANISM.encode()))
    if error := struct.unpack_from(">h", answer, 4)[0]:
        raise LoginRefused(f"SaslHandshake: error {error}")
    nonce = secrets.token_urlsafe(18)
    first = f"n={USER},r={nonce}"
    server_first = _authenticate(ask, f"n,,{first}")
    fields = dict(part.split("=", 1) for part in server_first.split(","))
    salted = _salted(PASSWORD, fields["s"], int(fields["i"]))
    unproven = f"c=biws,r={fields['r']}"
    signed = f"{first},{server_first},{unproven}".encode()
    client_key = _hmac(salted, b"Client Key")
    signature = _hmac(hashlib.sha256(client_key).digest(), signed)
    proof = b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    server_final = _authenticate(ask, f"{unproven},p={proof}")
    if server_final != f"v={b64encode(_hmac(_hmac(salted, b'Server Key'), signed)).decode()}":
        raise LoginRefused("the broker has not proven that it knows the password")


def _authenticate(ask: Callable[[int, int, bytes], memoryview], message: str) -> str:
    answer = ask(SASL_AUTHENTICATE, 0, struct.pack(">i", len(message)) + message.encode())
    if error := struct.unpack_from(">h", answer, 4)[0]:
        raise LoginRefused(f"SaslAuthenticate: error {error}")
    (text_bytes,) = struct.unpack_from(">h", answer, 6)
    at = 8 + max(text_bytes, 0)
    (size,) = struct.unpack_from(">i", answer, at)
    return bytes(answer[at + 4 : at + 4 + size]).decode()


@cache
def _salted(password: str, salt: str, iterations: int) -> bytes:
    """Kept, as clients keep it: it would be most of what a login takes."""
    return hashlib.pbkdf2_hmac("sha256", password.encode(), b64decode(salt), iterations)


def _hmac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")


def _string(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text
