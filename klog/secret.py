"""The cluster's secret, and proofs of knowing it (rule R10).

A proof is HMAC-SHA256 under the secret of: whose proof it is, the asker's id, the answerer's id, both nonces. The
secret never travels. A proof is good for one connection, since both sides draw a nonce for it, and for one answerer,
since its id is in it: who listens where a broker used to cannot pass it on to another broker.
"""

from __future__ import annotations

import hmac
import secrets
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

SECRET_BYTES: Final = 32

_IDS = struct.Struct(">ii")
_ASKER: Final = b"klog cluster secret 1, asker\0"
_ANSWERER: Final = b"klog cluster secret 1, answerer\0"


class Secret:
    """The cluster's secret: 32 random bytes. It does not show itself; only `text` gives it away, to be stored."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        if len(key) != SECRET_BYTES:
            raise ValueError(f"a cluster's secret has {SECRET_BYTES} bytes, not {len(key)}")
        self._key = key

    @classmethod
    def random(cls) -> Secret:
        return cls(secrets.token_bytes(SECRET_BYTES))

    @classmethod
    def parse(cls, text: str) -> Secret:
        """Of what `text` gave; ValueError, which does not repeat it."""
        try:
            return cls(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        except ValueError:
            raise ValueError("not a cluster's secret: expected 43 characters of base64url") from None

    @property
    def text(self) -> str:
        return urlsafe_b64encode(self._key).rstrip(b"=").decode("ascii")

    def sign(self, message: bytes) -> bytes:
        return hmac.digest(self._key, message, sha256)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._key, other._key)

    def __hash__(self) -> int:
        return hash(Secret)

    def __repr__(self) -> str:
        return "Secret(...)"


@dataclass(frozen=True)
class Challenge:
    """What both sides of one connection sign."""

    asker_id: int
    answerer_id: int
    asker_nonce: bytes
    answerer_nonce: bytes

    def asker_proof(self, secret: Secret) -> bytes:
        return secret.sign(_ASKER + self._message)

    def answerer_proof(self, secret: Secret) -> bytes:
        return secret.sign(_ANSWERER + self._message)

    def is_asked(self, secret: Secret, proof: bytes) -> bool:
        """Whether ``proof`` is that of an asker who knows the secret."""
        return hmac.compare_digest(proof, self.asker_proof(secret))

    def is_answered(self, secret: Secret, proof: bytes) -> bool:
        """Whether ``proof`` is that of an answerer who knows the secret."""
        return hmac.compare_digest(proof, self.answerer_proof(secret))

    @property
    def _message(self) -> bytes:
        return _IDS.pack(self.asker_id, self.answerer_id) + self.asker_nonce + self.answerer_nonce
