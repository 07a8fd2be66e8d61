"""Offsets that groups commit: checked, written with many others' in one multi, acknowledged when ZooKeeper has them.

A commit is fenced by its slot and by its group's node: not one of a member that the group has given up, or that was
overtaken by a rewind, is written. ZooKeeper away: it is tried until its time is over (``offsets.commit.timeout.ms``),
then refused, though it may be written later; never acknowledged without being written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from klog.coordination import committed, paths
from klog.coordination.committed import CommittedOffset, OffsetWriter
from klog.coordination.zookeeper import MULTI_BYTES_MAX, Check, Operation, batches, size_bytes
from klog.errors import (
    CoordinatorNotAvailable,
    GroupIsHeld,
    KlogError,
    RequestError,
    SessionLost,
    UnknownMemberId,
)
from klog.names import TopicPartition, is_topic_name
from klog.server.groups import bounds
from klog.server.groups.writer import TOGETHER_BYTES_MAX, GroupChanged, GroupWrite

if TYPE_CHECKING:
    from klog.server.groups.coordinator import Coordinator, KeptGroup

FENCES_BYTES = 4096
"""Of the slot, of the group, and of a topic that stands in the multi before this one too."""
PART_BYTES_MAX = MULTI_BYTES_MAX - FENCES_BYTES
"""Of one commit in one multi: some 1,250 partitions where names have 30 characters. A larger one is written in several,
one after the other."""
WIDE_BYTES = 64 * 1024
"""Of metadata: a commit with more is written in multis of `TOGETHER_BYTES_MAX`."""
SURELY_ONE = 100
SHORT_NAME = 255
"""So few partitions without metadata, of a group with so short a name, fit in one multi with topics of any name."""
METADATA_BYTES_MAX = 1_000_000
"""Of all offsets of one commit together: about what Kafka takes (``message.max.bytes`` of its offsets topic)."""
DELETED_AT_ONCE = 500
AGAIN_S = 0.1
"""After ZooKeeper has not answered."""


class InvalidCommitOffsetSize(RequestError):
    """More beside the offsets of one commit than is taken."""

    wire = 28
    code = "INVALID_COMMIT_OFFSET_SIZE"


class Committer(NamedTuple):
    """Whom a commit comes from; generation -1 without id: nobody's, of a group that has no members."""

    member_id: str
    instance_id: str | None
    generation: int


