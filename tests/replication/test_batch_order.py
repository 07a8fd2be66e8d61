"""Which batches of an idempotent producer have to wait for others that were refused before them."""

from __future__ import annotations

import struct
from typing import Any, cast

from klog.errors import InvalidRecord, NotEnoughReplicas, NotEnoughReplicasAfterAppend, NotLeader
from klog.protocol.codec import RequestHead
from klog.protocol.produce import PartitionAnswer
from klog.record.records import Record, encode_batch
from klog.replication.batch_order import FOLLOWING_MAX, REFUSED_MAX, BatchId, BatchOrder, batch_id
from klog.replication.led_partition import REFUSED_S, CommitWaiter, LedPartition
from klog.server.purgatory import DelayedProduce
from klog.storage.producers import SEQUENCE_END
from tests.rows import each

REFUSAL = NotEnoughReplicas("too few")


class Peer:
    """In place of a connection, and of a reply on it."""

    def __init__(self) -> None:
        self.sent: bytes | None = None
        self.states: dict[object, Any] = {}

    def send(self, answer: bytes) -> None:
        self.sent = answer


class World:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.order = BatchOrder(lambda: self.now_s)
        self.connection: Any = Peer()

    def refuse(self, batch: BatchId, error: Any = REFUSAL, partition: int = 0) -> None:
        self.order.refused(self.connection, "t", partition, batch, error)

    def is_behind(self, batch: BatchId | None, partition: int = 0) -> bool:
        return self.order.behind(self.connection, "t", partition, batch) is not None

    def accept(self, batch: BatchId) -> None:
        self.order.accepted(self.connection, "t", 0, batch)


def test_what_comes_after_a_refused_batch_waits_for_it() -> None:
    world = World()
    first, second, third = (BatchId(7, 0, at) for at in (10, 12, 15))
    world.refuse(first)
    assert world.is_behind(second) and world.is_behind(third)
    world.refuse(second)  # for a reason of its own
    assert world.is_behind(second) and not world.is_behind(first)
    world.accept(first)
    assert not world.is_behind(second) and not world.is_behind(third)


def test_what_comes_after_a_batch_that_went_to_another_leader_does_not_wait_for_good() -> None:
    """It was appended there, and this broker leads again: nobody will send it here."""
    world = World()
    world.refuse(BatchId(7, 0, 10))
    on_their_way = [world.is_behind(BatchId(7, 0, at)) for at in (12, 15, 16, 20)]
    assert on_their_way == [True] * FOLLOWING_MAX
    assert not world.is_behind(BatchId(7, 0, 12)) and not world.is_behind(BatchId(7, 0, 15))


def test_nobody_else_waits() -> None:
    world = World()
    world.refuse(BatchId(7, 0, 10))
    assert not world.is_behind(BatchId(8, 0, 12))
    assert not world.is_behind(BatchId(7, 1, 0)) and not world.is_behind(BatchId(7, 1, 12))  # it has begun anew
    assert not world.is_behind(BatchId(7, 0, 12), partition=1)
    assert not world.is_behind(None)
    assert world.order.behind(cast(Any, Peer()), "t", 0, BatchId(7, 0, 12)) is None
    world.now_s += REFUSED_S
    assert not world.is_behind(BatchId(7, 0, 12))  # it was given up


def test_what_is_refused_for_good_holds_nothing_up() -> None:
    world = World()
    world.refuse(BatchId(7, 0, 10), InvalidRecord("no"))
    assert not world.is_behind(BatchId(7, 0, 12))


def test_sequences_wrap() -> None:
    world = World()
    world.refuse(BatchId(7, 0, SEQUENCE_END - 5))
    assert world.is_behind(BatchId(7, 0, 3)) and not world.is_behind(BatchId(7, 0, SEQUENCE_END - 6))


def test_a_connection_can_have_no_more_noted_than_so_many() -> None:
    world = World()
    for producer_id in range(REFUSED_MAX + 1):
        world.refuse(BatchId(producer_id, 0, 10))
    assert not world.is_behind(BatchId(0, 0, 12)) and world.is_behind(BatchId(REFUSED_MAX, 0, 12))


def test_the_batch_of_a_record_set() -> None:
    records = [Record(0, 1, None, b"v", ())]
    plain = memoryview(bytearray(encode_batch(records)))
    assert batch_id(plain) is None and batch_id(plain[:60]) is None
    struct.pack_into(">qhi", plain, 43, 1 << 40, 3, 99)
    assert batch_id(plain) == BatchId(1 << 40, 3, 99)


class Uncommitted:
    """A partition of which nothing is committed until the test says so."""

    def __init__(self) -> None:
        self.waiters: list[CommitWaiter] = []

    def when_committed(self, address: int, waiter: CommitWaiter) -> bool:
        self.waiters.append(waiter)
        return False


@each("how", ["committed by too few", "expired"])
def test_an_acknowledgement_that_waits_fails_with_the_one_before_it(how: str) -> None:
    """Batch 1 is appended and fails while batch 2 waits: batch 2 may not be told that all is well."""
    world = World()
    partition = Uncommitted()
    peers = []
    requests = []
    for at in range(3):
        answers = [PartitionAnswer("t", 0, 0, 100 * at, 0)]
        peers.append(Peer())
        batch = BatchId(7, 0, at) if at < 2 else BatchId(8, 0, 0)
        head = RequestHead(0, 8, at, None, 0)
        delayed = DelayedProduce(head, cast(Any, peers[-1]), answers, 0.0, [batch], world.connection, world.order)
        delayed.wait_for(cast(LedPartition, partition), 100 * at + 50, 0)
        requests.append(delayed)
    if how == "expired":
        requests[0].expire()
    else:
        partition.waiters[0].committed(NotEnoughReplicasAfterAppend("too few"))
    for waiter in partition.waiters[1:]:
        waiter.committed(None)
    codes = [struct.unpack_from(">h", cast(bytes, peer.sent), 4 + 4 + 4 + 2 + 1 + 4 + 4)[0] for peer in peers]
    assert codes == [20 if how != "expired" else 7, NotLeader.wire, 0]
