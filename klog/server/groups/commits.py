"""Commits of offsets: checked, written with other groups' in one multi, acknowledged when ZooKeeper has them.

Fences on the slot and on the group's node exclude commits of members that the group has removed, and commits that a
rewind has overtaken. Without ZooKeeper a commit is retried until ``offsets.commit.timeout.ms`` and then refused, though
it may be written later; a commit that is not written is never acknowledged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from klog.coordination import committed, offset_acts, paths
from klog.coordination.acts import Actor
from klog.coordination.committed import CommittedOffset, OffsetWriter
from klog.coordination.group_states import COORDINATOR
from klog.coordination.group_writer import TOGETHER_BYTES_MAX, GroupChanged, GroupWrite
from klog.coordination.zookeeper import MULTI_BYTES_MAX, Check, Operation, batches, size_bytes
from klog.errors import (
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupIsHeld,
    IllegalGeneration,
    KlogError,
    RequestError,
    SessionLost,
    UnknownMemberId,
)
from klog.groups import bounds
from klog.groups.members import Caller, MakeNode
from klog.names import TopicPartition, is_topic_name
from klog.server.event_limits import EventLimit
from klog.server.groups.cached_group import REFUSALS_MAX, CachedGroup
from klog.server.groups.group_cache import GroupCache
from klog.server.offset_history import OffsetHistory
from klog.server.zookeeper_admission import Kind

FENCES_BYTES = 4096
"""Reserved for the fences of the slot, of the group, and of a topic that the previous multi had too."""
PART_BYTES_MAX = MULTI_BYTES_MAX - FENCES_BYTES
"""Per commit and multi: some 1,250 partitions with names of 30 characters. A larger commit takes several multis."""
WIDE_BYTES = 64 * 1024
"""Bytes of metadata above which a commit is written in multis of `TOGETHER_BYTES_MAX`."""
SURELY_ONE = 100
SHORT_NAME = 255
"""With a group name up to this length, `SURELY_ONE` partitions without metadata fit in one multi, whatever their
topics."""
METADATA_BYTES_MAX = 1_000_000
"""Per commit: about Kafka's limit (``message.max.bytes`` of its offsets topic)."""
DELETED_AT_ONCE = 500
AGAIN_S = 0.1
"""Pause after ZooKeeper has not answered."""


class InvalidCommitOffsetSize(RequestError, wire=28):
    """The metadata of one commit is too large."""


class GroupPartition(NamedTuple):
    group: str
    topic: str
    partition: int


