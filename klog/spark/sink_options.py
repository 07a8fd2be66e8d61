"""The options and columns of writing to ``format("klog")``: those of Spark's Kafka connector, refused early."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from klog.client.producer_settings import read_settings
from klog.client.servers import properties_of
from klog.errors import InvalidTopic, UsageError
from klog.names import check_topic_name
from klog.security.client_security import SETTINGS
from klog.spark import option_values as values
from klog.spark.options import bootstrap_of

_TYPES = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
"""The columns that are written, and what they may be. Others are left alone, as by the connector."""

_DEFAULTS = {
    # A task writes as fast as rows come, and no reader waits for a single message: large batches, sent soon.
    "linger.ms": "20",
    "batch.num.messages": "10000",
    "batch.size": "1000000",
    "queue.buffering.max.messages": "100000",
    "queue.buffering.max.kbytes": "32768",
}


@dataclass(frozen=True)
class SinkOptions:
    """``producer``: librdkafka's settings. ``topic`` goes before the column of that name."""

    bootstrap: str
    topic: str | None
    columns: tuple[str, ...]
    """Those of _TYPES that the rows have."""
    producer: dict[str, Any]

    @classmethod
    def parse(cls, options: Mapping[str, str], schema: Any) -> SinkOptions:
        """``schema`` is Spark's StructType. UsageError for columns, InvalidConfig for settings, that cannot be."""
        given = values.lowered(options)
        bootstrap = bootstrap_of(given)
        columns = check_columns(schema, _TYPES)
        topic = given.get("topic")
        if topic is None and "topic" not in columns:
            raise UsageError('neither the option "topic" nor a column "topic" says where the messages go')
        if topic is not None:
            try:
                check_topic_name(topic)
            except InvalidTopic as error:
                raise UsageError(f'option "topic": {error.message}') from None
        settings = {
            name[len("kafka.") :]: value
            for name, value in given.items()
            if name.startswith("kafka.") and name.removeprefix("kafka.") not in ("bootstrap.servers", *SETTINGS)
        }
        producer = read_settings(
            {**properties_of(bootstrap), **_DEFAULTS, **settings}, is_async=True, audit=False, partitioner=None
        )
        return cls(bootstrap, topic, columns, producer.librdkafka)


def check_columns(schema: Any, types: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Those of ``types`` that rows of Spark's StructType have. UsageError without a value, or for another type."""
    found = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "value" not in found:
        raise UsageError(
            f'the rows have no column "value" (they have {", ".join(found) or "none"})',
            hint="for example: SELECT CAST(id AS STRING) AS key, to_json(struct(*)) AS value",
        )
    for name, allowed in types.items():
        if name in found and found[name] not in allowed:
            raise UsageError(
                f'the column "{name}" is {found[name]}, and may be {" or ".join(allowed)}',
                hint="cast it before writing",
            )
    return tuple(name for name in types if name in found)
