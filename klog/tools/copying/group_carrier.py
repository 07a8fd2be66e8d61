"""The offsets of groups that consume the sources of a mirror, carried over into its target.

Meaning
    A group that has committed an offset of the source goes on, in the target, at the first message that was copied from
    that offset or from behind it; where nothing of that kind is there yet, at the end of what is copied. Of an offset
    that the copy has not reached nothing is written: the group stays where it was until the copy is there.

Backwards
    Only where the source's group was set back. What was carried over says so itself: the metadata of the commit is
    ``{"klog.groups":1,"of":{"<cluster id>/<topic>/<partition>":OFFSET}}``, so that the next mirror knows as well. Once
    the group has consumed in the target, and committed there, it is carried forward only, until the source's group is
    set back before the eyes of a running mirror.

Many sources in one topic
    A partition has one offset for them all: the earliest of theirs. A source in which the group has committed for the
    first time may therefore take it back, so that nothing is skipped.

Live members are not disturbed: a group with members in the target is left alone, and carried on once they are gone.

Where an offset is in the target (`find_first`)
    The marks of one source rise with the offsets of the target. What others have appended there, or the copier of
    another source, lies between and says nothing; so a probe reads on from its place up to the first message of this
    source. What a probe has read over is not read again: even where nothing but others' messages is found, all probes
    together read the stretch once. Where a target without conditional appends has messages twice, the one that is
    found is followed by all that are wanted, since each copier goes on at or before where the one before it stopped.

Event loop only.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import NamedTuple

from klog.errors import KlogError, NonEmptyGroup, OffsetOutOfRange
from klog.names import TopicPartition
from klog.record.provenance_header import Source, copies_of
from klog.tools.copying.cluster_endpoint import PAUSE_S, ClusterEndpoint, Fetched
from klog.tools.copying.copier import PartitionCopy
from klog.tools.copying.group_offsets import Commit, GroupNames, GroupOffsets, Position

SEARCHES_AT_ONCE = 16
SEARCHES_MAX = 3
"""How often retention may take away what a search has begun at."""

PROBE_BYTES = 64 * 1024
READ_ON_BYTES = 1024 * 1024
"""Where a probe has come upon others' messages only."""

Read = Callable[[int, int], Awaitable[Fetched]]
"""What lies at an offset of the target, of about so many bytes."""

Reached = Mapping[Source, int]
"""What a group has committed in each source of a partition, as far as it is copied."""


def metadata_of(reached: Reached) -> str:
    """What a commit in the target says of where it comes from."""
    of = {str(source): offset for source, offset in sorted(reached.items())}
    return json.dumps({"klog.groups": 1, "of": of}, separators=(",", ":"))


