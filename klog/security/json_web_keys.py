"""Key sets that check signed tokens: JSON Web Key Sets (RFC 7517, 7518). No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from klog.errors import InvalidConfig
from klog.security.json_web_token import ALGORITHMS, InvalidToken, decode_base64url, parse_json, shown

RSA_BITS_MIN: Final = 2048
RSA_BITS_MAX: Final = 16384
KEYS_MAX: Final = 1000
SKIPPED_MAX: Final = 10
"""Unused keys named in words."""

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey

_HASHES: Final = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}
_CURVES: Final = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}
_CURVE_OF: Final = {"ES256": "secp256r1", "ES384": "secp384r1", "ES512": "secp521r1"}


@dataclass(frozen=True, slots=True)
class Key:
    """One public key of a set."""

    kid: str | None
    algorithm: str | None
    """The only algorithm that the set allows for it; None: any that fits."""
    public: PublicKey

    def fits(self, algorithm: str) -> bool:
        if self.algorithm not in (None, algorithm):
            return False
        if isinstance(self.public, rsa.RSAPublicKey):
            return algorithm[:2] in ("RS", "PS")
        return _CURVE_OF.get(algorithm) == self.public.curve.name

    def has_signed(self, algorithm: str, signature: bytes, data: bytes) -> bool:
        """Verify a signature. ``algorithm``: one that fits the key."""
        digest = _HASHES[algorithm[2:]]
        try:
            if isinstance(self.public, rsa.RSAPublicKey):
                scheme: padding.AsymmetricPadding = padding.PKCS1v15()
                if algorithm.startswith("PS"):
                    scheme = padding.PSS(padding.MGF1(digest), digest.digest_size)
                self.public.verify(signature, data, scheme, digest)
            else:
                size = (self.public.curve.key_size + 7) // 8
                if len(signature) != 2 * size:
                    return False
                r, s = int.from_bytes(signature[:size]), int.from_bytes(signature[size:])
                self.public.verify(encode_dss_signature(r, s), data, ec.ECDSA(digest))
        except InvalidSignature:
            return False
        return True


class KeySet:
    """Keys that verify tokens. Immutable."""

    def __init__(self, keys: Iterable[Key], skipped: Iterable[str] = ()) -> None:
        self.keys = tuple(keys)
        self.skipped = tuple(skipped)
        """Unused keys of the set, in words."""

    @classmethod
    def parse(cls, data: bytes) -> KeySet:
        """Parse a JSON Web Key Set; keys for other uses are skipped. Raises InvalidConfig, also if none is left."""
        try:
            found = parse_json(data)
        except ValueError as error:
            raise InvalidConfig(f"not a JSON Web Key Set: {error}") from None
        listed = found.get("keys")
        if not isinstance(listed, list) or len(listed) > KEYS_MAX:
            raise InvalidConfig(f'not a JSON Web Key Set: expected {{"keys": [...]}} with at most {KEYS_MAX} keys')
        keys, skipped = [], []
        for number, one in enumerate(listed, 1):
            try:
                keys.append(_key(one))
            except ValueError as error:
                skipped.append(f"key {number}: {error}")
        if not keys:
            raise InvalidConfig("; ".join(["the set has no key that klog could use", *skipped[:SKIPPED_MAX]]))
        return cls(keys, skipped[:SKIPPED_MAX])

    def find(self, kid: object, algorithm: str) -> Callable[[str, bytes, bytes], bool]:
        """As `FindKey`."""
        if kid is None:
            fitting = [one for one in self.keys if one.fits(algorithm)]
            if len(fitting) != 1:
                raise InvalidToken(f"it names no key (kid), and {len(fitting)} keys fit {algorithm}")
            return fitting[0].has_signed
        if not isinstance(kid, str):
            raise InvalidToken("its kid is not a text")
        named = [one for one in self.keys if one.kid == kid]
        if not named:
            raise InvalidToken("the key set does not have its key (kid)", shown(kid))
        fits = next((one for one in named if one.fits(algorithm)), None)
        if fits is None:
            raise InvalidToken(f"its key (kid) is not for {algorithm}", shown(kid))
        return fits.has_signed


def _key(one: object) -> Key:
    """Raises ValueError for a key that klog cannot use."""
    if not isinstance(one, dict):
        raise ValueError("not an object")
    kid, kind, algorithm, operations = one.get("kid"), one.get("kty"), one.get("alg"), one.get("key_ops")
    if kid is not None and not isinstance(kid, str):
        raise ValueError("its kid is not a text")
    if one.get("use", "sig") != "sig" or (isinstance(operations, list) and "verify" not in operations):
        raise ValueError("it is not for signatures (use, key_ops)")
    if algorithm is not None and algorithm not in ALGORITHMS:
        raise ValueError(f"its algorithm is {shown(algorithm)}")
    if kind == "RSA":
        public: PublicKey = _rsa(_number(one, "n"), _number(one, "e"))
    elif kind == "EC":
        curve = _CURVES.get(str(one.get("crv")))
        if curve is None:
            raise ValueError(f"its curve is {shown(one.get('crv'))}; expected one of {', '.join(_CURVES)}")
        public = ec.EllipticCurvePublicNumbers(_number(one, "x"), _number(one, "y"), curve).public_key()
    else:
        raise ValueError(f"its kind (kty) is {shown(kind)}; expected RSA or EC")
    return Key(kid, algorithm, public)


def _rsa(modulus: int, exponent: int) -> rsa.RSAPublicKey:
    if not RSA_BITS_MIN <= modulus.bit_length() <= RSA_BITS_MAX:
        raise ValueError(f"its modulus has {modulus.bit_length()} bits; expected {RSA_BITS_MIN} to {RSA_BITS_MAX}")
    return rsa.RSAPublicNumbers(exponent, modulus).public_key()


def _number(one: dict[str, Any], name: str) -> int:
    found = one.get(name)
    if not isinstance(found, str):
        raise ValueError(f"its {name} is missing")
    return int.from_bytes(decode_base64url(found))
