"""A connection to a cluster for one command: its metadata, and requests to the broker that must answer them.

Strategy: metadata is read once and kept, because a command is short; it is read again when a broker answers "not me".
Channels are opened when first needed, one per broker, and shared by requests that overlap. Every error names the
address, the source of the address, and, if there is one, the remedy.

Event loop only. Use as ``async with await Cluster.connect("h:9092", source="-B") as cluster``.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, TypeVar

from klog.client.answers import error_of, or_raise
from klog.client.bootstrap import connect_any, parse_bootstrap
from klog.client.metadata import BrokerNode, Metadata, TopicNode, metadata_fields, metadata_of
from klog.client.servers import Servers, more_servers, security_of
from klog.errors import (
    BrokerNotAvailable,
    CannotConnect,
    InvalidTopic,
    KlogError,
    LeaderNotAvailable,
    NotController,
    TimedOut,
    UnknownTopicOrPartition,
    WrongCluster,
)
from klog.names import TopicPartition, check_topic_name
from klog.net.channel import Channel, Trace
from klog.protocol import codec
from klog.protocol.apis import OWN_KEYS_FROM, ApiKey
from klog.security.errors import TopicAuthorizationFailed

CONNECT_TIMEOUT_S = 2.5
"""For a server's first answer. A command takes up to half a second to begin, and a silent host no more than three in
all: TCP asks once more after one second, and next after three."""

RETRY_PAUSE_S = 0.1
"""Between attempts while a leader or controller is being elected: short compared with an election (tens of ms and up),
long compared with a round trip."""

ANSWER_GRACE_S = 1.0

TURNS_TO_NOTICE = 5
"""Of the event loop, until the end of a connection that is in the socket has reached who reads from it."""

A = TypeVar("A")
Q = TypeVar("Q")

Ask = Callable[[Channel, dict[TopicPartition, Q]], Awaitable[dict[TopicPartition, A | KlogError]]]
"""Asks one broker about its share of partitions, with a question each; an answer or an error for each."""


class Cluster:
    """One cluster, as one command sees it; made by `connect`."""

    _any: Channel
    """Of the servers given, the one that has answered."""

    def __init__(self, bootstrap: str, source: str, timeout_s: float, trace: Trace | None, client_id: str) -> None:
        self.bootstrap = bootstrap
        self.source = source
        self.timeout_s = timeout_s
        self._trace = trace
        self._client_id = client_id
        self._channels: dict[int, asyncio.Task[Channel]] = {}
        self._metadata: Metadata | None = None

    @classmethod
    async def connect(
        cls,
        bootstrap: str,
        *,
        source: str = "the caller",
        timeout_s: float = 10.0,
        trace: Trace | None = None,
        client_id: str = "klog",
    ) -> Cluster:
        """The cluster behind ``host:port,...``; each server gets `CONNECT_TIMEOUT_S`, the first to answer is used.

        ``source`` names the address's source in errors. Raises UsageError for an invalid address, CannotConnect
        if no broker answers.
        """
        cluster = cls(bootstrap, source, timeout_s, trace, client_id)
        cluster._any = await connect_any(parse_bootstrap(bootstrap, source), cluster._open)
        return cluster

    async def check_id(self, expected: str) -> None:
        """WrongCluster where it is another one."""
        found = (await self.metadata([])).cluster_id
        if found != expected:
            raise WrongCluster(
                f"{self._any.address} (from {self.source}) belongs to cluster {found}, not to {expected}",
                hint="the two addresses must be of one cluster",
            )

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End every connection; may be called twice."""
        tasks, self._channels = list(self._channels.values()), {}
        for task in tasks:
            task.cancel()
        opened = await asyncio.gather(*tasks, return_exceptions=True)
        for channel in (self._any, *(one for one in opened if isinstance(one, Channel))):
            await channel.close()

    async def resume(self) -> bool:
        """Before a next command, while the event loop stood still; whether the first connection is still open.

        What was read is forgotten, and connections that the brokers have closed meanwhile are noticed.
        """
        self._metadata = None
        for _ in range(TURNS_TO_NOTICE):
            await asyncio.sleep(0)
        return not self._any.is_closed

    def tasks(self) -> set[asyncio.Task[Any]]:
        """The tasks of its connections, which end with them."""
        tasks = set(self._channels.values())
        opened = [one.result() for one in tasks if one.done() and not one.cancelled() and one.exception() is None]
        return {channel.receiving for channel in (self._any, *opened)} | tasks

    @property
    def is_klog(self) -> bool:
        """Whether the brokers serve klog's own requests; on plain Kafka, values that need them are None."""
        return OWN_KEYS_FROM in self._any.versions

    def servers(self) -> Servers:
        """Those given, and every known broker."""
        known = self._metadata.brokers.values() if self._metadata is not None else ()
        return more_servers(self.bootstrap, [one.address for one in known])

    # --- What is there ---

    async def metadata(self, topics: Iterable[str] | None = None, *, fresh: bool = False) -> Metadata:
        """All topics, or these (an empty list: brokers alone). Known metadata is not read again unless ``fresh``.

        Missing topics are in ``errors``. Never creates a topic.
        """
        wanted = None if topics is None else sorted(set(topics))
        known = self._metadata
        if not fresh and known is not None and wanted is not None and known.topics.keys() >= set(wanted):
            return known
        answer = metadata_of(await self.to_any(ApiKey.METADATA, 12, 4, **metadata_fields(wanted)))
        if known is not None and wanted is not None:  # keep the results of earlier requests
            gone = answer.errors.keys()
            kept = {name: topic for name, topic in known.topics.items() if name not in gone}
            answer = answer._replace(topics={**kept, **answer.topics})
        self._metadata = answer
        return answer

    async def cluster_id(self) -> str | None:
        return (await self.metadata([])).cluster_id

    async def brokers(self) -> list[BrokerNode]:
        """The live brokers, by number."""
        return list((await self.metadata([])).brokers.values())

    async def topic(self, name: str, *, fresh: bool = False, suggest: bool | None = None) -> TopicNode:
        """One topic; UnknownTopicOrPartition (or the broker's other error) if it cannot be described.

        ``suggest``: the error of a missing topic names topics with similar names; if not ``fresh``, which is for loops.
        """
        metadata = await self.metadata([name], fresh=fresh)
        found = metadata.topics.get(name)
        if found is not None:
            return found
        wire = metadata.errors.get(name, UnknownTopicOrPartition.wire)
        if wire == UnknownTopicOrPartition.wire:
            near = await self.near(name) if (not fresh if suggest is None else suggest) else []
            raise UnknownTopicOrPartition.of_topics(
                name, hint=f"did you mean {' or '.join(near)}?" if near else "`klog topic list` shows those there are"
            )
        if wire == InvalidTopic.wire:
            check_topic_name(name)  # raises with the reason
        if wire == TopicAuthorizationFailed.wire:
            raise TopicAuthorizationFailed(
                f"this user may not describe topic {name!r}",
                hint="`klog status denied`, by an administrator, tells more",
            )
        raise error_of(wire, f"topic {name!r}")

    async def near(self, name: str) -> list[str]:
        """The topics with names similar to this one, the closest first; empty if topics cannot be listed."""
        from difflib import get_close_matches

        try:
            topics = (await self.metadata()).topics.values()
        except KlogError:
            return []
        own = name.startswith(("klog", "__"))
        return get_close_matches(name, [one.name for one in topics if own or not one.is_internal], n=2)

    # --- Requests to the broker that they concern ---

    async def to_any(self, key: ApiKey, highest: int, lowest: int = 0, /, **fields: Any) -> Any:
        """Ask any connected broker; if it has gone, another one of those named at the start."""
        try:
            return await self._ask(self._any, key, highest, lowest, None, fields)
        except CannotConnect:
            servers = parse_bootstrap(self.bootstrap, self.source)
            known = self._metadata.brokers.values() if self._metadata else ()
            servers += [(one.host, one.port) for one in known if (one.host, one.port) not in servers]
            await self._any.close()
            self._any = await connect_any(servers, self._open)
            return await self._ask(self._any, key, highest, lowest, None, fields)

    async def to_broker(
        self, broker_id: int, key: ApiKey, highest: int, lowest: int = 0, *, wait_s: float | None = None, **fields: Any
    ) -> Any:
        """Ask one broker; BrokerNotAvailable if the cluster does not list it, CannotConnect if it is away."""
        return await self._ask(await self.channel(broker_id), key, highest, lowest, wait_s, fields)

    async def to_each(
        self,
        key: ApiKey,
        highest: int,
        lowest: int = 0,
        *,
        wait_s: float | None = None,
        without: Collection[int] = (),
        **fields: Any,
    ) -> dict[int, Any | KlogError]:
        """Ask every broker that the cluster lists, without some: broker id -> its answer, or why there is none within
        ``wait_s``, or the time-out."""

        async def ask(broker_id: int) -> Any | KlogError:
            try:
                return await self.to_broker(broker_id, key, highest, lowest, wait_s=wait_s, **fields)
            except KlogError as error:
                return error

        brokers = [one.broker_id for one in await self.brokers() if one.broker_id not in without]
        return dict(zip(brokers, await asyncio.gather(*map(ask, brokers)), strict=True))

    async def to_controller(self, key: ApiKey, highest: int, lowest: int = 0, **fields: Any) -> Any:
        """Ask the controller; where the answer means "not me", the next controller is asked.

        Retries until the time-out; then NotController, or the last error. After a lost answer the request is not sent
        again: the change may have been made, and making it twice may have another result. A request that has a
        ``timeout`` carries the time-out.
        """
        deadline = asyncio.get_running_loop().time() + self.timeout_s
        fields["timeout"] = int(self.timeout_s * 1000)
        while True:
            failure: KlogError
            try:
                controller_id = (await self.metadata([])).controller_id
                if controller_id is None:
                    raise NotController("the cluster has no controller at the moment", hint="try again in a while")
                channel = await self.channel(controller_id)
            except (NotController, CannotConnect, BrokerNotAvailable) as error:
                failure = error
            else:
                # Wait a moment longer than the request says, for the broker's own answer about it.
                answer = await self._ask(channel, key, highest, lowest, self.timeout_s + ANSWER_GRACE_S, fields)
                if not _is_not_controller(answer):
                    return answer
                failure = NotController(f"broker {controller_id} is no longer the controller")
            if asyncio.get_running_loop().time() + RETRY_PAUSE_S > deadline:
                raise failure
            await asyncio.sleep(RETRY_PAUSE_S)
            self._metadata = None

    async def to_leaders(
        self,
        wanted: Mapping[TopicPartition, Q],
        ask: Ask[Q, A],
        *,
        wait_for_leader: bool = False,
    ) -> dict[TopicPartition, A | KlogError]:
        """Ask each partition's leader, all leaders at once. Returns an answer or an error for each partition.

        Partitions with the answer "not me" or "not now" are asked about again, with fresh metadata, until the time-out.
        A partition without a leader is an error at once, unless ``wait_for_leader``.
        """
        found: dict[TopicPartition, A | KlogError] = {}
        todo = dict(wanted)
        deadline = asyncio.get_running_loop().time() + self.timeout_s
        fresh = False
        while todo:
            metadata = await self.metadata({one.topic for one in todo}, fresh=fresh)
            shares: dict[int, dict[TopicPartition, Q]] = {}
            again: dict[TopicPartition, Q] = {}
            for one, question in todo.items():
                leader = self._leader_in(metadata, one)
                if isinstance(leader, int):
                    shares.setdefault(leader, {})[one] = question
                else:
                    found[one] = leader
                    if leader.retriable and wait_for_leader:
                        again[one] = question
            for answers in await asyncio.gather(*(self._ask_share(id_, one, ask) for id_, one in shares.items())):
                found.update(answers)
                again.update(
                    (one, wanted[one])
                    for one, answer in answers.items()
                    if isinstance(answer, KlogError) and answer.retriable
                )
            todo = again
            if todo:
                if asyncio.get_running_loop().time() + RETRY_PAUSE_S > deadline:
                    break
                await asyncio.sleep(RETRY_PAUSE_S)
                fresh = True
        return found

    async def ask_leaders(self, wanted: Mapping[TopicPartition, Q], ask: Ask[Q, A]) -> dict[TopicPartition, A]:
        """As `to_leaders`, and leaders are waited for; the first error is raised."""
        answers = await self.to_leaders(wanted, ask, wait_for_leader=True)
        return {one: or_raise(answer) for one, answer in answers.items()}

    async def to_leader(self, partition: TopicPartition, question: Q, ask: Ask[Q, A]) -> A:
        """As `ask_leaders`, for one partition."""
        return (await self.ask_leaders({partition: question}, ask))[partition]

    def _leader_in(self, metadata: Metadata, one: TopicPartition) -> int | KlogError:
        missing = metadata.lacking(one)
        if missing is not None:  # a topic may be new; a partition that it lacks is not asked for again
            return _final(missing) if one.topic in metadata.topics else missing
        leader = metadata.leader_of(one)
        return LeaderNotAvailable(f"{one} has no leader at the moment") if leader is None else leader

    async def _ask_share(
        self, broker_id: int, share: dict[TopicPartition, Q], ask: Ask[Q, A]
    ) -> dict[TopicPartition, A | KlogError]:
        try:
            return await ask(await self.channel(broker_id), share)
        except (CannotConnect, BrokerNotAvailable) as error:
            self._channels.pop(broker_id, None)
            lost = CannotConnect(error.message, hint=error.hint)
            return dict.fromkeys(share, lost)
        except TimedOut as error:
            # The whole time-out is spent: not retried.
            return dict.fromkeys(share, _final(error))

    async def channel(self, broker_id: int) -> Channel:
        """The connection to one broker, opened when first asked for."""
        task = self._channels.get(broker_id)
        if task is not None and task.done() and (task.cancelled() or task.exception() or task.result().is_closed):
            task = None
        if task is None:
            metadata = await self.metadata([])
            first = metadata.brokers.get(broker_id)
            if first is not None and first.address == self._any.address and not self._any.is_closed:
                return self._any  # the address of the first connection
            task = self._channels[broker_id] = asyncio.ensure_future(self._open_to(metadata.live(broker_id)))
        return await asyncio.shield(task)

    async def _open(self, host: str, port: int) -> Channel:
        return await Channel.connect(
            host,
            port,
            connect_timeout_s=CONNECT_TIMEOUT_S,
            timeout_s=self.timeout_s,
            client_id=self._client_id,
            trace=self._trace,
            security=security_of(self.bootstrap),
        )

    async def _open_to(self, node: BrokerNode) -> Channel:
        try:
            return await self._open(node.host, node.port)
        except CannotConnect as error:
            raise CannotConnect(
                f"broker {node.broker_id}, at the address that the cluster gives for it: {error.message}",
                hint="is that address reachable from here? a broker tells it to clients: --advertise HOST:PORT",
            ) from None

    @staticmethod
    async def _ask(
        channel: Channel, key: ApiKey, highest: int, lowest: int, wait_s: float | None, fields: dict[str, Any]
    ) -> Any:
        version = channel.version_for(key, highest, lowest)
        return await channel.request(codec.request(key, version, **fields), timeout_s=wait_s)


def _is_not_controller(answer: Any) -> bool:
    """Whether an answer says so, as a whole or in one of its parts."""
    values = [getattr(answer, one.name) for one in dataclasses.fields(answer)]
    parts = [part for value in values if isinstance(value, tuple) for part in value]
    return any(getattr(one, "error_code", 0) == NotController.wire for one in (answer, *parts))


def _final(error: KlogError) -> KlogError:
    """The error, marked as one that a retry would not change."""
    error.retriable = False
    return error