def read_metadata(metadata: str) -> dict[str, int] | None:
    """The source's offsets that a commit was carried over from; None for a commit of anybody else's."""
    try:
        found = json.loads(metadata)
        if found["klog.groups"] != 1:
            return None
        return {str(source): int(offset) for source, offset in found["of"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return None


def is_a_mirrors(commit: Commit) -> bool:
    """Whether a mirror has committed it to say how far it is, which is nothing to be carried over."""
    return bool(Position.of_commit(commit).target)


def decide(
    there: Commit | None, reached: Reached, here: int, *, before: Reached | None = None, lost: bool = False
) -> Commit | None:
    """What is to be committed in the target; None: nothing.

    ``there``: what is. ``here``: the target's offset of ``reached``. ``before``: what was reached when this run looked
    last. ``lost``: the target has lost messages that it had since, so that what was carried over may be wrong.
    """
    new = Commit(here, metadata_of(reached))
    if there is None:
        return new
    of = {str(source): offset for source, offset in reached.items()}
    carried = read_metadata(there.metadata)
    if carried is not None:
        if carried == of and not (lost and there.offset != here):
            return None
        return new if here >= there.offset or lost or _is_back(carried, reached) else Commit(there.offset, new.metadata)
    was_set_back = before is not None and any(offset < before.get(source, -1) for source, offset in reached.items())
    if here > there.offset or (here < there.offset and was_set_back):
        return new
    return None


def _is_back(carried: Mapping[str, int], reached: Reached) -> bool:
    """Whether a source has gone back since this was carried over, or is new."""
    return any(offset < carried.get(str(source), offset + 1) for source, offset in reached.items())


class Reach:
    """Of what a group commits in a source, the last that the copy has reached.

    A group that reads at the end, where the copy is always a little behind, is so carried over with the next look.
    """

    def __init__(self) -> None:
        self._reached: int | None = None
        self._pending: int | None = None
        """Committed, and not copied when it was looked at: the first such, until that is reached."""

    def look(self, offset: int, position: int) -> int | None:
        """``offset`` is committed, and everything below ``position`` copied. None while nothing is reached."""
        if offset <= position:
            self._reached, self._pending = offset, None
        elif self._pending is not None and self._pending <= position:
            self._reached, self._pending = self._pending, offset
        else:
            self._pending = offset if self._pending is None else min(self._pending, offset)
        return self._reached if self._reached is not None and self._reached <= position else None


class _Origin(NamedTuple):
    """One source: what its groups have committed, and the copies of its partitions, which grow."""

    groups: GroupOffsets
    copies: Mapping[TopicPartition, PartitionCopy]


class _Done(NamedTuple):
    """Of one group in one partition: what was carried over, after how many losses of the target."""

    reached: Reached
    losses: int


class GroupCarrier:
    """Carries groups over, a round at a time."""

    def __init__(self, wanted: GroupNames, target: ClusterEndpoint) -> None:
        self._wanted = wanted
        self._target = target
        self._origins: list[_Origin] = []
        self._sides: list[ClusterEndpoint] = []
        self._copies: dict[Source, PartitionCopy] = {}
        self._reaches: defaultdict[tuple[str, Source], Reach] = defaultdict(Reach)
        self._done: dict[tuple[str, TopicPartition], _Done] = {}
        self._counts: dict[Source, int] = {}
        self._said: dict[str, type[KlogError]] = {}
        """Group -> its last note ("" is all of them), so that each is shown once."""
        self._has_looked = False
        self._turn = asyncio.Lock()
        self._searches = asyncio.Semaphore(SEARCHES_AT_ONCE)

    async def open(self) -> None:
        """Connect to the target, beside the connections that messages go over."""
        self._side = await self._another(self._target)
        self._groups = GroupOffsets(self._side)

    async def add(self, side: ClusterEndpoint, copies: Mapping[TopicPartition, PartitionCopy]) -> None:
        self._origins.append(_Origin(GroupOffsets(await self._another(side)), copies))

    async def _another(self, side: ClusterEndpoint) -> ClusterEndpoint:
        self._sides.append(await side.another())
        return self._sides[-1]

    async def close(self) -> None:
        await asyncio.gather(*(one.close() for one in self._sides), return_exceptions=True)

    def count(self, source: Source) -> int:
        """Of how many groups the offset in this partition is carried over."""
        return self._counts.get(source, 0)

    async def round(self, *, last: bool = False) -> None:
        """Carry over what has moved. Errors are reported and tried again with the next round; with ``last`` it is
        raised, and what the copy has not reached is reported.
        """
        async with self._turn:
            try:
                failures = await self._round(last=last)
            except KlogError as error:
                if last:
                    raise
                self._say("", error, f"offsets of groups are not copied ({error.message}); still trying")
                return
            self._said.pop("", None)
            if last and failures:
                raise failures[0]

    async def _round(self, *, last: bool) -> list[KlogError]:
        committed = await self._read()
        if not self._has_looked:
            self._has_looked = True
            groups = {group for group, _ in committed}
            for name in [name for name in self._wanted.named if name not in groups]:
                self._target.note(f"group {name!r} has no committed offsets in the copied topics: nothing to copy yet")
        due: dict[str, dict[TopicPartition, Reached]] = {}
        behind: dict[str, list[str]] = {}
        for (group, one), offsets in committed.items():
            reached: dict[Source, int] = {}
            for source, offset in offsets.items():
                position = self._copies[source].position
                known = self._reaches[group, source].look(offset, position)
                if known is not None:
                    reached[source] = known
                if offset > position:
                    behind.setdefault(group, []).append(f"{one} at {offset}")
            done = self._done.get((group, one))
            if len(reached) == len(offsets) and done != _Done(reached, self._losses(reached)):
                due.setdefault(group, {})[one] = reached
        failures = []
        for group, places in due.items():
            try:
                await self._carry(group, places)
            except NonEmptyGroup as error:
                self._say(group, error, f"in the target {error.message}: its offsets there stay as they are")
            except KlogError as error:
                failures.append(error)
                self._say(group, error, f"group {group!r} is not copied ({error.message}); still trying")
            else:
                self._said.pop(group, None)
        if last:
            for group, places_behind in behind.items():
                self._target.note(f"group {group!r} is ahead of the copy: {', '.join(places_behind)}: not copied")
        self._count(committed)
        return failures

    def _say(self, group: str, error: KlogError, text: str) -> None:
        if self._said.get(group) is not type(error):
            self._said[group] = type(error)
            self._target.note(text)

    def _count(self, committed: Mapping[tuple[str, TopicPartition], Reached]) -> None:
        counts: dict[Source, int] = {}
        for place, offsets in committed.items():
            if place in self._done:
                counts.update((source, counts.get(source, 0) + 1) for source in offsets)
        self._counts = counts

    # --- what is committed in the sources ---

    async def _read(self) -> dict[tuple[str, TopicPartition], dict[Source, int]]:
        committed: dict[tuple[str, TopicPartition], dict[Source, int]] = {}
        for origin in self._origins:
            copies = dict(origin.copies)
            names = await origin.groups.chosen(self._wanted)
            found = await origin.groups.read(names, copies) if copies else {}
            for group, commits in found.items():
                for one, commit in commits.items():
                    if not is_a_mirrors(commit):
                        copy = copies[one]
                        self._copies[copy.source] = copy
                        committed.setdefault((group, one), {})[copy.source] = commit.offset
        return committed

    # --- into the target ---

    async def _carry(self, group: str, places: Mapping[TopicPartition, Reached]) -> None:
        there = (await self._groups.read([group], places)).get(group, {})
        done = {(group, one): _Done(reached, self._losses(reached)) for one, reached in places.items()}
        decided = await asyncio.gather(
            *(self._decide(one, there.get(one), now, self._done.get((group, one))) for (_, one), now in done.items())
        )
        wanted = {one: commit for one, commit in zip(places, decided, strict=True) if commit is not None}
        if wanted:
            await self._groups.write(group, wanted)
        is_first = not any(known == group for known, _ in self._done)
        self._done.update(done)
        if wanted and is_first:
            self._target.note(f"group {group!r}: its offsets are copied (partitions: {len(wanted)})")
        for one, commit in wanted.items():
            prior = there.get(one)
            if prior is not None and commit.offset < prior.offset:
                self._target.note(
                    f"group {group!r} was set back: {one} of the target from {prior.offset} to {commit.offset}"
                )

    def _losses(self, reached: Reached) -> int:
        return sum(self._copies[source].log.losses for source in reached)

    async def _decide(
        self, one: TopicPartition, there: Commit | None, now: _Done, before: _Done | None
    ) -> Commit | None:
        """What is to be committed: where the first copy is of what lies at these offsets or behind them."""
        lost = before is not None and before.losses != now.losses
        begin = 0
        if there is not None and before is not None and not lost:
            carried = read_metadata(there.metadata)
            if carried is not None and not _is_back(carried, now.reached):
                begin = there.offset  # copies of greater offsets are not in front of it
        async with self._searches:
            here = min([await self._map(one, source, offset, begin) for source, offset in now.reached.items()])
        return decide(there, now.reached, here, before=None if before is None else before.reached, lost=lost)

    async def _map(self, one: TopicPartition, source: Source, offset: int, begin: int) -> int:
        copy = self._copies[source]
        end = copy.target_end  # there, or behind it, is what is copied next
        if offset >= copy.position:
            return end
        for attempt in range(SEARCHES_MAX):
            start, _ = await self._side.bounds(one)
            try:
                found = await find_first(partial(self._side.fetch, one), source, offset, max(start, begin), end)
                return end if found is None else found
            except OffsetOutOfRange:  # retention was here meanwhile
                if attempt == SEARCHES_MAX - 1:
                    raise
        raise AssertionError("not reached")


async def find_first(read: Read, source: Source, wanted: int, begin: int, end: int) -> int | None:
    """The offset in [begin, end) of the first message that was copied from ``wanted`` of the source or from behind it.

    None where there is none. What is copied below ``begin`` is of smaller offsets of the source.
    """
    low, high, found = begin, end, None
    while low < high:  # copies below low are of smaller offsets, copies at high and behind are not
        middle = (low + high) // 2
        at, size = middle, PROBE_BYTES
        is_decided = False
        while at < high and not is_decided:
            fetched = await read(at, size)
            if fetched.after < 0:
                if fetched.high_watermark <= at:
                    break
                await asyncio.sleep(PAUSE_S)
                continue
            for there, record in copies_of(source, fetched.run, at):
                here = record.offset
                if here >= high:
                    break
                if there < wanted:
                    low = here + 1
                elif low > middle:
                    return here  # the one before it is of a smaller offset
                else:
                    found, high = here, middle
                    break
            if low > middle:
                low = min(fetched.after, high)
            is_decided = low > middle or high == middle
            at, size = fetched.after, READ_ON_BYTES
        if not is_decided:
            high = middle
    return found
