"""Judges a history: the rules of Jepsen's checker of logs (jepsen.tests.kafka), and klog's own behind them. Pure.

    inconsistent-offset   two values seen at one offset of a partition, by sends or by polls
    duplicate             one value at two offsets
    lost-write            acknowledged, before something that somebody has read, and read by nobody
    unseen                acknowledged, behind everything that was read, and not read by the end of the last catching up
    aborted-read          a send that certainly failed is read
    phantom               a value is read that nobody sent there
    poll-skip             a consumer passes over a value that is known to be there (int-: within one poll)
    nonmonotonic-poll     a consumer goes back (int-: within one poll)
    nonmonotonic-send     a producer's later message stands before an earlier one

    watermark-back        a consumer is shown a lower high watermark than before
    position-past-end     a read or acknowledged position behind the end of the partition
    misplaced-batch       a batch whose base offset is not its place in a replica's files
    corrupt-batch         a batch on a disk whose CRC fails, or files that cannot be read through
    epoch-back            a batch with a lower leader epoch than the one before it
    replicas-differ       two replicas that are not byte for byte the same up to the high watermark
    not-on-disk           acknowledged, and in no batch of a replica's files

Offsets are ranked, never counted: that they are addresses and leave gaps is nothing to the rules. A send whose outcome
is unknown is never held to have failed. An acknowledgement without an offset (a client takes it so that what it sent
again was there before) only says that the message must be read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.faults.history import (
    Assigned,
    Batch,
    Begun,
    End,
    Ended,
    Event,
    Fault,
    Polled,
    Replica,
    Shown,
)

SHOWN_MAX = 5
"""Anomalies of a kind that a summary spells out."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    kind: str
    partition: int
    what: str

    def __str__(self) -> str:
        return f"{self.kind} in partition {self.partition}: {self.what}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Counts and anomalies of one history. Times in seconds."""

    acked: int
    failed: int
    unknown: int
    anomalies: tuple[Anomaly, ...]
    longest_without_ack_s: float
    """Between two acknowledgements of the same partition, the worst of them, while producers were sending."""
    acked_during_faults: int

    @property
    def kinds(self) -> Counter[str]:
        return Counter(anomaly.kind for anomaly in self.anomalies)

    @property
    def is_clean(self) -> bool:
        return not self.anomalies

    def summary(self) -> str:
        """A few lines: the counts, and the first anomalies of each kind."""
        kinds = self.kinds
        lines = [
            f"acked {self.acked}, failed {self.failed}, unknown {self.unknown}, lost {kinds['lost-write']}, "
            f"duplicated {kinds['duplicate']}, unseen {kinds['unseen']}, "
            f"inconsistent {kinds['inconsistent-offset']}, longest without an ack {self.longest_without_ack_s:.2f} s, "
            f"acked during the fault {self.acked_during_faults}"
        ]
        for kind, count in kinds.items():
            lines.append(f"{kind}: {count}")
            found = [anomaly for anomaly in self.anomalies if anomaly.kind == kind]
            lines += [f"    {anomaly}" for anomaly in found[:SHOWN_MAX]]
        return "\n".join(lines)


@dataclass
class _Facts:
    """The history, sorted by what it is about."""

    begun: dict[tuple[str, int], Begun] = field(default_factory=dict)
    ended: dict[tuple[str, int], Ended] = field(default_factory=dict)
    values_at: dict[tuple[int, int], set[str]] = field(default_factory=lambda: defaultdict(set))
    """(partition, offset) -> what was seen there."""
    places_of: dict[str, set[tuple[int, int]]] = field(default_factory=lambda: defaultdict(set))
    read: dict[str, float] = field(default_factory=dict)
    """value -> when it was first read."""
    read_up_to: dict[int, int] = field(default_factory=dict)
    """partition -> the highest offset that anybody read."""
    known: dict[int, list[int]] = field(default_factory=dict)
    """partition -> every offset known to hold a value, ascending."""
    ends: dict[int, int] = field(default_factory=dict)
    replicas: dict[int, list[Replica]] = field(default_factory=lambda: defaultdict(list))

    @property
    def acked(self) -> list[tuple[Begun, Ended]]:
        return [
            (self.begun[key], ended) for key, ended in self.ended.items() if ended.outcome == "ok" and key in self.begun
        ]


def check(history: Iterable[Event]) -> Verdict:
    """The verdict on a history, whose events are in the order in which they happened."""
    events = list(history)
    facts = _gather(events)
    anomalies = [
        *_offsets(facts),
        *_reads(facts),
        *_lost(facts),
        *_consumers(events, facts),
        *_producers(facts),
        *_ends(events, facts),
        *_replicas(facts),
    ]
    outcomes = Counter(ended.outcome for ended in facts.ended.values())
    return Verdict(
        acked=outcomes["ok"],
        failed=outcomes["fail"],
        unknown=len(facts.begun) - outcomes["ok"] - outcomes["fail"],
        anomalies=tuple(anomalies),
        longest_without_ack_s=max(pauses_s(events).values(), default=0.0),
        acked_during_faults=_acked_during_faults(events),
    )


