"""The offline cluster: topics of one or many clusters copied into another one, for as long as it runs.

(The paper, section 3.3: a cluster near the batch systems that copies the live ones with embedded consumers.)

Each source has a leg: it looks every few seconds which topics and partitions there are, has them in the target, and
copies each partition (`copy`). Its progress is in the target itself, in the headers of what was copied, and is
committed in the source every few seconds, so that a start need not search for it, and tools see the lag.

Event loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from klog.client.cluster import Cluster
from klog.client.metadata import TopicNode
from klog.client.positions import LATEST
from klog.client.resolve import bounds, messages_in
from klog.config.units import Rate
from klog.errors import GroupIsHeld, KlogError, NonEmptyGroup, UnknownTopicOrPartition, UsageError
from klog.names import TopicPartition
from klog.record.codec import Codec
from klog.tools.copying.cluster_endpoint import ClusterEndpoint
from klog.tools.copying.copier import Copier, PartitionCopy
from klog.tools.copying.group_carrier import GroupCarrier, is_a_mirrors
from klog.tools.copying.group_offsets import GroupNames, GroupOffsets, Position
from klog.tools.copying.rate_limiter import AtRate
from klog.tools.copying.source import SourceReader
from klog.tools.copying.target import AT_LEAST_ONCE, Target
from klog.tools.copying.topics import (
    TopicNames,
    batch_bytes_max,
    made_again,
    matching_topic,
    settings_to_take_over,
)

LOOK_EVERY_S = 5.0
"""How soon a new topic or partition is copied."""
COMMIT_EVERY_S = 5.0
LAST_COMMIT_S = 0.5
"""At the end: Ctrl-C does not wait for a ZooKeeper that is away."""


@dataclass(frozen=True, slots=True)
class MirrorOptions:
    """``from_end``: what is neither in the target nor committed begins at its end. ``group`` None: one named after the
    target. ``once``: up to the ends there are at the start. ``take_settings``: a topic that is made in the target gets
    the source's own (`topics.TAKEN_OVER`). ``groups``: whose offsets are carried over.
    """

    topics: TopicNames
    from_end: bool = False
    group: str | None = None
    once: bool = False
    take_settings: bool = True
    groups: GroupNames = field(default_factory=GroupNames)
    rate: Rate | None = None
    """Of all partitions of all sources together."""
    codec: Codec | None = None
    """Of the copies; None is the source's."""


@dataclass(frozen=True, slots=True)
class MirrorRow:
    """One partition: ``messages`` copied by this run, ``rate`` of them a second lately, ``lag`` messages to go.

    ``lag`` is None while the source is counting. ``offset``: where it goes on; ``target_offset``: what is below that
    stands below this in the target. ``groups``: of how many the committed offset is carried over.
    """

    source: str
    topic: str
    partition: int
    messages: int
    rate: int
    lag: int | None
    offset: int = field(metadata={"wide": True})
    target_offset: int = field(metadata={"wide": True})
    groups: int = field(default=0, metadata={"wide": True})


@dataclass(frozen=True, slots=True)
class MirroredOffset:
    """A committed position: everything of the source below ``offset`` is in the target below ``target_offset``.

    Of another ``group`` than the mirror's own: what it has committed in the source, and what in the target.
    """

    source: str
    topic: str
    partition: int
    offset: int
    target_offset: int | None
    group: str | None = None


def group_name(options: MirrorOptions, target: ClusterEndpoint) -> str:
    """The group whose commits say how far the sources are copied."""
    return options.group or f"mirror-{target.cluster_id}"


