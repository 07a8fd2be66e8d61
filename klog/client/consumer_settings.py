"""The settings of the paper's consumer: Kafka 0.8's names, with 0.7's and today's beside them, and what klog does.

A setting is a keyword, with ``_`` for ``.``: ``auto_commit_interval_ms=1000``. Settings that are not in this table go
to librdkafka (``security.protocol``, ``statistics.interval.ms``); one that librdkafka does not know is an error that
names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from klog.client.security_files import as_librdkafka, read_security
from klog.client.zookeeper_access import without_access
from klog.config.setting import INT_MAX, Setting, at_least, at_least_or_off, between, one_of, text_of
from klog.coordination.zookeeper_access import ZooKeeperAccess
from klog.errors import InvalidConfig
from klog.security.client_security import ClientSecurity

SMALLEST: Final = ("smallest", "earliest")
LARGEST: Final = ("largest", "latest")

SETTINGS: Final = (
    # --- who it is
    Setting("consumer.id", "string", None),
    Setting("client.id", "string", None),
    # --- ZooKeeper
    Setting(
        "zookeeper.session.timeout.ms",
        "ms",
        6000,
        at_least(100),
        aliases=("session.timeout.ms", "zk.sessiontimeout.ms"),
    ),
    Setting("zookeeper.connection.timeout.ms", "ms", 6000, at_least(1), aliases=("zk.connectiontimeout.ms",)),
    Setting("zookeeper.sync.time.ms", "ms", 2000),
    # --- offsets
    Setting("auto.commit.enable", "bool", True, aliases=("enable.auto.commit", "autocommit.enable")),
    Setting("auto.commit.interval.ms", "ms", 5000, at_least(1), aliases=("autocommit.interval.ms",)),
    Setting("auto.offset.reset", "enum", "largest", one_of(*SMALLEST, *LARGEST), aliases=("autooffset.reset",)),
    Setting("offsets.storage", "enum", "zookeeper", one_of("zookeeper")),
    Setting("offsets.commit.max.retries", "int", 5),
    Setting("offsets.channel.backoff.ms", "ms", 1000),
    Setting("offsets.channel.socket.timeout.ms", "ms", 10000),
    Setting("dual.commit.enabled", "bool", False),
    # --- the group
    Setting("rebalance.max.retries", "int", 50, at_least(1), aliases=("rebalance.retries.max",)),
    Setting("rebalance.backoff.ms", "ms", 200, at_least(1)),
    Setting("partition.assignment.strategy", "enum", "range", one_of("range")),
    Setting("exclude.internal.topics", "bool", True),
    # --- streams
    Setting("consumer.timeout.ms", "ms", -1, at_least_or_off(0)),
    Setting("queued.max.message.chunks", "int", 2, at_least(1), aliases=("queuedchunks.max",)),
    Setting(
        "fetch.message.max.bytes",
        "bytes",
        1048576,
        between(1, INT_MAX),
        aliases=("max.partition.fetch.bytes", "fetch.size"),
    ),
    Setting("fetch.min.bytes", "bytes", 1, between(1, 100_000_000)),
    Setting("fetch.wait.max.ms", "ms", 100, between(0, 300_000), aliases=("fetch.max.wait.ms",)),
    Setting("check.crcs", "bool", True),
    Setting("num.consumer.fetchers", "int", 1),
    Setting("max.poll.records", "int", 500),
    Setting("max.poll.interval.ms", "ms", 300000),
    Setting("heartbeat.interval.ms", "ms", 3000),
    # --- the network
    Setting("socket.timeout.ms", "ms", 30000, between(10, 300_000), aliases=("request.timeout.ms",)),
    Setting(
        "socket.receive.buffer.bytes",
        "bytes",
        0,
        between(0, 100_000_000),
        aliases=("receive.buffer.bytes", "socket.buffersize"),
    ),
    Setting("refresh.leader.backoff.ms", "ms", 200, between(1, 60_000), aliases=("retry.backoff.ms",)),
    Setting("metadata.max.age.ms", "ms", 300000, between(10, 3_600_000)),
)
"""In the order of docs/library.md, which says what each means, and which have no effect here."""

_BY_NAME: Final = {name: one for one in SETTINGS for name in (one.name, *one.aliases)}

CHUNK_BYTES_MAX: Final = 1_000_000_000
"""librdkafka's bound of ``fetch.message.max.bytes``; a larger chunk is as good as this one."""

