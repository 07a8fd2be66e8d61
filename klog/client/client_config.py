"""Files of client settings as Kafka's tools take them: ``consumer.properties``, ``producer.properties``, 0.8's too.

A file says which cluster is meant, how to connect to it, how long an answer may take, and, for what sends or reads
messages, the settings of librdkafka. What only Java's clients have is named and left out; what no client has is named,
with the nearest name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from klog.client import consumer_settings, producer_settings, zookeeper_access
from klog.client.producer_settings import ALIASES, codec_name
from klog.client.security_files import read_security
from klog.config.properties import read_properties
from klog.coordination.zookeeper_access import ZooKeeperAccess
from klog.errors import UsageError
from klog.host.secret_command import secret_from
from klog.security.client_security import JAAS, PASSWORD, PROTOCOL, SETTINGS, USERNAME, ClientSecurity

PASSWORD_WITHIN_S: Final = 60.0
"""For the command that prints a password: it may ask for another one to unlock it."""

BOOTSTRAP: Final = ("bootstrap.servers", "metadata.broker.list", "broker.list")
ZOOKEEPER: Final = ("zookeeper.connect", "zk.connect")
TIMEOUT: Final = ("default.api.timeout.ms", "request.timeout.ms")

_SOCKET_NAMES: Final = """
    client.id send.buffer.bytes receive.buffer.bytes metadata.max.age.ms reconnect.backoff.ms reconnect.backoff.max.ms
    retry.backoff.ms retry.backoff.max.ms connections.max.idle.ms socket.connection.setup.timeout.ms
"""
_PRODUCER_NAMES: Final = """
    acks request.required.acks compression.type compression.codec compression.gzip.level compression.lz4.level
    compression.zstd.level linger.ms queue.buffering.max.ms batch.size batch.num.messages retries
    message.send.max.retries enable.idempotence max.in.flight.requests.per.connection delivery.timeout.ms
    max.request.size request.timeout.ms
"""

_SOCKETS: Final = {name: ALIASES.get(name, name) for name in _SOCKET_NAMES.split()}

PRODUCER: Final[Mapping[str, str]] = {
    **_SOCKETS,
    **{name: ALIASES.get(name, name) for name in _PRODUCER_NAMES.split()},
}
"""Settings that a producer takes, and what librdkafka calls them."""

CONSUMER: Final[Mapping[str, str]] = {
    **_SOCKETS,
    "fetch.min.bytes": "fetch.min.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "fetch.wait.max.ms": "fetch.wait.max.ms",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "fetch.message.max.bytes": "fetch.message.max.bytes",
    "fetch.max.bytes": "fetch.max.bytes",
    "check.crcs": "check.crcs",
    "client.rack": "client.rack",
    "group.instance.id": "group.instance.id",
    "session.timeout.ms": "session.timeout.ms",
    "heartbeat.interval.ms": "heartbeat.interval.ms",
    "max.poll.interval.ms": "max.poll.interval.ms",
}
"""The same of a consumer."""

_JAVA_ONLY_NAMES: Final = """
    key.serializer value.serializer key.deserializer value.deserializer serializer.class key.serializer.class
    interceptor.classes metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
    metrics.recorder auto.include.jmx.reporter enable.metrics.push group.protocol group.remote.assignor
    partitioner.class partitioner.ignore.keys partitioner.adaptive.partitioning.enable
    partitioner.availability.timeout.ms partition.assignment.strategy security.providers client.dns.lookup
"""
JAVA_ONLY: Final = frozenset(_JAVA_ONLY_NAMES.split())
"""Settings of Java's clients alone: what they name is Java's, or klog does without it."""

_WITHOUT_USE_NAMES: Final = """
    group.id auto.offset.reset enable.auto.commit auto.commit.interval.ms max.poll.records exclude.internal.topics
    isolation.level allow.auto.create.topics buffer.memory max.block.ms metadata.max.idle.ms transactional.id
    transaction.timeout.ms metadata.recovery.strategy metadata.recovery.rebootstrap.trigger.ms bootstrap.controllers
    socket.connection.setup.timeout.max.ms default.api.timeout.ms producer.type compressed.topics
    internal.leave.group.on.close topic.metadata.refresh.interval.ms queue.time queue.size reconnect.interval
