"""A member of a group that speaks the protocol itself, in the version it is told, and says what it likes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from klog.names import TopicPartition
from klog.net.channel import Channel
from klog.protocol.apis import ApiKey
from tests.server.asking import channels, error, group_request

SESSION_MS = 10_000
ANSWER_S = 30.0
code = error


def subscription(topic: str) -> bytes:
    """Version 0 of what a consumer says it wants: one topic."""
    name = topic.encode()
    return b"\0\0" + b"\0\0\0\1" + len(name).to_bytes(2, "big") + name + b"\xff\xff\xff\xff"


def assignment(topic: str, *partitions: int) -> bytes:
    """Version 0 of what a consumer is told to read."""
    name = topic.encode()
    numbers = b"".join(one.to_bytes(4, "big") for one in (len(partitions), *partitions))
    return b"\0\0" + b"\0\0\0\1" + len(name).to_bytes(2, "big") + name + numbers + b"\xff\xff\xff\xff"


class Speaker:
    """One connection. `code` of an answer is its error code."""

    def __init__(self, channel: Channel, group: str, version: Mapping[ApiKey, int]) -> None:
        self.channel = channel
        self.group = group
        self.versions = version
        self.member_id = ""
        self.generation = -1
        self.instance: str | None = None

    async def ask(self, api: ApiKey, highest: int, /, **fields: Any) -> Any:
        """As this member, unless ``fields`` say otherwise."""
        version = min(self.versions.get(api, highest), highest)
        fields = {"group_instance_id": self.instance, **fields}
        request = group_request(api, version, self.group, self.member_id, self.generation, **fields)
        return await self.channel.request(request, timeout_s=ANSWER_S)

    async def join(self, metadata: bytes = b"m", **values: Any) -> Any:
        """The answer; what it says is kept for the next requests. An id that has to be fetched first is."""
        for _ in range(2):
            answer = await self.ask(
                ApiKey.JOIN_GROUP,
                7,
                session_timeout=values.get("session_ms", SESSION_MS),
                rebalance_timeout=values.get("rebalance_ms", SESSION_MS),
                protocol_type=values.get("type", "consumer"),
                protocols=[{"name": name, "metadata": metadata} for name in values.get("protocols", ("range",))],
            )
            if code(answer) == 79:
                self.member_id = answer.member_id
                continue
            break
        if code(answer) == 0:
            self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    async def sync(self, shares: Mapping[str, bytes] | None = None, **values: Any) -> Any:
        return await self.ask(
            ApiKey.SYNC_GROUP,
            5,
            generation_id=values.get("generation", self.generation),
            member_id=values.get("member_id", self.member_id),
            protocol_type=values.get("type"),
            protocol_name=values.get("protocol"),
            assignments=[{"member_id": one, "assignment": share} for one, share in (shares or {}).items()],
        )

    async def live_alone(self, topic: str, *partitions: int) -> None:
        """Join as the only member, and read these partitions."""
        joined = await self.join(subscription(topic))
        assert code(joined) == 0, joined
        synced = await self.sync({self.member_id: assignment(topic, *partitions)})
        assert synced.assignment == assignment(topic, *partitions), synced

    async def heartbeat(self, **values: Any) -> int:
        answer = await self.ask(
            ApiKey.HEARTBEAT,
            4,
            generation_id=values.get("generation", self.generation),
            member_id=values.get("member_id", self.member_id),
            group_instance_id=values.get("instance", self.instance),
        )
        return code(answer)

    async def leave(self) -> Any:
        members = [{"member_id": self.member_id, "group_instance_id": self.instance, "reason": "the test is over"}]
        return await self.ask(ApiKey.LEAVE_GROUP, 5, members=members)

    async def commit(
        self, offsets: Mapping[TopicPartition, int], metadata: str | None = None, **values: Any
    ) -> list[int]:
        """The code of each partition, in order."""
        topics = [
            {
                "name": one.topic,
                "partitions": [
                    {
                        "partition_index": one.partition,
                        "committed_offset": offset,
                        "committed_leader_epoch": values.get("epoch", -1),
                        "committed_metadata": metadata,
                    }
                ],
            }
            for one, offset in offsets.items()
        ]
        answer = await self.ask(
            ApiKey.OFFSET_COMMIT,
            8,
            generation_id_or_member_epoch=values.get("generation", self.generation),
            member_id=values.get("member_id", self.member_id),
            retention_time=-1,
            topics=topics,
        )
        return [code(partition) for topic in answer.topics for partition in topic.partitions]

    async def committed(self, *partitions: TopicPartition) -> list[tuple[int, str]]:
        """(offset, metadata) of each; of all there are, by name, when none is named."""
        topics = [{"name": one.topic, "partition_indexes": [one.partition]} for one in partitions] or None
        answer = await self.ask(
            ApiKey.OFFSET_FETCH,
            8,
            topics=topics,
            require_stable=False,
            groups=[{"group_id": self.group, "topics": topics}],
        )
        found = answer.groups[0] if hasattr(answer, "groups") else answer
        assert all(code(one) == 0 for topic in found.topics for one in topic.partitions), found
        return [(one.committed_offset, one.metadata or "") for topic in found.topics for one in topic.partitions]


@asynccontextmanager
async def speakers(
    bootstrap: str, group: str, count: int, versions: Mapping[ApiKey, int] | None = None
) -> AsyncIterator[list[Speaker]]:
    """As many members to be, each on a connection of its own."""
    async with channels(bootstrap, count) as made:
        yield [Speaker(channel, group, versions or {}) for channel in made]
