"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), both sides. No I/O.

    client   n,,n=USER,r=NONCE                         the name, and a nonce
    server   r=NONCE SERVERNONCE,s=SALT,i=ITERATIONS   how the client must stretch its password
    client   c=biws,r=NONCES,p=PROOF                   proves that it knows the password
    server   v=SIGNATURE                               proves that it has the password's credential

The server stores neither the password nor anything that a client could log in with. Channel binding is not offered, and
a client acts for its own name only. An unknown name goes through all steps, with a salt that is always the same, on
every server with the same key for it, and fails at the last one, as a wrong password does.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from klog.errors import MalformedRequest
from klog.security.errors import SaslAuthenticationFailed

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384
"""Kafka's limits for stored credentials."""
STRETCHED_MAX: Final = 1_000_000
"""Iterations that our clients do at most."""
NAME_BYTES_MAX: Final = 1024
NONCE_BYTES: Final = 24
SALT_BYTES: Final = 24


class ScramMechanism(Enum):
    """``value``: Kafka's number."""

    SHA_256 = 1
    SHA_512 = 2

    @property
    def label(self) -> str:
        return "SCRAM-SHA-256" if self is ScramMechanism.SHA_256 else "SCRAM-SHA-512"

    @property
    def hash_name(self) -> str:
        return "sha256" if self is ScramMechanism.SHA_256 else "sha512"

    @property
    def digest_bytes(self) -> int:
        return 32 if self is ScramMechanism.SHA_256 else 64

    @classmethod
    def of(cls, label: str) -> ScramMechanism | None:
        return next((one for one in cls if one.label == label), None)

    def hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self.hash_name)

    def hash(self, data: bytes) -> bytes:
        return hashlib.new(self.hash_name, data).digest()

    def stretch(self, password: str, salt: bytes, iterations: int) -> bytes:
        """PBKDF2: some milliseconds of CPU time."""
        return hashlib.pbkdf2_hmac(self.hash_name, password.encode(), salt, iterations)


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """A server's credential for a password. Its text is Kafka's: ``salt=..,stored_key=..,server_key=..,iterations=..``,
    the first three in base64."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    @classmethod
    def of_password(
        cls, mechanism: ScramMechanism, password: str, salt: bytes, iterations: int = ITERATIONS_MIN
    ) -> ScramCredential:
        return cls.of_stretched(mechanism, mechanism.stretch(password, salt, iterations), salt, iterations)

    @classmethod
    def of_stretched(cls, mechanism: ScramMechanism, stretched: bytes, salt: bytes, iterations: int) -> ScramCredential:
        """``stretched``: SaltedPassword in RFC 5802."""
        return cls(
            salt,
            mechanism.hash(mechanism.hmac(stretched, b"Client Key")),
            mechanism.hmac(stretched, b"Server Key"),
            iterations,
        )

    def has_password(self, mechanism: ScramMechanism, password: str) -> bool:
        """Verify a password. Stretches it: not on the event loop."""
        other = ScramCredential.of_password(mechanism, password, self.salt, self.iterations)
        return hmac.compare_digest(other.stored_key, self.stored_key)

    def __str__(self) -> str:
        salt, stored, server = (base64.b64encode(one).decode() for one in (self.salt, self.stored_key, self.server_key))
        return f"salt={salt},stored_key={stored},server_key={server},iterations={self.iterations}"

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"

    @classmethod
    def parse(cls, text: str, mechanism: ScramMechanism) -> ScramCredential:
        """Raises MalformedRequest, which quotes nothing of the text."""
        fields = dict(part.partition("=")[::2] for part in text.split(","))
        try:
            texts = (fields[name] for name in ("salt", "stored_key", "server_key"))
            salt, stored, server = (base64.b64decode(one, validate=True) for one in texts)
            found = cls(salt, stored, server, int(fields["iterations"]))
        except (KeyError, ValueError):
            raise MalformedRequest("expected salt=..,stored_key=..,server_key=..,iterations=..") from None
        sizes = {len(found.stored_key), len(found.server_key)}
        if sizes != {mechanism.digest_bytes} or not found.salt or not 1 <= found.iterations <= STRETCHED_MAX:
            raise MalformedRequest(
                f"not a credential of {mechanism.label}: a key, the salt or the count is out of bounds"
            )
        return found


_ATTRIBUTE = rb"(?:,[A-Za-z]=[^,\0]*)*"
_CLIENT_FIRST = re.compile(
    rb"(?P<gs2>(?P<binding>[nyp])(?:=[A-Za-z0-9.-]+)?,(?:a=(?P<authzid>[^,\0]+))?,)"
    rb"(?P<bare>(?P<mandatory>m=[^,\0]*,)?n=(?P<name>[^,\0]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)" + _ATTRIBUTE + rb")"
)
_CLIENT_FINAL = re.compile(
    rb"(?P<bare>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    + _ATTRIBUTE
    + rb"),p=(?P<proof>[A-Za-z0-9+/=]+)"
)
_SERVER_FIRST = re.compile(
    rb"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<iterations>[0-9]{1,7})" + _ATTRIBUTE
)


class ScramServer:
    """One authentication. ``find``: a user's credential, or None.

    ``salting``: a secret key of a cluster's servers, from which unknown names get their salt, as long and with as many
    iterations as ``usual``, a typical credential.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        find: Callable[[str], ScramCredential | None],
        nonce: bytes,
        salting: bytes,
        usual: ScramCredential | None = None,
    ) -> None:
        """``nonce``: see `nonce_of`."""
        self.name = ""
        self._mechanism = mechanism
        self._find = find
        self._own_nonce = nonce
        self._salting = salting
        self._usual = usual
        self._nonce = self._nonce_again = b""
        self._gs2 = b""
        self._said = b""
        self._credential: ScramCredential | None = None
        self._is_known = False

    def first(self, message: bytes) -> bytes:
        """The answer to the client's first message. Raises SaslAuthenticationFailed."""
        found = _CLIENT_FIRST.fullmatch(message)
        if found is None:
            raise SaslAuthenticationFailed("the client's first message is not SCRAM's")
        if found["binding"] == b"p" or b"=" in found["gs2"].partition(b",")[0]:
            raise SaslAuthenticationFailed("the client asks for channel binding, which is not offered")
        if found["mandatory"] is not None:
            raise SaslAuthenticationFailed("the client asks for an extension that is not known")
        name = _name(found["name"])
        if found["authzid"] is not None and _name(found["authzid"]) != name:
            raise SaslAuthenticationFailed("the client wants to act for another name than its own")
        self.name = name
        known = self._find(name)
        self._is_known = known is not None
        unknown = self._of_nobody(name)  # also for a known name: it takes as long
        self._credential = known or unknown
        self._gs2 = found["gs2"]
        self._nonce = found["nonce"] + self._own_nonce
        self._nonce_again = found["nonce"] + self._nonce  # librdkafka up to 2.6.0 puts its own before it once more
        credential = self._credential
        answer = b"r=%s,s=%s,i=%d" % (self._nonce, base64.b64encode(credential.salt), credential.iterations)
        self._said = found["bare"] + b"," + answer
        return answer

    def final(self, message: bytes) -> bytes:
        """The answer to the client's last message, which proves the password. Raises SaslAuthenticationFailed."""
        credential = self._credential
        found = _CLIENT_FINAL.fullmatch(message)
        if found is None or credential is None:
            raise SaslAuthenticationFailed("the client's last message is not SCRAM's")
        nonces = (self._nonce, self._nonce_again)
        if _base64(found["binding"]) != self._gs2 or found["nonce"] not in nonces:
            raise SaslAuthenticationFailed("the client's messages do not belong to one another")
        said = self._said + b"," + found["bare"]
        proof = _base64(found["proof"])
        signature = self._mechanism.hmac(credential.stored_key, said)
        if proof is None or len(proof) != len(signature):
            proof = b"\0" * len(signature)
        key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        is_right = hmac.compare_digest(self._mechanism.hash(key), credential.stored_key)
        self._credential = None  # a proof counts once
        if not (is_right and self._is_known):
            raise SaslAuthenticationFailed("the user is unknown or the password is wrong")
        return b"v=" + base64.b64encode(self._mechanism.hmac(credential.server_key, said))

    def _of_nobody(self, name: str) -> ScramCredential:
        """A credential that no password matches."""
        message = f"{self._mechanism.label},{name}".encode()
        key = hmac.digest(self._salting, message, self._mechanism.hash_name)
        usual = self._usual
        salt_bytes, iterations = (SALT_BYTES, ITERATIONS_MIN) if usual is None else (len(usual.salt), usual.iterations)
        salt = hashlib.shake_256(self._salting + message).digest(salt_bytes)
        return ScramCredential(salt, key, key, iterations)