class Mirror:
    """Copies until `run` is cancelled, something ends it, or, with ``once``, the ends are reached."""

    def __init__(
        self,
        sources: Sequence[ClusterEndpoint],
        target: ClusterEndpoint,
        options: MirrorOptions,
    ) -> None:
        """The sides are open. Raises UsageError for clusters that do not go together."""
        self.options = options
        self.pace = None if options.rate is None else AtRate(options.rate)
        self.target = Target(target)
        self.copier = Copier(forgives=self._is_gone)
        self.group = group_name(options, target)
        self.carrier = GroupCarrier(options.groups, target) if options.groups else None
        self._legs = [_Leg(self, side) for side in sources]
        ids = [side.cluster_id for side in sources]
        if target.cluster_id in ids:
            raise UsageError(
                f"source {sources[ids.index(target.cluster_id)].bootstrap} is the target's own cluster",
                hint="to copy within a cluster: klog replay",
            )
        if len(set(ids)) < len(ids):
            raise UsageError(
                "two of the sources are the same cluster", hint="a cluster's brokers: --source A:9092,B:9092"
            )

    async def run(self, show: Callable[[list[MirrorRow]], None], *, every_s: float = 1.0) -> list[MirrorRow]:
        """Copy. ``show`` gets the rows every so often; what it gets at the end is returned.

        Raises Fenced, InvalidPartitions, and whatever else trying again would not change.
        """
        once, carrier = self.options.once, self.carrier
        if not self.target.is_exact:
            self.target.side.note(AT_LEAST_ONCE.format(self.target.side.bootstrap))
        async with AsyncExitStack() as closing:
            closing.callback(lambda: show(self.rows(is_over=True)))
            if carrier is not None:
                closing.push_async_callback(carrier.close)
                await carrier.open()
            for leg in self._legs:
                await leg.open()
                closing.push_async_callback(leg.close)
            closing.push_async_callback(self.copier.stop)
            for leg in self._legs:
                await leg.look(first=True)
                if carrier is not None:
                    await carrier.add(leg.side, leg.copies)
            if once and not self.copier.copies:
                raise UnknownTopicOrPartition(
                    f"no source has a matching topic: {self.options.topics}",
                    hint="--topic is a regular expression for the whole name; without --once it waits for a topic",
                )
            for leg in self._legs:
                self.copier.start_beside(_every(LOOK_EVERY_S, leg.look))
                self.copier.start_beside(_every(COMMIT_EVERY_S, leg.commit))
                self.copier.start_beside(leg.count_on())
            if carrier is not None:
                self.copier.start_beside(_every(COMMIT_EVERY_S, carrier.round))
            await self.copier.run(lambda: show(self.rows()), every_s=every_s, forever=not once)
            for failure in self.copier.failures.values():
                raise failure
            if carrier is not None:
                await carrier.round(last=True)
        return self.rows(is_over=True)

    def rows(self, *, is_over: bool = False) -> list[MirrorRow]:
        """As it is now; of what is over there is no rate."""
        return [row for leg in self._legs for row in leg.rows(is_over)]

    def _is_gone(self, copy: PartitionCopy, error: KlogError) -> bool:
        if isinstance(error, UnknownTopicOrPartition):
            self.target.side.note(f"{error.message}: it is no longer copied")
        return isinstance(error, UnknownTopicOrPartition)


