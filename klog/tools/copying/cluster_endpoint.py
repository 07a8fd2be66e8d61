"""One of the two clusters of a copy, over hours: brokers die, addresses change, and the copy goes on.

`klog.client.cluster.Cluster` is made for one command and gives up after its time-out. Here what can be tried again is
tried again, over a new connection if need be, to any broker that was ever known, until `patience_s` is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

from klog.client import partition_requests
from klog.client.answers import error_in
from klog.client.cluster import Cluster
from klog.client.metadata import Metadata
from klog.client.resolve import bounds
from klog.errors import BrokerNotAvailable, CannotConnect, KlogError, TimedOut
from klog.names import TopicPartition
from klog.net.channel import Channel
from klog.record.batch import walk

A = TypeVar("A")

PAUSE_S = 0.1
"""Between attempts: short beside an election, long beside a round trip."""
TELL_AFTER_S = 3.0
"""Trouble that is over sooner (an election) is not worth a word."""
RENEW_AFTER_S = 2.0
"""One broker that is down is left alone; after so long without success all connections are opened again."""

AWAY = (CannotConnect, TimedOut, BrokerNotAvailable)
"""What says that a broker is not there; another one may be."""

PARTITION_BYTES = 1024 * 1024
"""Fetched at once of a partition, and of all of a broker's."""
ANSWER_BYTES = 16 * 1024 * 1024
ANSWER_GRACE_S = 5.0


class Fetched(NamedTuple):
    """A run of whole batches, the first of which may begin before the offset asked for; empty where there is no more.

    ``after``: the offset behind the last record of the run, -1 for an empty one.
    """

    run: memoryview
    after: int
    high_watermark: int


class ClusterEndpoint:
    """Connections to one cluster. Event loop only."""

    def __init__(
        self,
        bootstrap: str,
        role: str,
        *,
        timeout_s: float = 10.0,
        patience_s: float = float("inf"),
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        """``role`` (``source``, ``target``) names it in errors. `open` connects."""
        self.bootstrap = bootstrap
        self.role = role
        self.timeout_s = timeout_s
        self.patience_s = patience_s
        self.note = note
        self.cluster_id = ""
        self._cluster: Cluster | None = None
        self._opening: asyncio.Task[Cluster] | None = None
        self._failing_since: float | None = None
        self._has_told = False

    async def open(self) -> ClusterEndpoint:
        """Connect once, without patience: an address that is wrong from the start is an error."""
        self._cluster = await Cluster.connect(self.bootstrap, source=f"the {self.role}", timeout_s=self.timeout_s)
        self.cluster_id = await self._cluster.cluster_id() or ""
        return self

    async def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        if self._cluster is not None:
            await self._cluster.close()

    async def another(self) -> ClusterEndpoint:
        """A second set of connections to the same cluster, for questions that must not wait behind long polls."""
        return await ClusterEndpoint(
            self.bootstrap, self.role, timeout_s=self.timeout_s, patience_s=self.patience_s, note=self.note
        ).open()

    @property
    def cluster(self) -> Cluster:
        assert self._cluster is not None, "not open"
        return self._cluster

    async def renew(self, used: Cluster) -> None:
        """Connect again, to any known broker; once for all callers. CannotConnect where no broker answers."""
        if self._cluster is not used:
            return
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(self._reopen(used))
        await asyncio.shield(self._opening)

    async def _reopen(self, used: Cluster) -> Cluster:
        self.bootstrap = used.servers()
        fresh = await Cluster.connect(self.bootstrap, source=f"the {self.role}", timeout_s=self.timeout_s)
        self._cluster = fresh
        await used.close()
        return fresh

    async def patiently(self, act: Callable[[Cluster], Awaitable[A]]) -> A:
        """What ``act`` returns; tried again where that may help. The last error once patience is over."""
        deadline = asyncio.get_running_loop().time() + self.patience_s
        while True:
            used = self.cluster
            try:
                found = await act(used)
            except KlogError as error:
                if not (error.retriable or isinstance(error, AWAY)) or self._now() > deadline:
                    with self.named():
                        raise
                await self.back_off(error, used)
            else:
                self.fine()
                return found

    @contextmanager
    def named(self) -> Iterator[None]:
        """Errors say of which of the two clusters they are."""
        try:
            yield
        except KlogError as error:
            if self.bootstrap not in error.message:
                error.message = f"the {self.role} {self.bootstrap}: {error.message}"
            raise

    async def back_off(self, error: KlogError, used: Cluster) -> None:
        """Wait a moment after something that may pass; where no broker answers, connect to others."""
        now = self._now()
        since = self._failing_since = now if self._failing_since is None else self._failing_since
        if now - since > TELL_AFTER_S and not self._has_told:
            self._has_told = True
            self.note(f"the {self.role} {self.bootstrap} cannot be used ({error.message}); still trying")
        await asyncio.sleep(PAUSE_S)
        is_silent = isinstance(error, TimedOut)  # the connection stands, but the broker is silent
        if is_silent or (isinstance(error, AWAY) and now - since > RENEW_AFTER_S):
            with suppress(CannotConnect):  # the next caller tries again
                await self.renew(used)

    def fine(self) -> None:
        """Something has worked."""
        self._failing_since = None
        if self._has_told:
            self._has_told = False
            self.note(f"the {self.role} {self.bootstrap} is available again")

    async def look(self, topics: Iterable[str] | None = None) -> Metadata:
        """Fresh metadata of all topics, or of these."""
        names = None if topics is None else sorted(set(topics))
        return await self.patiently(lambda cluster: cluster.metadata(names, fresh=True))

    async def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """The offset of the first message, and the end that consumers are shown."""
        found = (await self.patiently(lambda cluster: bounds(cluster, [partition])))[partition]
        return found.start, max(found.start, found.end)

    async def fetch(self, partition: TopicPartition, at: int, partition_bytes: int = PARTITION_BYTES) -> Fetched:
        """What lies at an offset and behind, of about so many bytes."""
        ask = partial(fetch, partition_bytes=partition_bytes)
        return await self.patiently(lambda cluster: cluster.to_leader(partition, at, ask))

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


async def fetch(
    channel: Channel,
    share: Mapping[TopicPartition, int],
    *,
    wait_ms: int = 0,
    partition_bytes: int = PARTITION_BYTES,
) -> dict[TopicPartition, Fetched | KlogError]:
    """From each partition what lies at its offset and behind, as `Cluster.to_leaders` wants it."""
    asked = partition_requests.fetch(
        channel, share, max_wait_ms=wait_ms, max_bytes=ANSWER_BYTES, partition_max_bytes=partition_bytes
    )
    answer = await channel.request(asked, timeout_s=wait_ms / 1000 + ANSWER_GRACE_S)
    parts = partition_requests.by_partition(answer.responses, topic="topic")
    return {name: _fetched(one, name) for name, one in parts}


def _fetched(one: Any, name: TopicPartition) -> Fetched | KlogError:
    failed = error_in(one, name)
    if failed is not None:
        return failed
    records = memoryview(one.records or b"")
    end, after = 0, -1
    try:
        for position, header in walk(records, allow_partial=True):
            end, after = position + header.size_bytes, header.last_offset + 1
    except KlogError as error:
        return error
    return Fetched(records[:end], after, int(one.high_watermark))
