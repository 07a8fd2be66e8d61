"""Signs JSON Web Tokens, and writes the key set that checks them: what an identity provider does."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from klog.security.json_web_token import encode_base64url

HASHES = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}
CURVES = {"256": ec.SECP256R1(), "384": ec.SECP384R1(), "512": ec.SECP521R1()}
CURVE_NAMES = {"secp256r1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521"}
AUDIENCE, ISSUER = "kafka", "https://login.example"


def encoded(value: object) -> str:
    return encode_base64url(value if isinstance(value, bytes) else json.dumps(value).encode())


def claims(**others: Any) -> dict[str, Any]:
    """Of a token that is valid for five minutes; None takes a claim away."""
    now = time.time()
    made = {"sub": "alice", "aud": AUDIENCE, "iss": ISSUER, "iat": now, "exp": now + 300, **others}
    return {name: value for name, value in made.items() if value is not None}


class Signer:
    """One private key."""

    def __init__(self, algorithm: str, kid: str = "one", bits: int = 2048) -> None:
        self.algorithm = algorithm
        self.kid = kid
        self.key: Any
        if algorithm.startswith("ES"):
            self.key = ec.generate_private_key(CURVES[algorithm[2:]])
        else:
            self.key = rsa.generate_private_key(65537, bits)

    def token(self, body: dict[str, Any] | bytes | None = None, **header: Any) -> str:
        """A signed one; ``header`` adds to it, or takes away what is None."""
        head = {"alg": self.algorithm, "kid": self.kid, "typ": "JWT", **header}
        head = {name: value for name, value in head.items() if value is not None}
        signed = f"{encoded(head)}.{encoded(claims() if body is None else body)}"
        return f"{signed}.{encode_base64url(self.sign(signed.encode()))}"

    def sign(self, data: bytes) -> bytes:
        digest = HASHES[self.algorithm[2:]]
        if self.algorithm.startswith("ES"):
            size = (self.key.curve.key_size + 7) // 8
            return b"".join(one.to_bytes(size) for one in decode_dss_signature(self.key.sign(data, ec.ECDSA(digest))))
        scheme: padding.AsymmetricPadding = padding.PKCS1v15()
        if self.algorithm.startswith("PS"):
            scheme = padding.PSS(padding.MGF1(digest), digest.digest_size)
        return bytes(self.key.sign(data, scheme, digest))

    def public(self, **others: Any) -> dict[str, Any]:
        """As a member of a key set."""
        numbers = self.key.public_key().public_numbers()
        if self.algorithm.startswith("ES"):
            size = (self.key.curve.key_size + 7) // 8
            made = {"kty": "EC", "crv": CURVE_NAMES[self.key.curve.name]}
            made |= {name: encoded(getattr(numbers, name).to_bytes(size)) for name in ("x", "y")}
        else:
            made = {"kty": "RSA"}
            made |= {
                name: encoded(number.to_bytes((number.bit_length() + 7) // 8))
                for name, number in (("n", numbers.n), ("e", numbers.e))
            }
        return {**made, "kid": self.kid, "use": "sig", **others}


def write_keys(path: Path, *keys: dict[str, Any]) -> None:
    """A key set, in place of what was there."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"keys": keys}))
    part.replace(path)
