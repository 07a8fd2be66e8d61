"""What a topic waits for that takes no messages: asked of whichever broker answers, and told while it lasts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from klog.admin.log_dirs import log_dirs
from klog.admin.settings import min_isr
from klog.client.cluster import Cluster
from klog.config.topic import effective_min_isr
from klog.errors import KlogError
from klog.names import TopicPartition

LOOK_S = 0.1
LOOK_AGAIN_S = 5.0
"""Another reason may have taken the place of the first one."""
ANSWER_S = 1.0
"""After so long the reason is reported: no broker answers."""
ALL_ANSWERS_S = 5.0


async def tell_waiting(
    cluster: Cluster,
    topic: str,
    partitions: Iterable[int],
    acks: str,
    stalled_since: Callable[[], float | None],
    note: Callable[[str], None],
) -> None:
    """Note what is waited for whenever sending stalls, and when that is over; until it is cancelled.

    ``stalled_since``: since when, by the monotonic clock, None while all is well.
    """
    chosen = list(partitions)
    told: str | None = None
    began = look_at = 0.0
    while True:
        await asyncio.sleep(LOOK_S)
        since = stalled_since()
        if since is None:
            if told is not None:
                note(f"{topic} accepts messages again, after {time.monotonic() - began:.0f} s")
            told, look_at = None, 0.0
        elif time.monotonic() >= look_at:
            why = await why_waiting(cluster, topic, chosen, acks)
            if stalled_since() is None and told is None:
                continue
            if why != told:
                note(f"waiting, and reading no further input: {why}")
            told, began, look_at = why, since if told is None else began, time.monotonic() + LOOK_AGAIN_S


async def why_waiting(cluster: Cluster, topic: str, partitions: Iterable[int], acks: str) -> str:
    """The reason, as far as it can be seen. Connects again: the broker asked until now may be the one that hangs."""
    servers = cluster.servers()
    is_there = False
    try:
        async with asyncio.timeout(ALL_ANSWERS_S):
            async with await Cluster.connect(servers, source=cluster.source, timeout_s=ANSWER_S) as asked:
                is_there = True
                return await why_not_taken(asked, topic, partitions, acks) or f"{topic} does not acknowledge messages"
    except TimeoutError:
        return (
            f"{topic} does not acknowledge messages, and the brokers do not answer"
            if is_there
            else f"no answer from {servers}"
        )
    except KlogError as error:
        return error.message if is_there else f"no broker answers at {servers}"


async def why_not_taken(cluster: Cluster, topic: str, partitions: Iterable[int], acks: str) -> str | None:
    """What keeps partitions from taking messages; None where nothing is to be seen. librdkafka says nothing of it."""
    node = await cluster.topic(topic, fresh=True)
    minimum = (await min_isr(cluster, [topic])).get(topic, 1) if acks == "all" else 1
    chosen = [node.partitions[one] for one in sorted(partitions) if one in node.partitions]
    for known in chosen:
        name = f"{topic}-{known.partition}"
        if known.leader is None:
            return f"{name} has no leader; `klog status topics` names the missing brokers"
        needed = effective_min_isr(minimum, len(known.replicas))
        if len(known.isr) < needed:
            return f"{len(known.isr)} of {name} in sync, and min.insync.replicas is {needed}"
    for known in chosen:
        assert known.leader is not None
        try:
            dirs = await log_dirs(cluster, known.leader, TopicPartition(topic, known.partition))
        except (KlogError, TimeoutError):
            return f"broker {known.leader}, which leads {topic}-{known.partition}, does not answer"
        for one in dirs:
            if one.is_full:
                return (
                    f"broker {known.leader} leads {topic}-{known.partition},"
                    f" and its log dir {one.path} has {one.free_bytes:,} bytes free"
                )
    return None
