"""``klog perf``: how fast the cluster is, measured from here."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated, Any

from klog.cli import error_report
from klog.cli.arguments import AcksName, CodecName, MostRate, Properties, Topic, Topics
from klog.cli.command import Noun
from klog.cli.error_report import EXIT_FAILED
from klog.cli.flags import flag
from klog.cli.invocation import Invocation
from klog.cli.name_values import settings
from klog.cli.progress import Done, progress
from klog.config import units
from klog.errors import UsageError
from klog.names import counted

if TYPE_CHECKING:
    from klog.tools.perf.measurement import Measurement

perf = Noun("perf", "Measure the cluster: produce, consume, end-to-end latency.")

Acks = Annotated[AcksName, flag("--acks 0|1|all", "Required acknowledgements: none, leader, all in-sync replicas.")]
Compression = Annotated[CodecName, flag("--compression CODEC", "Codec: none, gzip, snappy, lz4 or zstd.")]
MessageSize = Annotated[int, flag("--message-size SIZE", "Size of a message's value.", parser=units.parse_size)]
Threads = Annotated[int, flag("--threads N", "Number of clients, each in a thread.", min=1, max=64)]
Csv = Annotated[bool, flag("--csv", "One line with the header of 0.8's tools; with --no-header without it.")]


@perf.command("produce", rows="klog.tools.perf.produce:ProducedRow", changes=True)
async def produce(
    invocation: Invocation,
    topics: Topics,
    messages: int = flag("--messages N", "Number of messages to send.", 1_000_000, min=1),
    message_size: MessageSize = 100,
    vary: bool = flag("--vary-message-size", "Random sizes from 1 byte to --message-size."),
    batch_messages: int = flag("--batch-messages --batch-size N", "Most messages per batch.", 10_000, min=1),
    threads: Threads = 1,
    acks: Acks = "all",
    compression: Compression = "none",
    rate: MostRate = None,
    initial_id: int | None = flag("--initial-message-id N", "Number the messages, starting with this id.", min=0),
    csv: Csv = False,
    properties: Properties = None,
) -> int:
    """Produce messages to topics in turn, and show the rate of acknowledged messages.

    Latency is measured from the call of send to the acknowledgement, and includes the time in the client's queue. At
    full speed that queue is full; use `--rate` to measure the cluster's own latency.
    """
    from klog.tools.perf import produce as perf_produce

    _check(invocation, csv)
    load = perf_produce.ProduceLoad(
        messages=messages,
        message_size=message_size,
        vary=vary,
        batch_messages=batch_messages,
        threads=threads,
        acks=acks,
        compression=compression,
        rate=rate,
        initial_id=initial_id,
        librdkafka=settings(properties),
    )
    perf_produce.check_load(load)
    cluster = await invocation.cluster()
    return await _measure(invocation, await perf_produce.produce(cluster, topics, load), messages, csv)


@perf.command("consume", rows="klog.tools.perf.consume:ConsumedRow")
async def consume(
    invocation: Invocation,
    topics: Topics,
    messages: int | None = flag("--messages N", "Stop after N messages; at the end offsets if not given.", min=1),
    fetch_size: int = flag("--fetch-size SIZE", "Most bytes per fetch.", 4 * 1024 * 1024, parser=units.parse_size),
    threads: Threads = 1,
    csv: Csv = False,
    properties: Properties = None,
) -> int:
    """Consume topics from their start to the end offsets as of start-up, and show the rate.

    The threads share the partitions.
    """
    from klog.tools.perf import consume as perf_consume

    _check(invocation, csv)
    if not 1 <= fetch_size <= perf_consume.FETCH_BYTES_MAX:
        raise UsageError(f"--fetch-size must be between 1 and {perf_consume.FETCH_BYTES_MAX}, got {fetch_size}")
    cluster = await invocation.cluster()
    measurement = await perf_consume.consume(
        cluster, topics, messages=messages, fetch_size=fetch_size, threads=threads, librdkafka=settings(properties)
    )
    code = await _measure(invocation, measurement, messages, csv)
    if messages is not None and measurement.count() < messages:
        invocation.say(f"the topics have only {counted(measurement.count(), 'message')}")
    return code


@perf.command("latency", rows="klog.tools.perf.latency:LatencyRow", changes=True)
async def latency(
    invocation: Invocation,
    topic: Topic,
    messages: int = flag("--messages N", "Number of messages to time.", 1000, min=1),
    message_size: MessageSize = 100,
    partition: int = flag("-p --partition N", "The partition to use.", 0, min=0),
    acks: Acks = "all",
    compression: Compression = "none",
    rate: MostRate = None,
    csv: Csv = False,
    properties: Properties = None,
) -> int:
    """Measure end-to-end latency, from producer to consumer.

    One message at a time. With `--rate` each message is timed from when it was due, so that a stall counts for every
    message that it delayed.
    """
    from klog.tools.perf import latency as perf_latency

    _check(invocation, csv)
    load = perf_latency.LatencyLoad(
        messages=messages,
        message_size=message_size,
        partition=partition,
        acks=acks,
        compression=compression,
        rate=rate,
        librdkafka=settings(properties),
    )
    perf_latency.check_load(load)
    cluster = await invocation.cluster()
    return await _measure(invocation, await perf_latency.latency(cluster, topic, load), messages, csv)


async def _measure(invocation: Invocation, measurement: Measurement[Any], total: int | None, csv: bool) -> int:
    """Show its row, and progress until then; the exit code. Where it is stopped, the figures so far."""
    with progress(invocation, lambda: Done(measurement.count(), total), unit="messages"):
        try:
            row = await measurement.run()
        except asyncio.CancelledError:
            _show(invocation, measurement.row(), csv)
            raise
    return _show(invocation, row, csv)


def _check(invocation: Invocation, csv: bool) -> None:
    if csv and invocation.shared.output is not None:
        raise UsageError("--csv and -o exclude each other")


def _show(invocation: Invocation, row: Any, csv: bool) -> int:
    if not csv:
        return invocation.show(invocation.report([row]))
    invocation.clear_line()
    if not invocation.shared.no_header:
        sys.stdout.write(row.CSV_HEADER + "\n")
    sys.stdout.write(row.csv + "\n")
    sys.stdout.flush()
    error = getattr(row, "message", None)
    if error is not None:
        error_report.write(sys.stderr, f"klog {invocation.command.replace('.', ' ')}: {error}\n")
        return EXIT_FAILED
    return 0
