"""Certificates for tests, made when they are needed."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = timedelta(days=1)


class Authority:
    """One that signs; ``path`` has its own certificate."""

    def __init__(self, folder: Path, name: str = "test authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        self.certificate = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + 100 * DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.path = folder / f"{name.replace(' ', '-')}.pem"
        self.path.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        path: Path,
        host: str = "localhost",
        *,
        subject: list[tuple[x509.ObjectIdentifier, str]] | None = None,
        ends: timedelta = 30 * DAY,
        password: bytes | None = None,
    ) -> Path:
        """A private key and its certificate in one file: PKCS12 where it is called ``.p12``, else PEM.

        ``ends``: from now, negative for one that has expired.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        names: list[x509.GeneralName] = [x509.DNSName(host)]
        if host == "localhost":
            names.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
        name = x509.Name([x509.NameAttribute(oid, text) for oid, text in subject or [(NameOID.COMMON_NAME, host)]])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 60 * DAY)
            .not_valid_after(now + ends)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            encryption = serialization.BestAvailableEncryption(password)
        data = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        if path.suffix == ".p12":
            path.write_bytes(
                pkcs12.serialize_key_and_certificates(b"own", key, certificate, [self.certificate], encryption)
            )
        else:
            path.write_bytes(data + certificate.public_bytes(serialization.Encoding.PEM))
        return path

    def trust_store(self, path: Path, password: bytes) -> Path:
        """Its own certificate as PKCS12, as keytool makes it of a trusted one."""
        entry = pkcs12.PKCS12Certificate(self.certificate, b"authority")
        path.write_bytes(pkcs12.serialize_java_truststore([entry], serialization.BestAvailableEncryption(password)))
        return path
