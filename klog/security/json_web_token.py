"""Signed JSON Web Tokens (RFC 7515, 7519), read and verified by PyJWT. No I/O.

Accepted:

    alg     RS256, RS384, RS512, PS256, PS384, PS512 (RSA of 2048 bits or more); ES256, ES384, ES512 (each with its
            curve). Not ``none``, and not HMAC, for which a public key would be the secret.
    kid     names a key of the set; without it, exactly one key of the set must fit ``alg``
    exp     required; nbf and iat are checked if present. Tolerance: the clocks' skew.
    iss, aud   checked if the settings name a value

Also refused: objects with a duplicate name and numbers that are not finite. Two readers could take such a token for
different ones.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, Final, NamedTuple

END_MAX_S: Final = 253_402_300_799
"""The last second of the year 9999."""
SHOWN_MAX: Final = 60

ALGORITHMS: Final = tuple(f"{kind}{bits}" for kind in ("RS", "PS", "ES") for bits in (256, 384, 512))


class InvalidToken(Exception):
    """Why a token is refused: for the broker's log, never for the client. ``found``: the invalid value, as shown."""

    def __init__(self, reason: str, found: str = "") -> None:
        super().__init__(f"{reason}: {found}" if found else reason)
        self.reason = reason
        self.found = found


FindKey = Callable[[object, str], Any]
"""The public key for a ``kid`` and an algorithm. Raises InvalidToken."""


class TokenRules(NamedTuple):
    """The settings ``sasl.oauthbearer.*`` for tokens."""

    audiences: tuple[str, ...] = ()
    """One of them must be in ``aud``; empty: not checked."""
    issuer: str | None = None
    name_claim: str = "sub"
    scope_claim: str = "scope"
    skew_s: int = 30


class Bearer(NamedTuple):
    """A token's user, and its end by the wall clock, clocks' skew included."""

    name: str
    ends_s: float


def bearer_of(token: str, find_key: FindKey, rules: TokenRules, now_s: float) -> Bearer:
    """Verify a token. Raises InvalidToken. Some 150 us of CPU time, up to some milliseconds for the largest."""
    from jwt import InvalidTokenError, PyJWS  # with cryptography: only where tokens are verified
    from jwt.utils import base64url_decode

    jws = PyJWS()
    try:
        found = jws.decode_complete(token, options={"verify_signature": False})
    except InvalidTokenError as error:
        raise InvalidToken("it cannot be read", shown(str(error))) from None
    header = _object("header", base64url_decode(token.partition(".")[0]))
    algorithm = header.get("alg")
    if algorithm not in ALGORITHMS:
        raise InvalidToken(f"its algorithm is not one of {', '.join(ALGORITHMS)}", shown(algorithm))
    key = find_key(header.get("kid"), algorithm)
    if not jws.get_algorithm_by_name(algorithm).verify(token.rpartition(".")[0].encode(), key, found["signature"]):
        raise InvalidToken("its signature is wrong")
    return _checked(_object("claims", found["payload"]), rules, now_s)


def unchecked_end_s(token: str) -> float:
    """A token's end, unverified: for its owner. Raises InvalidToken."""
    parts = token.split(".")
    if len(parts) != 3:
        raise InvalidToken("expected HEADER.CLAIMS.SIGNATURE")
    try:
        payload = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
    except ValueError:
        raise InvalidToken("its claims cannot be read") from None
    end_s = _time(_object("claims", payload), "exp")
    if end_s is None:
        raise InvalidToken("it does not say when it ends (exp)")
    return end_s


def _checked(claims: dict[str, Any], rules: TokenRules, now_s: float) -> Bearer:
    end_s, begin_s, issued_s = (_time(claims, name) for name in ("exp", "nbf", "iat"))
    if end_s is None:
        raise InvalidToken("it does not say when it ends (exp)")
    if now_s >= end_s + rules.skew_s:
        raise InvalidToken("it has expired", f"{now_s - end_s:.0f} s ago")
    for name, time_s in (("nbf", begin_s), ("iat", issued_s)):
        if time_s is not None and time_s > now_s + rules.skew_s:
            raise InvalidToken(f"it is not valid yet ({name})", f"in {time_s - now_s:.0f} s")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise InvalidToken("its issuer is not sasl.oauthbearer.expected.issuer", shown(claims.get("iss")))
    if rules.audiences and not set(_texts(claims, "aud")) & set(rules.audiences):
        raise InvalidToken("its audience is not in sasl.oauthbearer.expected.audience", shown(claims.get("aud")))
    _texts(claims, rules.scope_claim)
    user = claims.get(rules.name_claim)
    if not isinstance(user, str) or not user or not _is_text(user):
        raise InvalidToken(f"it names no user in the claim {rules.name_claim} (sasl.oauthbearer.sub.claim.name)")
    return Bearer(user, end_s + rules.skew_s)


def _is_text(name: str) -> bool:
    """Whether it is valid UTF-8: JSON can contain lone surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _time(claims: dict[str, Any], name: str) -> float | None:
    found = claims.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= END_MAX_S:
        raise InvalidToken(f"its {name} is not seconds since 1970, before the year 10000", shown(found))
    return float(found)


def _texts(claims: dict[str, Any], name: str) -> list[str]:
    """A claim that is a text or a list of texts; empty if missing."""
    found = claims.get(name)
    if found is None:
        return []
    listed = [found] if isinstance(found, str) else found
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise InvalidToken(f"its {name} is neither a text nor a list of texts")
    return listed


def _object(what: str, data: bytes) -> dict[str, Any]:
    try:
        return parse_json(data)
    except ValueError as error:
        raise InvalidToken(f"its {what} cannot be read", str(error)) from None


def parse_json(data: bytes) -> dict[str, Any]:
    """An object. Raises ValueError, quoting nothing, for anything ambiguous."""
    try:
        found = json.loads(data.decode(), object_pairs_hook=_once, parse_constant=_not_finite)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at character {error.pos}") from None
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    except RecursionError:
        raise ValueError("JSON that is nested too deep") from None
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has the same name twice")
    return found


def _not_finite(text: str) -> float:
    raise ValueError(f"{text} is not a number of JSON")


def shown(value: object) -> str:
    """A value for the log: short, and without control characters."""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        value = ",".join(value)
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    text = value if isinstance(value, str) else json.dumps(value)
    return ascii(text[:SHOWN_MAX] + ("..." if len(text) > SHOWN_MAX else ""))
