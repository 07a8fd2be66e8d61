"""Reads certificates: the subject as text (RFC 2253, as Java writes it), the expiry, and PKCS12."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

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
    """The earliest expiry of the certificates; None without any, or where they are damaged."""
    from cryptography import x509

    try:
        return min(one.not_valid_after_utc for one in x509.load_pem_x509_certificates(pem))
    except ValueError:
        return None


def pem_of_pkcs12(data: bytes, password: str | None) -> tuple[bytes, bytes]:
    """The private key, empty without one, and the certificates, its own first. Raises ValueError."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

    found = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    certificates = [one.certificate for one in (found.cert, *found.additional_certs) if one is not None]
    key = b""
    if found.key is not None:
        key = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return key, b"".join(one.public_bytes(Encoding.PEM) for one in certificates)
