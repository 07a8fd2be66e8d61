"""Messages in: from files or stdin to a topic.

librdkafka sends them; this module keeps count of what became of each and says so. With acks=all it is idempotent: a
retry never doubles a message. Keys go where Java's clients put them (murmur2), messages without a key anywhere.
"""

from __future__ import annotations

import asyncio
import shlex
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import BinaryIO

from klog.admin.settings import setting_of
from klog.admin.topics import create_topic
from klog.admin.waiting import tell_waiting, why_not_taken
from klog.client.cluster import Cluster
from klog.client.metadata import TopicNode
from klog.errors import InvalidTopic, KlogError, UnknownTopicOrPartition
from klog.names import INTERNAL_TOPICS, check_topic_name, counted
from klog.render.jsonl import rfc3339
from klog.tools.deliveries import Line, LineRange, PartitionReceipt, Rejects
from klog.tools.options import ProduceOptions
from klog.tools.sender import Sender

GRACE_S = 0.5
"""After an interruption: how long to wait for acknowledgements that are under way. The command has a second in all."""


class NoSuchTopic(UnknownTopicOrPartition, exit_code=2):
    """A topic that is not there: its name is mistyped, or it is to be made on purpose."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of all input.

    ``messages`` and ``bytes`` were acknowledged (with acks=0: sent); ``failed`` were not, for good; ``unanswered`` were
    under way when it was interrupted and may or may not be in the log. ``began_ms`` is a time, ``ms`` how long it took.
    """

    topic: str
    messages: int
    bytes: int
    failed: int
    unanswered: int
    began_ms: int
    ms: int
    partitions: tuple[PartitionReceipt, ...]
    interrupted: bool
    first_error: str | None
    given_up: tuple[LineRange, ...] = ()
    """Lines of which no message is in the log, and none among the rejects; those that were not read are not named."""
    under_way: tuple[LineRange, ...] = ()
    """Lines of which some may be in the log."""
    stopped_at: Line | None = None
    """Where it was interrupted: the first line that was read and not handed over, if any was."""

    @property
    def rate(self) -> float:
        """Acknowledged messages a second."""
        return self.messages * 1000 / max(self.ms, 1)

    @property
    def is_complete(self) -> bool:
        """Whether everything that was read is in the log."""
        return not (self.failed or self.unanswered or self.interrupted)

    @property
    def tail_line(self) -> str | None:
        """The command that shows what was sent; None where the offsets are unknown.

        One partition: by its offsets. Several: by the time, which messages that brought their own do not go by.
        """
        named = [one for one in self.partitions if one.first_offset is not None]
        if not named:
            return None
        topic = shlex.quote(self.topic)
        if len(named) == 1:
            one = named[0]
            return f"klog tail {topic} -p {one.partition} -o {one.first_offset} -c {one.messages}"
        return f"klog tail {topic} -o @{rfc3339(self.began_ms)} -e"


