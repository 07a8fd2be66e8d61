"""The result of a streaming query in a topic, each row exactly once.

Why ``foreachBatch``
    A batch that runs again must be recognized in the log, so the writer must know the query and the number of the
    batch. Spark tells them to ``foreachBatch``; the tasks of a data source written in Python (`klog.spark.sink`) get
    neither, and learn of a commit only after their rows are in the log. And the rows must be placed and sorted before
    they are written, which only the owner of the frame can ask Spark for.

Protocol
    1. Spark writes the batch's offsets, watermark and time to its checkpoint, then calls the sink.
    2. The sink keeps where the target ends (`batch_ends`), once for all attempts of the batch.
    3. Each row gets its partition (`partition_of`). Each partition's rows go to one task, in the order of ``order_by``,
       timestamp, key, value, headers. So they have the same places in a repeated batch, whichever order Spark's
       exchange delivers them in; rows that tie are equal, and their order says nothing.
    4. The task looks behind the kept end for the last message with the query's header (`stamp`), and leaves out the
       rows up to it. The others are appended by ProduceAt: only if no message of this query is behind what the task
       has seen. An append whose answer was lost, a task that Spark runs twice at once, a driver that was taken for
       dead: one of two writers finds that the end has moved, and reads how far the other one is.
    5. The last append of a part says that it is the last. Spark writes the batch's commit after all parts are
       committed on the in-sync replicas.

A repeated batch with other rows
    Spark repeats a batch with the same offsets, watermark and current time, on the same state. What may still differ
    is an order (see 3.), the last digit of a sum of doubles, and what random functions return. A part that an earlier
    attempt has finished counts as it is; where the rows differ, a warning says so. A part that was begun must have the
    same first rows, by the digest in its stamp; else the query fails (Refused) and writes nothing. So the
    log never has the beginning of one result and the end of another.

Limits
    The target is klog's: Kafka has no conditional append. If retention deletes the rows of a batch before the query
    that was killed in it runs again, they are sent again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from klog.client.cluster import Cluster
from klog.errors import Refused, SendFailed, UnknownTopicOrPartition, UsageError
from klog.export.stores.store import Store
from klog.spark.sink_options import check_columns
from klog.spark.tasks import Versions, check_worker
from klog.streams.batch import Batch
from klog.streams.batch_ends import BatchEnds, bounds_of, kept_token
from klog.streams.part_writer import PartPlan, PartWriter, WrittenPart, rows_of
from klog.tools.copying.topics import batch_bytes_max

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

_TYPES = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "partition": ("int",),
    "timestamp": ("timestamp",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
FOLDER = "klog-sink"
"""Of the checkpoint, for where the topic ended before each batch."""
_HEADERS = _TYPES["headers"][0]
_PLACED = f"timestamp timestamp, key binary, value binary, headers {_HEADERS}"
_WRITTEN = "partition int, rows bigint, there bigint, differs boolean"


class TopicSink:
    """The function of one query for ``foreachBatch``; see the module. `check` it before the query starts."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        key: Sequence[str] = (),
        order_by: Sequence[str] = (),
    ) -> None:
        """``key``: columns, for rows that have no column ``value`` (`as_messages`).

        ``order_by``: columns that order the messages of a partition within a batch, before their timestamp.
        """
        self.topic = topic
        self._bootstrap = bootstrap
        self._key = tuple(key)
        self._order_by = tuple(order_by)
        self._batch_bytes_max: int | None = None

    def __str__(self) -> str:
        return f"topic:{self.topic}"

    def check(self, frame: Any) -> None:
        """UsageError for columns that cannot be written; UnknownTopicOrPartition; Refused where it is not klog."""
        if frame is not None:
            self._check_columns(frame)
        self._batch_bytes_max = room_of(self._bootstrap, self.topic)

    def _check_columns(self, frame: Any) -> Any:
        """The rows as messages."""
        frame = as_messages(frame, self._key, self._order_by)
        check_columns(frame.schema, _TYPES)
        return frame

    def write(self, frame: Any, batch: Batch) -> None:
        """Write one batch. Raises what Spark says of a task that failed."""
        frame = self._check_columns(frame)
        assert self._batch_bytes_max is not None, "not checked"
        plan, partitions = plan_of(
            PartPlan(self._bootstrap, self.topic, batch.query, batch.number, None, self._batch_bytes_max),
            batch.checkpoint,
            FOLDER,
        )
        tasks = min(partitions, batch.session.sparkContext.defaultParallelism)
        placed = self._columns(frame).mapInArrow(_Placement(partitions, Versions.here()), self._placed_schema(frame))
        order = [f"_order_{number}" for number in range(len(self._order_by))]
        done = (
            placed.repartitionById(tasks, placed["to"] % tasks)
            .sortWithinPartitions("to", *order, "timestamp", "key", "value", "headers")
            .select("to", "timestamp", "key", "value", "headers")
            .mapInArrow(_Writing(plan, Versions.here()), _WRITTEN)
            .collect()
        )
        self._settle(batch.number, [WrittenPart(*one) for one in done])

    def _columns(self, frame: Any) -> Any:
        from pyspark.sql import functions as sql

        def column(name: str, type_: str) -> Any:
            return (sql.col(name) if name in frame.columns else sql.lit(None)).cast(type_).alias(name)

        return frame.select(
            *(sql.col(name).alias(f"_order_{number}") for number, name in enumerate(self._order_by)),
            column("partition", "int"),
            column("timestamp", "timestamp"),
            column("key", "binary"),
            column("value", "binary"),
            column("headers", _HEADERS),
        )

    def _placed_schema(self, frame: Any) -> str:
        kinds = [frame.schema[name].dataType.simpleString() for name in self._order_by]
        order = [f"_order_{number} {kind}" for number, kind in enumerate(kinds)]
        return ", ".join([*order, "to int", _PLACED])

    def _settle(self, batch: int, parts: Sequence[WrittenPart]) -> None:
        twice = len(parts) - len({one.partition for one in parts})
        if twice:
            raise SendFailed(f"batch {batch}: {twice} partitions were written by two tasks", {})
        for one in parts:
            if one.differs:
                log.warning(
                    "batch %d had been written to %s-%d with other rows, which stay: the query is not deterministic",
                    batch,
                    self.topic,
                    one.partition,
                )
        rows, there = sum(one.rows for one in parts), sum(one.there for one in parts)
        log.info("batch %d: %d rows in %s, %d of them from an earlier attempt", batch, rows, self.topic, there)


