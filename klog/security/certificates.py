"""Reads certificates: the subject as text (RFC 2253, as Java writes it), and the expiry."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from klog.errors import MalformedRequest

_SHORT: Final = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "domainComponent": "DC",
    "userId": "UID",
}
_EMAIL: Final = "1.2.840.113549.1.9.1"
_SPECIAL: Final = re.compile(r'([,+"\\<>;])')
_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _UTC_TIME, _TIME, _VERSION = 0x30, 0x17, 0x18, 0xA0


def subject_of(certificate: Mapping[str, Any]) -> str:
    """``CN=alice,OU=Sales,O=Example``: the last part first. ``certificate``: from `ssl.SSLSocket.getpeercert`."""
    return ",".join("+".join(_part(*one) for one in several) for several in reversed(certificate.get("subject", ())))


def _part(name: str, value: str) -> str:
    if name == "emailAddress":  # not in RFC 2253, so Java writes number and bytes
        data = value.encode("ascii", "replace")
        return f"{_EMAIL}=#16{len(data):02x}{data.hex()}"
    text = _SPECIAL.sub(r"\\\1", value)
    if text.startswith(("#", " ")):
        text = "\\" + text
    if text.endswith(" "):
        text = text[:-1] + "\\ "
    return f"{_SHORT.get(name, name)}={text}"


def expires_at(pem: bytes) -> datetime | None:
    """The earliest expiry of the certificates; None without any. Raises MalformedRequest."""
    return min((_not_after(base64.b64decode(found)) for found in _PEM.findall(pem)), default=None)


def _not_after(der: bytes) -> datetime:
    """The expiry of a certificate: Certificate > tbsCertificate > validity > notAfter (RFC 5280, 4.1)."""
    try:
        inside = _element(_element(der, 0)[1], 0)[1]
        at = 0
        if inside[0] == _VERSION:
            at = _element(inside, at)[2]
        for _ in range(3):  # serial number, signature, issuer
            at = _element(inside, at)[2]
        validity = _element(inside, at)[1]
        kind, text, _ = _element(validity, _element(validity, 0)[2])
        form = {_UTC_TIME: "%y%m%d%H%M%SZ", _TIME: "%Y%m%d%H%M%SZ"}[kind]
        return datetime.strptime(text.decode(), form).replace(tzinfo=UTC)
    except (IndexError, KeyError, ValueError):
        raise MalformedRequest("not an X.509 certificate") from None


def _element(data: bytes, at: int) -> tuple[int, bytes, int]:
    """(tag, contents, end) of an element in DER."""
    tag, size = data[at], data[at + 1]
    begin = at + 2
    if size & 0x80:
        count = size & 0x7F
        size = int.from_bytes(data[begin : begin + count])
        begin += count
    if begin + size > len(data):
        raise ValueError("it ends early")
    return tag, data[begin : begin + size], begin + size
