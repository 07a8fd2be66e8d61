"""``readStream.format("klog")``: what has come in since the last batch, in batches that Spark's checkpoint bounds.

Rules.
* An end that was told is never told differently: ends are resolved once, here, and Spark writes them down before it
  reads. What a batch begins with is the end of the one before it, or stands in its own end (partitions that are new).
* The query's first offsets are kept (`klog.spark.initial_offsets`) before Spark hears of them, or are such as mean the
  same each time.
* Offsets that are gone, topics that are gone and topics that were made anew fail the query, unless failOnDataLoss is
  false: then it goes on with what there is.

Spark calls all but `read` in one process beside the driver, from one thread; `read` runs in the tasks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from klog.client.raw_fetch import Range, RawCluster
from klog.errors import OffsetOutOfRange, UnknownTopicOrPartition, UsageError
from klog.names import TopicPartition
from klog.spark.initial_offsets import InitialOffsets
from klog.spark.options import SourceOptions
from klog.spark.planning import Ends, look, plan_ranges, starting_offsets
from klog.spark.shares import shares
from klog.spark.stream_offsets import StreamOffsets, is_anew
from klog.spark.tasks import TaskPartition, TaskReader

if TYPE_CHECKING:
    import pyarrow as pa

_LENIENT = "set failOnDataLoss to false to go on with what there is"


class KlogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Decides where batches end, plans them, and reads in the tasks."""

    def __init__(self, options: SourceOptions) -> None:
        """UsageError where the query would not know, after a crash, where it has begun."""
        if options.ranges is not None:
            raise UsageError('option "ranges" has no place here: a stream has no end')
        if options.state_location is None and not options.starting.is_fixed:
            raise UsageError(
                'option "stateLocation" is missing: Spark forgets where a query began if its first batch fails, and '
                '"latest" or a time would mean another place then',
                hint='.option("stateLocation", "/a/folder/of/its/own"), or startingOffsets "earliest" or JSON',
            )
        self.options = options
        self._kept = None if options.state_location is None else InitialOffsets(options.state_location)
        self._cluster: RawCluster | None = None
        self._target: Ends | None = None
        """Of Trigger.AvailableNow: what was there when the query started."""
        self._reported: StreamOffsets | None = None
        self._triggered_at: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cluster": None}  # connections stay where they are

    # --- Where batches end ---

    def initialOffset(self) -> dict[str, Any]:
        cluster = self._connected()

        def resolve() -> StreamOffsets:
            ends = look(cluster, self.options)
            return StreamOffsets(starting_offsets(cluster, self.options, ends), ends.topic_ids)

        if self._kept is None:
            return resolve().to_json()
        cluster.describe([])  # learns the cluster's id
        return self._kept.read_or_create(cluster.cluster_id, resolve).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.options.max_per_trigger is not None:
            return ReadMaxRows(self.options.max_per_trigger)
        if self.options.min_per_trigger is not None:
            return ReadMinRows(self.options.min_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = look(self._connected(), self.options)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._reported is None else self._reported.to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the batch that begins at ``start`` ends; ``start`` itself where nothing is to be read yet."""
        began = StreamOffsets.from_json(start)
        cluster = self._connected()
        ends = look(cluster, self.options)
        self._check_topics(began, ends)
        latest = self._until(ends)
        ids = {one.topic: ends.topic_ids[one.topic] for one in latest if one.topic in ends.topic_ids}
        added = {one: ends.earliest[one] for one in latest if began.is_new(one, ids)}
        self._reported = StreamOffsets(latest, ids)
        pending = [
            Range(one.topic, one.partition, self._from(one, began, added, ends), end) for one, end in latest.items()
        ]
        stops = self._limited(cluster, pending, limit)
        offsets = {TopicPartition(one.topic, one.partition): stops[one] for one in pending}
        if offsets == began.offsets and ids == began.topic_ids:
            return start
        return StreamOffsets(offsets, ids, added).to_json()

    def _check_topics(self, began: StreamOffsets, ends: Ends) -> None:
        """With failOnDataLoss: what was read before is there still, and the same."""
        if not self.options.fail_on_data_loss:
            return
        for topic, known in began.topic_ids.items():
            if is_anew(known, ends.topic_ids.get(topic)):
                raise UnknownTopicOrPartition(
                    f"topic {topic} was deleted and made anew: it was {known} and is {ends.topic_ids[topic]}; "
                    "its offsets begin again",
                    hint=_LENIENT + ", which is the new topic from its start",
                )
        gone = [str(one) for one in began.offsets if one not in ends.latest]
        if gone:
            raise UnknownTopicOrPartition(f"read before, not there any more: {', '.join(gone)}", hint=_LENIENT)

    def _until(self, ends: Ends) -> dict[TopicPartition, int]:
        """How far there is something to read; under Trigger.AvailableNow as of the query's start."""
        target = self._target
        if target is None:
            return dict(ends.latest)
        return {
            one: min(end, target.latest[one])
            for one, end in ends.latest.items()
            if one in target.latest and not is_anew(target.topic_ids.get(one.topic), ends.topic_ids.get(one.topic))
        }

    def _from(self, one: TopicPartition, began: StreamOffsets, added: dict[TopicPartition, int], ends: Ends) -> int:
        """Where reading goes on; what retention has taken is passed over, or an error."""
        if one in added:
            return added[one]
        start = began.offsets[one]
        if self.options.fail_on_data_loss and not ends.earliest[one] <= start <= ends.latest[one]:
            raise OffsetOutOfRange(
                f"{one}: offset {start} is to be read next, [{ends.earliest[one]}, {ends.latest[one]}) is there",
                hint=_LENIENT,
            )
        return max(start, ends.earliest[one])

    def _limited(self, cluster: RawCluster, pending: Sequence[Range], limit: ReadLimit) -> dict[Range, int]:
        """Where each range is to be left; at its beginning where too little is there (minOffsetsPerTrigger)."""
        whole = {one: max(one.from_offset, one.to_offset) for one in pending}
        if isinstance(limit, ReadAllAvailable):
            return whole
        waiting = _messages(cluster, [one for one in pending if one.to_offset > one.from_offset])
        total = sum(waiting.values())
        least, most = self.options.min_per_trigger, self.options.max_per_trigger
        now = time.monotonic()
        if least is not None and self._target is None and total < least and not self._has_waited(now):
            return {one: one.from_offset for one in pending}
        self._triggered_at = now
        if most is None or total <= most:
            return whole
        asked = {TopicPartition(one.topic, one.partition): (one, count) for one, count in shares(waiting, most).items()}
        found = cluster.nths({key: (one.from_offset, count) for key, (one, count) in asked.items()})
        stops = {one: one.from_offset for one in pending}
        return stops | {asked[key][0]: min(stop, whole[asked[key][0]]) for key, stop in found.items()}

    def _has_waited(self, now: float) -> bool:
        """Whether maxTriggerDelay is over. A query's first batch waits for nothing, as in the connector."""
        last = self._triggered_at
        return last is None or (now - last) * 1000 >= self.options.max_trigger_delay_ms

    # --- A batch ---

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[TaskPartition]:
        began, ended = StreamOffsets.from_json(start), StreamOffsets.from_json(end)
        cluster = self._connected()
        ends = look(cluster, self.options)
        self._check_topics(ended, ends)
        ranges = []
        for one, stop in ended.offsets.items():
            if one not in ends.latest or is_anew(ended.topic_ids.get(one.topic), ends.topic_ids.get(one.topic)):
                continue  # gone since, which is no error here: the check above would have said so
            first = ended.added.get(one, began.offsets.get(one))
            first = ends.earliest[one] if first is None else first
            if not self.options.fail_on_data_loss:
                first = max(first, ends.earliest[one])
                stop = min(stop, ends.latest[one])
            ranges.append(Range(one.topic, one.partition, first, stop))
        return [TaskPartition(number, task) for number, task in enumerate(plan_ranges(cluster, self.options, ranges))]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return TaskReader(self.options).read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: Spark's checkpoint is what counts, and this comes with the next batch only."""

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _connected(self) -> RawCluster:
        if self._cluster is None:
            self._cluster = RawCluster(self.options.bootstrap, timeout_s=self.options.timeout_s)
        return self._cluster


def _messages(cluster: RawCluster, ranges: Sequence[Range]) -> dict[Range, int]:
    """How many messages lie in each; where a broker cannot count, offsets are taken to be consecutive."""
    return {
        one: one.to_offset - one.from_offset if count is None else count
        for one, count in cluster.counts(ranges).items()
    }
