"""Why produce requests are slow: from brokers' times, read twice, to steps. Nothing here asks the cluster anything.

Times are those of a whole broker: no broker measures requests by topic.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from klog.names import counted
from klog.tools.why.causes import broker_steps
from klog.tools.why.steps import Known, Step

SLOW_MS: Final = 200.0
"""On average. A disk that is asked to flush takes some milliseconds, a slow one some ten."""
REQUESTS: Final = "kafka_network_requestmetrics_"
PARTS: Final = ("total", "local", "remote", "requestqueue", "responsesend")
FLUSHES: Final = "kafka_log_logflushstats_logflushrateandtimems"
PURGATORY: Final = "kafka_server_delayedoperationpurgatory_purgatorysize"
PATTERNS: Final = (*(f"{REQUESTS}{part}timems" for part in PARTS), FLUSHES, PURGATORY)

Reading = Mapping[tuple[str, str], float]
"""Of one broker: (metric's name, request or operation) -> value."""


@dataclass(frozen=True, slots=True)
class Pace:
    """A broker between two readings: means in milliseconds, None where nothing happened."""

    broker: int
    waiting: int
    """Produce requests that wait for others, at both times."""
    answered: int
    parts: Mapping[str, float]
    flush_ms: float | None


def pace(broker: int, before: Reading, after: Reading) -> Pace:
    def mean(name: str, label: str) -> float | None:
        count, total = (after.get((name + end, label), 0.0) - before.get((name + end, label), 0.0)
                        for end in ("_count", "_sum"))  # fmt: skip
        return total / count if count > 0 else None

    total = f"{REQUESTS}totaltimems_count", "Produce"
    waiting = min(before.get((PURGATORY, "Produce"), 0.0), after.get((PURGATORY, "Produce"), 0.0))
    parts = {part: took for part in PARTS if (took := mean(f"{REQUESTS}{part}timems", "Produce")) is not None}
    answered = int(after.get(total, 0.0) - before.get(total, 0.0))
    return Pace(broker, int(waiting), max(0, answered), parts, mean(FLUSHES, ""))


def why_slow(known: Known, leaders: Collection[int], replicas: Collection[int], paces: Sequence[Pace]) -> list[Step]:
    """Why produce requests to these leaders are slow; ``replicas`` have the same partitions."""
    by_broker = {one.broker: one for one in paces}
    for leader in sorted(leaders):
        one = by_broker.get(leader)
        if one is not None and _is_slow(one):
            return list(_slow(known, one, [by_broker[each] for each in sorted(replicas) if each in by_broker],
                                  sorted(replicas)))  # fmt: skip
    return []


def _is_slow(one: Pace) -> bool:
    return one.parts.get("total", 0.0) >= SLOW_MS or (one.waiting > 0 and not one.answered)


def _slow(known: Known, one: Pace, others: Sequence[Pace], replicas: Sequence[int]) -> Iterator[Step]:
    parts = {name: ms for name, ms in one.parts.items() if name != "total"}
    if "total" in one.parts:
        took = f"take {one.parts['total']:,.0f} ms on average"
        told = ", ".join(f"{name} {ms:,.0f} ms" for name, ms in parts.items())
        evidence = f"metrics {REQUESTS}*timems of a second: {told}"
    else:
        took = f"wait: {one.waiting} of them, and none was answered within a second"
        evidence = f"metric {PURGATORY}"
    yield known.step(f"produce requests to broker {one.broker} {took}", evidence)
    silent = [broker for broker in replicas if broker in known.snapshot.silent]
    if silent:
        yield known.step(f"they wait for in-sync replicas: broker {silent[0]} does not answer", "metadata")
        yield from broker_steps(known, silent[0])
        return
    worst = max(parts, key=lambda name: parts[name], default="remote")
    if worst == "remote":
        yield known.step("they wait for in-sync replicas and for flushes", f"{REQUESTS}remotetimems")
        yield _slowest_disk(known, one, others)
    elif worst == "local":
        do = f"look at the disk of broker {one.broker} (`iostat -x 1`), and at its processor"
        yield known.step(f"broker {one.broker} appends slowly", f"{REQUESTS}localtimems", do)
    elif worst == "requestqueue":
        do = "give it fewer partitions to lead (`klog reassign plan`), or more processors; `klog top`"
        yield known.step(f"broker {one.broker} is busy: requests wait", f"{REQUESTS}requestqueuetimems", do)
    else:
        do = "look at the network, and at producers that do not read their answers"
        yield known.step("clients take their answers slowly", f"{REQUESTS}responsesendtimems", do)


def _slowest_disk(known: Known, leader: Pace, others: Sequence[Pace]) -> Step:
    """The one among leader and followers that flushes slowest; one that flushes nothing while requests wait."""
    every = {one.broker: one for one in (leader, *others)}
    stuck = [one for one in every.values() if one.flush_ms is None]
    if stuck and leader.waiting:
        chosen = next((one for one in stuck if one.broker != leader.broker), stuck[0])
        names = " or ".join(f"broker {one.broker}" for one in stuck)
        evidence = f"metric {FLUSHES}: none of {counted(len(stuck), 'broker')} ended a flush within a second"
        do = f"look at the disk of {names} (`iostat -x 1`, the broker's log)"
        return known.step(f"broker {chosen.broker} ends no flush", evidence, do)
    worst = max(every.values(), key=lambda one: one.flush_ms or 0.0)
    if (worst.flush_ms or 0.0) >= SLOW_MS / 4:
        evidence = f"metric {FLUSHES}: {worst.flush_ms:,.0f} ms"
        do = f"look at the disk of broker {worst.broker} (`iostat -x 1`): another one, or a faster one"
        return known.step(f"broker {worst.broker} flushes slowly", evidence, do)
    do = "look at the network between the brokers; `klog metrics klog_replica_lag_bytes` shows who is behind"
    return known.step("a follower fetches slowly: no disk is slow", f"metric {FLUSHES}", do)