def _gather(events: list[Event]) -> _Facts:
    facts = _Facts()

    def seen(partition: int, offset: int, value: str) -> None:
        facts.values_at[partition, offset].add(value)
        facts.places_of[value].add((partition, offset))

    for event in events:
        match event:
            case Begun():
                facts.begun[event.by, event.number] = event
            case Ended():
                facts.ended[event.by, event.number] = event
            case Polled():
                for offset, value in event.records:
                    seen(event.partition, offset, value)
                    facts.read.setdefault(value, event.at)
                    facts.read_up_to[event.partition] = max(facts.read_up_to.get(event.partition, -1), offset)
            case End():
                facts.ends[event.partition] = event.offset
            case Replica():
                facts.replicas[event.partition].append(event)
            case _:
                pass
    for begun, ended in facts.acked:
        if ended.offset >= 0:
            seen(begun.partition, ended.offset, begun.value)
    known: dict[int, list[int]] = defaultdict(list)
    for partition, offset in facts.values_at:
        known[partition].append(offset)
    facts.known = {partition: sorted(offsets) for partition, offsets in known.items()}
    return facts


def _offsets(facts: _Facts) -> Iterator[Anomaly]:
    for (partition, offset), values in facts.values_at.items():
        if len(values) > 1:
            yield Anomaly("inconsistent-offset", partition, f"offset {offset} holds {', '.join(sorted(values))}")
    for value, places in facts.places_of.items():
        if len(places) > 1:
            partition = min(places)[0]
            yield Anomaly("duplicate", partition, f"{value} is at {', '.join(f'{p}:{o}' for p, o in sorted(places))}")


def _reads(facts: _Facts) -> Iterator[Anomaly]:
    sent = {begun.value: key for key, begun in facts.begun.items()}
    for value in facts.read:
        key = sent.get(value)
        partition, offset = min(facts.places_of[value])
        if key is None:
            yield Anomaly("phantom", partition, f"{value} at {offset} was sent by nobody")
            continue
        begun, ended = facts.begun[key], facts.ended.get(key)
        if begun.partition != partition:
            yield Anomaly("phantom", partition, f"{value} at {offset} was sent to partition {begun.partition}")
        if ended is not None and ended.outcome == "fail":
            yield Anomaly("aborted-read", partition, f"{value} at {offset} failed ({ended.error}) and is read")


def _lost(facts: _Facts) -> Iterator[Anomaly]:
    for begun, ended in facts.acked:
        if begun.value not in facts.read:
            kind = "lost-write" if 0 <= ended.offset < facts.read_up_to.get(begun.partition, -1) else "unseen"
            text = f"{begun.value}, acknowledged at {ended.offset} ({ended.at:.3f} s), was read by nobody"
            yield Anomaly(kind, begun.partition, text + _where(facts, begun.partition, ended.offset))
        if facts.replicas[begun.partition] and ended.offset >= 0:
            missing = [r.broker for r in facts.replicas[begun.partition] if not _holds(r, ended.offset)]
            if missing:
                text = f"{begun.value}, acknowledged at {ended.offset}, is not in the files of {missing}"
                yield Anomaly("not-on-disk", begun.partition, text)


def _where(facts: _Facts, partition: int, offset: int) -> str:
    """Lost, or only not delivered: in whose files the offset is."""
    replicas = facts.replicas[partition]
    if not replicas:
        return ""
    holding = [replica.broker for replica in replicas if _holds(replica, offset)]
    return f"; in the files of brokers {holding}" if holding else "; in no replica's files"


def _holds(replica: Replica, offset: int) -> bool:
    at = bisect_right(replica.batches, offset, key=lambda batch: batch.base_offset) - 1
    return at >= 0 and offset < replica.batches[at].base_offset + replica.batches[at].size


def _consumers(events: list[Event], facts: _Facts) -> Iterator[Anomaly]:
    stands: dict[tuple[str, int], int] = {}
    """(consumer, partition) -> the next offset it may see."""
    shown: dict[tuple[str, int], int] = {}
    for event in events:
        match event:
            case Assigned():
                stands[event.by, event.partition] = event.position
            case Shown():
                before = shown.get((event.by, event.partition), -1)
                if event.offset < before:
                    text = f"{event.by} was shown {before}, then {event.offset} ({event.at:.3f} s)"
                    yield Anomaly("watermark-back", event.partition, text)
                shown[event.by, event.partition] = max(before, event.offset)
            case Polled():
                yield from _poll(event, stands, facts.known.get(event.partition, []))
            case _:
                pass


def _poll(event: Polled, stands: dict[tuple[str, int], int], known: list[int]) -> Iterator[Anomaly]:
    key = event.by, event.partition
    inside = ""
    for offset, value in event.records:
        next_offset = stands.get(key)
        if next_offset is not None:
            if offset < next_offset:
                text = f"{event.by} stood at {next_offset} and got {value} at {offset} ({event.at:.3f} s)"
                yield Anomaly(f"{inside}nonmonotonic-poll", event.partition, text)
            skipped = known[bisect_left(known, next_offset) : bisect_left(known, offset)]
            if skipped:
                text = f"{event.by} went from {next_offset} to {offset} past {len(skipped)}, the first at {skipped[0]}"
                yield Anomaly(f"{inside}poll-skip", event.partition, f"{text} ({event.at:.3f} s)")
        stands[key] = offset + 1
        inside = "int-"


