"""The offline cluster: topics of one or many clusters copied into another one, for as long as it runs.

(The paper, section 3.3: a cluster near the batch systems that copies the live ones with embedded consumers.)

Each source has a leg: it looks every few seconds which topics and partitions there are, has them in the target, and
copies each partition (`copy`). Its progress is in the target itself, in the headers of what was copied, and is
committed in the source every few seconds, so that a start need not search for it, and tools see the lag.

Event loop only.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from klog.client import leader_requests
from klog.client.cluster import Cluster
from klog.client.metadata import TopicNode
from klog.client.special_offsets import LATEST
from klog.config.units import Rate
from klog.errors import KlogError, UnknownTopicOrPartition, UsageError
from klog.names import TopicPartition
from klog.record.codec import Codec
from klog.record.provenance_header import Source
from klog.tools.copying.cluster_endpoint import ClusterEndpoint
from klog.tools.copying.copy import Copier, PartitionCopy, Target
from klog.tools.copying.group_carrier import GroupCarrier, GroupNames, is_a_mirrors
from klog.tools.copying.group_endpoints import open_groups
from klog.tools.copying.mirror_commits import Commits, Position, open_commits
from klog.tools.copying.originals import Originals
from klog.tools.copying.rate_limiter import AtRate
from klog.tools.copying.source import Feed, SourceReader
from klog.tools.copying.topics import (
    batch_bytes_max,
    made_again,
    matching_topic,
    open_target,
    settings_to_take_over,
)

LOOK_EVERY_S = 5.0
"""How soon a new topic or partition is copied."""
COMMIT_EVERY_S = 5.0
LAST_COMMIT_S = 0.5
CODEC_SETTINGS = ("compression.type", "compression.codec")
"""A producer's; librdkafka knows both names."""
"""At the end: Ctrl-C does not wait for a ZooKeeper that is away."""


@dataclass(frozen=True, slots=True)
class MirrorOptions:
    """``topics`` and ``exclude``: regular expressions, each for a whole name. ``from_end``: what is neither in the
    target nor committed begins at its end. ``group`` None: one named after the target. ``once``: up to the ends there
    are at the start. ``take_settings``: a topic that is made in the target gets the source's own (`topics.TAKEN_OVER`).
    ``groups``: whose offsets are carried over (`group_carrier.GroupNames`).
    """

    topics: Sequence[str]
    exclude: Sequence[str] = ()
    from_end: bool = False
    group: str | None = None
    once: bool = False
    take_settings: bool = True
    groups: Sequence[str] = ()
    rate: Rate | None = None
    """Of all partitions of all sources together."""
    client: Mapping[str, str] = field(default_factory=dict)
    """librdkafka's settings, for a target that is not klog. The codec is for both."""


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


