"""SASL authentication on a listener: nothing else is answered before it.

    connected     ApiVersions, SaslHandshake
    mechanism     SaslAuthenticate, as often as the mechanism has messages; after SaslHandshake v0 (clients before
                  2017) those messages alone, each behind its length
    authenticated everything; for clients, until ``connections.max.reauth.ms`` or the token's lifetime ends (KIP-368)

A failure is answered with the same words for every reason, after ``connection.failed.authentication.delay.ms``, and
ends the connection; the reason is in the broker's log.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from klog.errors import KlogError, RequestTimedOut
from klog.net.connection import Connection, OnFrame, Reply
from klog.net.rejected_peers import WrongProtocol
from klog.net.turns import ConnectionEnded
from klog.protocol.apis import ApiKey, api_name
from klog.security.bearer import OAUTHBEARER
from klog.security.errors import IllegalSaslState, SaslAuthenticationFailed, UnsupportedSaslMechanism
from klog.security.principal import ANONYMOUS, Principal
from klog.security.sasl import (
    PLAIN,
    BearerExchange,
    CheckToken,
    Exchange,
    FindCredential,
    PlainExchange,
    ScramExchange,
    Step,
)
from klog.security.scram import NONCE_BYTES, SALT_BYTES, ScramCredential, ScramMechanism, nonce_of
from klog.server.executors import Executors, Purpose

AUTHENTICATED_WITHIN_S: Final = 30.0
BEFORE: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
"""The requests that are answered before authentication."""
_LOGIN: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})


@dataclass(eq=False, repr=False)
class Mechanisms:
    """Creates exchanges of the mechanisms that a listener supports."""

    enabled: tuple[str, ...]
    find: FindCredential
    usual: Callable[[ScramMechanism], ScramCredential | None]
    """A typical credential."""
    plain_users: Mapping[str, str]
    """Name -> password, for PLAIN; if empty, it tries SCRAM's credentials."""
    salting: bytes
    """The same on all brokers of the cluster, also after a restart: else an unknown name would show by different salts
    of two brokers."""
    check_token: CheckToken | None = None
    """Required if OAUTHBEARER is enabled."""

    def __post_init__(self) -> None:
        self._spare = ScramCredential.of_password(
            ScramMechanism.SHA_256, secrets.token_hex(), secrets.token_bytes(SALT_BYTES)
        )

    def exchange(self, name: str) -> Exchange:
        """Raises UnsupportedSaslMechanism."""
        if name in self.enabled:
            if name == PLAIN:
                return PlainExchange(self.plain_users, self.find, self._spare)
            if name == OAUTHBEARER and self.check_token is not None:
                return BearerExchange(self.check_token)
            mechanism = ScramMechanism.of(name)
            if mechanism is not None:
                nonce = nonce_of(secrets.token_bytes(NONCE_BYTES))
                find, usual = partial(self.find, mechanism), self.usual(mechanism)
                return ScramExchange(mechanism, find, nonce, self.salting, usual)
        raise UnsupportedSaslMechanism(
            f"the mechanism is not one of those enabled here, {', '.join(self.enabled)}", hint=ascii(name[:40])
        )


@dataclass(eq=False, repr=False)
class SaslListener:
    """A listener with SASL. Event loop only."""

    mechanisms: Mechanisms
    executors: Executors
    inside: OnFrame
    """Handles requests of authenticated clients."""
    first_frame_bytes_max: int
    frame_bytes_max: int
    failure_delay_s: float
    session_s: float
    """0: as long as the connection lasts."""

    def on_connected(self, connection: Connection) -> None:
        connection.sasl = Authentication(self, connection)
        connection.limit_frames(self.first_frame_bytes_max)
        connection.due_s = connection.last_active_s + AUTHENTICATED_WITHIN_S
        connection.hand_to(self.on_frame)

    def on_frame(self, connection: Connection, frame: memoryview, reply: Reply) -> None:
        """Raises WrongProtocol, which ends the connection, for a request out of order."""
        state = connection.sasl
        assert isinstance(state, Authentication)
        if state.is_raw:
            state.take_raw(bytes(frame), reply)
            return
        key = int.from_bytes(frame[:2])
        state.check_may_ask(key)
        if key == ApiKey.SASL_AUTHENTICATE:
            state.begins_step()
        self.inside(connection, frame, reply)