def room_of(bootstrap: str, topic: str) -> int:
    """How many bytes a batch may have in a topic. Refused where the cluster is not klog; UnknownTopicOrPartition."""
    if not _is_in_event_loop():
        return asyncio.run(_room_of(bootstrap, topic))
    with ThreadPoolExecutor(1) as thread:  # as in notebooks; who waits for a thread does not hear Ctrl-C
        return thread.submit(asyncio.run, _room_of(bootstrap, topic)).result()


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _room_of(bootstrap: str, topic: str) -> int:
    cluster = await Cluster.connect(bootstrap, source="the target")
    try:
        if not cluster.is_klog:
            raise Refused(
                f"{bootstrap} is not klog: it has no conditional append, so nothing is written exactly once",
                hint='writeStream.format("klog") writes there at least once',
            )
        await cluster.topic(topic, fresh=True)
        return await batch_bytes_max(cluster, topic)
    except UnknownTopicOrPartition as error:
        raise UnknownTopicOrPartition(error.message, hint=f"klog topic create {topic}") from None
    finally:
        await cluster.close()


def plan_of(plan: PartPlan, checkpoint: Store, folder: str) -> tuple[PartPlan, int]:
    """The plan of a batch with the secret and the ends that are kept for it, and over how many partitions it is
    spread."""
    plan = replace(plan, secret=kept_token(checkpoint, f"{folder}/secret", 16))
    _, now = bounds_of(plan.bootstrap, plan.topic)
    kept = BatchEnds(checkpoint, folder, plan.query, plan.topic).keep(plan.batch, now)
    if kept.topic_id != now.topic_id:  # a target that was deleted and created again has none of the old ends
        return plan, len(now.partitions)
    return replace(plan, ends=kept.partitions), len(kept.partitions)


