"""The options of ``format("klog")``: the names and meanings of Spark's Kafka connector, read once, refused early.

The names themselves are in `klog.spark.option_table`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from klog.client.positions import EARLIEST, LATEST
from klog.client.raw_fetch import RETRY_PAUSE_S, Range, RawCluster
from klog.client.security_files import read_security
from klog.client.servers import Servers
from klog.errors import UsageError
from klog.names import TopicPartition
from klog.spark import option_table
from klog.spark import option_values as values

SPLIT_BYTES = 64 * 1024 * 1024
"""A task's share of the log unless told: long enough to be worth a task, short enough to be worth retrying."""

BATCH_BYTES = 4 * 1024 * 1024
"""Of records in one Arrow batch: enough for the fixed cost of some sixty numpy calls to vanish."""

MAX_TRIGGER_DELAY_MS = 15 * 60_000
"""The connector's: how long ``minOffsetsPerTrigger`` may hold messages up."""

TIMEOUT_S = 10.0
"""How long a broker may take, and how long a leader is looked for (``kafka.request.timeout.ms``)."""

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


@dataclass(frozen=True)
class Bound:
    """One end of what is to be read. ``per_partition`` holds offsets (or times in ms, if ``by_time``)."""

    default: int
    """EARLIEST or LATEST, or a time in ms if ``by_time``."""
    per_partition: dict[TopicPartition, int]
    by_time: bool = False


@dataclass(frozen=True)
class SourceOptions:
    bootstrap: str
    subscribe: tuple[str, ...]
    subscribe_pattern: re.Pattern[str] | None
    assign: tuple[TopicPartition, ...]
    ranges: tuple[Range, ...] | None
    """Given by who has resolved them already; then nothing else says what to read."""
    starting: Bound
    ending: Bound
    starting_no_match_is_error: bool
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    split_bytes: int
    columns: tuple[str, ...]
    batch_bytes: int = BATCH_BYTES
    timeout_s: float = TIMEOUT_S
    task_timeout_s: float = TIMEOUT_S
    offset_retries: int | None = None
    """How often the driver asks again; None where the option does not say."""
    offset_pause_s: float = RETRY_PAUSE_S
    client_id: str = "klog"
    max_per_trigger: int | None = None
    """Of messages, as are the next ones; streaming alone."""
    min_per_trigger: int | None = None
    max_trigger_delay_ms: int = MAX_TRIGGER_DELAY_MS

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool = False) -> SourceOptions:
        """UsageError, naming the option, the value and what it may be, where one is wrong."""
        option_table.check_reading(options, streaming=streaming)
        given = values.lowered(options)
        ranges = values.ranges("ranges", given["ranges"]) if "ranges" in given else None
        chosen = [name for name in ("assign", "subscribe", "subscribePattern") if name.lower() in given]
        if ranges is None and len(chosen) != 1:
            raise UsageError(
                'one of the options "subscribe", "subscribePattern", "assign" is needed, '
                + (f"not {' and '.join(chosen)}" if chosen else "none is given")
            )
        if not streaming:
            given = option_table.of_batches(given)
        least, most = values.number(given, "minOffsetsPerTrigger"), values.number(given, "maxOffsetsPerTrigger")
        if least is not None and most is not None and least > most:
            raise UsageError(f'option "minOffsetsPerTrigger": {least} is more than "maxOffsetsPerTrigger", {most}')
        pattern = given.get("subscribepattern")
        timeout_s = _milliseconds(given, "kafka.request.timeout.ms", TIMEOUT_S)
        return cls(
            bootstrap=bootstrap_of(given),
            subscribe=values.names("subscribe", given["subscribe"]) if "subscribe" in given else (),
            subscribe_pattern=None if pattern is None else values.pattern("subscribePattern", pattern),
            assign=values.partitions("assign", given["assign"]) if "assign" in given else (),
            ranges=ranges,
            starting=_starting(given, streaming),
            ending=_ending(given),
            starting_no_match_is_error=values.choice(
                given, "startingOffsetsByTimestampStrategy", "error", ("error", "latest")
            )
            == "error",
            fail_on_data_loss=values.flag(given, "failOnDataLoss", True),
            min_partitions=values.number(given, "minPartitions"),
            max_records_per_partition=values.number(given, "maxRecordsPerPartition"),
            split_bytes=values.number(given, "splitBytes") or SPLIT_BYTES,
            columns=_columns(given),
            batch_bytes=values.number(given, "batchBytes") or BATCH_BYTES,
            timeout_s=timeout_s,
            task_timeout_s=_milliseconds(given, "kafkaConsumer.pollTimeoutMs", timeout_s),
            offset_retries=values.number(given, "fetchOffset.numRetries", least=0),
            offset_pause_s=_milliseconds(given, "fetchOffset.retryIntervalMs", RETRY_PAUSE_S),
            client_id=given.get("kafka.client.id", "klog"),
            max_per_trigger=most,
            min_per_trigger=least,
            max_trigger_delay_ms=values.duration_ms(given, "maxTriggerDelay", MAX_TRIGGER_DELAY_MS),
        )

    @property
    def reads(self) -> str:
        """What is read, and where, for people."""
        if self.subscribe_pattern is not None:
            what = f"topics like {self.subscribe_pattern.pattern}"
        elif self.assign:
            what = ", ".join(map(str, self.assign))
        else:
            what = f"topic{'s' if len(self.subscribe) > 1 else ''} {', '.join(self.subscribe)}"
        return f"{what} at {self.bootstrap}"

    def connect(self, *, in_task: bool = False) -> RawCluster:
        """The cluster; CannotConnect if no broker answers."""
        return RawCluster(
            self.bootstrap, timeout_s=self.task_timeout_s if in_task else self.timeout_s, client_id=self.client_id
        )