class ScramClient:
    """The client's side of one authentication."""

    def __init__(self, mechanism: ScramMechanism, name: str, password: str, nonce: bytes) -> None:
        self._mechanism = mechanism
        self._name = name
        self._password = password
        self._nonce = nonce
        self._server_key = b""
        self._said = b""

    def first(self) -> bytes:
        return b"n,," + self._bare()

    def final(self, message: bytes) -> bytes:
        """The answer to the server's first message. Stretches the password: milliseconds. Raises
        SaslAuthenticationFailed for a server that does not speak SCRAM, or wants more than `STRETCHED_MAX`."""
        found = _SERVER_FIRST.fullmatch(message)
        if found is None or not found["nonce"].startswith(self._nonce) or found["nonce"] == self._nonce:
            raise SaslAuthenticationFailed("the server's first message is not an answer of SCRAM's")
        iterations, salt = int(found["iterations"]), _base64(found["salt"])
        if not ITERATIONS_MIN <= iterations <= STRETCHED_MAX or not salt:
            raise SaslAuthenticationFailed(
                f"the server asks for {iterations} iterations; {ITERATIONS_MIN} to {STRETCHED_MAX} are accepted"
            )
        mechanism = self._mechanism
        stretched = mechanism.stretch(self._password, salt, iterations)
        client_key = mechanism.hmac(stretched, b"Client Key")
        bare = b"c=biws,r=" + found["nonce"]
        self._said = self._bare() + b"," + message + b"," + bare
        signature = mechanism.hmac(mechanism.hash(client_key), self._said)
        self._server_key = mechanism.hmac(stretched, b"Server Key")
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return bare + b",p=" + base64.b64encode(proof)

    def check(self, message: bytes) -> None:
        """Check the server's proof in its last message. Raises SaslAuthenticationFailed."""
        signature = base64.b64encode(self._mechanism.hmac(self._server_key, self._said))
        if not self._server_key or not hmac.compare_digest(message.partition(b",")[0], b"v=" + signature):
            raise SaslAuthenticationFailed("the server does not show that it knows this user")

    def _bare(self) -> bytes:
        name = self._name.replace("=", "=3D").replace(",", "=2C").encode()
        return b"n=" + name + b",r=" + self._nonce


def nonce_of(drawn: bytes) -> bytes:
    """A nonce in SCRAM's characters from `NONCE_BYTES` of randomness."""
    return base64.b64encode(drawn)


def _name(text: bytes) -> str:
    """Decode a name of SCRAM: ``=2C`` is a comma, ``=3D`` an equals sign, no other ``=`` is allowed."""
    if len(text) > NAME_BYTES_MAX or re.search(rb"=(?!2C|3D)", text):
        raise SaslAuthenticationFailed("the user's name is not one of SCRAM's")
    try:
        return text.replace(b"=2C", b",").replace(b"=3D", b"=").decode()
    except UnicodeDecodeError:
        raise SaslAuthenticationFailed("the user's name is not UTF-8") from None


def _base64(text: bytes) -> bytes | None:
    """Decode; None also for non-canonical base64."""
    try:
        found = base64.b64decode(text, validate=True)
    except binascii.Error:
        return None
    return found if base64.b64encode(found) == text else None
