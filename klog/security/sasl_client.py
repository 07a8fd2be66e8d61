"""The client's side of SASL: messages, checks of the answers, and the time of the next login. No I/O."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any, Final

from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.security import bearer
from klog.security.bearer import OAUTHBEARER
from klog.security.client_security import ClientSecurity
from klog.security.errors import SaslAuthenticationFailed, UnsupportedSaslMechanism
from klog.security.scram import NONCE_BYTES, ScramClient, ScramMechanism, nonce_of

__all__ = ["AUTHENTICATE_VERSION", "NONCE_BYTES", "RENEWED_AT", "Login"]

RENEWED_AT: Final = 0.8
"""The part of a session's lifetime after which a client logs in again (KIP-368)."""

AUTHENTICATE_VERSION: Final = 2
"""The highest version of SaslAuthenticate that klog's clients speak."""

Conversation = Generator[bytes, bytes, None]
"""Yields messages, is sent each answer, and ends when the client accepts."""


class Login:
    """One login on one connection. It makes requests and takes their answers:

        request = login.next()
        while request is not None:
            request = login.next(the answer to request)

    `renewed_after_s` is then known. `next` raises UnsupportedSaslMechanism and SaslAuthenticationFailed, also for a
    server that cannot prove that it knows the user. It stretches passwords, milliseconds of CPU time: call it in a
    thread.
    """

    def __init__(
        self, security: ClientSecurity, address: str, drawn: bytes, version: int = AUTHENTICATE_VERSION, token: str = ""
    ) -> None:
        """``drawn``: `NONCE_BYTES` of randomness; ``version`` of SaslAuthenticate; ``address`` for errors.

        ``token``: for OAUTHBEARER, ASCII.
        """
        self.renewed_after_s = math.inf
        """Seconds from the end of this login to the next."""
        self._security = security
        self._address = address
        self._version = version
        self._steps = self._run(_conversation(security, drawn, token))

    def next(self, answer: Any = None) -> Any:
        """The next request, or None at the end. ``answer``: that of the request before."""
        try:
            return self._steps.send(answer)
        except StopIteration:
            return None

    def _run(self, talk: Conversation) -> Generator[Any, Any, None]:
        self._check_mechanism((yield codec.request(ApiKey.SASL_HANDSHAKE, 1, mechanism=self._security.mechanism)))
        message = next(talk)
        while True:
            answer = yield codec.request(ApiKey.SASL_AUTHENTICATE, self._version, auth_bytes=message)
            self._check_authentication(answer)
            try:
                message = talk.send(bytes(answer.auth_bytes))
            except StopIteration:
                break
        lifetime_s = answer.session_lifetime.total_seconds() if self._version >= 1 else 0
        if lifetime_s > 0:
            self.renewed_after_s = lifetime_s * RENEWED_AT

    def _check_mechanism(self, answer: Any) -> None:
        if answer.error_code.value:
            served = ", ".join(answer.mechanisms) or "none"
            raise UnsupportedSaslMechanism(
                f"{self._address} does not take the mechanism {self._security.mechanism}",
                hint=f"its mechanisms: {served}",
            )

    def _check_authentication(self, answer: Any) -> None:
        if answer.error_code.value:
            said = answer.error_message or answer.error_code.name
            if self._security.mechanism == OAUTHBEARER:
                raise SaslAuthenticationFailed(
                    f"{self._address} does not accept the token: {said}",
                    hint="has the token expired, and is it meant for this cluster? The broker's log has the reason",
                )
            raise SaslAuthenticationFailed(
                f"{self._address} does not accept the user {self._security.username!r}: {said}",
                hint="is the name right, and the password? `klog user list` shows the users of a cluster",
            )


def _conversation(security: ClientSecurity, drawn: bytes, token: str) -> Conversation:
    if security.mechanism == OAUTHBEARER:
        return _bearer(token)
    mechanism = ScramMechanism.of(security.mechanism or "")
    if mechanism is None:
        return _plain(security)
    return _scram(ScramClient(mechanism, security.username, security.password, nonce_of(drawn)))


def _plain(security: ClientSecurity) -> Conversation:
    yield b"\0".join((b"", security.username.encode(), security.password.encode()))


def _scram(client: ScramClient) -> Conversation:
    answer = yield client.first()
    answer = yield client.final(answer)
    client.check(answer)


def _bearer(token: str) -> Conversation:
    answer = yield bearer.client_message(token)
    if answer:
        yield bearer.ACKNOWLEDGEMENT  # which the server answers with its error
        raise SaslAuthenticationFailed("the server has refused the token, and then let us in")
