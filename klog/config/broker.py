"""A broker's settings: the table, and the values that one broker was given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from klog.config.listeners import Listeners, listeners_of
from klog.config.setting import LONG_MAX, Setting, Value, described, text_of, without_unit
from klog.config.table_cluster import CLUSTER_SETTINGS
from klog.config.table_log import LOG_SETTINGS
from klog.config.table_network import NETWORK_SETTINGS
from klog.config.table_security import SECRETS as SECRETS_OF_LISTENERS
from klog.config.table_security import SECURITY_SETTINGS
from klog.config.table_unused import UNUSED_SETTINGS
from klog.config.table_zookeeper import SECRETS as SECRETS_OF_ZOOKEEPER
from klog.config.table_zookeeper import ZOOKEEPER_SETTINGS
from klog.config.topic_maps import TOPIC_MAP_SETTINGS, TOPIC_MAPS
from klog.errors import InvalidConfig

BROKER_SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        *described(NETWORK_SETTINGS),
        *described(SECURITY_SETTINGS),
        *described(ZOOKEEPER_SETTINGS),
        *described(LOG_SETTINGS),
        *described(CLUSTER_SETTINGS),
        *described(TOPIC_MAP_SETTINGS),
        *UNUSED_SETTINGS,
    )
}
"""Every setting of a broker by its current name."""

SECRETS = SECRETS_OF_LISTENERS | SECRETS_OF_ZOOKEEPER
"""Settings whose values are never shown."""

ALIASES: dict[str, str] = {alias: setting.name for setting in BROKER_SETTINGS.values() for alias in setting.aliases}
"""Older names -> the current name."""

OF_LISTENERS = frozenset(
    [one.name for one in SECURITY_SETTINGS]
    + [one.name for one in UNUSED_SETTINGS if one.name.startswith(("ssl.", "sasl."))]
    + ["max.connections", "max.connection.creation.rate"]
)
"""Settings that may be given per listener."""
_OF_LISTENER = "listener.name."

DEFAULT_SOURCE = "default"

T = TypeVar("T")


class _Given(NamedTuple):
    value: Value
    source: str


class BrokerConfig:
    """The settings of one broker. Immutable once made; safe to share.

    ``config["log.segment.bytes"]`` is the typed value: as given, else from the settings that it follows, else the
    default. `integer`, `text` and `flag` also check the type, for mypy.
    """

    def __init__(self, given: Mapping[str, _Given], warnings: tuple[str, ...]) -> None:
        self._given = dict(given)
        self._of_topics = _of_topics(given)
        self.warnings = warnings
        """Warnings at start-up: unknown names, names given twice, risky settings."""

    @classmethod
    def parse(cls, properties: Mapping[str, str], source: str = "settings") -> BrokerConfig:
        """The configuration from these properties; see `layered`."""
        return cls.layered([(source, properties)])

    @classmethod
    def layered(cls, layers: Iterable[tuple[str, Mapping[str, str]]]) -> BrokerConfig:
        """The configuration from several sources, (source, properties); a later one overrides those before it.
        Durations and sizes may have units.

        Unknown names become warnings (Kafka ignores them, and a typing error should be seen); invalid values raise
        InvalidConfig with the setting, the value, its source and what was expected.
        """
        given: dict[str, _Given] = {}
        warnings: list[str] = []
        for source, properties in layers:
            seen: dict[str, str] = {}
            for written, text in properties.items():
                name = ALIASES.get(written, written)
                setting = BROKER_SETTINGS.get(setting_of(name))
                if setting is None:
                    warnings.append(f"unknown setting {written} (from {source}) is ignored{_did_you_mean(written)}")
                    continue
                if name in seen:
                    if written != name:  # the current name wins over an older one in the same source
                        warnings.append(f"{written} (from {source}) is ignored: {seen[name]} is the same setting")
                        continue
                    warnings.append(f"{seen[name]} (from {source}) is ignored: {written} is the same setting")
                seen[name] = written
                plain = without_unit(setting, text)
                given[name] = _Given(setting.parse(plain, name=written, source=source), source)
        config = cls(given, ())
        # A bad host or port is an error now, not when the socket is opened.
        config.listeners  # noqa: B018
        return cls(given, (*warnings, *_bad_ideas(config)))

    def of_topic(self, topic: str) -> BrokerConfig:
        """These settings for one topic, which 0.7's settings of topics may name (`TOPIC_MAPS`)."""
        own = self._of_topics.get(topic)
        return self if own is None else BrokerConfig({**self._given, **own}, self.warnings)

    def __getitem__(self, name: str) -> Value:
        return self._resolve(name).value

    def source(self, name: str) -> str:
        """The source of the value: one named in `layered`, or ``default``."""
        return self._resolve(name).source

    def is_given(self, name: str) -> bool:
        """Whether it was given, itself or by a setting that it follows."""
        return self.source(name) != DEFAULT_SOURCE

    def layers(self) -> list[tuple[str, dict[str, str]]]:
        """The given settings by source, as `layered` takes them, with current names."""
        found: dict[str, dict[str, str]] = {}
        for name, (value, source) in self._given.items():
            text = text_of(value)
            if text is not None:
                found.setdefault(source, {})[name] = text
        return list(found.items())

    def given_text(self, name: str) -> str | None:
        """The text given under this very name; None where a setting that it follows or the default decides."""
        given = self._given.get(name)
        return None if given is None else text_of(given.value)

    def integer(self, name: str) -> int:
        return self._typed(name, int)

    def text(self, name: str) -> str:
        return self._typed(name, str)

    def flag(self, name: str) -> bool:
        return self._typed(name, bool)

    def words(self, name: str) -> tuple[str, ...]:
        return self._typed(name, tuple)

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """The log dirs, in the order given."""
        return self.words("log.dirs")

    @property
    def listeners(self) -> Listeners:
        """The broker's listeners. Raises InvalidConfig."""
        try:
            return listeners_of(self.__getitem__)
        except InvalidConfig as error:
            texts = text_of(self["listeners"])
            if error.message.startswith("advertised.") or texts is None:
                raise
            where = f"listeners={texts} (from {self.source('listeners')})"
            raise InvalidConfig(f"{where}: {error.message}", hint=error.hint) from None

    def of_listener(self, name: str, mechanism: str = "") -> BrokerConfig:
        """These settings for one listener, and there for one SASL mechanism (KIP-103)."""
        own: dict[str, _Given] = {}
        for prefix in (_OF_LISTENER + f"{name.lower()}.", _OF_LISTENER + f"{name.lower()}.{mechanism.lower()}."):
            for written, given in self._given.items():
                if written.startswith(prefix) and (setting := written.removeprefix(prefix)) in OF_LISTENERS:
                    own[setting] = given
        return BrokerConfig({**self._given, **own}, self.warnings) if own else self

    def of_single_listeners(self) -> dict[str, str]:
        """``listener.name.*`` as given -> the setting that each overrides for a listener, or its mechanism."""
        return {name: setting_of(name) for name in self._given if name.startswith(_OF_LISTENER)}

    def _typed(self, name: str, kind: type[T]) -> T:
        value = self[name]
        if value is None:
            raise InvalidConfig(
                f"{name} is not set; expected {BROKER_SETTINGS[name].expected}",
                hint=f"-X {name}=VALUE, or a line in the file of --config",
            )
        assert isinstance(value, kind), f"{name} is a {type(value).__name__}"
        return value

    def _resolve(self, name: str) -> _Given:
        setting = BROKER_SETTINGS[name]
        given = self._given.get(name)
        if given is not None:
            return given
        if setting.default is not None or not setting.follows:
            return _Given(setting.default, DEFAULT_SOURCE)
        # Given ones first, whatever their place; then the last, which is the one that has a default.
        chosen = next((pair for pair in setting.follows if pair[0] in self._given), setting.follows[-1])
        leader = self._resolve(chosen[0])
        return _Given(_scaled(leader.value, chosen[1], setting), leader.source)


