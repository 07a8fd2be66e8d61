"""OAUTHBEARER's messages (RFC 7628; KIP-255), both sides.

client   ``n,[a=AUTHZID],`` 0x01 ``auth=Bearer TOKEN`` 0x01 [``NAME=VALUE`` 0x01 ...] 0x01
server   nothing: the token is accepted. Or ``{"status":"invalid_token"}``, and then
client   0x01, which the server answers with the error
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from klog.security.errors import SaslAuthenticationFailed

OAUTHBEARER: Final = "OAUTHBEARER"
REFUSAL: Final = b'{"status":"invalid_token"}'
"""The same for every reason."""
ACKNOWLEDGEMENT: Final = b"\x01"

_HEAD: Final = re.compile(rb"n,(?:a=((?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,\x01")
_PAIR: Final = re.compile(rb"([A-Za-z]+)=([\x21-\x7e \t\r\n]*)\x01")
_TOKEN: Final = re.compile(rb"bearer +([A-Za-z0-9_.~+/=-]+)", re.IGNORECASE)


class BearerMessage(NamedTuple):
    """The client's first message. Extensions (KIP-342) are for plugins of Kafka's; klog ignores them."""

    token: str
    acting_for: str


def client_message(token: str) -> bytes:
    """The client's first message. ``token``: ASCII."""
    return b"n,,\x01auth=Bearer " + token.encode("ascii") + b"\x01\x01"


def parse_message(message: bytes) -> BearerMessage:
    """Raises SaslAuthenticationFailed."""
    head = _HEAD.match(message)
    if head is None:
        raise SaslAuthenticationFailed("the client's message does not begin as OAUTHBEARER's")
    pairs: dict[bytes, bytes] = {}
    at = head.end()
    while (found := _PAIR.match(message, at)) is not None:
        name = found[1].lower()
        if name in pairs:
            raise SaslAuthenticationFailed("the client's message has the same name twice")
        pairs[name] = found[2]
        at = found.end()
    if message[at:] != b"\x01":
        raise SaslAuthenticationFailed("the client's message is not OAUTHBEARER's")
    token = _TOKEN.fullmatch(pairs.get(b"auth", b"").strip())
    if token is None:
        raise SaslAuthenticationFailed("the client's message has no bearer token")
    acting_for = (head[1] or b"").replace(b"=2C", b",").replace(b"=3D", b"=")
    return BearerMessage(token[1].decode("ascii"), acting_for.decode("ascii"))
