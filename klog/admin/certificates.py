"""Certificates for a cluster: an authority of its own, and what it signs. Made by the package ``cryptography``.

Keys are of the curve P-256, which every client's TLS has had for ten years and whose handshakes cost a broker a tenth
of RSA's. The authority may sign certificates for servers and clients, and nothing below it may sign.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS: Final = 3650
CERTIFICATE_DAYS: Final = 825
"""The longest that Apple's clients accept, and longer than a year, so that one forgotten renewal shows up in time."""

BACKDATED: Final = timedelta(hours=1)
"""Valid from so long ago: the clocks of a cluster's machines differ."""


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority that can sign. ``certificate_pem`` is public, ``key_pem`` is not."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> bytes:
        return _pem_of(self.certificate)

    @property
    def key_pem(self) -> bytes:
        return _pem_of_key(self.key)


def new_authority(name: str, now: datetime | None = None) -> Authority:
    """An authority that signs itself. ``name``: its common name."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _named(name)
    builder = (
        _begun(subject, subject, key, AUTHORITY_DAYS, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
    )
    return Authority(builder.sign(key, SHA256()), key)


def issue(
    authority: Authority,
    name: str,
    hosts: Sequence[str] = (),
    *,
    days: int = CERTIFICATE_DAYS,
    now: datetime | None = None,
) -> bytes:
    """A key, its certificate and the authority's, in one PEM, as ``ssl.keystore.location`` takes it.

    ``name`` is the common name; ``hosts``: names and addresses under which clients reach a server, none for a client.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
    builder = (
        _begun(_named(name), authority.certificate.subject, key, days, now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_host(one) for one in hosts]), critical=False)
    return _pem_of_key(key) + _pem_of(builder.sign(authority.key, SHA256())) + authority.certificate_pem


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int, now: datetime | None
) -> x509.CertificateBuilder:
    moment = now or datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - BACKDATED)
        .not_valid_after(moment + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text.strip("[]")))
    except ValueError:
        return x509.DNSName(text)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pem_of(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def _pem_of_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