def _codec(client: Mapping[str, str]) -> Codec | None:
    """The codec that these settings of a producer ask for. Raises UsageError."""
    for name in CODEC_SETTINGS:
        if name in client:
            try:
                return Codec[client[name].upper()]
            except KeyError:
                known = ", ".join(one.label for one in Codec)
                raise UsageError(f"{name} {client[name]!r} is not a codec", hint=f"codecs: {known}") from None
    return None


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
        *,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        """The sides are open. Raises UsageError for invalid expressions and clusters that do not go together."""
        self._sides = sources
        self._target_side = target
        self._options = options
        self._note = note
        self.wanted = _Names(options)
        self._wanted_groups = GroupNames(options.groups)
        self.carrier: GroupCarrier | None = None
        self._target: Target | None = None
        self._legs: list[_Leg] = []
        self._copier = Copier(failed=self._failed)
        self.pace = None if options.rate is None else AtRate(options.rate)
        self.codec = _codec(options.client) if target.cluster.is_klog else None
        self._failure: KlogError | None = None
        self._ended = asyncio.Event()
        for side in sources:
            if side.cluster_id == target.cluster_id:
                raise UsageError(
                    f"source {side.bootstrap} is the target's own cluster", hint="to copy within a cluster: klog replay"
                )
        ids = [side.cluster_id for side in sources]
        if len(set(ids)) < len(ids):
            raise UsageError(
                "two of the sources are the same cluster", hint="a cluster's brokers: --source A:9092,B:9092"
            )

    async def run(self, show: Callable[[list[MirrorRow]], None], *, every_s: float = 1.0) -> list[MirrorRow]:
        """Copy. ``show`` gets the rows every so often; what it gets at the end is returned.

        Raises Fenced, InvalidPartitions, and whatever else trying again would not change.
        """
        tasks: list[asyncio.Task[None]] = []
        try:
            target = self._target = await open_target(self._target_side, self._note, self._options.client)
            group = group_name(self._options, self._target_side)
            for side in self._sides:
                self._legs.append(await _Leg(self, side, group, target).open())
            if self._wanted_groups:
                self.carrier = GroupCarrier(self._wanted_groups, target, self._note)
                await self.carrier.open(self._target_side)
            for leg in self._legs:
                await leg.look(first=True)
                if self.carrier is not None:
                    await leg.carry_groups(self.carrier)
            if self._options.once and all(leg.is_idle for leg in self._legs):
                raise UnknownTopicOrPartition(
                    f"no source has a matching topic: {', '.join(map(repr, self._options.topics))}",
                    hint="--topic is a regular expression for the whole name; without --once it waits for a topic",
                )
            tasks = [asyncio.create_task(self._guard(work)) for leg in self._legs for work in leg.works]
            if self.carrier is not None:
                tasks.append(asyncio.create_task(self._guard(partial(self._carry_on, self.carrier))))
            rates = _Rates()
            loop = asyncio.get_running_loop()
            shown_at = loop.time()
            while self._failure is None and not (self._options.once and not self._copier.is_busy):
                wait_s = max(0.0, shown_at + every_s - loop.time())
                if self._options.once:
                    await self._copier.wait(min(wait_s, every_s))
                else:
                    try:
                        async with asyncio.timeout(wait_s):
                            await self._ended.wait()
                    except TimeoutError:
                        pass
                if loop.time() >= shown_at + every_s:
                    shown_at = loop.time()
                    show(self.rows(rates))
            if self._failure is not None:
                raise self._failure
            if self.carrier is not None:
                await self.carrier.round(last=True)
            return self.rows(None)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._copier.stop()
            await asyncio.gather(*(leg.close() for leg in self._legs), return_exceptions=True)
            if self.carrier is not None:
                await self.carrier.close()
            if self._target is not None:
                await self._target.close()
            show(self.rows(None))

    @staticmethod
    async def _carry_on(carrier: GroupCarrier) -> None:
        """With every round of commits."""
        while True:
            await asyncio.sleep(COMMIT_EVERY_S)
            await carrier.round()

    def rows(self, rates: _Rates | None) -> list[MirrorRow]:
        """As it is now; ``rates`` None: of the whole run there is none."""
        return [row for leg in self._legs for row in leg.rows(rates)]

    # --- used by the legs ---

    @property
    def options(self) -> MirrorOptions:
        return self._options

    @property
    def target_endpoint(self) -> ClusterEndpoint:
        return self._target_side

    def note(self, text: str) -> None:
        self._note(text)

    def start(self, copy: PartitionCopy) -> None:
        self._copier.start(copy)

    def _failed(self, copy: PartitionCopy, error: KlogError) -> None:
        if isinstance(error, UnknownTopicOrPartition):
            self._note(f"{error.message}: it is no longer copied")
            return
        self.end(error)

    def end(self, error: KlogError) -> None:
        self._failure = self._failure or error
        self._ended.set()

    async def _guard(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except KlogError as error:
            self.end(error)


class _Leg:
    """One source: its reader, its commits, its partitions."""

    def __init__(self, mirror: Mirror, side: ClusterEndpoint, group: str, target: Target) -> None:
        self._mirror = mirror
        self._side = side
        self._group = group
        self._target = target
        self._reader = SourceReader(side, lost=self._lost)
        self._copies: dict[TopicPartition, PartitionCopy] = {}
        self._topic_ids: dict[str, str] = {}
        self._target_ids: dict[str, str] = {}
        self._lags: dict[TopicPartition, int | None] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._has_trouble = False
        self._committing = asyncio.Lock()
        self._name = side.bootstrap
        self.works = (self._look_on, self._commit_on, self._count_on)

    async def open(self) -> _Leg:
        self._asking = await self._side.another()
        self._commits: Commits = await open_commits(self._asking, self._group)
        return self

    async def carry_groups(self, carrier: GroupCarrier) -> None:
        """Have the offsets of this source's groups carried over."""
        await carrier.add(self._side, self._copies)

    async def close(self) -> None:
        try:
            async with asyncio.timeout(LAST_COMMIT_S):
                await self._commit()
        except (TimeoutError, KlogError) as error:
            self._mirror.note(
                f"{self._name}: the last positions were not committed ({error}); the next start finds them"
            )
        await self._reader.close()
        await self._commits.close()
        await self._asking.close()

    @property
    def is_idle(self) -> bool:
        """Whether the source has nothing that is wanted."""
        return not self._copies

    def _lost(self, feed: Feed, begin: int, end: int) -> None:
        self._mirror.note(f"{self._name}: {feed.partition}: {begin} to {end} was removed before it was copied")

    # --- which partitions ---

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self.look(first=False)

    async def look(self, *, first: bool) -> None:
        """Find topics and partitions that are not copied yet, and begin with them."""
        metadata = await self._asking.look()
        topics = [one for name, one in metadata.topics.items() if self._mirror.wanted(name) and not one.is_internal]
        for topic in topics:
            known = self._topic_ids.setdefault(topic.name, topic.topic_id or "")
            if known != (topic.topic_id or ""):
                raise made_again(self._side, topic.name)
        new = [
            topic
            for topic in topics
            if any(TopicPartition(topic.name, number) not in self._copies for number in topic.partitions)
        ]
        if first and not topics:
            waits = "" if self._mirror.options.once else "; waiting for one"
            self._mirror.note(f"{self._name} has no matching topic{waits}")
        for topic in new:
            await self._begin(topic, first=first)
        if new:
            await self._try_to_commit()  # what begins at its end is to go on there, if this process ends in a moment

    async def _begin(self, topic: TopicNode, *, first: bool) -> None:
        name, target = topic.name, self._mirror.target_endpoint
        settings: dict[str, str] = {}
        if self._mirror.options.take_settings:
            settings = await self._asking.patiently(lambda cluster: settings_to_take_over(cluster, name))

        async def have(cluster: Cluster) -> tuple[int, str]:
            partitions = len(topic.partitions)
            await matching_topic(
                cluster, name, partitions, settings=settings, may_grow=not first, note=self._mirror.note
            )
            node = await cluster.topic(name, fresh=True)
            return await batch_bytes_max(cluster, name), node.topic_id or ""

        largest, target_id = await target.patiently(have)
        self._target_ids[name] = target_id
        partitions = [TopicPartition(name, number) for number in topic.partitions]
        partitions = [one for one in partitions if one not in self._copies]
        committed = await self._commits.read(partitions)
        within = await self._asking.patiently(lambda cluster: _bounds(cluster, name, partitions))
        begins = await asyncio.gather(
            *(self._place(one, committed.get(one), within[one.partition], first=first) for one in partitions)
        )
        for one, begin in zip(partitions, begins, strict=True):
            end = within[one.partition][1] if self._mirror.options.once else None
            copy = self._copies[one] = PartitionCopy(
                self._reader,
                self._target,
                self._source(one),
                one,
                begin=begin,
                end=end,
                batch_bytes_max=largest,
                pace=self._mirror.pace,
                codec=self._mirror.codec,
            )
            self._mirror.start(copy)

    def _source(self, one: TopicPartition) -> Source:
        return Source(self._side.cluster_id, one.topic, one.partition)

    async def _place(
        self, one: TopicPartition, committed: Position | None, within: tuple[int, int], *, first: bool
    ) -> int:
        """Where to go on: behind the last message in the target, where there is one."""
        log = self._target.log(one)
        source = self._source(one)
        is_ours = (
            committed is not None
            and committed.target == self._mirror.target_endpoint.cluster_id
            and committed.topic_id == self._target_ids[one.topic]
        )
        if committed is not None and is_ours and committed.of not in ("", self._topic_ids[one.topic]):
            raise made_again(self._side, one.topic)
        log.originals[source] = Originals(self._asking, one, keeps_times=self._target.is_exact)
        log.floors[source] = committed.offset if committed is not None and is_ours else within[0]
        await self._target.find(one, source, below=committed.end if committed is not None and is_ours else None)
        if first and self._mirror.options.from_end and not is_ours and source not in log.marks:
            return within[1]
        return log.next_of(source)

    # --- commits ---

    async def _commit_on(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_EVERY_S)
            await self._try_to_commit()

    async def _try_to_commit(self) -> None:
        try:
            await self._commit()
        except KlogError as error:
            if not error.retriable:
                raise
            if not self._has_trouble:
                self._mirror.note(f"{self._name}: cannot commit positions ({error.message}); still trying")
            self._has_trouble = True
        else:
            self._has_trouble = False

    async def _commit(self) -> None:
        """What has moved since the last commit; after the target's acknowledgement, for that is what moves it."""
        async with self._committing:  # a look commits, too
            positions = {
                one: Position(
                    copy.position,
                    self._mirror.target_endpoint.cluster_id,
                    self._target_ids[one.topic],
                    self._topic_ids[one.topic],
                    copy.target_end,
                )
                for one, copy in self._copies.items()
                if copy.position != self._committed.get(one)
            }
            if positions:
                await self._commits.write(positions)
                self._committed.update((one, position.offset) for one, position in positions.items())

    # --- what is shown ---

    async def _count_on(self) -> None:
        """How many messages are to go, exactly."""
        while True:
            behind = {}
            for one, copy in self._copies.items():
                if copy.high_watermark >= 0 and copy.position >= copy.high_watermark:
                    self._lags[one] = 0
                else:
                    behind[one] = (copy.position, LATEST)
            if behind:
                try:
                    answers = await self._asking.cluster.to_leaders(behind, leader_requests.count_messages)
                except KlogError as error:
                    await self._asking.trouble(error, self._asking.cluster)
                    answers = {}
                for one, answer in answers.items():
                    if answer is None:  # no klog: offsets are counters there
                        copy = self._copies[one]
                        self._lags[one] = max(0, copy.high_watermark - copy.position)
                    else:
                        self._lags[one] = None if isinstance(answer, KlogError) else answer.messages
            await asyncio.sleep(1.0)

    def rows(self, rates: _Rates | None) -> list[MirrorRow]:
        rows = []
        carrier = self._mirror.carrier
        for one, copy in sorted(self._copies.items()):
            caught_up = 0 <= copy.high_watermark <= copy.position or copy.is_done
            rows.append(
                MirrorRow(
                    self._name,
                    one.topic,
                    one.partition,
                    copy.messages,
                    0 if rates is None else rates.of((self._name, one), copy.messages),
                    0 if caught_up else self._lags.get(one),
                    copy.position,
                    copy.target_end,
                    0 if carrier is None else carrier.count(copy.source),
                )
            )
        return rows


class _Names:
    """Which topics are wanted."""

    def __init__(self, options: MirrorOptions) -> None:
        if not options.topics:
            raise UsageError("no topics to mirror", hint="--topic '.*' selects all")
        self._wanted = [_expression(text, "--topic") for text in options.topics]
        self._unwanted = [_expression(text, "--exclude") for text in options.exclude]

    def __call__(self, name: str) -> bool:
        if name.startswith("__"):  # a cluster's own (Kafka's offsets, its transactions)
            return False
        return any(one.fullmatch(name) for one in self._wanted) and not any(
            one.fullmatch(name) for one in self._unwanted
        )


def _expression(text: str, flag: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"{flag} {text!r} is not a regular expression: {error}") from None


class _Rates:
    """Messages a second between two looks."""

    def __init__(self) -> None:
        self._began = asyncio.get_running_loop().time()
        self._seen: dict[object, tuple[float, int]] = {}

    def of(self, what: object, messages: int) -> int:
        now = asyncio.get_running_loop().time()
        before_s, before = self._seen.get(what, (self._began, 0))
        self._seen[what] = now, messages
        return round((messages - before) / (now - before_s)) if now > before_s else 0


async def _bounds(cluster: Cluster, topic: str, partitions: list[TopicPartition]) -> dict[int, tuple[int, int]]:
    from klog.client.resolve import bounds

    found = await bounds(cluster, topic, [one.partition for one in partitions])
    return {number: (one.start, one.end) for number, one in found.items()}


async def mirrored_offsets(
    sources: Sequence[ClusterEndpoint], target: ClusterEndpoint, options: MirrorOptions
) -> list[MirroredOffset]:
    """What the mirror of these has committed, partition by partition; or, of groups that are wanted, what they have."""
    wanted, groups = _Names(options), GroupNames(options.groups)
    rows = []
    for side in sources:
        metadata = await side.look()
        partitions = [
            TopicPartition(topic.name, number)
            for topic in metadata.topics.values()
            if wanted(topic.name)
            for number in topic.partitions
        ]
        if groups:
            rows += await _offsets_of_groups(side, target, groups, partitions)
            continue
        commits = await open_commits(side, group_name(options, target))
        try:
            found = await commits.read(partitions)
        finally:
            await commits.close()
        for one, position in sorted(found.items()):
            mapped = position.end if position.target == target.cluster_id else None
            rows.append(MirroredOffset(side.bootstrap, one.topic, one.partition, position.offset, mapped))
    return rows


async def _offsets_of_groups(
    side: ClusterEndpoint, target: ClusterEndpoint, wanted: GroupNames, partitions: list[TopicPartition]
) -> list[MirroredOffset]:
    here = await open_groups(side)
    try:
        names = await wanted.of(here)
        there = await open_groups(target)
        try:
            before, after = await here.read(names, partitions), await there.read(names, partitions)
        finally:
            await there.close()
    finally:
        await here.close()
    rows = []
    for group, commits in sorted(before.items()):
        for one, commit in sorted(commits.items()):
            if not is_a_mirrors(commit):
                known = after.get(group, {}).get(one)
                mapped = None if known is None else known.offset
                rows.append(MirroredOffset(side.bootstrap, one.topic, one.partition, commit.offset, mapped, group))
    return rows
