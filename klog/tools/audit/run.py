"""Counting what a tier holds, by reading it: from where the run before ended up to the end there is now, once or again
and again.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from klog.client.audit import TOPIC, VERSION
from klog.client.audit_publisher import ensure_audit_topic
from klog.client.cluster import Cluster
from klog.client.producer import Producer
from klog.client.resolve import bounds
from klog.client.servers import librdkafka_servers
from klog.errors import KlogError, NoSuchThing, UnknownTopicOrPartition
from klog.metrics import Count
from klog.names import TopicPartition, counted
from klog.tools.audit.compare import Judgement, State
from klog.tools.audit.ledger import COUNTED, Ledger, read_ledger
from klog.tools.audit.report import LIVE, AuditRow, row_of
from klog.tools.audit.tally import Found, Origin, Tally
from klog.tools.audit.tiers import STAMPS
from klog.tools.reader import read_ranges

ROWS_MAX: Final = 2000
"""Windows and producers in one message of the audit topic: with the longest names of hosts, below a megabyte."""

FINE_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class RunOptions:
    """``tier`` is the name that the counts get; ``anew``: count from the logs' starts, and replace what was counted."""

    topics: Sequence[str] = ()
    tier: str = LIVE
    anew: bool = False
    publish: bool = True
    window_ms: int | None = None
    audit_topic: str = TOPIC


@dataclass(frozen=True, slots=True)
class AuditRun:
    """``read`` messages; ``rows`` a window."""

    rows: list[AuditRow]
    read: int


async def run(
    cluster: Cluster,
    options: RunOptions,
    *,
    publish_to: Cluster | None = None,
    note: Callable[[str], None] = lambda text: None,
    show: Callable[[list[AuditRow]], None] = lambda rows: None,
    count: Count | None = None,
) -> AuditRun:
    """Count what is new on ``cluster``, and publish it in the audit topic of ``publish_to`` (the same one if None).

    ``show`` gets the rows of each topic once they are published; ``count`` has the offsets that were passed.

    Without topics: those that producers have published
    counts of. NoSuchThing where there is none; UnknownTopicOrPartition for a named topic that is not there.
    """
    home = publish_to or cluster
    ledger = await read_ledger(home, options.audit_topic, window_ms=options.window_ms)
    topics = list(options.topics) or sorted({window.topic for window in ledger.produced})
    if not topics:
        raise NoSuchThing(
            f"no producer has published counts in {options.audit_topic} of {home.bootstrap}, so the topics to count are"
            " unknown",
            hint="name them; producers take part by klog.Producer(..., audit=True) or `klog produce --audit`",
        )
    total = Tally(ledger.window_ms)
    read = 0
    for topic in topics:
        try:
            spans, counted_ms, is_recreated = await _spans(cluster, topic, ledger, options)
        except UnknownTopicOrPartition:
            if options.topics:
                raise
            note(f"topic {topic} does not exist")
            continue
        # The windows of a topic without publications are unknown: minutes fit in most.
        is_known = any(window.topic == topic for window in ledger.produced)
        tally = Tally(ledger.window_ms if is_known else math.gcd(ledger.window_ms, FINE_MS))
        read += await _count(cluster, topic, spans, tally, count or Count())
        total.update(tally)
        if options.publish:
            await publish(home, options, topic, spans, counted_ms, tally, anew=is_recreated)
        if tally.windows:
            show(_rows(tally, options.tier))
    return AuditRun(_rows(total, options.tier), read)


