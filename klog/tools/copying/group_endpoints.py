"""The committed offsets of groups in one cluster of a mirror: listed, read, and written without live members.

By ZooKeeper where it can be reached from here, as `klog group rewind` writes: behind a check that the group has no
members. Else by the brokers: a commit without member (generation -1), which a coordinator refuses while it has members.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from klog.errors import IllegalGeneration, KlogError, NonEmptyGroup, UnknownMemberId
from klog.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.tools.copying.cluster_endpoint import ClusterEndpoint
from klog.tools.copying.mirror_commits import ByCoordinator, open_zookeeper

if TYPE_CHECKING:
    from klog.client.cluster import Cluster
    from klog.coordination.zookeeper import ZooKeeper


class Commit(NamedTuple):
    """What a group has committed in a partition."""

    offset: int
    metadata: str = ""


Commits = Mapping[TopicPartition, Commit]


class GroupEndpoint(Protocol):
    """The groups of one cluster."""

    async def names(self) -> list[str]:
        """All groups there are."""

    async def read(self, groups: Sequence[str], within: Collection[TopicPartition]) -> Mapping[str, Commits]:
        """What these have committed in these partitions."""

    async def write(self, group: str, commits: Commits) -> None:
        """NonEmptyGroup where the group has members."""

    async def close(self) -> None: ...


async def open_groups(side: ClusterEndpoint) -> GroupEndpoint:
    """As the cluster lets itself be asked from here. ``side`` is used, and stays open."""
    session = await open_zookeeper(side)
    return GroupsByBrokers(side) if session is None else GroupsInZooKeeper(session)


class GroupsInZooKeeper:
    """As all of klog's tools see them, whichever way they consume."""

    def __init__(self, session: ZooKeeper) -> None:
        self._session = session

    async def close(self) -> None:
        await asyncio.to_thread(self._session.stop)

    async def names(self) -> list[str]:
        from klog.coordination import committed

        return await asyncio.to_thread(committed.groups, self._session)

    async def read(self, groups: Sequence[str], within: Collection[TopicPartition]) -> Mapping[str, Commits]:
        return await asyncio.to_thread(self._read, groups, set(within))

    def _read(self, groups: Sequence[str], within: set[TopicPartition]) -> Mapping[str, Commits]:
        from klog.coordination import committed

        there = committed.names(self._session, groups)
        found = committed.read_many(
            self._session, {group: [one for one in some if one in within] for group, some in there.items()}
        )
        return {
            group: {one: Commit(known.offset, known.metadata) for one, known in some.items()}
            for group, some in found.items()
        }

    async def write(self, group: str, commits: Commits) -> None:
        from klog.coordination import offset_changes
        from klog.coordination.committed import CommittedOffset

        wanted = {one: CommittedOffset(known.offset, metadata=known.metadata) for one, known in commits.items()}
        await asyncio.to_thread(offset_changes.write, self._session, group, wanted)


class GroupsByBrokers:
    """By the protocol alone, as of any Kafka."""

    def __init__(self, side: ClusterEndpoint) -> None:
        self._side = side

    async def close(self) -> None:
        """Nothing is open."""

    async def names(self) -> list[str]:
        async def ask(cluster: Cluster, broker: int) -> list[str]:
            try:
                answer = await cluster.to_broker(broker, ApiKey.LIST_GROUPS, 4, 0, states_filter=[])
            except KlogError:
                return []  # its groups are another's in a moment
            return [str(one.group_id) for one in answer.groups]

        cluster = self._side.cluster
        answers = await asyncio.gather(*(ask(cluster, one.broker_id) for one in await cluster.brokers()))
        return sorted({name for some in answers for name in some})

    async def read(self, groups: Sequence[str], within: Collection[TopicPartition]) -> Mapping[str, Commits]:
        found: dict[str, Commits] = {}
        for group in groups:
            plain = await ByCoordinator(self._side, group).read_plain(within)
            found[group] = {one: Commit(*known) for one, known in plain.items()}
        return found

    async def write(self, group: str, commits: Commits) -> None:
        try:
            await ByCoordinator(self._side, group).write(commits)
        except (UnknownMemberId, IllegalGeneration) as error:
            raise NonEmptyGroup(f"group {group!r} has live members") from error