def columns_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """The columns alone, for the schema, which Spark asks for before anything else."""
    return _columns(values.lowered(options))


def bootstrap_of(given: Mapping[str, str]) -> str:
    """The bootstrap servers, and how to connect to them. ``given`` has names in small letters."""
    bootstrap = given.get("kafka.bootstrap.servers") or given.get("bootstrap.servers")
    if not bootstrap:
        raise UsageError(
            'option "kafka.bootstrap.servers" is missing', hint='write .option("bootstrap.servers", "host:9092")'
        )
    kafka = {name.removeprefix("kafka."): value for name, value in given.items() if name.startswith("kafka.")}
    return Servers(bootstrap, read_security(kafka, "kafka.* options"))


def _columns(given: Mapping[str, str]) -> tuple[str, ...]:
    """All but headers, as the connector; with ``includeHeaders`` all; with ``columns`` those named, in our order."""
    if "columns" in given:
        named = {part.strip().lower() for part in given["columns"].split(",")}
        unknown = named - {column.lower() for column in COLUMNS}
        if unknown or not named:
            raise UsageError(f'option "columns": {", ".join(sorted(unknown))} is not among {", ".join(COLUMNS)}')
        return tuple(column for column in COLUMNS if column.lower() in named)
    return COLUMNS if values.flag(given, "includeHeaders", False) else COLUMNS[:-1]


def _milliseconds(given: Mapping[str, str], name: str, default_s: float) -> float:
    """In seconds."""
    asked_ms = values.number(given, name)
    return default_s if asked_ms is None else asked_ms / 1000


def _starting(given: Mapping[str, str], streaming: bool) -> Bound:
    """Where reading begins. Partitions that a JSON leaves out begin at their start, as new ones do."""
    by_time = _by_time(given, "starting", EARLIEST)
    if by_time is not None:
        return by_time
    text = given.get("startingoffsets", "latest" if streaming else "earliest")
    word = text.strip().lower()
    if word == "earliest":
        return Bound(EARLIEST, {})
    if word == "latest":
        if not streaming:
            raise UsageError('option "startingOffsets": latest would read nothing')
        return Bound(LATEST, {})
    found = values.offsets("startingOffsets", text)
    if not streaming:
        for one, offset in found.items():
            if offset == LATEST:
                raise UsageError(
                    f'option "startingOffsets": -1 for {one} is its end, and a batch would read nothing of it',
                    hint="leave the partition out by assign, or read it from -2, its start",
                )
    _check_offsets(
        "startingOffsets", found, EARLIEST, "-1 for the end, -2 for the start" if streaming else "-2 for the start"
    )
    return Bound(EARLIEST, found)


def _ending(given: Mapping[str, str]) -> Bound:
    by_time = _by_time(given, "ending", LATEST)
    if by_time is not None:
        return by_time
    text = given.get("endingoffsets", "latest")
    word = text.strip().lower()
    if word == "latest":
        return Bound(LATEST, {})
    if word == "earliest":
        raise UsageError('option "endingOffsets": earliest would read nothing')
    found = values.offsets("endingOffsets", text)
    _check_offsets("endingOffsets", found, LATEST, "-1 for the end")
    return Bound(LATEST, found)


def _by_time(given: Mapping[str, str], end: str, default: int) -> Bound | None:
    """A time for all goes before times for each, which go before offsets, as in the connector."""
    name = f"{end}Timestamp"
    if name.lower() in given:
        return Bound(values.time_ms(given, name), {}, by_time=True)
    name = f"{end}OffsetsByTimestamp"
    if name.lower() in given:
        times = values.offsets(name, given[name.lower()])
        if any(time < 0 for time in times.values()):
            raise UsageError(f'option "{name}": times are milliseconds since 1970, 0 and up')
        return Bound(default, times, by_time=True)
    return None


def _check_offsets(name: str, found: Mapping[TopicPartition, int], least: int, words: str) -> None:
    for one, offset in found.items():
        if offset < least:
            raise UsageError(f'option "{name}": {offset} for {one}: offsets are 0 and up, {words}')
