"""`klog topic verify`: whether all replicas of a partition hold the same bytes, and from where on they do not.

Strategy: each replica's start, high watermark and holes are asked once. What is compared is what all must have: from
the highest start to the lowest high watermark, less what any replica has recorded as a hole. All replicas are asked for
the CRC of the same range of addresses, partition by partition and many in one request, as far as BATCH_BYTES reach;
each CRC goes on from the one before, so that a row's CRC is that of all that was compared. Where CRCs differ, the range
is halved (by FAN_OUT at once) until one address is left.
Which one is wrong there: a replica whose batch does not check; else the smaller number; else the one that differs from
the leader. Such a replica is compared no further; the others are.
Limits: what lies above the lowest high watermark is not proven; a replica that cannot be asked is an error of its row.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from klog.client.answers import check, error_in
from klog.client.cluster import Cluster
from klog.client.metadata import PartitionNode, TopicNode
from klog.client.partition_requests import by_partition, by_topic
from klog.errors import CannotConnect, KlogError, Refused
from klog.metrics import Count
from klog.names import TopicPartition, regular_expression
from klog.protocol.apis import ApiKey
from klog.render.columns import MayFail

BATCH_BYTES: Final = 64 * 1024 * 1024
"""Asked of a broker at once: a tenth of a second at the least rate that is expected, and a bound on what a stop waits
for."""
BATCH_PARTITIONS: Final = 500
PACE_S: Final = 0.2
"""With a rate, a request is for what may be read in this time."""
PIECE_BYTES_MIN: Final = 64 * 1024
FAN_OUT: Final = 16


@dataclass(frozen=True, slots=True)
class ReplicaRow(MayFail):
    """One replica. ``state``: ok, mismatch, damaged (a mismatch whose batch does not check), hole, alone, error.

    ``bytes`` were compared, ``crc`` is theirs as this replica has them (eight hex digits). ``first_difference`` is an
    address: the first byte that differs, or where the first hole begins.
    """

    topic: str
    partition: int
    broker: int
    state: str
    first_difference: int | None
    bytes: int | None
    crc: str | None

    @property
    def is_mismatch(self) -> bool:
        return self.state in ("mismatch", "damaged")


class Piece(NamedTuple):
    """Addresses [first, end) that are to be read, without a hole."""

    first: int
    end: int


@dataclass(slots=True)
class Replica:
    """What is known of one replica while it is compared."""

    broker: int
    start: int = 0
    high_watermark: int = 0
    holes: list[tuple[int, int]] = field(default_factory=list)
    crc: int = 0
    first_difference: int | None = None
    is_damaged: bool = False
    error: KlogError | None = None


@dataclass(slots=True)
class Comparison:
    """One partition; ``todo`` are the pieces that were not read yet, in order."""

    partition: TopicPartition
    leader: int | None
    replicas: dict[int, Replica]
    todo: deque[Piece] = field(default_factory=deque)
    first: int = 0
    end: int = 0
    compared: int = 0

    @property
    def readable(self) -> list[Replica]:
        return [one for one in self.replicas.values() if one.error is None]

    @property
    def agreeing(self) -> list[Replica]:
        return [one for one in self.readable if one.first_difference is None]

    def plan(self) -> None:
        """Decide what is compared, from what the replicas said of themselves."""
        if len(self.readable) < 2:
            return
        self.first = max(one.start for one in self.readable)
        self.end = min(one.high_watermark for one in self.readable)
        self.todo = deque(pieces(self.first, self.end, [hole for one in self.readable for hole in one.holes]))

    def next_piece(self, room: int) -> Piece | None:
        """What to read next, no more than ``room`` bytes; taken off what is to do."""
        if not self.todo or len(self.agreeing) < 2:
            return None
        first, end = self.todo.popleft()
        if end - first > room:
            self.todo.appendleft(Piece(first + room, end))
        return Piece(first, min(end, first + room))

    def rows(self) -> list[ReplicaRow]:
        return [self._row(one) for one in self.replicas.values()]

    def _row(self, replica: Replica) -> ReplicaRow:
        error, first_difference = replica.error, replica.first_difference
        hole = next((first for first, end in sorted(replica.holes) if first < self.end and end > self.first), None)
        if error is not None:
            state = "error"
        elif len(self.readable) < 2:
            state = "alone"
        elif first_difference is not None:
            state = "damaged" if replica.is_damaged else "mismatch"
        elif hole is not None:
            state, first_difference = "hole", hole
        else:
            state = "ok"
        shown = state not in ("error", "alone")
        return ReplicaRow(
            self.partition.topic,
            self.partition.partition,
            replica.broker,
            state,
            first_difference,
            self.compared if shown else None,
            f"{replica.crc:08x}" if shown else None,
        ).failed_by(error)


def pieces(first: int, end: int, holes: Sequence[tuple[int, int]]) -> list[Piece]:
    """[first, end) less the holes, in order."""
    found = []
    for hole_first, hole_end in sorted(holes):
        if hole_first > first:
            found.append(Piece(first, min(hole_first, end)))
        first = max(first, hole_end)
    found.append(Piece(first, end))
    return [one for one in found if one.first < one.end]


def choose_wrong(answers: Mapping[int, tuple[int, bool]], leader: int | None) -> set[int]:
    """The brokers whose byte is the wrong one: broker -> (CRC of the byte, whether its batch checks)."""
    sound = {broker for broker, (_, checks) in answers.items() if checks} or set(answers)
    votes = Counter(answers[broker][0] for broker in sound)
    most = max(votes.values())
    best = {crc for crc, count in votes.items() if count == most}
    of_leader = answers[leader][0] if leader in sound else None
    right = of_leader if of_leader in best else min(best)
    return {broker for broker, (crc, _) in answers.items() if broker not in sound or crc != right}


class Verification:
    """One run. Event loop only."""

    def __init__(self, cluster: Cluster, rate_bytes: float | None, count: Count) -> None:
        self._cluster = cluster
        self._rate = rate_bytes
        self._count = count
        self._batch_bytes = BATCH_BYTES
        if rate_bytes is not None:
            self._batch_bytes = int(min(BATCH_BYTES, max(PIECE_BYTES_MIN, rate_bytes * PACE_S)))

    async def run(self, topics: Sequence[TopicNode], live: set[int]) -> list[Comparison]:
        comparisons = [
            _comparison(TopicPartition(topic.name, one.partition), one, live)
            for topic in topics
            for one in topic.partitions.values()
        ]
        for at in range(0, len(comparisons), BATCH_PARTITIONS):
            await self._learn(comparisons[at : at + BATCH_PARTITIONS])
        for one in comparisons:
            one.plan()
        self._count.total = sum(piece.end - piece.first for one in comparisons for piece in one.todo)
        self._began = asyncio.get_running_loop().time()
        waiting = deque(comparisons)
        while waiting:
            batch: list[tuple[Comparison, Piece]] = []
            room = self._batch_bytes
            while waiting and room > 0 and len(batch) < BATCH_PARTITIONS:
                one = waiting.popleft()
                piece = one.next_piece(room)
                if piece is not None:
                    batch.append((one, piece))
                    room -= piece.end - piece.first
            if batch:
                await self._compare(batch)
                waiting.extendleft(one for one, _ in reversed(batch))
        return comparisons

    async def _learn(self, comparisons: Sequence[Comparison]) -> None:
        answers = await self._ask([(one, []) for one in comparisons])
        for one in comparisons:
            for replica in one.readable:
                said = answers[replica.broker, one.partition]
                replica.start = int(said.start_address)
                end, high_watermark = int(said.end_address), int(said.high_watermark)
                replica.high_watermark = end if high_watermark < 0 else min(end, high_watermark)
                replica.holes = [(int(hole.from_address), int(hole.to_address)) for hole in said.holes]

    async def _compare(self, batch: Sequence[tuple[Comparison, Piece]]) -> None:
        answers = await self._ask([(one, [piece]) for one, piece in batch], seeded=True)
        for one, piece in batch:
            ranges = {replica.broker: answers[replica.broker, one.partition].ranges[0] for replica in one.readable}
            if not ranges:
                continue
            first = max(int(found.from_address) for found in ranges.values())
            if first > piece.first:  # retention was quicker: what is left of the piece is asked again
                one.first = first
                one.todo.appendleft(piece)
                one.todo = deque(Piece(max(first, todo.first), todo.end) for todo in one.todo if todo.end > first)
                continue
            if any(int(found.to_address) < piece.end for found in ranges.values()):
                _lose(one, ranges, piece.end)
            agreeing = {replica.broker for replica in one.agreeing}
            for replica in one.readable:
                replica.crc = int(ranges[replica.broker].crc)
            one.compared += piece.end - piece.first
            if len({int(ranges[broker].crc) for broker in agreeing}) > 1:
                await self._narrow(one, piece)
        await self._pace(sum(piece.end - piece.first for _, piece in batch))

    async def _narrow(self, one: Comparison, piece: Piece) -> None:
        """Find the first differing address in the piece, leave out who is wrong there, and go on with the rest."""
        while len(one.agreeing) > 1:
            found = await self._first_difference(one, piece)
            if found is None:
                return
            answers = await self._ask([(one, [Piece(found, found + 1)])], probe=found)
            told = {
                replica.broker: (int(said.ranges[0].crc), bool(said.probe))
                for replica in one.agreeing
                for said in (answers[replica.broker, one.partition],)
            }
            if len({crc for crc, _ in told.values()}) < 2:
                return  # it was put right in the meantime
            for broker in choose_wrong(told, one.leader):
                one.replicas[broker].first_difference = found
                one.replicas[broker].is_damaged = not told[broker][1]
            piece = Piece(found + 1, piece.end)

    async def _first_difference(self, one: Comparison, piece: Piece) -> int | None:
        first, end = piece
        if first >= end:
            return None
        while True:
            step = max(1, -(-(end - first) // FAN_OUT))
            parts = [Piece(at, min(at + step, end)) for at in range(first, end, step)]
            answers = await self._ask([(one, parts)])
            brokers = [replica.broker for replica in one.agreeing]
            for index, part in enumerate(parts):
                if len({int(answers[broker, one.partition].ranges[index].crc) for broker in brokers}) > 1:
                    first, end = part
                    break
            else:
                return None
            if end - first == 1:
                return first

    async def _pace(self, size: int) -> None:
        self._count.done += size
        if self._rate is not None:
            due = self._began + self._count.done / self._rate
            await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))

    async def _ask(
        self, wanted: Iterable[tuple[Comparison, Sequence[Piece]]], *, seeded: bool = False, probe: int = -1
    ) -> dict[tuple[int, TopicPartition], Any]:
        """What each readable replica says, by (broker, partition); one that cannot is an error from then on."""
        shares: dict[int, dict[TopicPartition, tuple[Replica, Sequence[Piece]]]] = {}
        for one, parts in wanted:
            for replica in one.readable:
                shares.setdefault(replica.broker, {})[one.partition] = replica, parts
        found: dict[tuple[int, TopicPartition], Any] = {}

        def asked(replica: Replica, parts: Sequence[Piece]) -> dict[str, Any]:
            seed = replica.crc if seeded else 0
            ranges = [{"from_address": first, "to_address": end, "seed": seed} for first, end in parts]
            return {"probe_address": probe, "ranges": ranges}

        async def ask_broker(broker: int, share: dict[TopicPartition, tuple[Replica, Sequence[Piece]]]) -> None:
            topics = by_topic((name, asked(*one)) for name, one in share.items())
            try:
                answer = await self._cluster.to_broker(broker, ApiKey.CHECKSUM_RANGES, 0, topics=topics)
                check(answer, f"broker {broker} refuses to compute checksums")
            except KlogError as error:
                for replica, _ in share.values():
                    replica.error = error
                return
            for name, said in by_partition(answer.topics):
                failed = error_in(said, f"broker {broker}: {name}")
                if failed is None:
                    found[broker, name] = said
                else:
                    share[name][0].error = failed

        await asyncio.gather(*(ask_broker(*one) for one in shares.items()))
        return found


async def verify_replicas(
    cluster: Cluster,
    names: Sequence[str] = (),
    *,
    pattern: str | None = None,
    rate_bytes: float | None = None,
    count: Count | None = None,
) -> list[ReplicaRow]:
    """One row per replica of these topics (all without names or pattern, an anchored regular expression).

    ``count``: of bytes that each replica has to read, summed over partitions.

    UnknownTopicOrPartition for an unknown name; Refused on plain Kafka; never raises for what is found.
    """
    if not cluster.is_klog:
        raise Refused("this is not a klog cluster: only klog's brokers compute checksums of their replicas")
    matches = regular_expression(pattern, "-r").fullmatch if pattern is not None else None
    metadata = await cluster.metadata(fresh=True)
    for name in names:
        if name not in metadata.topics:
            await cluster.topic(name)  # raises, with the topics that have such a name
    topics = [
        topic
        for topic in metadata.topics.values()
        if topic.name in names or (matches is not None and matches(topic.name)) or (not names and matches is None)
    ]
    comparisons = await Verification(cluster, rate_bytes, count or Count()).run(topics, set(metadata.brokers))
    return [row for one in comparisons for row in one.rows()]


def _comparison(name: TopicPartition, node: PartitionNode, live: set[int]) -> Comparison:
    replicas = {}
    for broker in node.replicas:
        error = None if broker in live else CannotConnect(f"broker {broker} is not alive")
        replicas[broker] = Replica(broker, error=error)
    return Comparison(name, node.leader, replicas)


def _lose(one: Comparison, ranges: Mapping[int, Any], end: int) -> None:
    """A replica has become shorter than its own high watermark was: it is wrong by more than bytes."""
    for replica in one.readable:
        reached = int(ranges[replica.broker].to_address)
        if reached < end:
            name = one.partition
            replica.error = Refused(
                f"broker {replica.broker}: {name} now ends at {reached}, below the committed messages"
            )
