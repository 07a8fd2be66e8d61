"""Security of each listener: TLS, SASL, and principals of its connections."""

from __future__ import annotations

import asyncio
import logging
import math
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from klog.config import BrokerConfig
from klog.config.listeners import Listener
from klog.errors import InvalidConfig, KlogError, PeerError, UsageError
from klog.net.client_tls import client_context
from klog.net.connection import Connection, OnFrame
from klog.net.server import ConnectionSetup
from klog.net.tls_context import TlsKeeper, TlsSettings, server_context
from klog.secret import Secret
from klog.security.bearer import OAUTHBEARER
from klog.security.certificates import subject_of
from klog.security.client_security import OPEN, PLAINTEXT, ClientSecurity
from klog.security.jaas import Jaas
from klog.security.principal import MappingRules, Principal
from klog.security.sasl import PLAIN
from klog.server.authentication import Mechanisms, SaslListener
from klog.server.credentials import UserCredentials
from klog.server.executors import Purpose
from klog.server.peer_addresses import PeerAddresses
from klog.server.runtime import Runtime

if TYPE_CHECKING:
    from klog.server.token_keys import TokenKeys

log = logging.getLogger(__name__)

UNKNOWN_USERS: Final = b"klog cluster secret 1, unknown users\0"
"""The text that is signed with the cluster's secret for the salts of unknown users."""
WARN_EVERY_S: Final = 86400.0
LOOK_EVERY_S: Final = 2.0
"""Interval of checks for changed certificates and key sets."""


class ListenerSecurity:
    """Event loop only."""

    def __init__(self, runtime: Runtime, credentials: UserCredentials) -> None:
        self._runtime = runtime
        self._credentials = credentials
        self.keepers: dict[str, TlsKeeper] = {}
        """Listener -> its certificates."""
        self._token_keys: dict[str, TokenKeys] = {}
        """Listener -> the keys of its clients' tokens."""

    async def load(self) -> None:
        """Read the certificates and the credentials that the listeners need. Raises InvalidConfig."""
        check_settings(self._runtime.config)
        listeners = self._runtime.config.listeners
        for one in listeners.all:
            if one.has_tls:
                settings = TlsSettings.of(self._runtime.config.of_listener(one.name))
                self.keepers[one.name] = await self._runtime.executors.run(
                    Purpose.OTHER, TlsKeeper, settings, server_context, one.name
                )
            if one.has_sasl:
                await self._load_token_keys(one)
        self._runtime.identity.peer_addresses = await self._runtime.executors.run(
            Purpose.OTHER, peer_addresses_of, self._runtime.config
        )
        if any(one.has_sasl for one in listeners.all):
            await self._credentials.load()

    async def _load_token_keys(self, listener: Listener) -> None:
        config = self._runtime.config.of_listener(listener.name, OAUTHBEARER)
        if OAUTHBEARER not in config.words("sasl.enabled.mechanisms"):
            return
        from klog.server.token_keys import TokenKeys  # imported only for tokens

        found = await self._runtime.executors.run(Purpose.OTHER, TokenKeys, config, listener.name)
        self._token_keys[listener.name] = found
        _tell_skipped(found)

    def setup(self, listener: Listener, inside: OnFrame, secret: Secret) -> ConnectionSetup:
        """``secret``: the cluster's. Raises InvalidConfig."""
        keeper = self.keepers.get(listener.name)
        config = self._runtime.config.of_listener(listener.name)
        on_connected = self._sasl(config, listener, inside, secret).on_connected if listener.has_sasl else None
        on_shaken = None
        if keeper is not None and not listener.has_sasl:
            on_shaken = partial(_recognize, MappingRules(config.text("ssl.principal.mapping.rules")))
        return ConnectionSetup(
            listener.name, None if keeper is None else (lambda: keeper.context), on_shaken, on_connected
        )

    def _sasl(self, config: BrokerConfig, listener: Listener, inside: OnFrame, secret: Secret) -> SaslListener:
        enabled = config.words("sasl.enabled.mechanisms")
        users: dict[str, str] = {}
        for mechanism, shown in ((PLAIN, "password"), (OAUTHBEARER, "token")):
            if mechanism in enabled and not listener.has_tls:
                log.warning(
                    "listener %s: %s without TLS shows every %s to the network", listener.name, mechanism, shown
                )
        if PLAIN in enabled:
            jaas = self._runtime.config.of_listener(listener.name, PLAIN)["sasl.jaas.config"]
            users = Jaas.parse(jaas).users if isinstance(jaas, str) else {}
        keys = self._token_keys.get(listener.name)
        return SaslListener(
            Mechanisms(
                enabled,
                self._credentials.find,
                self._credentials.usual,
                users,
                secret.sign(UNKNOWN_USERS),
                None if keys is None else keys.check,
            ),
            self._runtime.executors,
            inside,
            first_frame_bytes_max=config.integer("sasl.server.max.receive.size"),
            frame_bytes_max=config.integer("socket.request.max.bytes"),
            failure_delay_s=config.integer("connection.failed.authentication.delay.ms") / 1000,
            session_s=config.integer("connections.max.reauth.ms") / 1000,
        )

    def days_left(self) -> dict[str, float]:
        """Listener -> days until the first of its own certificates expires. Any thread."""
        now = datetime.now(UTC)
        return {
            keeper.name: (keeper.expires_at - now).total_seconds() / 86400
            for keeper in list(self.keepers.values())
            if keeper.expires_at is not None
        }

    def _warn_of_ends(self) -> None:
        for name, days in self.days_left().items():
            if days < self._runtime.config.integer("klog.certificate.warning.days"):
                log.warning("listener %s: its certificate ends in %.1f days", name, days)

    async def keep(self) -> None:
        """Reload changed certificates and key sets, while the broker runs."""
        watched: list[TlsKeeper | TokenKeys] = [*self.keepers.values(), *self._token_keys.values()]
        warned_s = -math.inf
        while watched and not self._runtime.is_stopping:
            if self._runtime.loop.time() - warned_s >= WARN_EVERY_S:
                warned_s = self._runtime.loop.time()
                self._warn_of_ends()
            await asyncio.sleep(LOOK_EVERY_S)
            for one in watched:
                what = "certificates" if isinstance(one, TlsKeeper) else "token keys"
                try:
                    if await self._runtime.executors.run(Purpose.OTHER, one.look):
                        await self._taken_in(one)
                        log.info("listener %s: its %s have changed, and are in use", one.name, what)
                except KlogError as error:
                    log.error("listener %s: the files have changed, and cannot be used: %s", one.name, error.message)

    async def _taken_in(self, one: TlsKeeper | TokenKeys) -> None:
        if not isinstance(one, TlsKeeper):
            _tell_skipped(one)
            return
        self._runtime.identity.peer_addresses = await self._runtime.executors.run(
            Purpose.OTHER, peer_addresses_of, self._runtime.config
        )


