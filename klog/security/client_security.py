"""A client's credentials and trusted authorities, from Kafka's client properties.

Java's and librdkafka's spellings are accepted:

    security.protocol                        PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL
    sasl.mechanism, sasl.mechanisms          PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER
    sasl.username, sasl.password             or sasl.jaas.config, as for Java's clients
    sasl.oauthbearer.token.endpoint.url      file:///PATH: the token (KIP-768), read again for each login
    ssl.truststore.certificates, ssl.ca.pem  PEM text: the trusted authorities; default: those of the system
    ssl.truststore.location, ssl.ca.location a file of it
    ssl.keystore.certificate.chain, ssl.certificate.pem, ssl.keystore.key, ssl.key.pem     the client's own, as PEM text
    ssl.keystore.location                    a PEM file with both; or ssl.certificate.location, ssl.key.location
    ssl.key.password                         of an encrypted key
    ssl.endpoint.identification.algorithm    https: check the host in the server's certificate; empty or none: do not

Nothing here reads a file: `klog.client.security_files` first replaces locations by their contents.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from klog.errors import InvalidConfig, UsageError
from klog.security.bearer import OAUTHBEARER
from klog.security.jaas import Jaas

PLAINTEXT: Final = "PLAINTEXT"
PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)

PROTOCOL: Final = "security.protocol"
MECHANISM: Final = ("sasl.mechanism", "sasl.mechanisms")
USERNAME: Final = "sasl.username"
PASSWORD: Final = "sasl.password"
JAAS: Final = "sasl.jaas.config"
TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"
AUTHORITIES: Final = ("ssl.truststore.certificates", "ssl.ca.pem")
CERTIFICATE: Final = ("ssl.keystore.certificate.chain", "ssl.certificate.pem")
KEY: Final = ("ssl.keystore.key", "ssl.key.pem")
KEY_PASSWORD: Final = "ssl.key.password"
HOSTNAMES: Final = "ssl.endpoint.identification.algorithm"

LOCATIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "ssl.truststore.location": (AUTHORITIES[0],),
    "ssl.ca.location": (AUTHORITIES[0],),
    "ssl.keystore.location": (CERTIFICATE[0], KEY[0]),
    "ssl.certificate.location": (CERTIFICATE[0],),
    "ssl.key.location": (KEY[0],),
}
"""Settings that name a file, and the settings for its text."""

TYPES: Final = ("ssl.truststore.type", "ssl.keystore.type")

SETTINGS: Final = frozenset(
    (
        PROTOCOL,
        *MECHANISM,
        USERNAME,
        PASSWORD,
        JAAS,
        TOKEN_URL,
        *AUTHORITIES,
        *CERTIFICATE,
        *KEY,
        KEY_PASSWORD,
        HOSTNAMES,
    )
) | {*LOCATIONS, *TYPES}
SECRETS: Final = frozenset((PASSWORD, JAAS, *KEY, KEY_PASSWORD))
"""Settings that are never shown."""


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """A client's security settings. Its repr hides secrets. Certificates and keys are PEM text."""

    protocol: str = PLAINTEXT
    mechanism: str | None = None
    username: str = ""
    password: str = field(default="", repr=False)
    authorities: str | None = field(default=None, repr=False)
    certificate: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    checks_host: bool = True
    token_file: str | None = None
    """For OAUTHBEARER: this, or ``token_command``, a command with its arguments that prints the token."""
    token_command: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether it is plaintext without authentication."""
        return self.protocol == PLAINTEXT

    @property
    def is_encrypted(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def is_authenticated(self) -> bool:
        """Whether the client authenticates by SASL."""
        return self.protocol.startswith("SASL_")

    def properties(self) -> dict[str, str]:
        """Settings from which `client_security` makes an equal object; librdkafka's, too, except the token.

        Empty for an open cluster. Raises UsageError for a token from a command, which only this machine may run.
        """
        if self.is_open:
            return {}
        found = {PROTOCOL: self.protocol}
        if self.is_authenticated:
            assert self.mechanism is not None
            found["sasl.mechanisms"] = self.mechanism
            if self.token_command:
                raise UsageError(
                    "a token that a command prints is for this machine alone, and Spark has others",
                    hint=f"{TOKEN_URL}=file:///PATH, a file that every worker has",
                )
            if self.token_file is not None:
                found[TOKEN_URL] = file_url(self.token_file)
            else:
                found |= {USERNAME: self.username, PASSWORD: self.password}
        return found | self.tls_properties()

    def tls_properties(self) -> dict[str, str]:
        """The TLS settings among `properties`."""
        if not self.is_encrypted:
            return {}
        texts = {"ssl.ca.pem": self.authorities, "ssl.certificate.pem": self.certificate, "ssl.key.pem": self.key}
        texts[KEY_PASSWORD] = self.key_password
        found = {name: text for name, text in texts.items() if text}
        return found | {HOSTNAMES: "https" if self.checks_host else "none"}


OPEN: Final = ClientSecurity()


def client_security(given: Mapping[str, str], source: str, token_command: tuple[str, ...] = ()) -> ClientSecurity:
    """Parse the settings; others are ignored. ``source`` names them in errors.

    ``token_command``: instead of the token's file; not a setting, since others may have written the file. Raises
    UsageError for contradictory, missing or unknown values.
    """
    protocol = (given.get(PROTOCOL) or PLAINTEXT).upper()
    if protocol not in PROTOCOLS:
        raise _wrong(source, PROTOCOL, given[PROTOCOL], PROTOCOLS)
    if protocol == PLAINTEXT:
        return OPEN
    mechanism, username, password, token_file = None, "", "", None
    if protocol.startswith("SASL_"):
        name = next((name for name in MECHANISM if given.get(name)), None)
        if name is None:
            raise UsageError(
                f"{source}: {PROTOCOL}={protocol} needs sasl.mechanism", hint=f"one of {', '.join(MECHANISMS)}"
            )
        mechanism = given[name].upper()
        if mechanism not in MECHANISMS:
            raise _wrong(source, name, given[name], MECHANISMS)
        if mechanism != OAUTHBEARER:
            username, password = _credentials(given, source)
            token_command = ()
        elif not token_command:
            token_file = _token_file(given, source)
    hosts = given.get(HOSTNAMES, "https").lower()
    if hosts not in ("https", "", "none"):
        raise _wrong(source, HOSTNAMES, given[HOSTNAMES], ("https", "none"))
    certificate, key = _first(given, CERTIFICATE), _first(given, KEY)
    if (certificate is None) != (key is None):
        missing = KEY[0] if key is None else CERTIFICATE[0]
        raise UsageError(f"{source}: {missing} is missing: a client's certificate needs its key, and the reverse")
    return ClientSecurity(
        protocol,
        mechanism,
        username,
        password,
        _first(given, AUTHORITIES),
        certificate,
        key,
        given.get(KEY_PASSWORD) or None,
        hosts == "https",
        token_file,
        token_command,
    )


def _token_file(given: Mapping[str, str], source: str) -> str:
    url = given.get(TOKEN_URL)
    hint = f"{TOKEN_URL}=file:///PATH of a file with the token; klog fetches none from a server"
    if not url:
        raise UsageError(f"{source}: {TOKEN_URL} is missing", hint=hint)
    path = path_of_url(url)
    if path is None:
        raise UsageError(f"{source}: {TOKEN_URL} must be file:///PATH, got {url!r}", hint=hint)
    return path


def _credentials(given: Mapping[str, str], source: str) -> tuple[str, str]:
    if given.get(USERNAME):
        return given[USERNAME], given.get(PASSWORD, "")
    line = given.get(JAAS)
    if not line:
        raise UsageError(f"{source}: {USERNAME} and {PASSWORD}, or {JAAS}, are missing")
    try:
        login = Jaas.parse(line)
    except InvalidConfig as error:
        raise UsageError(f"{source}: {error.message}") from None
    if not login.username or login.password is None:
        raise UsageError(
            f"{source}: {JAAS} has no username and password",
            hint='MODULE required username="NAME" password="PASSWORD";',
        )
    return login.username, login.password


def _first(given: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((given[name] for name in names if given.get(name)), None)


def _wrong(source: str, name: str, value: str, known: tuple[str, ...]) -> UsageError:
    return UsageError(f"{source}: {name} must be one of {', '.join(known)}, got {value!r}")


# --- URLs that name a file (RFC 8089), as Kafka's settings of OAUTHBEARER have them -----------------------------------


def path_of_url(url: str) -> str | None:
    """The absolute path in ``file:///PATH``; None for anything else."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    path = unquote(parts.path)
    is_file = parts.scheme == "file" and parts.netloc in ("", "localhost") and not (parts.query or parts.fragment)
    return path if is_file and path.startswith("/") and "\0" not in path else None


def file_url(path: str) -> str:
    """``path``: absolute."""
    return f"file://{quote(path)}"
