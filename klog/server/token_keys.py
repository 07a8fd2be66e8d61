"""The key set by which a listener verifies tokens: a file, read again when it changes."""

from __future__ import annotations

from codecs import BOM_UTF8
from pathlib import Path
from typing import Final

from klog.clock import SYSTEM_CLOCK, Clock
from klog.config import BrokerConfig
from klog.errors import InvalidConfig
from klog.net.tls_context import stamp_of
from klog.security.client_security import path_of_url
from klog.security.errors import SaslAuthenticationFailed
from klog.security.json_web_keys import KeySet
from klog.security.json_web_token import InvalidToken, TokenRules, bearer_of

URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
FILE_BYTES_MAX: Final = 1 << 20


class TokenKeys:
    """The current keys and their file. Thread-safe; blocks: reads files."""

    def __init__(self, config: BrokerConfig, name: str, clock: Clock = SYSTEM_CLOCK) -> None:
        """``config``: of one listener and OAUTHBEARER; ``name``: the listener's. Raises InvalidConfig."""
        self.name = name
        self._clock = clock
        self._path = key_file(config)
        self._rules = TokenRules(
            config.words("sasl.oauthbearer.expected.audience"),
            _text(config, "sasl.oauthbearer.expected.issuer"),
            config.text("sasl.oauthbearer.sub.claim.name"),
            config.text("sasl.oauthbearer.scope.claim.name"),
            config.integer("sasl.oauthbearer.clock.skew.seconds"),
        )
        self._stamp = stamp_of(self._path)
        self._keys = self._read()

    @property
    def skipped(self) -> tuple[str, ...]:
        """Unused entries of the file, in words."""
        return self._keys.skipped

    def check(self, token: str) -> tuple[str, float]:
        """The user of a token, and its remaining lifetime in seconds. Raises SaslAuthenticationFailed."""
        now_s = self._clock.now_ms() / 1000
        try:
            found = bearer_of(token, self._keys.find, self._rules, now_s)
        except InvalidToken as error:
            raise SaslAuthenticationFailed(f"the token: {error.reason}", hint=error.found or None) from None
        return found.name, found.ends_s - now_s

    def look(self) -> bool:
        """Reload a changed file; whether it had changed. Raises InvalidConfig, and keeps the old keys."""
        stamp = stamp_of(self._path)
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        self._keys = self._read()
        return True

    def _read(self) -> KeySet:
        try:
            with self._path.open("rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
        except OSError as error:
            raise InvalidConfig(f"{URL}: {self._path}: {error.strerror}") from None
        if len(data) > FILE_BYTES_MAX:
            raise InvalidConfig(f"{URL}: {self._path}: more than {FILE_BYTES_MAX} bytes, not a key set")
        try:
            return KeySet.parse(data.removeprefix(BOM_UTF8))
        except InvalidConfig as error:
            raise InvalidConfig(f"{URL}: {self._path}: {error.message}") from None


def key_file(config: BrokerConfig) -> Path:
    """The file named by the setting. Raises InvalidConfig, also if it is not set or not a file's URL."""
    given = _text(config, URL)
    if given is None:
        raise InvalidConfig(
            f"OAUTHBEARER needs the keys that sign its tokens: {URL} is not set",
            hint=f"{URL}=file:///etc/klog/jwks.json",
        )
    path = path_of_url(given)
    if path is None:
        raise InvalidConfig(
            f"{URL}={given}: klog reads a key set from a file alone; expected file:///PATH",
            hint="have a timer fetch the set into a file: klog takes in a changed one within seconds",
        )
    return Path(path)


def _text(config: BrokerConfig, name: str) -> str | None:
    value = config[name]
    return value if isinstance(value, str) and value else None
