"""Reads certificates: the subject as text (RFC 2253, as Java writes it), the expiry, and files of PEM or PKCS12."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
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
_JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
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


def pem_of(data: bytes, name: str, kind: str, password: str | None) -> tuple[bytes, bytes]:
    """The private key of a file, and its certificates, their own first. Of PEM both are all of it; of PKCS12 the key is
    empty without one.

    It is PEM by its content; else PKCS12 by its content, its ``kind`` or its name. Raises ValueError with the reason.
    """
    if data.startswith(_JKS_MAGIC):
        raise ValueError(
            "it is a Java keystore (JKS), which klog does not read; keytool -importkeystore -srckeystore FILE "
            "-destkeystore FILE.p12 -deststoretype PKCS12 converts it"
        )
    if b"-----BEGIN" in data:
        text = data.removeprefix(BOM_UTF8).decode("ascii", "replace").encode("ascii", "replace")  # between the blocks
        return text, text
    if not (data[:1] == b"\x30" or kind == "PKCS12" or name.endswith((".p12", ".pfx"))):
        raise ValueError("it is not PEM: it has no line -----BEGIN ...-----")
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

    try:
        found = pkcs12.load_pkcs12(data, password.encode() if password else None)
    except ValueError as error:
        raise ValueError(f"it is neither PEM nor PKCS12, or has another password: {error}") from None
    certificates = [one.certificate for one in (found.cert, *found.additional_certs) if one is not None]
    key = b""
    if found.key is not None:
        key = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return key, b"".join(one.public_bytes(Encoding.PEM) for one in certificates)
