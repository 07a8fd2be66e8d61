"""A client's certificates and keys from files: PEM as it is, PKCS12 by the package ``cryptography``; and how
librdkafka gets them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from klog.errors import InvalidConfig, KlogError, NoSuchThing, UsageError
from klog.net.login import read_token
from klog.security.bearer import OAUTHBEARER
from klog.security.certificates import pem_of
from klog.security.client_security import (
    LOCATIONS,
    PLAINTEXT,
    PROTOCOL,
    SETTINGS,
    TOKEN_URL,
    ClientSecurity,
    client_security,
)

log = logging.getLogger(__name__)

FILE_BYTES_MAX: Final = 4 << 20
"""Of a file of certificates. All authorities that a system believes are 230 KB."""


def read_security(given: Mapping[str, str], source: str, token_command: tuple[str, ...] = ()) -> ClientSecurity:
    """How a client with these settings connects. ``token_command``: as in `client_security`.

    Raises UsageError, and NoSuchThing for a file that cannot be read.
    """
    if (given.get(PROTOCOL) or PLAINTEXT).upper() == PLAINTEXT:
        return client_security(given, source, token_command)
    found = dict(given)
    for name, meant in LOCATIONS.items():
        if given.get(name):
            for setting, text in zip(meant, _texts(given, name, len(meant), source), strict=True):
                if text:
                    found.setdefault(setting, text)
    return client_security(found, source, token_command)


def as_librdkafka(given: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The same settings, those of security as librdkafka knows them. InvalidConfig."""
    try:
        security = read_security({name: str(value) for name, value in given.items()}, source)
    except (UsageError, NoSuchThing) as error:
        raise InvalidConfig(error.message, hint=error.hint) from None
    if security.is_open:
        return dict(given)
    if "oauth_cb" in given and security.mechanism == OAUTHBEARER:
        raise InvalidConfig(
            f"{source}: oauth_cb and {TOKEN_URL} exclude each other: klog reads the token of the latter"
        )
    return {**{name: value for name, value in given.items() if name not in SETTINGS}, **librdkafka_security(security)}


def _texts(given: Mapping[str, str], name: str, wanted: int, source: str) -> list[str]:
    """The PEM text of a file: once for each setting that it answers, where it holds both certificate and key."""
    path = Path(given[name]).expanduser()
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise NoSuchThing(f"{source}: {name}: cannot read {path}: {error.strerror}") from None
    if len(content) > FILE_BYTES_MAX:
        raise UsageError(
            f"{source}: {name}: {path} has more than {FILE_BYTES_MAX >> 20} MiB: not a file of certificates"
        )
    store = "ssl.truststore" if "trust" in name else "ssl.keystore"
    try:
        key, chain = pem_of(content, path.name, given.get(f"{store}.type", "").upper(), given.get(f"{store}.password"))
    except ValueError as error:
        raise UsageError(f"{source}: {name}: cannot read {path}: {error}") from None
    if wanted > 1 and not key:
        raise UsageError(f"{source}: {name}: {path} has no key")
    return [chain.decode(), key.decode()][:wanted]


def librdkafka_security(security: ClientSecurity) -> dict[str, Any]:
    """Settings for confluent-kafka; none for an open cluster."""
    if security.mechanism != OAUTHBEARER:
        return dict(security.properties())
    return {
        PROTOCOL: security.protocol,
        "sasl.mechanisms": OAUTHBEARER,
        "oauth_cb": partial(_token, security),
        **security.tls_properties(),
    }


def _token(security: ClientSecurity, _: str) -> tuple[str, float]:
    """What ``oauth_cb`` returns: the token, and when it ends. librdkafka asks again before that, and after an error."""
    try:
        return read_token(security)
    except KlogError as error:
        log.error("not logged in: %s", error.message)  # librdkafka does not pass it on
        raise
