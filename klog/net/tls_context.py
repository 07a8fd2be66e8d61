"""TLS contexts from PEM and PKCS12 files, by Kafka's settings; reloaded when the files change.

A key store has this side's private key and certificates, its own first; a trust store has the authorities that sign the
other side's. Clients need a key store only to present a certificate. Java's JKS is not read: convert it by `keytool
-importkeystore -deststoretype PKCS12`.
"""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from klog.config import BrokerConfig
from klog.errors import InvalidConfig
from klog.security.certificates import expires_at, pem_of

_CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True)
class Store:
    """A file, or PEM itself. Its repr hides secrets."""

    what: str
    """``ssl.keystore`` or ``ssl.truststore``."""
    kind: str = "PEM"
    location: str | None = None
    pem: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)

    @property
    def is_given(self) -> bool:
        return self.location is not None or self.pem is not None

    @property
    def where(self) -> str:
        return self.what if self.location is None else f"{self.what}.location={self.location}"

    def read(self) -> bytes:
        """The store as PEM. Raises InvalidConfig."""
        if self.location is None:
            return (self.pem or "").replace("\\n", "\n").encode()
        try:
            key, chain = pem_of(Path(self.location).read_bytes(), self.location, self.kind, self.password)
        except OSError as error:
            raise InvalidConfig(f"{self.where}: {error.strerror}") from None
        except ValueError as error:
            raise InvalidConfig(f"{self.where}: {error}") from None
        return key if key == chain else key + chain


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The TLS settings of a listener or a client."""

    key_store: Store
    trust_store: Store
    key_password: str | None = field(default=None, repr=False)
    client_auth: str = "none"
    versions: tuple[str, ...] = tuple(_VERSIONS)
    ciphers: tuple[str, ...] = ()
    checks_host: bool = True

    @classmethod
    def of(cls, config: BrokerConfig) -> TlsSettings:
        """From the settings of one listener."""

        def text(name: str) -> str | None:
            value = config[name]
            return value if isinstance(value, str) else None

        ciphers = config["ssl.cipher.suites"]
        key, chain = text("ssl.keystore.key"), text("ssl.keystore.certificate.chain")
        return cls(
            Store(
                "ssl.keystore",
                config.text("ssl.keystore.type"),
                text("ssl.keystore.location"),
                None if chain is None else f"{key or ''}\n{chain}\n",
                text("ssl.keystore.password"),
            ),
            Store(
                "ssl.truststore",
                config.text("ssl.truststore.type"),
                text("ssl.truststore.location"),
                text("ssl.truststore.certificates"),
                text("ssl.truststore.password"),
            ),
            text("ssl.key.password"),
            config.text("ssl.client.auth"),
            config.words("ssl.enabled.protocols"),
            ciphers if isinstance(ciphers, tuple) else (),
            text("ssl.endpoint.identification.algorithm") == "https",
        )

    @property
    def files(self) -> list[str]:
        return [one.location for one in (self.key_store, self.trust_store) if one.location is not None]


def stamp_of(path: Path | str) -> tuple[int, int, int]:
    """What changes when the file does; zeros without one."""
    try:
        found = Path(path).stat()
    except OSError:
        return 0, 0, 0
    return found.st_mtime_ns, found.st_size, found.st_ino


class TlsKeeper:
    """The current context and its files. `look` and the constructor block: they read files."""

    def __init__(self, settings: TlsSettings, make: Callable[[TlsSettings], ssl.SSLContext], name: str) -> None:
        """Raises InvalidConfig."""
        self.name = name
        self._settings = settings
        self._make = make
        self._stamps = self._read_stamps()
        self.context = make(settings)
        self.expires_at = self._expires_at()

    def look(self) -> bool:
        """Reload changed files; whether there were any. Raises InvalidConfig, and keeps the old context."""
        stamps = self._read_stamps()
        if stamps == self._stamps:
            return False
        self._stamps = stamps
        self.context = self._make(self._settings)
        self.expires_at = self._expires_at()
        return True

    def _read_stamps(self) -> list[tuple[int, int, int]]:
        return [stamp_of(path) for path in self._settings.files]

    def _expires_at(self) -> datetime | None:
        """When the first of this side's certificates expires."""
        store = self._settings.key_store
        return expires_at(store.read()) if store.is_given else None


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """The context of a listener. Raises InvalidConfig with setting, file and reason."""
    if not settings.key_store.is_given:
        raise InvalidConfig(
            "a listener with TLS needs a certificate: ssl.keystore.location is not set",
            hint="a PEM file with the private key and the certificates, and ssl.keystore.type=PEM",
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _limit(context, settings)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_COMPRESSION
    context.num_tickets = 0  # Kafka's clients resume no session
    _load_key(context, settings)
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    if settings.client_auth != "none":
        if not settings.trust_store.is_given:
            raise InvalidConfig(f"ssl.client.auth={settings.client_auth} needs ssl.truststore.location")
        _load_trust(context, settings)
    return context


def _limit(context: ssl.SSLContext, settings: TlsSettings) -> None:
    allowed = [version for name, version in _VERSIONS.items() if name in settings.versions]
    if not allowed:
        raise InvalidConfig(f"ssl.enabled.protocols: expected one of {', '.join(_VERSIONS)}")
    context.minimum_version, context.maximum_version = allowed[0], allowed[-1]
    if settings.ciphers:
        try:
            context.set_ciphers(":".join(settings.ciphers))
        except ssl.SSLError:
            raise InvalidConfig(f"ssl.cipher.suites={','.join(settings.ciphers)}: OpenSSL knows none of them") from None


def _load_key(context: ssl.SSLContext, settings: TlsSettings) -> None:
    store = settings.key_store
    asked = False

    def password() -> str:
        nonlocal asked
        asked = True
        return settings.key_password or store.password or ""

    with _as_file(store.read()) as path:
        try:
            context.load_cert_chain(path, password=password)
        except (ssl.SSLError, OSError, ValueError) as error:
            reason = str(error)
            what = "no private key with its certificate"
            if asked:
                what += ", or ssl.key.password is not that of the key"
            raise InvalidConfig(f"{store.where}: {what} ({reason})") from None


def _load_trust(context: ssl.SSLContext, settings: TlsSettings) -> None:
    store = settings.trust_store
    try:
        context.load_verify_locations(cadata=store.read().decode("ascii", "replace"))
    except (ssl.SSLError, ValueError) as error:
        raise InvalidConfig(f"{store.where}: no certificates ({error})") from None


@contextlib.contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """A file of bytes in memory, for OpenSSL, which reads keys from files only; no other process can open it."""
    descriptor = os.memfd_create("key", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
