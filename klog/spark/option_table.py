"""Every option of ``format("klog")``, and of Spark's Kafka connector, with how the two compare.

The one list of names: what is parsed, refused and warned about is looked up here, and ``scripts/build_man`` writes the
table of ``docs/pipeline.md`` from it. Tests hold it against the names in the connector's own jar, and run one program
with both for each option that is `SAME`. Names are not case-sensitive.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from klog.errors import UsageError
from klog.security.client_security import SETTINGS as SECURITY

log = logging.getLogger(__name__)

BATCH: Final = "batch"
STREAM: Final = "stream"
WRITE: Final = "write"
SESSION: Final = "session"
"""Set for a whole Spark session, where a source does not see it."""

SAME: Final = "same"
"""A program that runs with the connector finds the same messages with klog."""
DIFFERENT: Final = "different"
REFUSED: Final = "refused"
BOTH_REFUSE: Final = "both refuse"
NO_EFFECT: Final = "no effect"
"""Taken, so that programs can move over, and named in a warning."""
KLOGS: Final = "klog's own"

READ: Final = (BATCH, STREAM)
ALL: Final = (BATCH, STREAM, WRITE)


@dataclass(frozen=True)
class Option:
    """One row. ``default`` is klog's, as it is shown; ``text`` says what it does, and what is different."""

    name: str
    where: tuple[str, ...]
    beside: str
    default: str = ""
    text: str = ""


_TABLE: Final = {
    Option("kafka.bootstrap.servers", ALL, SAME, "required"): "`host:port,...`",
    Option("bootstrap.servers", ALL, KLOGS): "short for `kafka.bootstrap.servers`",
    Option("subscribe", READ, SAME): "`a,b`; one of this and the next two is required",
    Option("subscribePattern", READ, SAME): "a regular expression of Python that matches the whole name of a topic",
    Option("assign", READ, SAME): '`{"a": [0, 1]}`',
    Option("startingOffsets", READ, SAME, "batch: earliest; stream: latest"): (
        '`earliest`, `latest` (streams), `{"a": {"0": 23, "1": -2}}`: -2 is the start, -1 (streams) the end; '
        "a partition that the JSON leaves out begins at its start (the connector fails)"
    ),
    Option(
        "endingOffsets", (BATCH,), SAME, "latest"
    ): "the same JSON, without -2; a partition that it leaves out is read to its end (the connector fails)",
    Option("startingTimestamp", READ, SAME): "milliseconds; goes before the next row, which goes before offsets",
    Option("startingOffsetsByTimestamp", READ, SAME): '`{"a": {"0": 1700000000000}}`',
    Option(
        "startingOffsetsByTimestampStrategy", READ, SAME, "error"
    ): "if no message has such a late timestamp: `error`, or `latest` for the end",
    Option("endingTimestamp", (BATCH,), SAME): "as `startingTimestamp`; without such a late message, the end",
    Option("endingOffsetsByTimestamp", (BATCH,), SAME): "as `startingOffsetsByTimestamp`",
    Option("failOnDataLoss", READ, SAME, "true"): "see [below](#what-a-read-promises)",
    Option("includeHeaders", ALL, SAME, "false"): "reading: adds the column `headers`; writing: not needed, see below",
    Option("minPartitions", READ, SAME): "at least about this many tasks",
    Option(
        "maxRecordsPerPartition", READ, DIFFERENT
    ): "at most this many messages per task; the connector counts offsets, which are bytes here",
    Option("maxOffsetsPerTrigger", (STREAM,), DIFFERENT): (
        "at most this many messages per batch, shared among the partitions in proportion to what waits; the connector "
        "counts offsets"
    ),
    Option(
        "minOffsetsPerTrigger", (STREAM,), DIFFERENT
    ): "wait for this many messages; otherwise as `maxOffsetsPerTrigger`",
    Option("maxTriggerDelay", (STREAM,), DIFFERENT, "15m"): "how long `minOffsetsPerTrigger` may wait",
    Option(
        "kafkaConsumer.pollTimeoutMs", READ, DIFFERENT, "10000"
    ): "how long a task waits for a broker's answer; the connector waits 120000 for messages",
    Option("fetchOffset.numRetries", READ, DIFFERENT, "batch: 0; stream: 60 s long"): (
        "how often the driver asks for offsets again after a broker did not answer; each attempt waits as long as "
        "`kafka.request.timeout.ms` says. The connector: 3"
    ),
    Option("fetchOffset.retryIntervalMs", READ, DIFFERENT, "100"): "the pause between two attempts; the connector: 10",
    Option("groupIdPrefix", READ, NO_EFFECT): "klog's source has no consumer group, so it needs no permission on one",
    Option("kafka.group.id", READ, NO_EFFECT): "as `groupIdPrefix`",
    Option("kafka.client.id", ALL, SAME, "klog"): "the client that brokers count quotas by",
    Option(
        "kafka.request.timeout.ms", ALL, DIFFERENT, "10000"
    ): "reading: how long to wait for an answer, and for a leader; Kafka's default is 30000",
    Option("kafka.security.protocol", ALL, DIFFERENT, "PLAINTEXT"): (
        "with `kafka.sasl.*` and `kafka.ssl.*` as [security.md](security.md) lists them; a login by Kerberos, or by a "
        "class of Java, is refused"
    ),
    Option("kafka.auto.offset.reset", READ, BOTH_REFUSE): "positions come from `startingOffsets`",
    Option("kafka.enable.auto.commit", READ, BOTH_REFUSE): "offsets are in Spark's checkpoint",
    Option("kafka.interceptor.classes", READ, BOTH_REFUSE): "klog runs no classes of Java",
    Option("kafka.key.deserializer", READ, BOTH_REFUSE): "keys are bytes; cast the column",
    Option("kafka.value.deserializer", READ, BOTH_REFUSE): "values are bytes; cast the column",
    Option("kafka.key.serializer", (WRITE,), BOTH_REFUSE): "keys are bytes; cast the column",
    Option("kafka.value.serializer", (WRITE,), BOTH_REFUSE): "values are bytes; cast the column",
    Option(
        "kafka.partitioner.class", (WRITE,), REFUSED
    ): "a class of Java; give the rows a column `partition`, or leave it to murmur2 of the key",
    Option("kafka.transactional.id", (WRITE,), REFUSED): "klog has no transactions",
    Option("kafka.*, any other", READ, NO_EFFECT): "settings of Java's consumer, which klog's source does not have",
    Option(
        "kafka.*, any other", (WRITE,), DIFFERENT
    ): "settings of the producers, by Kafka's names of today or of 0.8; an unknown one is refused",
    Option("topic", (WRITE,), SAME): "the topic of all rows; goes before a column `topic`",
    Option("ranges", (BATCH,), KLOGS): (
        '`[["a", 0, 23, 80]]`: exactly these ranges, as `klog export run --dry-run` prints them; in place of all '
        "options that say what to read"
    ),
    Option(
        "columns", READ, KLOGS
    ): "`offset,value`: decode only these columns (Spark 4.3 does not tell a Python source which ones a query needs)",
    Option(
        "splitBytes", READ, KLOGS, "67108864"
    ): "bytes of log per task, without `minPartitions` and `maxRecordsPerPartition`",
    Option(
        "batchBytes", READ, KLOGS, "4194304"
    ): "bytes of records in one Arrow batch, which is what a task holds in memory",
    Option("spark.kafka.consumer.cache.*", (SESSION,), NO_EFFECT): "klog pools no consumers",
    Option("spark.kafka.consumer.fetchedData.cache.*", (SESSION,), NO_EFFECT): "klog pools no fetched messages",
    Option("spark.kafka.producer.cache.*", (SESSION,), NO_EFFECT): "each task of klog's has its own producer",
    Option(
        "spark.kafka.clusters.*", (SESSION,), NO_EFFECT
    ): "delegation tokens, which klog does not have; give `kafka.security.protocol` and its like as options",
    Option(
        "spark.sql.streaming.kafka.useDeprecatedOffsetFetching", (SESSION,), NO_EFFECT
    ): "klog asks brokers for offsets, and never a consumer",
}
OPTIONS: Final = tuple(replace(one, text=text) for one, text in _TABLE.items())

