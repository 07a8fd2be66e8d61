"""``klog.read``: topics as batches of Arrow, in this process and without Spark, for Polars, DuckDB and pandas."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from klog.spark.option_table import check_names
from klog.spark.options import SourceOptions
from klog.spark.planning import plan
from klog.spark.range_reader import as_rows, read_task

if TYPE_CHECKING:
    import pyarrow as pa

HERE: Final = "127.0.0.1:9092"
"""Where `klog up` listens."""


def read(*topics: str, bootstrap_servers: str = HERE, **options: Any) -> pa.RecordBatchReader:
    """The messages that are in the topics now, each once, a partition after the other; read as they are asked for.

    ``options`` are those of ``format("klog")`` in batch queries (docs/pipeline.md), such as ``startingTimestamp``,
    ``endingOffsets`` and ``columns``; a value of another type than text is written as JSON. With ``assign`` or
    ``subscribePattern`` no topic is named.

    UsageError for an option that is not known; CannotConnect; UnknownTopicOrPartition; OffsetOutOfRange where
    retention has taken what was asked for. CorruptLog, from a batch, where the brokers count more messages.
    """
    import pyarrow as pa

    from klog.export.message_columns import SCHEMA

    given = {name: one if isinstance(one, str) else json.dumps(one) for name, one in options.items()}
    given["kafka.bootstrap.servers"] = bootstrap_servers
    if topics:
        given["subscribe"] = ",".join(topics)
    check_names(given)
    parsed = SourceOptions.parse(given)
    batches = (batch for task in plan(parsed) for batch in as_rows(read_task(parsed, task)))
    return pa.RecordBatchReader.from_batches(pa.schema([SCHEMA.field(name) for name in parsed.columns]), batches)
