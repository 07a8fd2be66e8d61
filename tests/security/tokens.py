"""Signs JSON Web Tokens, and writes the key set that checks them: what an identity provider does."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import get_default_algorithms
from jwt.utils import base64url_encode

CURVES = {"256": ec.SECP256R1(), "384": ec.SECP384R1(), "512": ec.SECP521R1()}
AUDIENCE, ISSUER = "kafka", "https://login.example"


def encoded(value: object) -> str:
    return base64url_encode(value if isinstance(value, bytes) else json.dumps(value).encode()).decode()


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
        return f"{signed}.{encoded(self.sign(signed.encode()))}"

    def sign(self, data: bytes) -> bytes:
        return get_default_algorithms()[self.algorithm].sign(data, self.key)

    def public(self, **others: Any) -> dict[str, Any]:
        """As a member of a key set."""
        made = get_default_algorithms()[self.algorithm].to_jwk(self.key.public_key(), as_dict=True)
        made.pop("key_ops", None)
        return {**made, "kid": self.kid, "use": "sig", **others}


def write_keys(path: Path, *keys: dict[str, Any]) -> None:
    """A key set, in place of what was there."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"keys": keys}))
    part.replace(path)