def _producers(facts: _Facts) -> Iterator[Anomaly]:
    last: dict[tuple[str, int], tuple[int, int]] = {}
    for begun, ended in sorted(facts.acked, key=lambda pair: (pair[0].by, pair[0].number)):
        key = begun.by, begun.partition
        if ended.offset < 0:
            continue
        number, offset = last.get(key, (-1, -1))
        if ended.offset <= offset:
            text = f"{begun.by} sent {number} to {offset}, then {begun.number} to {ended.offset}"
            yield Anomaly("nonmonotonic-send", begun.partition, text)
        last[key] = begun.number, max(offset, ended.offset)


def _ends(events: list[Event], facts: _Facts) -> Iterator[Anomaly]:
    for event in events:
        if isinstance(event, Polled):
            for offset, _ in event.records[-1:]:
                if offset >= facts.ends.get(event.partition, offset + 1):
                    text = f"{event.by} read up to {offset}, and the end is {facts.ends[event.partition]}"
                    yield Anomaly("position-past-end", event.partition, text)
    for begun, ended in facts.acked:
        if ended.offset >= facts.ends.get(begun.partition, ended.offset + 1):
            text = f"{begun.value} was acknowledged at {ended.offset}, and the end is {facts.ends[begun.partition]}"
            yield Anomaly("position-past-end", begun.partition, text)


def _replicas(facts: _Facts) -> Iterator[Anomaly]:
    for partition, replicas in facts.replicas.items():
        for replica in replicas:
            yield from _files(replica)
        end = facts.ends.get(partition)
        if end is None:
            continue
        ordered = sorted(replicas, key=lambda replica: replica.broker)
        for other in ordered[1:]:
            difference = _difference(ordered[0], other, end)
            if difference:
                yield Anomaly("replicas-differ", partition, difference)


def _files(replica: Replica) -> Iterator[Anomaly]:
    epoch, partition, who = -1, replica.partition, f"broker {replica.broker}"
    if replica.unreadable:
        yield Anomaly("corrupt-batch", partition, f"{who}: {replica.unreadable}")
    for batch in replica.batches:
        if batch.base_offset != batch.position:
            yield Anomaly("misplaced-batch", partition, f"{who} has batch {batch.base_offset} at {batch.position}")
        if not batch.valid:
            yield Anomaly("corrupt-batch", partition, f"{who}: the CRC of the batch at {batch.position} fails")
        if batch.epoch < epoch:
            text = f"{who}: epoch {batch.epoch} at {batch.position} behind epoch {epoch}"
            yield Anomaly("epoch-back", partition, text)
        epoch = max(epoch, batch.epoch)


def _difference(one: Replica, other: Replica, end: int) -> str:
    """Where two replicas first differ below the end; "" where they are the same."""
    mine, theirs = _below(one, end), _below(other, end)
    for a, b in zip(mine, theirs, strict=False):
        if a != b:
            return f"brokers {one.broker} and {other.broker} differ at {min(a.position, b.position)}: {a} and {b}"
    if len(mine) == len(theirs):
        return ""
    shorter, longer = (one, theirs) if len(mine) < len(theirs) else (other, mine)
    rest = longer[min(len(mine), len(theirs)) :]
    return f"broker {shorter.broker} lacks {len(rest)} batches from {rest[0].position} on, below {end}"


def _below(replica: Replica, end: int) -> list[Batch]:
    return [batch for batch in replica.batches if batch.position < end]


def pauses_s(events: Iterable[Event]) -> dict[int, float]:
    """partition -> the longest pause between two acknowledgements of it, while something was sent to it.

    The time until a partition's first acknowledgement, when clients connect, counts only where it has none.
    """
    partition_of: dict[tuple[str, int], int] = {}
    first_sent: dict[int, float] = {}
    last_sent: dict[int, float] = {}
    last_acked: dict[int, float] = {}
    worst: dict[int, float] = {}
    for event in events:
        if isinstance(event, Begun):
            partition_of[event.by, event.number] = event.partition
            first_sent.setdefault(event.partition, event.at)
            last_sent[event.partition] = event.at
        elif isinstance(event, Ended) and event.outcome == "ok":
            partition = partition_of[event.by, event.number]
            pause = event.at - last_acked.get(partition, event.at)
            worst[partition] = max(worst.get(partition, 0.0), pause)
            last_acked[partition] = event.at
    return {
        partition: max(worst.get(partition, 0.0), at - last_acked.get(partition, first_sent[partition]))
        for partition, at in last_sent.items()
    }


def _acked_during_faults(events: list[Event]) -> int:
    count, on = 0, 0
    for event in events:
        if isinstance(event, Fault):
            on += -1 if event.healed else 1
        elif isinstance(event, Ended) and event.outcome == "ok" and on > 0:
            count += 1
    return count