async def run_every(
    cluster: Cluster,
    options: RunOptions,
    every_s: float,
    *,
    show: Callable[[list[AuditRow]], None],
    publish_to: Cluster | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> None:
    """`run` again and again, each ``every_s`` after the one before has begun, until the task is cancelled.

    What is being published then is published to its end. The first run's errors are raised; after that a cluster that
    does not answer is reported, and asked again the next time, as are topics and producers that do not exist yet.
    """
    loop = asyncio.get_running_loop()
    is_first, said = True, ""
    while True:
        due_s = loop.time() + every_s
        failure = ""
        try:
            done = await run(cluster, options, publish_to=publish_to, note=note, show=show)
            if done.read:
                note(f"{counted(done.read, 'message')} read")
            is_first, options = False, replace(options, anew=False)
        except NoSuchThing as error:
            failure = error.message
        except KlogError as error:
            if is_first or not error.retriable:
                raise
            failure = error.message
        if failure and failure != said:
            note(f"{failure}; looking again every {every_s:g} s")
        said = failure
        await asyncio.sleep(max(0.0, due_s - loop.time()))


async def _spans(
    cluster: Cluster, topic: str, ledger: Ledger, options: RunOptions
) -> tuple[dict[int, tuple[int, int]], int, bool]:
    """What is new of each partition, when that was asked, and whether it replaces what was counted before."""
    node = await cluster.topic(topic, fresh=True, suggest=bool(options.topics))
    counted_ms = round(time.time() * 1000)
    within = {one.partition: span for one, span in (await bounds(cluster, node.names())).items()}
    known = None if options.anew else ledger.counted.get((options.tier, topic))
    ends = {} if known is None else known.ends
    is_another = any(one not in within or end > within[one].end for one, end in ends.items())
    if is_another:
        ends = {}  # the topic was created again, or its log was cut: what was counted is of another one
    spans = {one: (ends.get(one, span.start), span.end) for one, span in within.items()}
    return spans, counted_ms, options.anew or is_another


async def _count(cluster: Cluster, topic: str, spans: dict[int, tuple[int, int]], tally: Tally, count: Count) -> int:
    """Read all of it into the tally; how many messages there were."""
    at = {one: begin for one, (begin, _) in spans.items()}
    count.total = (count.total or 0) + sum(max(0, end - begin) for begin, end in spans.values())
    count.about = f"topic {topic}"

    def take(message: Any) -> None:
        tally.add(message.topic(), message.timestamp()[1], message.headers())
        offset, partition = message.offset(), message.partition()
        count.done += offset - at[partition]
        at[partition] = offset

    await read_ranges(cluster, {TopicPartition(topic, one): span for one, span in spans.items()}, take)
    return sum(found.messages for _, _, found in tally)


async def publish(
    home: Cluster,
    options: RunOptions,
    topic: str,
    spans: dict[int, tuple[int, int]],
    counted_ms: int,
    tally: Tally,
    *,
    anew: bool,
) -> None:
    """Tell what was counted, also where nothing was new: the tier is known up to then."""
    windows = tally.to_json(topic)
    parts = [windows[at : at + ROWS_MAX] for at in range(0, len(windows), ROWS_MAX)] or [[]]
    head: dict[str, Any] = {
        "version": VERSION,
        "kind": COUNTED,
        "tier": options.tier,
        "cluster": await home.cluster_id(),
        "run": uuid.uuid4().hex,
        "parts": len(parts),
        "counted_ms": counted_ms,
        "window_ms": tally.window_ms,
        "topic": topic,
        "anew": anew,
        "partitions": {str(one): span for one, span in spans.items()},
    }
    messages = [json.dumps({**head, "part": i, "windows": part}).encode() for i, part in enumerate(parts)]
    key = f"{options.tier}/{topic}".encode()
    sending = asyncio.ensure_future(asyncio.to_thread(_send, home.bootstrap, options.audit_topic, key, messages))
    try:
        await asyncio.shield(sending)
    except asyncio.CancelledError:
        await sending  # parts that are missing would make the others worthless
        raise


def _send(bootstrap: str, audit_topic: str, key: bytes, messages: list[bytes]) -> None:
    ensure_audit_topic(librdkafka_servers(bootstrap), audit_topic)
    with Producer(bootstrap_servers=bootstrap, client_id="klog-audit") as producer:
        producer.send(audit_topic, messages, key=key)


def _rows(tally: Tally, tier: str) -> list[AuditRow]:
    """One row per window, with each host's share."""
    rows = []
    for window, origins in sorted(tally.windows.items()):
        messages = sum(found.messages for found in origins.values())
        judged = Judgement(messages, None, None, State.COUNTED, tuple(_shares(origins)), counted=STAMPS)
        rows.append(row_of(window, tier, judged, tally.window_ms))
    return rows


def _shares(origins: Mapping[Origin, Found]) -> Iterator[str]:
    for host in sorted({origin.host for origin in origins}):
        own = [found for origin, found in origins.items() if origin.host == host]
        doubled = sum(found.doubled for found in own)
        yield f"{host or 'no stamp'} {sum(found.messages for found in own)}" + (f" +{doubled}" if doubled else "")
