"""SASL logins over a connection: `klog.security.sasl_client.Login` with token files, commands and clock."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from klog.errors import NoSuchThing
from klog.host.secret_command import SECRET_BYTES_MAX, secret_from
from klog.security.bearer import OAUTHBEARER
from klog.security.client_security import TOKEN_URL, ClientSecurity
from klog.security.errors import SaslAuthenticationFailed
from klog.security.json_web_token import InvalidToken, unchecked_end_s
from klog.security.sasl_client import AUTHENTICATE_VERSION, NONCE_BYTES, Login

TOKEN_WITHIN_S: Final = 20.0
"""Time-out of the command that prints a token."""


class Token(NamedTuple):
    """``ends_s``: wall clock, from the token itself."""

    text: str
    ends_s: float


def new_login(security: ClientSecurity, address: str, version: int = AUTHENTICATE_VERSION) -> Login:
    """``version``: of SaslAuthenticate. ``address``: for errors. Blocks: reads the token. Raises what `read_token`
    raises."""
    token = read_token(security).text if security.mechanism == OAUTHBEARER else ""
    return Login(security, address, secrets.token_bytes(NONCE_BYTES), version, token)


async def log_in(
    ask: Callable[[Any], Awaitable[Any]],
    security: ClientSecurity,
    address: str,
    version: int = AUTHENTICATE_VERSION,
) -> float:
    """Log in by ``ask``, which sends a request and returns its answer. Returns the seconds until the next login.

    Raises what `new_login`, `Login.next` and ``ask`` raise.
    """
    login = await asyncio.to_thread(new_login, security, address, version)
    request = await asyncio.to_thread(login.next)
    while request is not None:
        request = await asyncio.to_thread(login.next, await ask(request))
    return login.renewed_after_s


def read_token(security: ClientSecurity) -> Token:
    """Read the token from its file or command. Blocks.

    Raises NoSuchThing for an unreadable file, SecretUnavailable for a command that fails, and SaslAuthenticationFailed
    for what is not a JSON Web Token. No error quotes it.
    """
    if security.token_command:
        where = f"the command {security.token_command[0]}"
        text = secret_from(security.token_command, "the token", TOKEN_WITHIN_S)
    else:
        assert security.token_file is not None
        where = f"{TOKEN_URL}: {security.token_file}"
        try:
            with Path(security.token_file).open("rb") as file:
                text = file.read(SECRET_BYTES_MAX + 1).decode("utf-8-sig", "replace")
        except OSError as error:
            raise NoSuchThing(f"{where}: {error.strerror}") from None
    text = text.strip()
    try:
        return Token(text, unchecked_end_s(text))
    except InvalidToken as error:
        raise SaslAuthenticationFailed(f"{where}: not a token that klog can show: {error.reason}") from None
