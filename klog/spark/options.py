"""The options of ``format("klog")``: the names and meanings of Spark's Kafka connector, read once, refused early.

Option names do not care about case. Those that a reader of klog has no use for (the consumer's polling and retry
settings) are accepted, since programs that move over carry them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from klog.client.raw_fetch import EARLIEST, LATEST, Range
from klog.errors import UsageError
from klog.names import TopicPartition

SPLIT_BYTES = 64 * 1024 * 1024
"""A task's share of the log unless told: long enough to be worth a task, short enough to be worth retrying."""

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")

_REJECTED = ("group.id", "auto.offset.reset", "enable.auto.commit", "interceptor.classes")
"""Of ``kafka.*``, as the connector does: offsets come from these options, never from a group."""


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

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """UsageError, naming the option, the value and what it may be, where one is wrong."""
        given = {name.lower(): value for name, value in options.items()}
        bootstrap = given.get("kafka.bootstrap.servers") or given.get("bootstrap.servers")
        if not bootstrap:
            raise UsageError(
                'option "kafka.bootstrap.servers" is missing', hint='write .option("bootstrap.servers", "host:9092")'
            )
        for name in _REJECTED:
            if f"kafka.{name}" in given:
                raise UsageError(
                    f'option "kafka.{name}" has no place here: offsets come from startingOffsets and the like'
                )
        ranges = _ranges(given["ranges"]) if "ranges" in given else None
        chosen = [name for name in ("assign", "subscribe", "subscribepattern") if name in given]
        if ranges is None and len(chosen) != 1:
            raise UsageError(
                f'one of the options "subscribe", "subscribePattern", "assign" is needed, not {len(chosen)}'
            )
        return cls(
            bootstrap=bootstrap,
            subscribe=tuple(filter(None, (part.strip() for part in given.get("subscribe", "").split(",")))),
            subscribe_pattern=_pattern(given["subscribepattern"]) if "subscribepattern" in given else None,
            assign=_assign(given["assign"]) if "assign" in given else (),
            ranges=ranges,
            starting=_bound(given, "starting", EARLIEST),
            ending=_bound(given, "ending", LATEST),
            starting_no_match_is_error=_choice(
                given, "startingOffsetsByTimestampStrategy", "error", ("error", "latest")
            )
            == "error",
            fail_on_data_loss=_choice(given, "failOnDataLoss", "true", ("true", "false")) == "true",
            min_partitions=_number(given, "minPartitions"),
            max_records_per_partition=_number(given, "maxRecordsPerPartition"),
            split_bytes=_number(given, "splitBytes") or SPLIT_BYTES,
            columns=_columns(given),
        )


def columns_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """The columns alone, for the schema, which Spark asks for before anything else."""
    return _columns({name.lower(): value for name, value in options.items()})


def _columns(given: Mapping[str, str]) -> tuple[str, ...]:
    """All but headers, as the connector; with ``includeHeaders`` all; with ``columns`` those named, in our order."""
    if "columns" in given:
        named = {part.strip().lower() for part in given["columns"].split(",")}
        unknown = named - {column.lower() for column in COLUMNS}
        if unknown or not named:
            raise UsageError(f'option "columns": {", ".join(sorted(unknown))} is none of {", ".join(COLUMNS)}')
        return tuple(column for column in COLUMNS if column.lower() in named)
    with_headers = _choice(given, "includeHeaders", "false", ("true", "false")) == "true"
    return COLUMNS if with_headers else COLUMNS[:-1]


def _bound(given: Mapping[str, str], end: str, default: int) -> Bound:
    """One end; a time for all goes before times for each, which go before offsets, as in the connector."""
    name = f"{end}Timestamp"
    if name.lower() in given:
        time_ms = _number(given, name)
        assert time_ms is not None
        return Bound(time_ms, {}, by_time=True)
    name = f"{end}OffsetsByTimestamp"
    if name.lower() in given:
        return Bound(default, _offsets(name, given[name.lower()]), by_time=True)
    name = f"{end}Offsets"
    text = given.get(name.lower())
    if text is None:
        return Bound(default, {})
    if text.lower() in ("earliest", "latest"):
        wanted = EARLIEST if text.lower() == "earliest" else LATEST
        if wanted != default:
            raise UsageError(f'option "{name}": {text} would read nothing')
        return Bound(wanted, {})
    offsets = _offsets(name, text)
    if any(
        offset == -3 or offset < EARLIEST or (end == "ending" and offset == EARLIEST) for offset in offsets.values()
    ):
        raise UsageError(
            f'option "{name}": offsets are 0 and up, -1 for the end'
            + (", -2 for the start" if end == "starting" else "")
        )
    return Bound(default, offsets)


def _offsets(name: str, text: str) -> dict[TopicPartition, int]:
    value = _json(name, text)
    try:
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, partitions in value.items()
            for partition, offset in partitions.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise UsageError(f'option "{name}": {text!r} is not like {{"topic": {{"0": 23, "1": -1}}}}') from None


def _assign(text: str) -> tuple[TopicPartition, ...]:
    value = _json("assign", text)
    try:
        return tuple(TopicPartition(topic, int(one)) for topic, partitions in value.items() for one in partitions)
    except (AttributeError, TypeError, ValueError):
        raise UsageError(f'option "assign": {text!r} is not like {{"topic": [0, 1]}}') from None


def _ranges(text: str) -> tuple[Range, ...]:
    value = _json("ranges", text)
    try:
        return tuple(Range(str(topic), int(partition), int(start), int(end)) for topic, partition, start, end in value)
    except (TypeError, ValueError):
        raise UsageError(f'option "ranges": {text!r} is not like [["topic", 0, 23, 80]]') from None


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f'option "{name}": {text!r} is no JSON ({error})') from None


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f'option "subscribePattern": {text!r} is no regular expression ({error})') from None


def _choice(given: Mapping[str, str], name: str, default: str, choices: tuple[str, ...]) -> str:
    value = given.get(name.lower(), default).lower()
    if value not in choices:
        raise UsageError(f'option "{name}": {value!r} is not {" or ".join(choices)}')
    return value


def _number(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not text.strip().isdigit() or int(text) == 0:
        raise UsageError(f'option "{name}": {text!r} is not a number above 0')
    return int(text)
