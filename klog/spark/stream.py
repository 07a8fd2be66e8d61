"""``readStream.format("klog")``: reads new messages in batches, whose ends Spark writes to its checkpoint.

Rules.
* The end of a batch never changes: it is resolved once, here, and Spark writes it down before it reads. A batch starts
  where the previous one ended. For new partitions, the batch's own end also holds their start.
* Spark asks several times for the start of the query, and the answer may differ each time ("latest"). So the end of the
  first batch, which is made at once, also holds the start.
* The query fails if offsets or topics are gone, or if a topic was re-created. With failOnDataLoss=false it continues
  with the messages that exist.

Spark calls everything except `read` in one process beside the driver, from one thread. `read` runs in the tasks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from klog.client.raw_fetch import Range, RawCluster
from klog.errors import OffsetOutOfRange, Refused, UnknownTopicOrPartition, UsageError
from klog.names import TopicPartition
from klog.spark.option_table import warn_of
from klog.spark.options import SourceOptions
from klog.spark.planning import UNANSWERED, Ends, Task, messages_in, plan_ranges, read_ends, starting_offsets
from klog.spark.short_errors import short_errors
from klog.spark.stream_offsets import StreamOffsets, is_recreated
from klog.spark.tasks import TaskPartition, read_rows

if TYPE_CHECKING:
    import pyarrow as pa

PATIENCE_S = 60.0
"""How long brokers may be unreachable during a query: a restart, with room for a slow machine."""

Answer = TypeVar("Answer")
H = TypeVar("H", bound=Hashable)

_LENIENT = "set failOnDataLoss to false to continue with the messages that exist"


class KlogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Decides where batches end, plans them, and reads in the tasks."""

    def __init__(self, options: SourceOptions, without_effect: Sequence[str] = ()) -> None:
        if options.ranges is not None:
            raise UsageError('option "ranges" has no place here: a stream has no end')
        self.options = options
        self._without_effect = without_effect
        self._initial: StreamOffsets | None = None
        self._cluster: RawCluster | None = None
        self._was_connected = False
        self._target: Ends | None = None
        """With Trigger.AvailableNow: the ends of the logs when the query started."""
        self._reported: dict[str, Any] | None = None
        self._triggered_at: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cluster": None}  # connections stay in this process

    # --- Where batches end ---

    @short_errors()
    def initialOffset(self) -> dict[str, Any]:
        """The start of the query: the same at each call in this process. `latestOffset` makes it permanent."""
        if self._initial is None:
            cluster = self._connected()
            ends = read_ends(cluster, self.options)
            starts = starting_offsets(cluster, self.options, ends)
            self._initial = StreamOffsets(starts, ends.topic_ids, initial=True)
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.options.max_per_trigger is not None:
            return ReadMaxRows(self.options.max_per_trigger)
        if self.options.min_per_trigger is not None:
            return ReadMinRows(self.options.min_per_trigger)
        return ReadAllAvailable()

    @short_errors()
    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._patiently(lambda cluster, is_gone: read_ends(cluster, self.options))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The newest offsets, with what `klog.spark.progress` reads: Spark shows them, and keeps them nowhere."""
        return self._reported

    @short_errors()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the batch that begins at ``start``; ``start`` itself if there is nothing to read yet."""
        return self._patiently(lambda cluster, is_gone: self._latest(cluster, start, limit, is_gone))

    def _latest(self, cluster: RawCluster, start: dict[str, Any], limit: ReadLimit, is_gone: bool) -> dict[str, Any]:
        began = StreamOffsets.from_json(start)
        ends = read_ends(cluster, self.options)
        self._check_topics(began, ends, is_gone)
        latest = self._until(began, ends)
        ids = {one.topic: ends.topic_ids[one.topic] for one in latest if one.topic in ends.topic_ids}
        added = {one: ends.earliest[one] for one in latest if began.is_new(one, ids)}
        pending = [
            Range(one.topic, one.partition, self._from(one, began, added, ends), end) for one, end in latest.items()
        ]
        stops = self._limited(cluster, pending, limit)
        behind = [one._replace(from_offset=stops[one]) for one in pending if stops[one] < one.to_offset]
        messages = messages_in(cluster, behind)
        size = None if messages is None else sum(one.to_offset - one.from_offset for one in behind)
        lag = {"messages": messages, "bytes": size}
        self._reported = {**StreamOffsets(latest, ids).to_json(), "reads": self.options.reads, "lag": lag}
        offsets = {TopicPartition(one.topic, one.partition): stops[one] for one in pending}
        if began.initial:
            added = {TopicPartition(one.topic, one.partition): one.from_offset for one in pending}
        elif offsets == began.offsets and ids == began.topic_ids:
            return start
        return StreamOffsets(offsets, ids, added).to_json()

    def _check_topics(self, began: StreamOffsets, ends: Ends, is_gone: bool) -> None:
        """Check that the topics and partitions read so far still exist and are the same.

        UnknownTopicOrPartition if one is missing, unless ``is_gone`` allows it. Refused if a topic was re-created, with
        failOnDataLoss.
        """
        missing = [str(one) for one in began.offsets if one not in ends.latest]
        if missing and not is_gone:
            raise UnknownTopicOrPartition(
                f"these were read before and no longer exist: {', '.join(missing)}", hint=_LENIENT
            )
        for topic, known in began.topic_ids.items():
            if self.options.fail_on_data_loss and is_recreated(known, ends.topic_ids.get(topic)):
                raise Refused(
                    f"topic {topic} was deleted and re-created: it was {known} and is {ends.topic_ids[topic]}; "
                    "its offsets begin again",
                    hint=_LENIENT + ": the new topic from its start",
                )

    def _until(self, began: StreamOffsets, ends: Ends) -> dict[TopicPartition, int]:
        """The offsets up to which messages can be read; with Trigger.AvailableNow as of the start of the query."""
        target = self._target
        if target is None:
            return dict(ends.latest)
        found = {}
        for one, end in ends.latest.items():
            is_other = is_recreated(target.topic_ids.get(one.topic), ends.topic_ids.get(one.topic))
            if one in target.latest and not is_other:
                found[one] = min(end, target.latest[one])
            elif not began.is_new(one, ends.topic_ids):
                found[one] = began.offsets[one]  # it was not visible at the start of the query: keep its offset
        return found

    def _from(self, one: TopicPartition, began: StreamOffsets, added: dict[TopicPartition, int], ends: Ends) -> int:
        """The offset at which reading continues. Messages lost to retention or truncation are skipped or an error."""
        if one in added:
            return added[one]
        start = began.offsets[one]
        if self.options.fail_on_data_loss and not ends.earliest[one] <= start <= ends.latest[one]:
            raise OffsetOutOfRange(
                f"{one}: the next offset to read is {start}, the log has [{ends.earliest[one]}, {ends.latest[one]})",
                hint=_LENIENT,
            )
        return min(max(start, ends.earliest[one]), ends.latest[one])

    def _limited(self, cluster: RawCluster, pending: Sequence[Range], limit: ReadLimit) -> dict[Range, int]:
        """The end of each range under the read limit; its beginning if there is too little to read
        (minOffsetsPerTrigger)."""
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
        """Whether maxTriggerDelay has passed. The first batch of a query does not wait, as in Spark's connector."""
        last = self._triggered_at
        return last is None or (now - last) * 1000 >= self.options.max_trigger_delay_ms

    # --- A batch ---

    @short_errors()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[TaskPartition]:
        if start == end:
            return []
        began, ended = StreamOffsets.from_json(start), StreamOffsets.from_json(end)
        tasks = self._patiently(lambda cluster, is_gone: self._planned(cluster, began, ended, is_gone))
        return [TaskPartition(number, task) for number, task in enumerate(tasks)]

    def _planned(self, cluster: RawCluster, began: StreamOffsets, ended: StreamOffsets, is_gone: bool) -> list[Task]:
        ends = read_ends(cluster, self.options)
        self._check_topics(ended, ends, is_gone)
        ranges = []
        for one, stop in ended.offsets.items():
            if one not in ends.latest or is_recreated(ended.topic_ids.get(one.topic), ends.topic_ids.get(one.topic)):
                continue  # it is gone, and that is allowed: else the check above would have failed
            first = ended.added[one] if one in ended.added else began.offsets[one]
            if not self.options.fail_on_data_loss:
                first = max(first, ends.earliest[one])
                stop = min(stop, ends.latest[one])
            ranges.append(Range(one.topic, one.partition, first, stop))
        return plan_ranges(cluster, self.options, ranges)

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return read_rows(self.options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing: Spark's checkpoint has the progress, and Spark calls this only with the next batch."""

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _patiently(self, ask: Callable[[RawCluster, bool], Answer]) -> Answer:
        """Call ``ask`` with the cluster and `is_gone`, again and again while brokers restart.

        A broker that has just started answers before it knows the topics. So a missing topic counts as gone only after
        it has been missing for a while. The first call fails immediately if no broker answers, unless
        fetchOffset.numRetries says how often to ask. Offsets that retention removes in between are an error only with
        failOnDataLoss.
        """
        began_at = time.monotonic()
        is_gone = False
        failed = 0
        while True:
            waited_s = time.monotonic() - began_at
            try:
                return ask(self._connected(), is_gone)
            except UNANSWERED:
                self.stop()
                failed += 1
                is_over = not self._was_connected or waited_s > PATIENCE_S
                if is_over if self.options.offset_retries is None else failed > self.options.offset_retries:
                    raise
            except OffsetOutOfRange:
                if self.options.fail_on_data_loss or waited_s > PATIENCE_S:
                    raise
            except UnknownTopicOrPartition:
                if waited_s > self.options.timeout_s:
                    if self.options.fail_on_data_loss or is_gone:
                        raise
                    is_gone = True
            time.sleep(self.options.offset_pause_s)

    def _connected(self) -> RawCluster:
        if self._cluster is None:
            self._cluster = self.options.connect()
            if not self._was_connected:
                warn_of(self._without_effect)
            self._was_connected = True
        return self._cluster


def _messages(cluster: RawCluster, ranges: Sequence[Range]) -> dict[Range, int]:
    """The number of messages in each range. If a broker cannot count, offsets are assumed to be consecutive."""
    return {
        one: one.to_offset - one.from_offset if count is None else count
        for one, count in cluster.counts(ranges).items()
    }


def shares(waiting: Mapping[H, int], limit: int) -> dict[H, int]:
    """Each one's share of ``limit`` (maxOffsetsPerTrigger), in proportion to what waits there; together exactly the
    limit, or all there is.

    Who has anything gets at least one, so that a quiet partition beside busy ones is read too; where even that is more
    than the limit, those with the most waiting get one each.
    """
    there = {one: count for one, count in waiting.items() if count > 0}
    total = sum(there.values())
    if total <= limit:
        return there
    if len(there) >= limit:
        most = sorted(there, key=lambda one: there[one], reverse=True)[:limit]
        return dict.fromkeys(most, 1)
    found, left = {}, limit
    for one in sorted(there, key=lambda one: there[one]):  # the smallest first: what it gets more, the larger ones lack
        found[one] = max(1, there[one] * left // total)
        left -= found[one]
        total -= there[one]
    return found
