"""Starting a query: its sink, its checkpoint, its trigger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from klog.errors import UsageError
from klog.spark.initial_offsets import open_folder
from klog.streams.batch import Batch, Sink, Step


def start(
    frame: Any,
    steps: Sequence[Step],
    sink: Sink,
    checkpoint: str,
    *,
    mode: str = "append",
    every: str | None = None,
    available_now: bool = False,
    name: str | None = None,
) -> Any:
    """Spark's StreamingQuery, started, of a streaming frame whose batches go through ``steps``.

    ``checkpoint``: a folder for this query alone, a path or a URL.
    ``every``: the interval between batches; None: the next begins when one has ended. ``available_now``: what is there
    now, and then the query ends.
    """
    if not getattr(frame, "isStreaming", False):
        raise UsageError("the frame is not a stream", hint="begin with Streams.topic, or spark.readStream")
    store = open_folder(checkpoint)
    sink.check(None if steps else frame)
    writer = frame.writeStream.outputMode(mode).option("checkpointLocation", store.location(""))
    if name is not None:
        writer = writer.queryName(name)
    if available_now:
        writer = writer.trigger(availableNow=True)
    elif every is not None:
        writer = writer.trigger(processingTime=every)
    return writer.foreachBatch(_function(steps, sink, store)).start()


def _function(steps: Sequence[Step], sink: Sink, store: Any) -> Callable[[Any, int], None]:
    def write(frame: Any, number: int) -> None:
        session = frame.sparkSession
        query = session.sparkContext.getLocalProperty("sql.streaming.queryId")
        batch = Batch(session, query, number, store)
        for step in steps:
            frame = step(frame, batch)
        sink.write(frame, batch)

    return write
