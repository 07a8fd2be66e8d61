"""The experiment of the paper's section 5, figures 4 and 5, against a running cluster.

Producers at a batch of 1 and of 50, with all acknowledgements and with none, then consumers of what the fullest topic
has. Each line has a topic of its own with one partition, made before it and deleted, past the trash, behind it.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from klog.errors import KlogError
from klog.tools.perf.clock import MIB, in_threads
from klog.tools.perf.paper_loads import (
    VALUE_BYTES,
    Bounds,
    Course,
    Point,
    consume_by_klog,
    consume_by_librdkafka,
    produce_by_klog,
    produce_by_librdkafka,
)

if TYPE_CHECKING:
    from klog.client.cluster import Cluster
    from klog.coordination.zookeeper import ZooKeeper

MESSAGES = 10_000_000
"""As many as the paper's."""
LIMIT_S = 15.0
BATCHES = (1, 50)

PAPER = {1: 50_000, 50: 400_000, None: 22_000}
"""Messages a second of the paper's Kafka: produced at a batch of 1 and of 50, and consumed."""


@dataclass(frozen=True, slots=True)
class PaperRow:
    """One line of the paper's figure 4 (producers) or 5 (consumers); `paper_messages_per_s` is what the paper had.

    ``batch_messages``, ``acks`` and ``idempotent`` (a retry never doubles a message) are a producer's.
    """

    figure: Literal[4, 5]
    client: str
    batch_messages: int | None
    acks: str | None
    idempotent: bool | None
    messages: int
    seconds: float
    messages_per_s: float
    mib_per_s: float
    paper_messages_per_s: int


@dataclass(frozen=True, slots=True)
class _Producing:
    client: str
    batch: int
    acks: str
    idempotent: bool
    load: Callable[[str, str, Bounds], Course]


def _producing() -> Iterator[_Producing]:
    for batch in BATCHES:
        for acks in ("all", "0"):
            settings = {"acks": acks, "enable.idempotence": False}
            by_librdkafka = partial(produce_by_librdkafka, batch=batch, settings=settings)
            by_klog = partial(produce_by_klog, batch=batch, acks=acks)
            yield _Producing("librdkafka", batch, acks, False, by_librdkafka)
            yield _Producing("klog.Producer", batch, acks, acks == "all", by_klog)


async def paper(
    cluster: Cluster,
    zookeeper: ZooKeeper | None,
    *,
    messages: int = MESSAGES,
    limit_s: float = LIMIT_S,
    show: Callable[[PaperRow], None],
    say: Callable[[str], None],
) -> None:
    """Run each line, and ``show`` its row. Without a ``zookeeper`` (Kafka has none) nothing reads by `klog.Consumer`.

    KlogError ends it. However it ends, its topics and its group are deleted.
    """
    run = _Run(cluster, zookeeper, messages, limit_s, say)
    try:
        for line in _producing():
            show(await run.produce(line))
        if run.fullest is not None:
            show(await run.consume("librdkafka", partial(consume_by_librdkafka, cluster.bootstrap, run.fullest)))
            if zookeeper is not None:
                load = partial(consume_by_klog, str(zookeeper.address), run.group, run.fullest)
                show(await run.consume("klog.Consumer", load))
    except asyncio.CancelledError:
        say(f"deleting {' and '.join(run.topics) or 'nothing'}")
        raise
    finally:
        await run.tidy_up()


class _Run:
    """The topics of one run, and which of them has the most to read."""

    def __init__(
        self,
        cluster: Cluster,
        zookeeper: ZooKeeper | None,
        messages: int,
        limit_s: float,
        say: Callable[[str], None],
    ) -> None:
        self.group = f"klog-perf-paper-{secrets.token_hex(4)}"
        self.topics: list[str] = []
        self.fullest: str | None = None
        self._cluster = cluster
        self._zookeeper = zookeeper
        self._bounds = Bounds(messages, limit_s, threading.Event())
        self._most = self._made = 0
        self._has_group = False
        self._creating: asyncio.Future[Any] | None = None
        self._say = say

    async def produce(self, line: _Producing) -> PaperRow:
        from klog.admin.topics import create_topic

        self._made += 1
        topic = f"{self.group}-{self._made}"
        self.topics.append(topic)  # before it is made: what comes between is deleted as well
        self._creating = creating = asyncio.ensure_future(create_topic(self._cluster, topic, partitions=1))
        await asyncio.shield(creating)
        done = await self._in_thread(partial(line.load, self._cluster.bootstrap, topic))
        if done.messages > self._most:
            self._most, emptier, self.fullest = done.messages, self.fullest, topic
        else:
            emptier = topic
        if emptier is not None:
            await self._delete([emptier])
        return _row(4, line.client, line.batch, line.acks, line.idempotent, done)

    async def consume(self, client: str, load: Callable[[Bounds], Course]) -> PaperRow:
        self._has_group = self._has_group or client == "klog.Consumer"
        self._bounds.messages = self._most
        done = await self._in_thread(load)
        return _row(5, client, None, None, None, done)

    async def _in_thread(self, load: Callable[[Bounds], Course]) -> Point:
        """In a thread, stopped where the command is; how far it came."""
        ended: list[Course] = []

        def last() -> Point:
            return ended[0].last if ended else Point(0.0, 0)

        work = [lambda: ended.append(load(self._bounds))]
        stop = threading.Event()
        self._bounds.stop = stop
        return await in_threads(work, stop, last, lambda _: None)

    async def tidy_up(self) -> None:
        """At the end nothing is left of it; also within the moment that a command has after Ctrl-C."""
        if self._creating is not None:  # deleted before it is there, it would come after all
            await asyncio.gather(self._creating, return_exceptions=True)
        work: list[Awaitable[None]] = [self._delete(list(self.topics))]
        if self._has_group and self._zookeeper is not None:
            work.append(self._delete_group(self._zookeeper))
        for failure in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(failure, KlogError):
                self._say(f"not all of {self.group} could be deleted: {failure.message}")
            elif isinstance(failure, BaseException):
                raise failure

    async def _delete(self, names: list[str]) -> None:
        from klog.admin import topics, trash

        preview = [topics.TopicDeletion(name, 1, None, None) for name in names]
        ids = {} if self._zookeeper is None else await trash.ids_of(self._zookeeper, names)
        rows = await trash.purge_topics(self._cluster, await topics.delete_topics(self._cluster, preview), ids)
        for row in rows:
            if row.error not in (None, "UNKNOWN_TOPIC_OR_PARTITION"):
                raise KlogError(f"topic {row.topic}: {row.message}")
            self.topics.remove(row.topic)

    async def _delete_group(self, zookeeper: ZooKeeper) -> None:
        from klog.admin import rewind
        from klog.admin.acts import here

        await rewind.delete_group(self._cluster, zookeeper, self.group, here(zookeeper))


def _row(
    figure: Literal[4, 5], client: str, batch: int | None, acks: str | None, idempotent: bool | None, done: Point
) -> PaperRow:
    rate = done.messages / done.seconds if done.seconds else 0.0
    seconds, mib_per_s = round(done.seconds, 3), round(rate * VALUE_BYTES / MIB, 3)
    return PaperRow(
        figure, client, batch, acks, idempotent, done.messages, seconds, round(rate, 1), mib_per_s, PAPER[batch]
    )
