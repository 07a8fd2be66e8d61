"""TLS on a client's side of a connection."""

from __future__ import annotations

import os
import ssl
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Final

from klog.errors import CannotConnect, KlogError, UsageError
from klog.security.client_security import ClientSecurity

CONTEXTS_KEPT = 16
"""A process connects to one or two clusters. Loading the system's authorities takes 20 ms."""

_NOT_TRUSTED: Final = "ssl.truststore.location (ssl.ca.location) must have the certificate of its authority"
_BY_VERIFICATION: Final = {
    9: "compare this machine's clock with the certificate",
    10: "the broker needs another certificate; it takes it in without a restart",
    **dict.fromkeys((18, 19, 20, 21), _NOT_TRUSTED),
    **dict.fromkeys((62, 64), "connect by a name that is in the certificate, or issue it for this one"),
}
"""Hint per X509_V_ERR_... number of OpenSSL."""
_BY_ALERT: Final = {
    "CERTIFICATE_REQUIRED": "the broker wants a certificate of the client: ssl.keystore.location",
    "UNKNOWN_CA": "the broker does not trust the authority of the client's certificate",
    "CERTIFICATE_EXPIRED": "the client's certificate has expired",
    "PROTOCOL_VERSION": "klog speaks TLS 1.2 and 1.3",
}


@lru_cache(CONTEXTS_KEPT)
def client_context(security: ClientSecurity) -> ssl.SSLContext:
    """TLS 1.2 or 1.3 with these authorities and this certificate. Raises UsageError where they are not PEM."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = security.checks_host
    try:
        if security.authorities is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(cadata=security.authorities)
        if security.certificate is not None and security.key is not None:
            _load_chain(context, security.certificate, security.key, security.key_password)
    except (ssl.SSLError, ValueError) as error:
        raise UsageError(f"the client's certificates cannot be used: {tls_reason(error)}") from None
    return context


def _load_chain(context: ssl.SSLContext, certificate: str, key: str, password: str | None) -> None:
    """Load a key. OpenSSL reads files only; the file is private, and deleted afterwards."""
    descriptor, path = tempfile.mkstemp(prefix="klog-key-")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(key if key == certificate else f"{key}\n{certificate}")
        # Without a password OpenSSL would ask the terminal.
        context.load_cert_chain(path, password=password or "")
    finally:
        Path(path).unlink()


def tls_failed(address: str, error: BaseException) -> CannotConnect:
    """The error for a failed handshake, with a hint where the cause is known."""
    hint = None
    if isinstance(error, ssl.SSLCertVerificationError):
        hint = _BY_VERIFICATION.get(error.verify_code)
    elif isinstance(error, ssl.SSLError) and error.reason:
        hint = next((what for named, what in _BY_ALERT.items() if named in error.reason), None)
    return CannotConnect(f"{address}: TLS failed: {tls_reason(error)}", hint=hint)


def lost(address: str, error: OSError) -> CannotConnect:
    """The error for a connection lost after the handshake. In TLS 1.3 a server checks the client's certificate only
    then; its alert may arrive before the end."""
    if isinstance(error, ssl.SSLEOFError):
        return CannotConnect(f"{address}: the broker closed the connection")
    if isinstance(error, ssl.SSLError):
        return tls_failed(address, error)
    return CannotConnect(f"{address}: {error.strerror or error}")


def hint_after(error: KlogError, security: ClientSecurity) -> str | None:
    """A hint for a connection that ended before its first answer."""
    if error.hint is None and security.is_encrypted and isinstance(error, CannotConnect):
        return "the broker may not accept this client's certificate, or want one (ssl.keystore.location): see its log"
    return error.hint


def tls_reason(error: BaseException) -> str:
    """A TLS error in words: OpenSSL's, without its file names and numbers."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is not valid: {error.verify_message}"
    if isinstance(error, ssl.SSLEOFError | ConnectionResetError):
        return "the server ended the connection in the handshake; a listener without TLS does that"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return str(error)