NO_USE: Final[Mapping[str, str]] = {
    "bootstrap.servers": "the brokers' addresses come from ZooKeeper: zookeeper=...",
    "metadata.broker.list": "the brokers' addresses come from ZooKeeper: zookeeper=...",
    "zookeeper.connect": "write zookeeper=...",
    "zk.connect": "write zookeeper=...",
    "group.id": "write group=...",
    "groupid": "write group=...",
    "group.instance.id": "the id in the registry is consumer_id",
    "isolation.level": "there are no transactions",
    "key.deserializer": "keys are bytes; deserialize what you get",
    "value.deserializer": "values are bytes; deserialize what you get",
    "enable.auto.offset.store": "write auto_commit_enable=False and commit_offsets()",
    "allow.auto.create.topics": "a consumer never makes a topic",
    "enable.partition.eof": "a stream has no end; see consumer_timeout_ms",
}
"""Settings that klog refuses, and the alternative."""


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """All settings, given or default, typed.

    ``librdkafka``: the settings of each stream's librdkafka; ``others``: the names among them that are not in this
    table.
    """

    own_id: str | None
    session_timeout_ms: int
    connection_timeout_ms: int
    auto_commit: bool
    auto_commit_interval_s: float
    from_smallest: bool
    rebalance_max_retries: int
    rebalance_backoff_s: float
    exclude_internal: bool
    timeout_s: float | None
    librdkafka: Mapping[str, Any]
    others: tuple[str, ...]
    security: ClientSecurity
    access: ZooKeeperAccess


def read_settings(group: str, given: Mapping[str, Any]) -> ConsumerSettings:
    """The settings from a consumer's keywords. InvalidConfig names every unknown setting, or an invalid one."""
    values: dict[str, Any] = {setting.name: setting.default for setting in SETTINGS}
    called: dict[str, str] = {}
    others: dict[str, Any] = {}
    access, given = without_access(given, "the consumer")
    for keyword, value in given.items():
        name = keyword.replace("_", ".")
        if name in NO_USE:
            raise InvalidConfig(f"a consumer has no setting {name}", hint=NO_USE[name])
        setting = _BY_NAME.get(name)
        if setting is None:
            others[name] = text_of(value) if isinstance(value, bool) else value
            continue
        if setting.name in called:
            raise InvalidConfig(f"{called[setting.name]} and {name} are the same setting; give one of them")
        called[setting.name] = name
        if value is not None:
            values[setting.name] = setting.parse(str(text_of(value)), name=name)
    timeout_ms = values["consumer.timeout.ms"]
    texts = {name: str(value) for name, value in others.items()}
    others = as_librdkafka(others, "the consumer")
    return ConsumerSettings(
        own_id=values["consumer.id"],
        session_timeout_ms=values["zookeeper.session.timeout.ms"],
        connection_timeout_ms=values["zookeeper.connection.timeout.ms"],
        auto_commit=values["auto.commit.enable"],
        auto_commit_interval_s=values["auto.commit.interval.ms"] / 1000,
        from_smallest=values["auto.offset.reset"] in SMALLEST,
        rebalance_max_retries=values["rebalance.max.retries"],
        rebalance_backoff_s=values["rebalance.backoff.ms"] / 1000,
        exclude_internal=values["exclude.internal.topics"],
        timeout_s=None if timeout_ms < 0 else timeout_ms / 1000,
        librdkafka={**_librdkafka(group, values), **others},
        others=tuple(others),
        security=read_security(texts, "the consumer"),
        access=access,
    )


def check_librdkafka(settings: ConsumerSettings) -> None:
    """Check the rest with librdkafka. InvalidConfig names every setting that it does not know, or an invalid one."""
    if not settings.others:
        return
    from confluent_kafka import Consumer

    from klog.client.send_errors import settings_refused

    unknown, reason = settings_refused(lambda some: Consumer(some).close(), settings.librdkafka)
    if unknown:
        near = [found for name in unknown for found in get_close_matches(name, _BY_NAME, 1, 0.8)]
        raise InvalidConfig(
            f"unknown setting{'s' if len(unknown) > 1 else ''} {', '.join(unknown)}",
            hint=f"did you mean {', '.join(near)}?" if near else "docs/library.md has the settings of a consumer",
        )
    if reason:
        raise InvalidConfig(reason)


def _librdkafka(group: str, values: Mapping[str, Any]) -> dict[str, Any]:
    chunk_bytes = min(values["fetch.message.max.bytes"], CHUNK_BYTES_MAX)
    ahead_kilobytes = max(1, values["queued.max.message.chunks"] * chunk_bytes // 1024)
    return {
        "client.id": values["client.id"] or group,
        "group.id": group,  # librdkafka requires it; unused, because klog assigns partitions and commits
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest" if values["auto.offset.reset"] in SMALLEST else "latest",
        "allow.auto.create.topics": False,
        "check.crcs": values["check.crcs"],
        "fetch.message.max.bytes": chunk_bytes,
        "fetch.min.bytes": values["fetch.min.bytes"],
        "fetch.wait.max.ms": values["fetch.wait.max.ms"],
        "fetch.error.backoff.ms": values["refresh.leader.backoff.ms"],
        "fetch.queue.backoff.ms": 5,  # by default a full queue stops fetching for a second
        "queued.max.messages.kbytes": min(ahead_kilobytes, 2_097_151),
        "socket.timeout.ms": values["socket.timeout.ms"],
        "socket.receive.buffer.bytes": values["socket.receive.buffer.bytes"],
        "topic.metadata.refresh.fast.interval.ms": values["refresh.leader.backoff.ms"],
        "topic.metadata.refresh.interval.ms": values["metadata.max.age.ms"],
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1000,
    }