class Authentication:
    """The state of one connection's authentication."""

    def __init__(self, listener: SaslListener, connection: Connection) -> None:
        self._listener = listener
        self._connection = connection
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self.is_raw = False
        """The mechanism's messages come without Kafka's head, until the client has authenticated (SaslHandshake v0)."""
        self._raw_step: asyncio.Task[None] | None = None
        self._is_working = False
        self._has_failed = False
        self._failure: SaslAuthenticationFailed | None = None
        """The client was refused in the mechanism's own form, and must acknowledge that."""
        self._ends_s = -math.inf
        """When the client must have authenticated again."""

    @property
    def principal_is_known(self) -> bool:
        return self._ends_s > -math.inf

    def check_may_ask(self, key: int) -> None:
        if self._has_failed:
            raise WrongProtocol("a request after a failed authentication")
        if self._is_working and (key in _LOGIN or not self.principal_is_known):
            raise WrongProtocol("a request while the client's authentication is looked at")
        if self._failure is not None and key != ApiKey.SASL_AUTHENTICATE:
            raise WrongProtocol("a request after a failed authentication")
        if key in BEFORE:
            return
        if not self.principal_is_known:
            raise WrongProtocol(f"{api_name(key)} on a listener with SASL, before the client has authenticated")
        if asyncio.get_running_loop().time() > self._ends_s and not self._connection.is_broker:
            raise WrongProtocol(
                "the client has not authenticated again in time (connections.max.reauth.ms, or its token)"
            )

    def begins_step(self) -> None:
        """Call when the frame arrives, not when it is handled: of passwords sent in a row, only one is tried."""
        self._is_working = True

    def begin(self, mechanism: str, version: int) -> dict[str, Any]:
        """The answer to SaslHandshake, of this version."""
        enabled = self._listener.mechanisms.enabled
        try:
            if self._exchange is not None:
                raise IllegalSaslState("an authentication is under way")
            self._exchange = self._listener.mechanisms.exchange(mechanism)
            self._mechanism = mechanism
            self.is_raw = version == 0
        except KlogError as error:
            self._fail(error.message, error.hint or "")
            return {"error_code": error.wire, "mechanisms": enabled}
        return {"mechanisms": enabled}

    def take_raw(self, message: bytes, reply: Reply) -> None:
        """A bare message of the mechanism. Raises WrongProtocol, as `check_may_ask`."""
        self.check_may_ask(ApiKey.SASL_AUTHENTICATE)
        self.begins_step()
        self._raw_step = asyncio.ensure_future(self._answer_raw(message, reply))

    async def _answer_raw(self, message: bytes, reply: Reply) -> None:
        """This form cannot carry an error: the connection ends instead."""
        try:
            answer = await self.step(message)
        except ConnectionEnded:
            return
        except KlogError:
            reply.nothing()
        else:
            reply.send(struct.pack(">i", len(answer["auth_bytes"])), answer["auth_bytes"])

    async def step(self, message: bytes) -> dict[str, Any]:
        """The answer to SaslAuthenticate. Raises IllegalSaslState, SaslAuthenticationFailed."""
        exchange = self._exchange
        if exchange is None:
            self._fail("SaslAuthenticate without SaslHandshake")
            raise IllegalSaslState("SaslHandshake comes first")
        if self._failure is not None:
            raise self._end()
        began_s = asyncio.get_running_loop().time()
        try:
            if exchange.is_expensive:
                step = await self._listener.executors.run_in_turn(
                    self._connection.address, "", Purpose.AUTHENTICATION, exchange.step, message
                )
            else:
                step = exchange.step(message)
            self._check_same(step)
            if step.failure is not None:
                await self._tell(step.failure.message, step.failure.hint, began_s)
        except (SaslAuthenticationFailed, RequestTimedOut) as error:
            self._has_failed = True
            await self._tell(error.message, error.hint, began_s)
            raise self._end() from None
        finally:
            self._is_working = False
        self._failure = step.failure
        lifetime_ms = 0 if step.principal is None else self._passed(step.principal, step.lifetime_s)
        return {"auth_bytes": step.answer, "session_lifetime": lifetime_ms}

    async def _tell(self, why: str, found: str | None, began_s: float) -> None:
        """Log the reason, and delay the client's answer.

        The delay counts from the beginning of the step: its duration would tell the reason.
        """
        self._name_in_log(f"authentication by {self._mechanism} failed: {why}", found or "")
        await asyncio.sleep(max(0.0, began_s + self._listener.failure_delay_s - asyncio.get_running_loop().time()))

    def _end(self) -> SaslAuthenticationFailed:
        """The last answer: the same for every reason."""
        self._close()
        return SaslAuthenticationFailed(f"authentication by {self._mechanism} failed")

    def _check_same(self, step: Step) -> None:
        if step.principal is not None and self.principal_is_known and step.principal != self._connection.principal:
            raise SaslAuthenticationFailed("the client authenticates again as another user")

    def _passed(self, principal: Principal, lifetime_s: float) -> int:
        """The lifetime of the session in milliseconds; 0: as long as the connection lasts."""
        listener, connection = self._listener, self._connection
        self._exchange = None
        self.is_raw = False
        connection.principal = principal
        connection.due_s = math.inf
        connection.limit_frames(listener.frame_bytes_max)
        session_s = min(listener.session_s or math.inf, lifetime_s)
        self._ends_s = asyncio.get_running_loop().time() + session_s
        return 0 if session_s == math.inf else max(1, int(session_s * 1000))

    def _fail(self, why: str, found: str = "") -> None:
        self._name_in_log(why, found)
        self._close()

    def _name_in_log(self, why: str, found: str) -> None:
        self._connection.rejected_peers.log(self._connection.peer, why, found)

    def _close(self) -> None:
        self._has_failed = True
        self._exchange = None
        self._connection.principal = ANONYMOUS
        self._connection.turn_away()