class Commits:
    """Event loop only."""

    def __init__(self, cache: GroupCache, offsets: OffsetWriter, history: OffsetHistory[GroupPartition]) -> None:
        self._runtime = cache.runtime
        self._zookeeper = cache.runtime.zookeeper
        self._cache = cache
        self._offsets = offsets
        self._history = history
        self._refusals = EventLimit(REFUSALS_MAX)

    async def commit(
        self, name: str, caller: Caller, offsets: Mapping[TopicPartition, CommittedOffset], actor: Actor
    ) -> KlogError | None:
        """None once all are written; else the error, though the first parts of a large commit may be written.

        A commit without a member that moves an offset back, or any offset of a group that has had members, is an act by
        ``actor``. Others are a consumer's progress.
        """
        began_s = self._cache.now_s
        try:
            bounds.check_member(caller.member_id, caller.instance_id)
            self._check_metadata(offsets)
            async with asyncio.timeout(self._cache.wait_s):
                error = await self._commit(name, caller, offsets, actor)
        except TimeoutError:
            return CoordinatorNotAvailable("ZooKeeper did not take the commit in time")
        except KlogError as refused:
            return refused.bare()
        if error is None and offsets:
            measures = self._runtime.measures
            measures.group_commits.took((self._cache.now_s - began_s) * 1000)
            measures.offsets_committed += len(offsets)
            for partition, one in offsets.items():
                self._history.note(GroupPartition(name, *partition), one.offset)
        return error

    async def fetch(
        self, wanted: Mapping[str, Sequence[TopicPartition] | None]
    ) -> dict[str, dict[TopicPartition, CommittedOffset] | KlogError]:
        """The committed offsets of each group, in these partitions or (None) in all; or the error."""
        found: dict[str, dict[TopicPartition, CommittedOffset] | KlogError] = {}
        asked: dict[str, list[TopicPartition] | None] = {}
        for name, partitions in wanted.items():
            try:
                self._cache.holder(name)
            except KlogError as error:
                found[name] = error.bare()
            else:
                asked[name] = None if partitions is None else list(filter(_may_be, partitions))
        if asked:
            try:
                found |= await self._cache.call(committed.read_many, asked)
            except KlogError as error:
                found |= dict.fromkeys(asked, error.bare())
        return found

    async def _commit(
        self, name: str, caller: Caller, offsets: Mapping[TopicPartition, CommittedOffset], actor: Actor
    ) -> KlogError | None:
        cache = self._cache
        while True:
            try:
                cached = await cache.load(name)
                group = cached.group
                error = group.refuses_commit(caller, cache.now_s)
                if error is not None:
                    self._tell_refused(cached, caller, error, actor)
                    return error
                if not offsets:
                    return None
                if caller.generation < 0:
                    await cache.check_without_streams(cached)
                    if group.state.version < 0:
                        await cache.granted(cached, MakeNode())
                        continue
                for part in self._parts(name, offsets):
                    await self._write(cached, part, actor if caller.generation < 0 else None)
                return None
            except GroupIsHeld as error:
                return UnknownMemberId(error.message)
            except GroupChanged:
                await cache.refresh(cached)
            except SessionLost:
                await asyncio.sleep(AGAIN_S)
            except KlogError as error:
                return error.bare()

    def _tell_refused(self, cached: CachedGroup, caller: Caller, error: KlogError, actor: Actor) -> None:
        """Record an event if the client is not, or no longer, a member; rarely, as clients try again."""
        if not isinstance(error, IllegalGeneration | UnknownMemberId | FencedInstanceId):
            return
        if cached.refusals.allows(self._cache.now_s) and self._refusals.allows(self._cache.now_s):
            self._runtime.tell(
                "commit-refused",
                group=cached.group.name,
                member=caller.member_id,
                client=actor.client,
                host=actor.host,
                generation=caller.generation,
                error=error.code,
                reason=error.message,
            )

    def _check_metadata(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        size = _metadata_bytes(offsets)
        if size > METADATA_BYTES_MAX:
            raise InvalidCommitOffsetSize(
                f"the metadata of one commit must have at most {METADATA_BYTES_MAX} bytes, got {size}",
                hint="commit fewer partitions at a time",
            )
        if size:
            self._cache.admission.admit(Kind.METADATA, size)

    def _parts(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> Iterable[Mapping[TopicPartition, CommittedOffset]]:
        """One part per multi, as few as possible."""
        is_short = len(group) <= SHORT_NAME and not any(one.metadata for one in offsets.values())
        if is_short and len(offsets) <= SURELY_ONE:
            return [offsets]
        topic = ""

        def size(one: tuple[TopicPartition, CommittedOffset]) -> int:
            nonlocal topic
            fence = 0 if one[0].topic == topic else size_bytes(Check(paths.topic_epoch(one[0].topic), 0), chroot)
            topic = one[0].topic
            return fence + self._offsets.size_bytes(group, *one)

        chroot = self._zookeeper.address.chroot
        bytes_max = TOGETHER_BYTES_MAX if _metadata_bytes(offsets) > WIDE_BYTES else PART_BYTES_MAX
        return map(dict, batches(([one] for one in sorted(offsets.items(), key=itemgetter(0))), size, bytes_max))

    async def delete(self, cached: CachedGroup, partitions: Sequence[TopicPartition], actor: Actor) -> None:
        """Delete these offsets, behind the fences of a commit, and with an act. Raises KlogError."""
        try:
            async with asyncio.timeout(self._cache.wait_s):
                for at in range(0, len(partitions), DELETED_AT_ONCE):
                    await self._delete(cached, partitions[at : at + DELETED_AT_ONCE], actor)
        except GroupChanged as error:
            await self._cache.refresh(cached)
            raise CoordinatorNotAvailable(error.message) from error
        except (SessionLost, TimeoutError) as error:
            raise CoordinatorNotAvailable("ZooKeeper does not answer") from error

    async def _delete(self, cached: CachedGroup, partitions: Sequence[TopicPartition], actor: Actor) -> None:
        if cached.group.state.version < 0:
            await self._cache.granted(cached, MakeNode())
        state, zookeeper = cached.group.state, self._zookeeper

        def operations() -> list[Operation]:
            gone = dict.fromkeys(partitions)
            noted = offset_acts.noted(zookeeper, offset_acts.OFFSETS, actor, state.group, gone, _has_some)
            return [state.fence, *noted, *committed.ends(zookeeper, state.group, partitions)]

        await self._cache.writer.write(GroupWrite(cached.holder, state.group, state.version, operations))

    async def _write(
        self, cached: CachedGroup, offsets: Mapping[TopicPartition, CommittedOffset], actor: Actor | None
    ) -> None:
        """``actor``: for a commit without a member."""
        state = cached.group.state
        topics = dict.fromkeys(one.topic for one in offsets)

        def is_act(before: offset_acts.State) -> bool:
            had_members = state.group_protocol == COORDINATOR
            for name, one in offsets.items():
                old = prior.offset if (prior := before[name]) else -1
                is_progress = not had_members or one.metadata.startswith(offset_acts.CARRIED)
                if one.offset < old or (one.offset != old and not is_progress):
                    return True
            return False

        def operations() -> list[Operation]:
            fences = [state.fence, *self._offsets.topic_fences(topics)]
            noted = list[Operation]()
            if actor is not None:
                kind = offset_acts.OFFSETS
                noted = offset_acts.noted(self._zookeeper, kind, actor, state.group, offsets, is_act)
            return [*fences, *noted, *self._offsets.operations(state.group, offsets)]

        await self._cache.writer.write(GroupWrite(cached.holder, state.group, state.version, operations, offsets))


def _has_some(before: offset_acts.State) -> bool:
    return any(one is not None for one in before.values())


def _metadata_bytes(offsets: Mapping[TopicPartition, CommittedOffset]) -> int:
    return sum(len(one.metadata.encode()) for one in offsets.values() if one.metadata)


def _may_be(partition: TopicPartition) -> bool:
    """Whether such a partition can exist: an invalid name has no node, and must not become part of a path."""
    return is_topic_name(partition.topic) and partition.partition >= 0
