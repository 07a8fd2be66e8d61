"""Kafka's settings that klog accepts and does not use: (name, kind, default, older names), by the reason."""

from __future__ import annotations

from typing import Final

from klog.config.setting import LONG_MAX, Kind, Setting, Value

_Row = tuple[str, Kind, Value] | tuple[str, Kind, Value, str]

_UNUSED: Final[dict[str, tuple[_Row, ...]]] = {
    "klog's broker has one event loop, and threads as it needs them": (
        ("num.network.threads", "int", 3),
        ("num.io.threads", "int", 8, "num.threads"),
        ("background.threads", "int", 10),
        ("num.recovery.threads.per.data.dir", "int", 1),
        ("num.replica.alter.log.dirs.threads", "int", None),
        ("controller.message.queue.size", "int", 2147483647),
    ),
    "klog negotiates versions, and stores record batches of version 2": (
        ("inter.broker.protocol.version", "string", None),
        ("log.message.format.version", "string", None),
    ),
    "each request among klog's brokers has a time limit of its own": (("request.timeout.ms", "ms", 30_000),),
    "klog runs no Java": (
        ("metric.reporters", "list", ()),
        ("create.topic.policy.class.name", "string", None),
        ("alter.config.policy.class.name", "string", None),
        ("zookeeper.clientCnxnSocket", "string", None),
        ("sasl.server.callback.handler.class", "string", None),
    ),
    "klog has OpenSSL; ssl.enabled.protocols and ssl.cipher.suites decide": (
        ("ssl.protocol", "string", "TLSv1.3"),
        ("ssl.provider", "string", None),
        ("ssl.keymanager.algorithm", "string", None),
        ("ssl.trustmanager.algorithm", "string", None),
        ("ssl.secure.random.implementation", "string", None),
    ),
    "klog looks every 2 s whether the file of the key set has changed": (
        ("sasl.oauthbearer.jwks.endpoint.refresh.ms", "ms", 3_600_000),
    ),
    "ZooKeeper and kazoo decide that": (
        ("zookeeper.sync.time.ms", "ms", 2_000, "zk.synctime.ms"),
        ("zookeeper.max.in.flight.requests", "int", 10),
    ),
    "klog has no index files, and its segments grow": (
        ("log.index.size.max.bytes", "bytes", 10_485_760),
        ("log.index.interval.bytes", "bytes", 4_096),
        ("log.preallocate", "bool", False),
    ),
    "klog's readers keep a deleted segment open themselves": (("log.segment.delete.delay.ms", "ms", 60_000),),
    "klog writes each change of a log's start": (("log.flush.start.offset.checkpoint.interval.ms", "ms", 60_000),),
    "log.message.timestamp.before.max.ms and after.max.ms decide": (
        ("log.message.timestamp.difference.max.ms", "ms", LONG_MAX),
    ),
    "klog compacts nothing yet": (
        ("log.cleaner.enable", "bool", False),
        ("log.cleaner.threads", "int", 1),
        ("log.cleaner.io.max.bytes.per.second", "float", float(LONG_MAX)),
        ("log.cleaner.dedupe.buffer.size", "bytes", 524_288_000),
        ("log.cleaner.io.buffer.size", "bytes", 524_288),
        ("log.cleaner.io.buffer.load.factor", "float", 0.9),
        ("log.cleaner.backoff.ms", "ms", 15_000),
        ("log.cleaner.min.cleanable.ratio", "float", 0.5),
        ("log.cleaner.delete.retention.ms", "ms", 86_400_000),
    ),
    "klog removes what waits as soon as it is over": (
        ("fetch.purgatory.purge.interval.requests", "int", 1_000),
        ("producer.purgatory.purge.interval.requests", "int", 1_000),
    ),
    "klog keeps offsets in ZooKeeper": (
        ("offsets.load.buffer.size", "bytes", 5_242_880),
        ("offsets.topic.replication.factor", "int", 3),
        ("offsets.topic.num.partitions", "int", 50),
        ("offsets.topic.segment.bytes", "bytes", 104_857_600),
        ("offsets.topic.compression.codec", "string", "0"),
        ("offsets.commit.required.acks", "int", -1),
    ),
    "klog has no transactions": (
        ("transaction.state.log.replication.factor", "int", 3),
        ("transaction.state.log.min.isr", "int", 2),
        ("transaction.state.log.num.partitions", "int", 50),
    ),
    "Kafka 0.7's: names of topics have 249 characters at most, and klog counts all the time": (
        ("max.topic.name.length", "int", 255),
        ("monitoring.period.secs", "int", 600),
    ),
}

UNUSED_SETTINGS: Final = tuple(
    Setting(name, kind, default, aliases=tuple(older), doc=f"Accepted without effect: {why}.")
    for why, rows in _UNUSED.items()
    for name, kind, default, *older in rows
)
