"""A member of a group over klog's own connections: as little of a client as there can be, for any broker.

It does not read; it joins, keeps its place by heartbeats, and commits.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from klog.errors import KlogError
from klog.net.channel import Channel
from klog.protocol import codec
from klog.protocol.apis import ApiKey

SESSION_MS = 30_000
JOIN_TIMEOUT_S = 60.0
MEMBER_ID_REQUIRED = 79
REBALANCES = {22, 25, 27}
"""ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS: to be joined again."""
ELSEWHERE = {14, 15, 16}
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR."""


class MemberFailed(Exception):
    """The coordinator refused what it should have granted."""


class RawMember:
    """One member, on a connection of its own: a broker answers a connection's requests one after the other."""

    def __init__(self, channel: Channel, group: str, topic: str, partition: int) -> None:
        self.channel = channel
        self.group = group
        self.generation = -1
        self.member_id = ""
        self.is_settled = False
        self._topic, self._partition = topic, partition

    async def ask(self, api: ApiKey, highest: int, **fields: Any) -> Any:
        request = codec.request(api, self.channel.version_for(api, highest), **fields)
        return await self.channel.request(request, timeout_s=JOIN_TIMEOUT_S)

    async def join(self) -> None:
        """Until it has a generation and its assignment."""
        self.is_settled = False
        while True:
            answer = await self.ask(
                ApiKey.JOIN_GROUP,
                7,
                group_id=self.group,
                session_timeout=SESSION_MS,
                rebalance_timeout=SESSION_MS,
                member_id=self.member_id,
                group_instance_id=None,
                protocol_type="consumer",
                protocols=[{"name": "range", "metadata": _subscription(self._topic)}],
            )
            code = answer.error_code.value
            if code == MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
                continue
            if code in REBALANCES:
                self.member_id = ""
                continue
            if code:
                raise MemberFailed(f"{self.group}: JoinGroup was answered with {answer.error_code.name}")
            self.member_id, self.generation = answer.member_id, answer.generation_id
            shares = [
                {"member_id": one.member_id, "assignment": _assignment(self._topic, number)}
                for number, one in enumerate(answer.members)
            ]
            if await self._synced(shares):
                self.is_settled = True
                return

    async def _synced(self, shares: list[dict[str, Any]]) -> bool:
        """False: there is a new rebalance."""
        answer = await self.ask(
            ApiKey.SYNC_GROUP,
            5,
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocol_name="range",
            assignments=shares,
        )
        if (code := answer.error_code.value) and code not in REBALANCES:
            raise MemberFailed(f"{self.group}: SyncGroup was answered with {answer.error_code.name}")
        return not code

    async def heartbeat(self) -> None:
        """Joins again where it is told so."""
        answer = await self.ask(
            ApiKey.HEARTBEAT,
            4,
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=None,
        )
        if answer.error_code.value:
            await self.join()

    async def commit(self, offset: int) -> int:
        """The error's code; 0: the offset is committed."""
        return await commit_to(self.channel, self.group, {(self._topic, self._partition): offset}, self)


async def commit_to(
    channel: Channel, group: str, offsets: dict[tuple[str, int], int], member: RawMember | None = None
) -> int:
    """As a member, or without one into a group that has none; the first error's code, or 0."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, []).append(
            {
                "partition_index": partition,
                "committed_offset": offset,
                "committed_leader_epoch": -1,
                "committed_metadata": "",
            }
        )
    answer = await channel.request(
        codec.request(
            ApiKey.OFFSET_COMMIT,
            channel.version_for(ApiKey.OFFSET_COMMIT, 8),
            group_id=group,
            generation_id_or_member_epoch=member.generation if member is not None else -1,
            member_id=member.member_id if member is not None else "",
            group_instance_id=None,
            topics=[{"name": topic, "partitions": partitions} for topic, partitions in topics.items()],
        )
    )
    codes = (one.error_code.value for topic in answer.topics for one in topic.partitions)
    return next((code for code in codes if code), 0)


async def coordinator_of(bootstrap: str, group: str, timeout_s: float = 30.0) -> tuple[str, int]:
    """Its host and port, by the first broker that can tell; asked again while there is none."""
    deadline = time.monotonic() + timeout_s
    while True:
        for server in bootstrap.split(","):
            host, _, port = server.rpartition(":")
            try:
                channel = await Channel.connect(host, int(port), connect_timeout_s=1.0, timeout_s=2.0)
            except KlogError:
                continue
            try:
                version = channel.version_for(ApiKey.FIND_COORDINATOR, 3)
                answer = await channel.request(codec.request(ApiKey.FIND_COORDINATOR, version, key=group, key_type=0))
                if not answer.error_code.value:
                    return answer.host, answer.port
            except KlogError:
                continue
            finally:
                await channel.close()
        if time.monotonic() > deadline:
            raise MemberFailed(f"{group}: no coordinator within {timeout_s:g} s")
        await asyncio.sleep(0.02)


async def connect_to_coordinator(bootstrap: str, group: str) -> Channel:
    """A connection to whoever coordinates the group now."""
    host, port = await coordinator_of(bootstrap, group)
    return await Channel.connect(host, port, connect_timeout_s=1.0)


def _subscription(topic: str) -> bytes:
    """Version 0 of what a consumer says it wants."""
    name = topic.encode()
    return b"\0\0" + b"\0\0\0\1" + len(name).to_bytes(2, "big") + name + b"\xff\xff\xff\xff"


def _assignment(topic: str, partition: int) -> bytes:
    """Version 0 of what a consumer is told to read."""
    name = topic.encode()
    share = (1).to_bytes(4, "big") + partition.to_bytes(4, "big")
    return b"\0\0" + b"\0\0\0\1" + len(name).to_bytes(2, "big") + name + share + b"\xff\xff\xff\xff"