def setting_of(name: str) -> str:
    """The setting of a name: itself, or the one in ``listener.name.NAME.[MECHANISM.]SETTING``."""
    if name.startswith(_OF_LISTENER):
        rest = name.removeprefix(_OF_LISTENER).partition(".")[2]
        for setting in (rest, rest.partition(".")[2]):
            if setting in OF_LISTENERS:
                return setting
    return name


def _of_topics(given: Mapping[str, _Given]) -> dict[str, dict[str, _Given]]:
    """Topic -> setting -> value from one of `TOPIC_MAPS`."""
    found: dict[str, dict[str, _Given]] = {}
    for name, one in TOPIC_MAPS.items():
        if name in given:
            items, source = given[name]
            assert isinstance(items, tuple), name
            setting = BROKER_SETTINGS[one.broker_setting]
            for topic, text in one.values(items):
                value = setting.parse(text, name=f"{name} of {topic}: {setting.name}", source=source)
                found.setdefault(topic, {})[setting.name] = _Given(value, source)
    return found


def _scaled(value: Value, factor: int, setting: Setting) -> Value:
    """A followed setting's value in this one's unit: hours to milliseconds, one folder to a list of one."""
    if isinstance(value, int) and factor != 1:
        return value * factor if value > 0 else value  # -1 stays "no limit"
    if setting.kind == "list" and isinstance(value, str):
        return (value,)
    return value


def _bad_ideas(config: BrokerConfig) -> list[str]:
    warnings = []
    if config["replica.lag.max.messages"] is not None:
        warnings.append(
            "replica.lag.max.messages is set: a burst can remove followers that keep up in time from the ISR"
        )
    messages, due_ms = config.integer("log.flush.interval.messages"), config.integer("log.flush.interval.ms")
    lag_ms = config.integer("replica.lag.time.max.ms")
    if messages > 1 and lag_ms < due_ms and not messages == due_ms == LONG_MAX:
        due = "is not set" if due_ms == LONG_MAX else f"is {due_ms}, above replica.lag.time.max.ms ({lag_ms})"
        warnings.append(
            f"log.flush.interval.messages is {messages} and log.flush.interval.ms {due}: an acks=all request may wait "
            "that long, and topics with several replicas are refused unless their flush.messages or flush.ms is "
            "smaller"
        )
    if config.flag("unclean.leader.election.enable"):
        warnings.append(
            "unclean.leader.election.enable is true, but has no effect on a broker: "
            "only a topic's own setting allows elections that lose acknowledged messages"
        )
    return warnings


def _did_you_mean(name: str) -> str:
    """The nearest known name, for typing errors; difflib is loaded only then."""
    from difflib import get_close_matches

    near = get_close_matches(name, [*BROKER_SETTINGS, *ALIASES], 1, 0.85)
    return f"; did you mean {near[0]}?" if near else ""


def default_text(name: str) -> str | None:
    """A setting's default as text, or that of a setting that it follows; None without one."""
    return text_of(BrokerConfig({}, ())[name])
