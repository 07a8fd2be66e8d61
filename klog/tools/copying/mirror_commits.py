"""What a mirror commits in its sources: how far each partition is copied, and where that is in the target.

The offset is the next one to copy; the metadata maps it, ``{"klog.mirror":1,"target":ID,"topic_id":ID,"of":ID,
"end":OFFSET}``: everything of the source below the commit is in the target's topic (of that id) below ``end``, and
the source's topic had the id ``of``. A start reads the target from there on only, and a person sees which offset of the
one log is which of the other.

Commits go to the source's ZooKeeper, where all groups have theirs; where that cannot be reached, to the group's
coordinator, as of a consumer that is not a member (generation -1).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from klog.client.blocking import check_code
from klog.client.servers import zookeeper_of
from klog.errors import GroupIsHeld, KlogError, NodeExists, NoNode
from klog.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.tools.copying.cluster_endpoint import ClusterEndpoint

if TYPE_CHECKING:
    from klog.client.cluster import Cluster
    from klog.coordination.group_states import GroupState
    from klog.coordination.zookeeper import ZooKeeper

CONNECT_TIMEOUT_S = 3.0
PARTITIONS_AT_ONCE = 200
"""Of one multi: each is two writes of some 300 bytes (rule Z3)."""


class Position(NamedTuple):
    """Copied up to ``offset`` of the source, which stands below ``end`` of the target's topic.

    ``target`` is a cluster's id, the others those of topics; what is "" or -1 was not committed by a mirror.
    """

    offset: int
    target: str = ""
    topic_id: str = ""
    of: str = ""
    end: int = -1

    @property
    def metadata(self) -> str:
        known = {"target": self.target, "topic_id": self.topic_id, "of": self.of, "end": self.end}
        return json.dumps({"klog.mirror": 1, **known}, separators=(",", ":"))

    @classmethod
    def read(cls, offset: int, metadata: str) -> Position:
        """What was committed; metadata of anybody else's is none."""
        try:
            found = json.loads(metadata)
            if found["klog.mirror"] != 1:
                return cls(offset)
            return cls(offset, str(found["target"]), str(found["topic_id"]), str(found["of"]), int(found["end"]))
        except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
            return cls(offset)


class Committable(Protocol):
    """An offset, and its metadata."""

    @property
    def offset(self) -> int: ...

    @property
    def metadata(self) -> str: ...


class Commits(Protocol):
    """Reads and writes the commits of one group."""

    async def read(self, wanted: list[TopicPartition]) -> dict[TopicPartition, Position]: ...

    async def write(self, positions: Mapping[TopicPartition, Position]) -> None: ...

    async def close(self) -> None: ...


async def open_commits(side: ClusterEndpoint, group: str) -> Commits:
    """By ZooKeeper where it can be reached from here, else by the brokers."""
    session = await open_zookeeper(side)
    return ByCoordinator(side, group) if session is None else InZooKeeper(session, group)


async def open_zookeeper(side: ClusterEndpoint) -> ZooKeeper | None:
    """A session with a cluster's ZooKeeper; None where it has none, or none that can be reached from here."""
    address = await _zookeeper_of(side)
    if address is None:
        return None
    from klog.coordination.zookeeper import ZooKeeper

    session = ZooKeeper(address, operation_timeout_s=side.timeout_s)
    try:
        await asyncio.to_thread(session.start, CONNECT_TIMEOUT_S, patient=False)
    except KlogError:
        await asyncio.to_thread(session.stop)
        return None
    return session


async def _zookeeper_of(side: ClusterEndpoint) -> str | None:
    from klog.admin.brokers import list_brokers

    if not side.cluster.is_klog:
        return None
    rows = await side.patiently(list_brokers)
    bootstrap = side.cluster.bootstrap
    return next((zookeeper_of(bootstrap, row.zookeeper) for row in rows if row.zookeeper is not None), None)


