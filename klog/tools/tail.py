"""Messages out: from topics to a stream of bytes.

librdkafka fetches them, by assignment, without a group and without ever making a topic. Where to begin and where to end
is settled first, over klog's own connection, for every partition; then a thread reads and writes until it is there.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from klog.client.cluster import Cluster
from klog.client.metadata import TopicNode
from klog.client.positions import EARLIEST, END, Anchor, Position
from klog.client.resolve import bounds, replica_bounds, resolve, total_in
from klog.errors import KlogError, ReplicaNotAvailable, UnknownTopicOrPartition, UsageError
from klog.names import INTERNAL_TOPICS, TopicPartition
from klog.tools.message_formatter import MessageFormatter, compile_names
from klog.tools.options import Sink, Span, TailOptions

if TYPE_CHECKING:
    from klog.tools.reader import Reader  # which loads librdkafka

NEW_PARTITIONS_S = 10.0
"""Between looks for partitions that were added to a topic that is followed."""

NEW_TOPICS_S = 2.0
"""Between looks for topics that match."""


async def tail(
    cluster: Cluster,
    topics: Sequence[str],
    options: TailOptions,
    sink: Sink,
    *,
    note: Callable[[str], None] = lambda text: None,
) -> None:
    """Give messages to ``sink`` until told otherwise; cancel the task to stop (within 0.2 s).

    ``note`` gets sentences for stderr ("1204 earlier: -o start"), from this task's thread. Never makes a topic:
    UnknownTopicOrPartition. BrokenPipeError of the sink comes through.
    """
    check_options(options)
    begin, end, follow = _reach(options)
    named = list(topics)
    wanted = None if options.match is None else compile_names(options.match)
    if wanted is not None:
        topics = [*named, *_matching((await cluster.metadata(fresh=True)).topics, wanted)]
        if not topics:
            if not follow or options.merge_by_time:
                raise UnknownTopicOrPartition(
                    f"no topic matches {options.match!r}", hint="`klog topic list` shows the topics"
                )
            note(f"no topic matches {options.match!r} yet; waiting for one")
    spans = await spans_of(cluster, topics, options.partitions, begin, end, note, replica=options.replica)
    if options.offset is None and options.last is None and options.group is None and not options.until_end:
        note("waiting for new messages; -o start for those that are there")
    earlier = None
    if options.last is not None and options.replica is None:
        earlier = await total_in(cluster, {one: (EARLIEST, span.begin) for one, span in spans.items()})
    loop = asyncio.get_running_loop()
    make_reader = await _reader_for(cluster, options)
    reader = await asyncio.to_thread(
        make_reader,
        cluster.bootstrap,
        spans,
        options,
        sink,
        follow=follow,
        earlier=earlier,
        stop=threading.Event(),
        note=lambda text: loop.call_soon_threadsafe(note, text),
        timeout_s=cluster.timeout_s,
    )
    chosen = options.partitions is not None or options.replica is not None
    in_group = options.group is not None and wanted is None
    grows = follow and not chosen and not in_group and not options.merge_by_time
    looking = asyncio.ensure_future(_look_for_new(cluster, spans, reader, wanted, named)) if grows else None
    try:
        await reader.run_in_thread()
    finally:
        if looking is not None:
            looking.cancel()


def _matching(topics: Mapping[str, TopicNode], wanted: Callable[[str], bool]) -> list[str]:
    """Those with a wanted name, without internal ones."""
    public = sorted(name for name, one in topics.items() if not one.is_internal and name not in INTERNAL_TOPICS)
    return list(filter(wanted, public))


async def _look_for_new(
    cluster: Cluster,
    known: Iterable[TopicPartition],
    reader: Reader,
    wanted: Callable[[str], bool] | None,
    named: Sequence[str],
) -> None:
    """Tell the reader of partitions that its topics get while they are followed; a group's members hear of them.

    With ``wanted``, of topics too that are created meanwhile or deleted, but not of those that were ``named``.
    """
    seen = set(known)
    topics = {one.topic for one in seen}
    missing: set[str] = set()
    """At the last look: one does not tell a deleted topic from a new controller that has not sent all of them yet."""
    while True:
        await asyncio.sleep(NEW_PARTITIONS_S if wanted is None else NEW_TOPICS_S)
        try:
            there = (await cluster.metadata(topics if wanted is None else None, fresh=True)).topics
        except KlogError:
            continue  # brokers that do not answer: the reader meets that too, and says so
        if wanted is not None:
            missing, missed = topics - there.keys() - set(named), missing
            for topic in missing & missed:
                reader.drop(topic)
            topics = topics.union(_matching(there, wanted)) - (missing & missed)
            seen = {one for one in seen if one.topic in topics}
        for topic in sorted(topics & there.keys()):
            if new := [one for one in there[topic].names() if one not in seen]:
                seen.update(new)
                reader.add(new)


async def _reader_for(cluster: Cluster, options: TailOptions) -> Callable[..., Reader]:
    """What reads as the options say; to be made in a thread, for it may connect."""
    from klog.tools.group_reader import GroupReader
    from klog.tools.reader import Reader
    from klog.tools.replica_reader import ReplicaReader

    if options.replica is not None:
        return partial(ReplicaReader, (await cluster.metadata([])).brokers[options.replica])
    return Reader if options.group is None else GroupReader


def check_options(options: TailOptions) -> None:
    """UsageError where they contradict each other, or where a format or a regular expression is none."""
    if options.last is not None and options.offset is not None:
        raise UsageError("-n and -o both set the start: choose one")
    if options.group is not None:
        _check_group(options)
    if options.match is not None:
        if options.partitions is not None or options.replica is not None:
            raise UsageError(
                "--match reads whole topics from their leaders, so -p and --replica cannot be used with it"
            )
        compile_names(options.match)
    if options.replica is not None and options.librdkafka:
        raise UsageError("--replica does not use librdkafka, so -X has no effect")
    MessageFormatter(options)


def _check_group(options: TailOptions) -> None:
    if not options.group:
        raise UsageError("-G needs the name of a group")
    if options.replica is not None:
        raise UsageError("-G reads from leaders, --replica from one broker: choose one")
    if options.partitions is not None:
        raise UsageError("-G shares the partitions among the group's members, so -p cannot be used with it")
    if options.last is not None:
        raise UsageError(
            "-G starts at the group's committed offsets, so -n cannot be used with it", hint="-o start or end"
        )
    if options.merge_by_time:
        raise UsageError("--merge orders all partitions, of which -G gives this member a part: choose one")
    if options.offset is not None and options.offset.end is not None:
        raise UsageError("-G reads until stopped, or to the end (-e), so -o cannot be a range")


async def spans_of(
    cluster: Cluster,
    topics: Sequence[str],
    partitions: Sequence[int] | None,
    begin: Position,
    end: Position | None,
    note: Callable[[str], None],
    *,
    replica: int | None = None,
) -> dict[TopicPartition, Span]:
    """What to read of each partition from one position to another; ``note`` is called where the log has not that much.

    With ``replica`` of those partitions that this broker has, up to what it knows to be committed.
    """
    names: list[TopicPartition] = []
    for topic in dict.fromkeys(topics):
        node = await cluster.topic(topic)
        chosen = list(node.partitions) if partitions is None else list(partitions)
        node.check(chosen)
        if replica is not None:
            chosen = await _replicated_by(cluster, node, chosen, replica, are_named=partitions is not None)
        names += node.names(chosen)
    within = await bounds(cluster, names) if replica is None else await replica_bounds(cluster, names, replica)
    begins = await resolve(cluster, dict.fromkeys(names, begin), within)
    ends = await resolve(cluster, dict.fromkeys(names, end), within) if end is not None else {}
    for one, (start, stop) in within.items():
        if begin.anchor is Anchor.OFFSET and begins[one] != begin.value:
            note(f"{one} has {start} to {stop}, not {begin.value}: starting at {begins[one]}")
    return {one: Span(begins[one], ends.get(one)) for one in names}


async def _replicated_by(
    cluster: Cluster, node: TopicNode, partitions: Sequence[int], broker_id: int, *, are_named: bool
) -> list[int]:
    """Those that the broker has a replica of: all, where they were named; ReplicaNotAvailable."""
    await cluster.channel(broker_id)  # BrokerNotAvailable, where there is no such broker
    found = [one for one in partitions if broker_id in node.partitions[one].replicas]
    missing = [one for one in partitions if one not in found]
    if missing and (are_named or not found):
        where = ", ".join(map(str, node.partitions[missing[0]].replicas))
        raise ReplicaNotAvailable(
            f"broker {broker_id} has no replica of {node.name}-{missing[0]}: they are on brokers {where}",
            hint=f"`klog topic describe {node.name}` shows who has which",
        )
    return found


def _reach(options: TailOptions) -> tuple[Position, Position | None, bool]:
    """Where to begin; where what is there ends (None: it does not matter); whether to go on behind that."""
    if options.last is not None:
        # Any partition may have all of the last N; the reader finds out which ones they are.
        return Position(Anchor.BACK, options.last), END, not options.until_end
    begin, end = (END, None) if options.offset is None else options.offset
    follow = end is None and not options.until_end
    if end is None and (options.until_end or options.merge_by_time):
        end = END
    return begin, end, follow