async def _every(seconds: float, act: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(seconds)
        await act()


class _Leg:
    """One source: its reader, its commits, its partitions."""

    def __init__(self, mirror: Mirror, side: ClusterEndpoint) -> None:
        self.side = side
        self.copies: dict[TopicPartition, PartitionCopy] = {}
        self._mirror = mirror
        self._target = mirror.target.side
        self._reader = SourceReader(side)
        self._topic_ids: dict[str, str] = {}
        self._target_ids: dict[str, str] = {}
        self._lags: dict[TopicPartition, int | None] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._committing = asyncio.Lock()
        self._name = side.bootstrap

    async def open(self) -> None:
        self._asking = await self.side.another()
        self._offsets = GroupOffsets(self._asking)

    async def close(self) -> None:
        try:
            async with asyncio.timeout(LAST_COMMIT_S):
                await self.commit()
        except (TimeoutError, KlogError) as error:
            self.side.note(f"{self._name}: the last positions were not committed ({error}); the next start finds them")
        await self._reader.close()
        await self._asking.close()

    # --- which partitions ---

    async def look(self, *, first: bool = False) -> None:
        """Find topics and partitions that are not copied yet, and begin with them."""
        metadata = await self._asking.look()
        topics = [
            one for name, one in metadata.topics.items() if name in self._mirror.options.topics and not one.is_internal
        ]
        for topic in topics:
            known = self._topic_ids.setdefault(topic.name, topic.topic_id or "")
            if known != (topic.topic_id or ""):
                raise made_again(self.side, topic.name)
        if first and not topics:
            waits = "" if self._mirror.options.once else "; waiting for one"
            self.side.note(f"{self._name} has no matching topic{waits}")
        is_new = False
        for topic in topics:
            if new := [one for one in topic.names() if one not in self.copies]:
                is_new = True
                await self._begin(topic, new, first=first)
        if is_new:
            await self.commit()  # what begins at its end is to go on there, if this process ends in a moment

    async def _begin(self, topic: TopicNode, new: list[TopicPartition], *, first: bool) -> None:
        name, options = topic.name, self._mirror.options
        settings: dict[str, str] = {}
        if options.take_settings:
            settings = await self._asking.patiently(lambda cluster: settings_to_take_over(cluster, name))

        async def have(cluster: Cluster) -> tuple[int, str]:
            count, note = len(topic.partitions), self._target.note
            await matching_topic(cluster, name, count, settings=settings, may_grow=not first, note=note)
            node = await cluster.topic(name, fresh=True)
            return await batch_bytes_max(cluster, name), node.topic_id or ""

        largest, self._target_ids[name] = await self._target.patiently(have)
        mirror = self._mirror
        commits = (await self._offsets.read([mirror.group], new))[mirror.group]
        within = await self._asking.patiently(lambda cluster: bounds(cluster, new))

        async def placed(one: TopicPartition) -> PartitionCopy:
            """A copy that goes on behind the last message in the target, where there is one."""
            ours = Position.of_commit(commits[one]) if one in commits else None
            if ours is not None and (ours.target, ours.topic_id) != (self._target.cluster_id, self._target_ids[name]):
                ours = None
            if ours is not None and ours.of not in ("", self._topic_ids[name]):
                raise made_again(self.side, name)
            floor, below = (within[one].start, None) if ours is None else (ours.offset, ours.end)
            log = await mirror.target.log(one, self._asking, one, floor=floor, below=below)
            from_end = first and options.from_end and ours is None and log.mark is None
            return PartitionCopy(
                self._reader,
                log,
                begin=within[one].end if from_end else log.next_offset,
                end=within[one].end if options.once else None,
                batch_bytes_max=largest,
                pace=mirror.pace,
                codec=options.codec,
            )

        for one, copy in zip(new, await asyncio.gather(*map(placed, new)), strict=True):
            self.copies[one] = copy
            mirror.copier.start(copy)

    async def commit(self) -> None:
        """What has moved since the last commit; after the target's acknowledgement, for that is what moves it."""
        async with self._committing:  # a look commits, too
            positions = {
                one: Position(
                    copy.position,
                    self._target.cluster_id,
                    self._target_ids[one.topic],
                    self._topic_ids[one.topic],
                    copy.target_end,
                )
                for one, copy in self.copies.items()
                if copy.position != self._committed.get(one)
            }
            if not positions:
                return
            group = self._mirror.group
            try:
                await self._offsets.write(group, {one: position.commit for one, position in positions.items()})
            except NonEmptyGroup as error:
                raise GroupIsHeld(
                    f"{error.message}: a mirror needs its own group", hint="name another: --group NAME"
                ) from None
            self._committed.update((one, position.offset) for one, position in positions.items())

    # --- what is shown ---

    async def count_on(self) -> None:
        """How many messages are to go, exactly."""
        while True:
            cluster = self._asking.cluster
            behind = {one: (copy.position, LATEST) for one, copy in self.copies.items() if not copy.has_caught_up}
            try:
                self._lags = {**dict.fromkeys(self.copies, 0), **(await messages_in(cluster, behind))}
            except KlogError as error:
                await self._asking.back_off(error, cluster)
            await asyncio.sleep(1.0)

    def _lag(self, one: TopicPartition, copy: PartitionCopy) -> int | None:
        if copy.has_caught_up or copy.is_done:
            return 0
        if not self._asking.cluster.is_klog:  # offsets are counters there
            return max(0, copy.high_watermark - copy.position) if copy.high_watermark >= 0 else None
        return self._lags.get(one)

    def rows(self, is_over: bool) -> list[MirrorRow]:
        carrier = self._mirror.carrier
        return [
            MirrorRow(
                self._name,
                *one,
                copy.messages,
                0 if is_over else copy.rate(),
                self._lag(one, copy),
                copy.position,
                copy.target_end,
                0 if carrier is None else carrier.count(copy.source),
            )
            for one, copy in sorted(self.copies.items())
        ]


async def mirrored_offsets(
    sources: Sequence[ClusterEndpoint], target: ClusterEndpoint, options: MirrorOptions
) -> list[MirroredOffset]:
    """What the mirror of these has committed, partition by partition; or, of groups that are wanted, what they have."""
    rows = []
    for side in sources:
        topics = [topic for topic in (await side.look()).topics.values() if topic.name in options.topics]
        partitions = [name for topic in topics for name in topic.names()]
        here = GroupOffsets(side)
        names = await here.chosen(options.groups) if options.groups else [group_name(options, target)]
        there = await GroupOffsets(target).read(names if options.groups else (), partitions)
        for group, commits in sorted((await here.read(names, partitions)).items()):
            for one, commit in sorted(commits.items()):
                if not options.groups:
                    position = Position.of_commit(commit)
                    mapped = position.end if position.target == target.cluster_id else None
                    rows.append(MirroredOffset(side.bootstrap, *one, commit.offset, mapped))
                elif not is_a_mirrors(commit):
                    known = there.get(group, {}).get(one)
                    mapped = None if known is None else known.offset
                    rows.append(MirroredOffset(side.bootstrap, *one, commit.offset, mapped, group))
    return rows