def as_messages(frame: Any, key: Sequence[str], kept: Sequence[str] = ()) -> Any:
    """Rows as messages. Where they have no column ``value``, the columns ``key`` become the key, as text or, several,
    as a JSON object, and all columns the value, as a JSON object. ``kept``: columns that stay beside."""
    from pyspark.sql import functions as sql

    names = frame.columns
    for what, wanted in (("key", key), ("order_by", kept)):
        for name in wanted:
            if name not in names:
                raise UsageError(f"{what}: the rows have no column {name} (they have {', '.join(names)})")
    if "value" in names:
        if key:
            raise UsageError('key: the rows have a column "value", so their own column "key" is the key')
        return frame
    value = sql.to_json(sql.struct(*names), {"ignoreNullFields": "false"}).alias("value")
    beside = [name for name in kept if name not in ("key", "value")]
    if dict(frame.dtypes).get("timestamp") == "timestamp" and "timestamp" not in beside:
        beside.append("timestamp")
    if not key:
        return frame.select(value, *beside)
    chosen = sql.col(key[0]).cast("string") if len(key) == 1 else sql.to_json(sql.struct(*key))
    return frame.select(chosen.alias("key"), value, *beside)


# --- In the tasks ---

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_R: Final = 24
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32 bits that ``org.apache.kafka.common.utils.Utils.murmur2`` makes of these bytes, unsigned."""
    length = len(data)
    mixed = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        word = (word ^ word >> _R) * _M & _MASK
        mixed = (mixed * _M & _MASK) ^ word
    if length > whole:
        mixed = (mixed ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    mixed = (mixed ^ mixed >> 13) * _M & _MASK
    return mixed ^ mixed >> 15


def partition_of(key: bytes | None, value: bytes | None, partitions: int) -> int:
    """From 0 to ``partitions`` - 1: by its key as Java's clients place it, and without a key by its value.

    Java's clients put a message without a key anywhere; here a batch that runs again must put it where it was before.
    """
    placed_by = key if key is not None else value or b""
    return (murmur2(placed_by) & 0x7FFFFFFF) % partitions


@dataclass(frozen=True)
class _Placement:
    """In the tasks: gives each row its partition."""

    partitions: int
    versions: Versions

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        check_worker(self.versions)
        for batch in batches:
            at = batch.schema.get_field_index("partition")
            keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
            found = [
                self._checked(given) if given is not None else partition_of(key, value, self.partitions)
                for given, key, value in zip(batch.column(at).to_pylist(), keys, values, strict=True)
            ]
            yield batch.set_column(at, "to", pa.array(found, pa.int32()))

    def _checked(self, given: int) -> int:
        if not 0 <= given < self.partitions:
            raise UsageError(f"a row's partition is {given}; the topic has 0 to {self.partitions - 1}")
        return given


@dataclass(frozen=True)
class _Writing:
    """In the tasks: writes their rows; yields a row for each partition."""

    plan: PartPlan
    versions: Versions

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        check_worker(self.versions)
        with PartWriter(self.plan) as writer:
            done = writer.write(rows_of(batches))
        numbers = [("partition", pa.int32()), ("rows", pa.int64()), ("there", pa.int64())]
        yield pa.RecordBatch.from_pylist(list(map(asdict, done)), pa.schema([*numbers, ("differs", pa.bool_())]))
