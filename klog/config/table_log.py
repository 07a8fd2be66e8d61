"""Settings of the logs: directories, segments, retention, flushes, checks."""

from __future__ import annotations

from klog.config.setting import (
    INT_MAX,
    LONG_MAX,
    Setting,
    Table,
    at_least,
    at_least_or_off,
    between,
    every,
    not_empty,
    one_of,
)

_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000

LOG_SETTINGS: Table = {
    Setting("log.dir", "string", "/tmp/kafka-logs"): ("Log directory if log.dirs is not given.", "place of partitions"),
    Setting("log.dirs", "list", None, not_empty("at least one folder"), follows=(("log.dir", 1),)): (
        "Log directories, separated by commas; a new partition goes to the one with the fewest.",
        "place of partitions",
    ),
    Setting("log.segment.bytes", "bytes", 1073741824, between(14, INT_MAX), aliases=("log.file.size",)): (
        "Largest size of a segment.",
        "segment roll",
    ),
    Setting("log.roll.ms", "ms", None, at_least(1), follows=(("log.roll.hours", _HOUR_MS),)): (
        "Largest age of a segment; log.roll.hours unless given.",
        "segment roll",
    ),
    Setting("log.roll.hours", "int", 168, at_least(1)): ("Largest age of a segment, in hours.", "segment roll"),
    Setting("log.roll.jitter.ms", "ms", None, at_least(0), follows=(("log.roll.jitter.hours", _HOUR_MS),)): (
        "Random reduction of the segment age, so that not all partitions roll together.",
        "segment roll",
    ),
    Setting("log.roll.jitter.hours", "int", 0, at_least(0)): (
        "Random reduction of the segment age, in hours.",
        "segment roll",
    ),
    Setting(
        "log.retention.ms",
        "ms",
        None,
        at_least_or_off(0),
        follows=(("log.retention.minutes", _MINUTE_MS), ("log.retention.hours", _HOUR_MS)),
    ): (
        "How long a segment is kept after its newest message, -1 for ever; the settings in minutes, then in "
        "hours, unless given.",
        "deletion of old segments",
    ),
    Setting("log.retention.minutes", "int", None, at_least_or_off(0)): (
        "Retention time in minutes.",
        "deletion of old segments",
    ),
    Setting("log.retention.hours", "int", 168, at_least_or_off(0)): (
        "Retention time in hours.",
        "deletion of old segments",
    ),
    Setting("log.retention.bytes", "bytes", -1, at_least_or_off(0), aliases=("log.retention.size",)): (
        "Size to which a partition is reduced, by whole segments; -1: no limit. Either limit deletes.",
        "deletion of old segments",
    ),
    Setting(
        "log.retention.check.interval.ms",
        "ms",
        None,
        at_least(1),
        aliases=("log.cleanup.interval.ms",),
        follows=(("log.cleanup.interval.mins", _MINUTE_MS),),
    ): (
        "Interval of the check for segments to delete or to roll by age; log.cleanup.interval.mins unless given.",
        "retention and segment roll",
    ),
    Setting("log.cleanup.interval.mins", "int", 5, at_least(1)): (
        "Interval in minutes of the check for segments to delete or to roll by age. From Kafka 0.7.",
        "retention and segment roll",
    ),
    Setting("klog.trash.retention.ms", "ms", 24 * _HOUR_MS, at_least(0)): (
        "How long a deleted topic can be restored; 0: it is deleted for good at once. klog's own.",
        "`klog topic list --deleted`; the space is free afterwards",
    ),
    Setting("klog.audit.enable", "bool", False): (
        "Whether `klog.Producer` and `klog produce` stamp and count what they send, for `klog audit`. klog's own.",
        "klog's producers ask for it, of each topic",
    ),
    Setting("log.cleanup.policy", "list", ("delete",), every("delete", "compact")): (
        "delete: old segments are deleted by retention; compact alone: everything is kept. Nothing is compacted yet.",
        "whether retention.ms and retention.bytes hold",
    ),
    Setting("log.flush.interval.messages", "int", 1, at_least(1), aliases=("log.flush.interval",)): (
        "Messages after which a partition is flushed; 1, klog's default, flushes each append before it is committed.",
        "flush, with group commit",
    ),
    Setting(
        "log.flush.interval.ms",
        "ms",
        None,
        at_least(0),
        aliases=("log.default.flush.interval.ms",),
        follows=(("log.flush.scheduler.interval.ms", 1),),
    ): ("Longest time before a message is flushed; log.flush.scheduler.interval.ms unless given.", "flush"),
    Setting(
        "log.flush.scheduler.interval.ms",
        "ms",
        LONG_MAX,
        at_least(1),
        aliases=("log.default.flush.scheduler.interval.ms",),
    ): (
        "Interval at which Kafka flushes logs; klog uses it only as default of log.flush.interval.ms.",
        "default of log.flush.interval.ms",
    ),
    Setting("log.dir.hung.ms", "ms", 30000, at_least(1)): (
        "How long a log directory may not respond before it is offline, as after a failure. klog's own.",
        "other brokers lead its partitions; after 2 s nothing is appended there",
    ),
    Setting("log.flush.offset.checkpoint.interval.ms", "ms", 60000, at_least(1)): (
        "Interval of the recovery point checkpoint; after a crash only later batches are checked.",
        "checkpoint file",
    ),
    Setting("message.max.bytes", "bytes", 1000012, at_least(0), aliases=("max.message.size",)): (
        "Largest record batch as sent; uncompressed it may have 16 times that size, or 16 MiB.",
        "larger batches are refused",
    ),
    Setting(
        "compression.type", "enum", "producer", one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
    ): ("Codec of stored batches; klog always keeps the producer's.", "none"),
    Setting("log.message.timestamp.type", "enum", "CreateTime", one_of("CreateTime")): (
        "Clock of the timestamps; klog keeps the producer's, which the batch's CRC covers.",
        "none",
    ),
    Setting("log.message.timestamp.before.max.ms", "ms", LONG_MAX, at_least(0)): (
        "How far a timestamp may be behind the broker's clock; no limit by default.",
        "otherwise INVALID_TIMESTAMP",
    ),
    Setting("log.message.timestamp.after.max.ms", "ms", 3_600_000, at_least(0)): (
        "How far a timestamp may be ahead of the broker's clock.",
        "otherwise INVALID_TIMESTAMP",
    ),
    Setting("producer.id.expiration.ms", "ms", 86400000, at_least(1)): (
        "How long the state of an idle idempotent producer is kept.",
        "expiry of producers",
    ),
    Setting("log.scrubber.interval.ms", "ms", 604800000, at_least_or_off(1)): (
        "Interval at which all segments are read and checked; -1: never. klog's own.",
        "scrubber",
    ),
    Setting("log.scrubber.io.max.bytes.per.second", "bytes", 10485760, at_least(1)): (
        "Read rate of the scrubber. klog's own.",
        "scrubber",
    ),
}