_OF_SPARK: Final = ("path", "checkpointlocation", "queryname")
"""What Spark adds by itself."""

_KAFKA: Final = "kafka."
_USED: Final = frozenset(
    one.name.lower() for one in OPTIONS if one.name.startswith(_KAFKA) and one.beside in (SAME, DIFFERENT)
) | {_KAFKA + name for name in SECURITY}
"""Settings of clients that the source obeys."""

_BY_NAME: Final = {
    one.name.lower(): one for one in OPTIONS if not one.name.startswith(_KAFKA + "*") and SESSION not in one.where
}


def spelled(name: str) -> str:
    """The option's name as the table has it; as it is given where the table does not have it."""
    known = _BY_NAME.get(name.lower())
    return name if known is None else known.name


def check_names(options: Mapping[str, str]) -> None:
    """UsageError for the first name that is neither in the table nor in ``kafka.*``, with the nearest one that is."""
    if found := unknown(options):
        raise UsageError(f"option {found[0]} is not known")


def unknown(options: Mapping[str, str]) -> list[str]:
    """The names that are neither in the table nor in ``kafka.*``, with the nearest one that is."""
    found = []
    for name in options:
        small = name.lower()
        if small in _BY_NAME or small in _OF_SPARK or small.startswith(_KAFKA):
            continue
        near = difflib.get_close_matches(small, _BY_NAME, 1)
        found.append(f'"{name}"' + (f' (is "{spelled(near[0])}" meant?)' if near else ""))
    return found


def check_reading(options: Mapping[str, str], *, streaming: bool) -> None:
    """UsageError for an option that has no place in this kind of reading. Those of writing have: a view does both.

    Those of streams have a place in a batch query too, where they do nothing.
    """
    for name in options:
        known = _BY_NAME.get(name.lower())
        if known is None:
            continue
        if known.beside == BOTH_REFUSE and BATCH in known.where:
            raise UsageError(f'option "{known.name}" has no place here: {known.text}')
        if streaming and STREAM not in known.where and WRITE not in known.where:
            raise UsageError(f'option "{known.name}" has no place here: a stream has no end')


def of_batches(lowered: Mapping[str, str]) -> dict[str, str]:
    """The options but for those of streams alone."""
    return {name: one for name, one in lowered.items() if name not in _BY_NAME or _BY_NAME[name].where != (STREAM,)}


def without_effect(options: Mapping[str, str], *, streaming: bool) -> list[str]:
    """The names that reading takes and does nothing with, in the table's spelling."""
    found = unknown(options)
    for name in options:
        known = _BY_NAME.get(name.lower())
        if known is not None:
            if known.beside == NO_EFFECT or (known.where == (STREAM,) and not streaming):
                found.append(known.name)
        elif name.lower().startswith(_KAFKA) and name.lower() not in _USED:
            found.append(name)
    return sorted(found)


def warn_of(names: Sequence[str]) -> None:
    """Say on standard error which options are ignored: on the driver's, or on that of a Connect server."""
    if names:
        log.warning(
            'format("klog") does nothing with the option%s %s (docs/pipeline.md has all options)',
            "" if len(names) == 1 else "s",
            ", ".join(names),
        )
