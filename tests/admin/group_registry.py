"""Groups of the tests' own, written into the registry of a running broker as coordinators and consumers write them."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

from klog.coordination import consumers, group_states, paths
from klog.coordination.committed import CommittedOffset, OffsetWriter
from klog.coordination.consumers import ConsumerEntry
from klog.coordination.group_states import COORDINATOR, GroupState, MemberState
from klog.coordination.zookeeper import ZooKeeper
from klog.names import TopicPartition


@contextmanager
def registry_of(address: str) -> Iterator[ZooKeeper]:
    """A session of the test's own."""
    with ZooKeeper(address) as session:
        session.start()
        yield session


def commit(zookeeper: ZooKeeper, group: str, offsets: dict[TopicPartition, int | CommittedOffset]) -> None:
    """As a coordinator does."""
    wanted = {name: CommittedOffset(one) if isinstance(one, int) else one for name, one in offsets.items()}
    writer = OffsetWriter(zookeeper)
    zookeeper.multi(writer.operations(group, wanted))


def assignment(*names: TopicPartition) -> bytes:
    """As clients give out partitions: version 1, one entry a partition, user data."""
    data = struct.pack(">hi", 1, len(names))
    for topic, partition in names:
        data += struct.pack(">h", len(topic)) + topic.encode() + struct.pack(">ii", 1, partition)
    return data + struct.pack(">i", -1)


def member(member_id: str, *names: TopicPartition, instance: str | None = None) -> MemberState:
    return MemberState(member_id, instance, "the-client", "/10.0.0.7", 10_000, 60_000, b"", assignment(*names))


def join(zookeeper: ZooKeeper, group: str, *members: MemberState) -> GroupState:
    """A generation of the brokers' protocol that is settled."""
    before = group_states.read(zookeeper, group)
    return group_states.write(
        zookeeper,
        GroupState(
            group,
            COORDINATOR,
            before.generation + 1,
            "consumer",
            "range",
            members[0].member_id if members else "",
            members,
            True,
            before.version,
        ),
    )


def enter(zookeeper: ZooKeeper, group: str, topic: str, *owned: TopicPartition) -> str:
    """A consumer that coordinates through ZooKeeper and owns these partitions; its id."""
    consumer_id = f"{group}_host-of-it-{time.time_ns() // 1_000_000}-0123abcd"
    consumers.register(zookeeper, group, ConsumerEntry(consumer_id, {topic: 1}))
    for name in owned:
        owner = f"{consumer_id}-0".encode()
        zookeeper.create(paths.consumer_owner(group, *name), owner, ephemeral=True, parents=True)
        zookeeper.create(paths.ownership_fence(group, *name), b'{"version":1}', parents=True)
    return consumer_id