"""
_WITHOUT_USE: Final = frozenset(_WITHOUT_USE_NAMES.split())

_KNOWN: Final = frozenset(
    (
        *BOOTSTRAP,
        *ZOOKEEPER,
        *SETTINGS,
        *zookeeper_access.SETTINGS,
        *zookeeper_access.WITHOUT_USE,
        *PRODUCER,
        *CONSUMER,
        *JAVA_ONLY,
        *_WITHOUT_USE,
        *ALIASES,
        *producer_settings.NO_USE,
        *consumer_settings.NO_USE,
        *(name for one in consumer_settings.SETTINGS for name in (one.name, *one.aliases)),
    )
)


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """What a file says. ``notes`` are sentences about settings that it has and klog does not use."""

    path: Path
    bootstrap: str | None
    zookeeper: str | None
    timeout_s: float | None
    notes: tuple[str, ...]
    given: Mapping[str, str] = field(default_factory=dict, repr=False)
    security: ClientSecurity | None = None
    """None where the file says nothing of it."""
    access: ZooKeeperAccess | None = None
    """How to come into ZooKeeper; None where the file says nothing of it."""

    def producer(self) -> dict[str, str]:
        """librdkafka's settings for what sends."""
        found = self._for(PRODUCER)
        if "compression.type" in found:
            found["compression.type"] = codec_name(found["compression.type"])
        return found

    def consumer(self) -> dict[str, str]:
        """librdkafka's settings for what reads."""
        found = self._for(CONSUMER)
        chunk = found.get("fetch.message.max.bytes", "")
        if chunk.isdigit():
            found["fetch.message.max.bytes"] = str(min(int(chunk), consumer_settings.CHUNK_BYTES_MAX))
        return found

    def _for(self, names: Mapping[str, str]) -> dict[str, str]:
        found: dict[str, str] = {}
        called: dict[str, str] = {}
        for name, value in self.given.items():
            meant = names.get(name)
            if meant is None or not value:
                continue
            if meant in found:
                raise UsageError(f"{self.path}: {called[meant]} and {name} are the same setting; give one of them")
            found[meant], called[meant] = value, name
        return found


class SecretCommands(NamedTuple):
    """Commands, with their arguments, that print what a file of settings leaves out; empty for none."""

    password: tuple[str, ...] = ()
    token: tuple[str, ...] = ()


def read_client_config(
    path: Path,
    commands: SecretCommands = SecretCommands(),
    more: Mapping[str, str] | None = None,
    base: ClientConfig | None = None,
) -> ClientConfig:
    """The settings of a file, and those of ``more``, which go before them; beneath them those of ``base``, but for its
    addresses.

    The password's command runs now, once in a process; the token's for each login. Raises SecretUnavailable,
    NoSuchThing for a file that cannot be read, InvalidConfig naming the line that is not a setting, and UsageError for
    settings with which klog cannot connect.
    """
    own = {name: value.strip() for name, value in read_properties(path).items()} | dict(more or {})
    given = own if base is None else {**_beneath(own, base.given), **own}
    security = _security(given, str(path), commands) if PROTOCOL in given else None
    access = zookeeper_access.read_access(given, str(path)) if zookeeper_access.says_how(given) else None
    notes = []
    java = [name for name in own if name in JAVA_ONLY]
    if java:
        notes.append(f"{path}: no effect here, for Java's clients only: {', '.join(java)}")
    for name in own:
        if name not in _KNOWN and not name.startswith(("ssl.", "sasl.")):
            near = get_close_matches(name, _KNOWN, 1, 0.8)
            suggestion = f" (did you mean {near[0]}?)" if near else ""
            notes.append(f"{path}: unknown setting {name}{suggestion}")
    return ClientConfig(
        path,
        _first(given, BOOTSTRAP),
        _first(given, ZOOKEEPER),
        _seconds(path, given),
        tuple(notes),
        given,
        security,
        access,
    )


def _beneath(own: Mapping[str, str], base: Mapping[str, str]) -> dict[str, str]:
    """Of a base's settings those that a file leaves to it, under whatever name."""
    decided = {meant for name in own for meant in _meanings(name)} | {*BOOTSTRAP, *ZOOKEEPER}
    return {name: value for name, value in base.items() if not decided & _meanings(name)}


def _meanings(name: str) -> set[str]:
    return {name, *(names[name] for names in (PRODUCER, CONSUMER) if name in names)}


def _security(given: Mapping[str, str], source: str, commands: SecretCommands) -> ClientSecurity:
    if not commands.password:
        return read_security(given, source, commands.token)
    both = [name for name in (PASSWORD, JAAS) if given.get(name)]
    if both or not given.get(USERNAME):
        raise UsageError(
            f"{source}: {f'{both[0]} is given' if both else f'{USERNAME} is missing'}, and the profile's "
            "password_command prints the password",
            hint=f"write {USERNAME}=NAME, and neither {PASSWORD} nor {JAAS}",
        )
    return read_security({**given, PASSWORD: _printed(commands.password)}, source, commands.token)


@lru_cache(16)
def _printed(command: tuple[str, ...]) -> str:
    """A shell's commands do not ask for it again."""
    return secret_from(command, "the password", PASSWORD_WITHIN_S)


def _first(given: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((given[name] for name in names if given.get(name)), None)


def _seconds(path: Path, given: Mapping[str, str]) -> float | None:
    name = next((name for name in TIMEOUT if given.get(name)), None)
    if name is None:
        return None
    try:
        milliseconds = int(given[name])
    except ValueError:
        milliseconds = 0
    if milliseconds <= 0:
        raise UsageError(f"{path}: {name} must be a number of milliseconds above 0, got {given[name]!r}")
    return milliseconds / 1000
