"""The server's side of SASL: one `Exchange` per authentication. No I/O.

PLAIN            one message ``[AUTHZID] NUL NAME NUL PASSWORD``; for use over TLS only
SCRAM-SHA-*      `klog.security.scram`
OAUTHBEARER      `klog.security.bearer`
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from klog.security import bearer
from klog.security.errors import SaslAuthenticationFailed
from klog.security.principal import Principal
from klog.security.scram import NAME_BYTES_MAX, ScramCredential, ScramMechanism, ScramServer

PLAIN: Final = "PLAIN"
FindCredential = Callable[[ScramMechanism, str], ScramCredential | None]


CheckToken = Callable[[str], tuple[str, float]]
"""The user of a token, and its remaining lifetime in seconds. Raises SaslAuthenticationFailed."""


class Step(NamedTuple):
    """The server's answer to a client's message; ``principal``: None until the exchange has succeeded."""

    answer: bytes
    principal: Principal | None = None
    lifetime_s: float = math.inf
    """The lifetime of the authentication in seconds."""
    failure: SaslAuthenticationFailed | None = None
    """Set if the answer refuses the client in the mechanism's own form. The client's next message gets this error."""


class Exchange(Protocol):
    """One authentication of one client."""

    is_expensive: bool
    """A step may take milliseconds of CPU time: run it in a thread."""

    def step(self, message: bytes) -> Step:
        """Raises SaslAuthenticationFailed, with message and hint for the log."""
        ...


class ScramExchange(ScramServer):
    """Two steps."""

    is_expensive = False

    def step(self, message: bytes) -> Step:
        if not self.name:
            return Step(self.first(message))
        return Step(self.final(message), Principal.user(self.name))


@dataclass(eq=False, repr=False)
class PlainExchange:
    """One step. Passwords are those of ``users``; if empty, those of SCRAM's credentials."""

    users: Mapping[str, str]
    find: FindCredential
    spare: ScramCredential
    """Stretched for an unknown name, so that it takes as long as a known one."""
    is_expensive = True

    def step(self, message: bytes) -> Step:
        parts = message.split(b"\0")
        if len(parts) != 3:
            raise SaslAuthenticationFailed("the client's message is not PLAIN's")
        try:
            acting_for, name, password = (part.decode() for part in parts)
        except UnicodeDecodeError:
            raise SaslAuthenticationFailed("the client's message is not UTF-8") from None
        if not name or not password or len(parts[1]) > NAME_BYTES_MAX or len(parts[2]) > NAME_BYTES_MAX:
            raise SaslAuthenticationFailed("the name or the password is empty or too long")
        if acting_for not in ("", name):
            raise SaslAuthenticationFailed("the client wants to act for another name than its own")
        if not self._is_right(name, password):
            raise SaslAuthenticationFailed("the user is unknown or the password is wrong")
        return Step(b"", Principal.user(name))

    def _is_right(self, name: str, password: str) -> bool:
        if self.users:
            known = self.users.get(name)
            is_equal = hmac.compare_digest((known or "").encode(), password.encode())
            return known is not None and is_equal
        found = [(one, self.find(one, name)) for one in ScramMechanism]
        mechanism, credential = next(((one, it) for one, it in found if it), (ScramMechanism.SHA_256, None))
        is_equal = (credential or self.spare).has_password(mechanism, password)
        return credential is not None and is_equal


class BearerExchange:
    """One step, and another for a refused token."""

    is_expensive = True

    def __init__(self, check: CheckToken) -> None:
        self._check = check

    def step(self, message: bytes) -> Step:
        said = bearer.parse_message(message)
        try:
            name, lifetime_s = self._check(said.token)
            if len(name.encode()) > NAME_BYTES_MAX:
                raise SaslAuthenticationFailed("the user's name in the token is too long")
            if said.acting_for not in ("", name):
                raise SaslAuthenticationFailed("the client wants to act for another name than its token's")
        except SaslAuthenticationFailed as error:
            return Step(bearer.REFUSAL, failure=error.bare())
        return Step(b"", Principal.user(name), lifetime_s)