class Commits:
    """Event loop only."""

    def __init__(self, coordinator: Coordinator, offsets: OffsetWriter) -> None:
        self._coordinator = coordinator
        self._offsets = offsets

    async def commit(
        self, name: str, committer: Committer, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> KlogError | None:
        """None once they are written, all of them; else why they may not be, all of them or what is left."""
        began_s = self._coordinator.now_s
        try:
            bounds.check_member(committer.member_id, committer.instance_id)
            _check_metadata(offsets)
            async with asyncio.timeout(self._coordinator.wait_s):
                error = await self._commit(name, committer, offsets)
        except TimeoutError:
            return CoordinatorNotAvailable("ZooKeeper did not take the commit in time")
        except KlogError as refused:
            return refused.bare()
        if error is None and offsets:
            measures = self._coordinator.broker.measures
            measures.group_commits.took((self._coordinator.now_s - began_s) * 1000)
            measures.offsets_committed += len(offsets)
        return error

    async def fetch(
        self, wanted: Mapping[str, Sequence[TopicPartition] | None]
    ) -> dict[str, dict[TopicPartition, CommittedOffset] | KlogError]:
        """What each group has committed, in these partitions or (None) in all; or why it cannot be said."""
        found: dict[str, dict[TopicPartition, CommittedOffset] | KlogError] = {}
        asked: dict[str, list[TopicPartition] | None] = {}
        for name, partitions in wanted.items():
            try:
                self._coordinator.holder(name)
            except KlogError as error:
                found[name] = error.bare()
            else:
                asked[name] = None if partitions is None else list(filter(_may_be, partitions))
        if asked:
            try:
                found |= await self._coordinator.ask_zookeeper(committed.read_many, self._coordinator.zookeeper, asked)
            except KlogError as error:
                found |= dict.fromkeys(asked, error.bare())
        return found

    async def _commit(
        self, name: str, committer: Committer, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> KlogError | None:
        coordinator = self._coordinator
        while True:
            try:
                kept = await coordinator.kept(name)
                group = kept.group
                error = group.refuses_commit(*committer, coordinator.now_s)
                if error is not None:
                    return error
                if not offsets:
                    return None
                if committer.generation < 0:
                    await coordinator.check_way(kept)
                    if group.state.version < 0:
                        await coordinator.make_node(kept)
                        continue
                for part in self._parts(name, offsets):
                    await self._write(kept, part)
                return None
            except GroupIsHeld as error:
                return UnknownMemberId(error.message)
            except GroupChanged:
                await coordinator.look_again(kept)
            except SessionLost:
                await asyncio.sleep(AGAIN_S)
            except KlogError as error:
                return error.bare()

    def _parts(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> Iterable[Mapping[TopicPartition, CommittedOffset]]:
        """As few multis as hold it."""
        is_short = len(group) <= SHORT_NAME and not any(one.metadata for one in offsets.values())
        if is_short and len(offsets) <= SURELY_ONE:
            return [offsets]
        topic = ""

        def size(one: tuple[TopicPartition, CommittedOffset]) -> int:
            nonlocal topic
            fence = 0 if one[0].topic == topic else size_bytes(Check(paths.topic_epoch(one[0].topic), 0), chroot)
            topic = one[0].topic
            return fence + self._offsets.size_bytes(group, *one)

        chroot = self._coordinator.zookeeper.address.chroot
        bytes_max = TOGETHER_BYTES_MAX if _metadata_bytes(offsets) > WIDE_BYTES else PART_BYTES_MAX
        return map(dict, batches(([one] for one in sorted(offsets.items(), key=_by_name)), size, bytes_max))

    async def delete(self, kept: KeptGroup, partitions: Sequence[TopicPartition]) -> None:
        """Take these away, fenced as a commit is. Raises what it is refused with."""
        try:
            async with asyncio.timeout(self._coordinator.wait_s):
                for at in range(0, len(partitions), DELETED_AT_ONCE):
                    await self._delete(kept, partitions[at : at + DELETED_AT_ONCE])
        except GroupChanged as error:
            await self._coordinator.look_again(kept)
            raise CoordinatorNotAvailable(error.message) from error
        except (SessionLost, TimeoutError) as error:
            raise CoordinatorNotAvailable("ZooKeeper does not answer") from error

    async def _delete(self, kept: KeptGroup, partitions: Sequence[TopicPartition]) -> None:
        if kept.group.state.version < 0:
            await self._coordinator.make_node(kept)
        state, zookeeper = kept.group.state, self._coordinator.zookeeper
        await self._coordinator.writer.write(
            GroupWrite(
                kept.holder,
                state.group,
                state.version,
                lambda: (state.fence, *committed.ends(zookeeper, state.group, partitions)),
                lambda _: self._offsets.forget(state.group),
            )
        )

    async def _write(self, kept: KeptGroup, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        state = kept.group.state
        topics = dict.fromkeys(one.topic for one in offsets)

        def operations() -> list[Operation]:
            fences = [state.fence, *self._offsets.topic_fences(topics)]
            return [*fences, *self._offsets.operations(state.group, offsets)]

        await self._coordinator.writer.write(
            GroupWrite(
                kept.holder,
                state.group,
                state.version,
                operations,
                lambda landed: self._offsets.landed(state.group, landed),
                lambda: self._offsets.forget(state.group),
                offsets,
            )
        )


def _check_metadata(offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
    size = _metadata_bytes(offsets)
    if size > METADATA_BYTES_MAX:
        raise InvalidCommitOffsetSize(
            f"{len(offsets)} offsets with {size} bytes of metadata in one commit; at most {METADATA_BYTES_MAX}",
            hint="commit fewer partitions at a time",
        )


def _metadata_bytes(offsets: Mapping[TopicPartition, CommittedOffset]) -> int:
    return sum(len(one.metadata.encode()) for one in offsets.values() if one.metadata)


def _may_be(partition: TopicPartition) -> bool:
    """Whether there can be such a partition: what cannot has no node, and must not be made part of a path."""
    return is_topic_name(partition.topic) and partition.partition >= 0


def _by_name(one: tuple[TopicPartition, CommittedOffset]) -> TopicPartition:
    return one[0]