class InZooKeeper:
    """Commits in 0.8's registry, with their notes beside them."""

    def __init__(self, session: ZooKeeper, group: str) -> None:
        from klog.coordination.committed import OffsetWriter

        self._session = session
        self._group = group
        self._writer = OffsetWriter(session)

    async def close(self) -> None:
        await asyncio.to_thread(self._session.stop)

    async def read(self, wanted: list[TopicPartition]) -> dict[TopicPartition, Position]:
        from klog.coordination import committed

        await asyncio.to_thread(self._free_state)
        found = await asyncio.to_thread(committed.read, self._session, self._group, wanted)
        return {one: Position.read(known.offset, known.metadata) for one, known in found.items()}

    async def write(self, positions: Mapping[TopicPartition, Position]) -> None:
        await asyncio.to_thread(self._write, positions)

    def _free_state(self) -> GroupState:
        """The group's state; GroupIsHeld where it has members."""
        from klog.coordination import group_states

        state = group_states.read(self._session, self._group)
        if state.members:
            raise GroupIsHeld(
                f"group {self._group} has {len(state.members)} live members: a mirror needs its own group",
                hint="name another: --group NAME",
            )
        return state

    def _write(self, positions: Mapping[TopicPartition, Position]) -> None:
        from klog.coordination.committed import CommittedOffset, read

        state = self._free_state()
        fence = [state.fence] if state.version >= 0 else []
        rows = list(positions.items())
        for at in range(0, len(rows), PARTITIONS_AT_ONCE):
            some = {
                one: CommittedOffset(position.offset, metadata=position.metadata)
                for one, position in rows[at : at + PARTITIONS_AT_ONCE]
            }

            def landed(some: dict[TopicPartition, Any] = some) -> bool:
                there = read(self._session, self._group, some)
                return all(one in there and there[one].offset == known.offset for one, known in some.items())

            try:
                operations = self._writer.operations(self._group, some)
                self._session.commit([*fence, *operations], landed)
            except (NoNode, NodeExists):  # another client has deleted the group's offsets, or made them
                self._writer.forget(self._group)
                operations = self._writer.operations(self._group, some)
                self._session.commit([*fence, *operations], landed)
            self._writer.landed(self._group, operations)


class ByCoordinator:
    """Commits by the protocol, of a group without members."""

    def __init__(self, side: ClusterEndpoint, group: str) -> None:
        self._side = side
        self._group = group

    async def close(self) -> None:
        """Nothing is open."""

    async def read(self, wanted: list[TopicPartition]) -> dict[TopicPartition, Position]:
        return {one: Position.read(*known) for one, known in (await self.read_plain(wanted)).items()}

    async def read_plain(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, str]]:
        """The offset and the metadata, by any committer."""

        async def ask(cluster: Cluster) -> Any:
            answer = await cluster.to_broker(
                await self._coordinator(cluster),
                ApiKey.OFFSET_FETCH,
                7,
                2,
                group_id=self._group,
                topics=[{"name": topic, "partition_indexes": numbers} for topic, numbers in _by_topic(wanted).items()],
                require_stable=False,
            )
            check_code(answer.error_code, f"the offsets of group {self._group}")
            return answer

        answer = await self._side.patiently(ask)
        found = {}
        for topic in answer.topics:
            for one in topic.partitions:
                if int(one.error_code) == 0 and one.committed_offset >= 0:
                    name = TopicPartition(str(topic.name), int(one.partition_index))
                    found[name] = int(one.committed_offset), str(one.metadata or "")
        return found

    async def write(self, positions: Mapping[TopicPartition, Committable]) -> None:
        cluster = self._side.cluster
        topics = [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": number,
                        "committed_offset": positions[TopicPartition(topic, number)].offset,
                        "committed_leader_epoch": -1,
                        "committed_metadata": positions[TopicPartition(topic, number)].metadata,
                    }
                    for number in numbers
                ],
            }
            for topic, numbers in _by_topic(positions).items()
        ]
        answer = await cluster.to_broker(
            await self._coordinator(cluster),
            ApiKey.OFFSET_COMMIT,
            7,
            5,
            group_id=self._group,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=topics,
        )
        for topic in answer.topics:
            for one in topic.partitions:
                check_code(one.error_code, f"committing {topic.name}-{one.partition_index} for group {self._group}")

    async def _coordinator(self, cluster: Cluster) -> int:
        answer = await cluster.to_any(ApiKey.FIND_COORDINATOR, 3, 1, key=self._group, key_type=0)
        check_code(answer.error_code, f"the coordinator of group {self._group}")
        return int(answer.node_id)


def _by_topic(wanted: Any) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, number in wanted:
        topics.setdefault(topic, []).append(number)
    return topics
