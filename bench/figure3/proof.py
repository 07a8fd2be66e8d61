"""From the stamps alone: is each message that a front end sent in each tier exactly once?

Producers' last counts are read from the audit topic of each live cluster, and each tier is read from its start: the
logs as a consumer reads them, the table out of its files. `klog.tools.audit.compare` judges. Beyond that, the numbers
of each producer must run from 0 without a hole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.figure3.delays import Spread
from bench.figure3.watch import WINDOW_MS, tally_of_table
from klog.client.audit import HEADER
from klog.client.cluster import Cluster
from klog.client.resolve import bounds
from klog.names import TopicPartition
from klog.tools.audit.compare import State, by_stamps
from klog.tools.audit.ledger import Ledger, Produced, read_ledger
from klog.tools.audit.tally import UNSTAMPED, NumberSet, Origin, Tally, Window
from klog.tools.reader import read_ranges


@dataclass(frozen=True, slots=True)
class TierRow:
    """A tier at the end. MESSAGES that it has, of SENT; delays from the front end's stamp until it had them."""

    tier: str
    sent: int
    messages: int
    missing: int
    extra: int
    p50_ms: int | None
    p99_ms: int | None
    worst_ms: int | None
    state: str
    note: str | None = field(default=None, metadata={"wide": True})

    @property
    def is_good(self) -> bool:
        return self.state == State.OK.value


Sent = dict[Window, dict[Origin, Produced]]


@dataclass(frozen=True)
class Tier:
    """``sources``: bootstrap addresses of the live clusters whose messages it should have. A table has no
    ``bootstrap``, a cluster no ``root``."""

    name: str
    sources: Sequence[str]
    bootstrap: str | None = None
    root: Path | None = None


async def prove(tiers: Sequence[Tier], topic: str, delays: Mapping[str, Spread | None]) -> list[TierRow]:
    """One row per tier. KlogError where a cluster or a file cannot be read."""
    ledgers = {one: await _ledger(one) for one in sorted({name for tier in tiers for name in tier.sources})}
    rows = []
    for tier in tiers:
        tally = await _tally(tier, topic)
        sent: Sent = {}
        publishers: dict[Origin, int] = {}
        for source in tier.sources:
            for window, origins in ledgers[source].produced.items():
                if window.topic == topic:
                    sent.setdefault(window, {}).update(origins)
            publishers |= ledgers[source].publishes
        rows.append(judge(tier.name, sent, tally, publishers, delays.get(tier.name)))
    return rows


async def _ledger(bootstrap: str) -> Ledger:
    async with await Cluster.connect(bootstrap, source="the demo") as cluster:
        return await read_ledger(cluster, window_ms=WINDOW_MS)


async def _tally(tier: Tier, topic: str) -> Tally:
    if tier.bootstrap is None:
        assert tier.root is not None
        return await asyncio.to_thread(tally_of_table, tier.root)
    tally = Tally(WINDOW_MS)

    def take(message: Any) -> None:
        tally.add(message.topic(), message.timestamp()[1], message.headers())

    async with await Cluster.connect(tier.bootstrap, source="the demo") as cluster:
        node = await cluster.topic(topic, fresh=True)
        within = await bounds(cluster, [TopicPartition(topic, one) for one in node.partitions])
        spans = {one: (span.start, span.end) for one, span in within.items()}
        await read_ranges(cluster, spans, take)
    return tally


def judge(name: str, sent: Sent, tally: Tally, publishers: Mapping[Origin, int], delays: Spread | None) -> TierRow:
    """What a tier has, held against what was sent. Pure."""
    messages = missing = extra = 0
    notes: list[str] = []
    states = set()
    for window in sorted(sent.keys() | tally.windows.keys()):
        judged = by_stamps(sent.get(window, {}), tally.windows.get(window, {}), publishers)
        messages += judged.messages or 0
        missing += judged.missing or 0
        extra += judged.extra or 0
        states.add(judged.state)
        notes += [*judged.producers, *filter(None, [judged.note])]
    numbers: dict[Origin, NumberSet] = {}
    unknown = {origin for origins in sent.values() for origin, one in origins.items() if one.unknown}
    for _, origin, found in tally:
        numbers.setdefault(origin, NumberSet()).update(found.numbers)
    for origin, seen in sorted(numbers.items()):
        ranges = seen.ranges
        if origin != UNSTAMPED and origin not in unknown and (len(ranges) != 1 or ranges[0][0] != 0):
            notes.append(f"the numbers of {origin.host} have holes: {ranges[:3]}")
            states.add(State.GAP)
    total = sum(one.messages for origins in sent.values() for one in origins.values())
    if not total:
        notes.append(f"no producer has published counts, so {HEADER} cannot be judged")
        states = {State.UNFINISHED}
    worst = next(one for one in (State.GAP, State.UNFINISHED, State.OK) if one in states or one is State.OK)
    return TierRow(
        name,
        total,
        messages,
        missing,
        extra,
        None if delays is None else delays.p50_ms,
        None if delays is None else delays.p99_ms,
        None if delays is None else delays.worst_ms,
        worst.value,
        "; ".join(notes) or None,
    )