async def produce(
    cluster: Cluster,
    topic: str,
    sources: Iterable[BinaryIO],
    options: ProduceOptions,
    *,
    interrupted: Callable[[Receipt], None] | None = None,
    note: Callable[[str], None] = lambda text: None,
    rejects: Rejects | None = None,
) -> Receipt:
    """Send everything that ``sources`` hold, one after the other; the receipt when all of it was answered.

    While the topic takes nothing no more is read, and ``note`` gets what it waits for, and when that is over. What
    is given up (``options.give_up_after_s``, what no broker would ever take) goes to ``rejects``.

    Cancelling the task stops it: what is under way gets half a second, ``interrupted`` gets the receipt, and the
    cancellation goes on. A missing topic is NoSuchTopic, which names those that are called nearly so; with
    ``options.create`` it is made, with a ``note``. Messages that fail do not raise: the receipt counts them.
    """
    node = await _existing_or_made(cluster, topic, options.create, note)
    if options.partition is not None:
        node.check([options.partition])
    if options.audit is None and await _setting(cluster, topic, "klog.audit.enable") == "true":
        options = replace(options, audit=True)
    sender = Sender(cluster.bootstrap, topic, options, timeout_s=cluster.timeout_s, rejects=rejects)
    chosen = list(node.partitions) if options.partition is None else [options.partition]
    began = time.monotonic()
    stop = threading.Event()
    work = asyncio.ensure_future(asyncio.to_thread(sender.send_all, sources, stop))
    telling = asyncio.ensure_future(
        tell_waiting(cluster, topic, chosen, options.acks, lambda: sender.deliveries.stalled_since, note)
    )
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([work], timeout=GRACE_S)
        if interrupted is not None:
            interrupted(_receipt(sender, topic, began, True, {}))
        raise
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
    flushed_by = await _flushed_by(cluster, topic, options) if sender.acknowledged else {}
    receipt = _receipt(sender, topic, began, False, flushed_by)
    if sender.too_large and (bound := await _size_bound(cluster, topic)):
        receipt = replace(receipt, first_error=f"{receipt.first_error}; {bound}")
    if not sender.timed_out:
        return receipt
    partitions = chosen if None in sender.timed_out else [one for one in sender.timed_out if one is not None]
    try:
        why = await why_not_taken(cluster, topic, partitions, options.acks)
    except KlogError as error:
        why = error.message
    return replace(receipt, first_error=f"{receipt.first_error}: {why}") if why else receipt


async def _size_bound(cluster: Cluster, topic: str) -> str | None:
    """The limit of a batch, and who sets it; None where the cluster does not tell."""
    name = "max.message.bytes"
    limit = await _setting(cluster, topic, name)
    if limit is None or not limit.isdigit():
        return None
    return f"the topic takes {int(limit):,} with its batch (`klog topic config {shlex.quote(topic)} {name}=N` sets it)"


async def _setting(cluster: Cluster, topic: str, name: str) -> str | None:
    """None where the cluster does not tell."""
    try:
        return await setting_of(cluster, topic, name)
    except KlogError:
        return None


def _receipt(
    sender: Sender, topic: str, began: float, was_interrupted: bool, flushed_by: dict[int, tuple[int, ...]]
) -> Receipt:
    rows = [replace(one, flushed_by=flushed_by.get(number)) for number, one in sorted(sender.partitions.items())]
    return Receipt(
        topic,
        sender.acknowledged,
        sum(row.bytes for row in rows),
        sender.failed,
        sender.unanswered,
        round((time.time() - (time.monotonic() - began)) * 1000),
        round((time.monotonic() - began) * 1000),
        tuple(rows),
        was_interrupted,
        sender.first_error,
        tuple(sender.given_up),
        tuple(sender.under_way),
        sender.stopped_at,
    )


async def _existing_or_made(cluster: Cluster, topic: str, create: bool, note: Callable[[str], None]) -> TopicNode:
    """The topic; where it is missing and wanted, one with the cluster's defaults."""
    check_topic_name(topic)
    if topic in INTERNAL_TOPICS:
        raise InvalidTopic(f"{topic} is an internal topic, which clients do not write", hint="choose another topic")
    try:
        return await cluster.topic(topic, fresh=True)
    except UnknownTopicOrPartition as error:
        if not create:
            near = await cluster.near(topic)
            hint = f"did you mean {' or '.join(near)}? " * bool(near) + f"--create makes {shlex.quote(topic)}"
            raise NoSuchTopic(error.message, hint=hint, topic=topic) from None
    made = await create_topic(cluster, topic, if_not_exists=True)
    if made.created:
        count = counted(made.partitions, "partition")
        note(f"made topic {topic} with {count}, replication factor {made.replication_factor}")
    return await cluster.topic(topic, fresh=True)


async def _flushed_by(cluster: Cluster, topic: str, options: ProduceOptions) -> dict[int, tuple[int, ...]]:
    """The brokers that must have flushed what was acknowledged, by partition; empty where no rule says so."""
    if options.acks != "all" or not cluster.is_klog or await _setting(cluster, topic, "flush.messages") != "1":
        return {}
    try:
        node = await cluster.topic(topic, fresh=True)
    except KlogError:
        return {}  # everything is acknowledged, whichever broker is down now
    return {one.partition: one.isr for one in node.partitions.values()}