def _tell_skipped(keys: TokenKeys) -> None:
    for what in keys.skipped:
        log.warning("listener %s: the key set has a key that is not used: %s", keys.name, what)


def peer_addresses_of(config: BrokerConfig) -> PeerAddresses:
    """Connections to other brokers, by this broker's own listeners. In a thread: reads files. Raises InvalidConfig."""
    plain = tuple(one.name for one in config.listeners.all if one.protocol == PLAINTEXT)
    return PeerAddresses(config.listeners.brokers.name, security_between(config), plain)


def security_between(config: BrokerConfig) -> ClientSecurity:
    """Security of connections to other brokers, by the settings of their listener. In a thread: reads files.

    Raises InvalidConfig.
    """
    listener = config.listeners.brokers
    if listener.protocol == PLAINTEXT:
        return OPEN
    own = config.of_listener(listener.name)
    mechanism, username, password = None, "", ""
    if listener.has_sasl:
        mechanism = own.text("sasl.mechanism.inter.broker.protocol")
        text = config.of_listener(listener.name, mechanism)["sasl.jaas.config"]
        jaas = Jaas.parse(text) if isinstance(text, str) else Jaas()
        if jaas.username is None or jaas.password is None:
            name = f"listener.name.{listener.name.lower()}.{mechanism.lower()}.sasl.jaas.config"
            raise InvalidConfig(
                f"listener {listener.name} is for brokers and has SASL: this broker has no name and password there",
                hint=f'{name}=MODULE required username="NAME" password="PASSWORD";',
            )
        username, password = jaas.username, jaas.password
    if not listener.has_tls:
        return ClientSecurity(listener.protocol, mechanism, username, password)
    tls = TlsSettings.of(own)
    chain = tls.key_store.read().decode("ascii", "replace") if tls.key_store.is_given else None
    made = ClientSecurity(
        listener.protocol,
        mechanism,
        username,
        password,
        tls.trust_store.read().decode("ascii", "replace") if tls.trust_store.is_given else None,
        chain,
        chain,
        tls.key_password or tls.key_store.password,
        tls.checks_host,
    )
    try:
        client_context(made)
    except UsageError as error:
        raise InvalidConfig(f"listener {listener.name}, for connections to other brokers: {error.message}") from None
    return made


def _recognize(rules: MappingRules, connection: Connection, certificate: dict[str, Any] | None) -> None:
    """Map a client's certificate to its principal; without one the connection stays anonymous. Raises PeerError."""
    if certificate is None:
        return
    subject = subject_of(certificate)
    name = rules.name_of(subject)
    if name is None:
        raise PeerError(f"no rule of ssl.principal.mapping.rules fits the certificate of {subject}")
    connection.principal = Principal.user(name)


def check_settings(config: BrokerConfig) -> None:
    """Check the settings of all listeners together, without reading files. Raises InvalidConfig."""
    if config.integer("schema.registry.port") and all(one.has_sasl for one in config.listeners.all):
        raise InvalidConfig(
            "schema.registry.port: every listener asks for a login, and the registry over HTTP knows no users",
            hint="`klog schema serve` serves the registry with a user's own permissions",
        )
    for one in config.listeners.all:
        own = config.of_listener(one.name)
        MappingRules(own.text("ssl.principal.mapping.rules"))
        if one.has_sasl and not own.words("sasl.enabled.mechanisms"):
            raise InvalidConfig(f"listener {one.name} has SASL, and sasl.enabled.mechanisms is empty")
        if one.has_sasl and OAUTHBEARER in own.words("sasl.enabled.mechanisms"):
            from klog.server.token_keys import key_file

            key_file(config.of_listener(one.name, OAUTHBEARER))
