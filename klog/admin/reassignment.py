"""The verbs of a reassignment: plan it, begin it, see how far it is, take it back.

The cluster moves replicas, also when the client that asked for it is gone; this module asks for it and looks.
Bytes show how far a replica is: those on the brokers that are being filled, beside those of the leader.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from klog.admin import reassignment_file
from klog.admin.reassignment_file import Plan
from klog.client.cluster import Cluster
from klog.client.metadata import Metadata
from klog.client.reassignments import Reassigning, alter_reassignments, describe_reassignments, replica_bytes
from klog.errors import BrokerNotAvailable, KlogError, Refused, UnknownTopicOrPartition
from klog.names import INTERNAL_TOPICS, TopicPartition, counted, first_few
from klog.render.columns import MayFail
from klog.replication.placement import Site
from klog.replication.reassignment import Goal, Move, choose
from klog.replication.reassignment import plan as plan_moves

LOOK_EVERY_S = 0.25
SAMPLE_S = 0.7
"""Between two looks at the bytes there are, where one command has to tell how fast they come."""

PLANNED = "planned"
DONE = "done"
WAITING = "waiting"
FAILED = "failed"
CANCELLING = "cancelling"


@dataclass(frozen=True, slots=True)
class ReassignRow(MayFail):
    """One partition on its way. What is not known (its leader does not answer, it is not klog) is None.

    `state`: planned, waiting (not begun), copying, stalled (then `reason` says why), cancelling, done, failed. `eta`:
    when the last byte will be there if they go on coming as they do. `throttle`: bytes a second that each broker takes
    in.
    """

    topic: str
    partition: int
    from_: tuple[int, ...]
    to: tuple[int, ...]
    state: str
    percent: float | None
    bytes_left: int | None
    eta: datetime | None
    throttle: int | None = field(default=None, metadata={"wide": True})
    reason: str | None = field(default=None, metadata={"wide": True})

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Look(NamedTuple):
    """What was under way at a moment, and how many bytes of each partition were still to come.

    `into`: how many bytes of all of them were still to come into each broker.
    """

    at: datetime
    underway: dict[TopicPartition, Reassigning]
    left: dict[TopicPartition, int | None]
    total: dict[TopicPartition, int | None]
    into: Counter[int]


# --- plan -------------------------------------------------------------------------------------------------------------


async def plan(
    cluster: Cluster,
    *,
    topics: Collection[str] = (),
    brokers: Collection[int] = (),
    removed: Collection[int] = (),
    factor: int | None = None,
    file: Path | None = None,
) -> list[ReassignRow]:
    """What would move, and with `file` written there, with the plan that undoes it beside it. Nothing is changed.

    Brokers to be removed, or another factor: only what must move does. `brokers`: replicas are on these alone, evenly.
    Nothing of these: evenly over the live brokers, with the fewest moves. Partitions that are being reassigned count
    as being where they are to be. klog's internal topics get fewer replicas where
    too few brokers are left. Raises BrokerNotAvailable, UnknownTopicOrPartition, InvalidReplicationFactor.
    """
    metadata = await cluster.metadata(fresh=True)
    current = await _placement(cluster, metadata)
    sites = {one.broker_id: Site(one.rack or "", one.host) for one in metadata.brokers.values()}
    holding = {one for ids in current.values() for one in ids}
    _check_brokers(brokers, set(sites), "--brokers")
    _check_brokers(removed, sites.keys() | holding, "--remove-broker")
    for topic in topics:
        if topic not in metadata.topics:
            await cluster.topic(topic)  # raises, with the topics that have such a name
    chosen = choose(current, topics) if topics else current
    usable = {one: site for one, site in sites.items() if not brokers or one in brokers}
    emptied = set(removed) | (holding - set(brokers) if brokers else set())
    only_what_must = bool(removed or factor is not None) and not brokers
    moves = plan_moves(
        chosen,
        usable,
        goal=Goal.KEEP if only_what_must else Goal.BALANCE,
        emptied=emptied,
        factor=factor,
        may_shrink=INTERNAL_TOPICS,
    )
    if file is not None:
        reassignment_file.write(reassignment_file.rollback_path(file), {move.partition: move.before for move in moves})
        reassignment_file.write(file, {move.partition: move.after for move in moves})
    return await _planned_rows(cluster, metadata, moves)


def _check_brokers(named: Collection[int], there: Collection[int], flag: str) -> None:
    wrong = sorted(set(named) - set(there))
    if wrong:
        raise BrokerNotAvailable(
            f"{flag}: no broker {wrong[0]}; there are {', '.join(map(str, sorted(there))) or 'none'}"
        )


async def _placement(cluster: Cluster, metadata: Metadata) -> dict[TopicPartition, tuple[int, ...]]:
    """Where every partition is, or is to be."""
    placed = {
        TopicPartition(topic.name, one.partition): one.replicas
        for topic in metadata.topics.values()
        for one in topic.partitions.values()
    }
    return {**placed, **{one.partition: one.target for one in await describe_reassignments(cluster)}}


async def _planned_rows(cluster: Cluster, metadata: Metadata, moves: Sequence[Move]) -> list[ReassignRow]:
    copied = [move for move in moves if move.copied]
    leaders = {move.partition: metadata.leader_of(move.partition) for move in copied}
    sizes = await replica_bytes(
        cluster, sorted({one for one in leaders.values() if one is not None}), [move.partition for move in copied]
    )
    rows = []
    for move in moves:
        leader = leaders.get(move.partition)
        size = sizes.get(-1 if leader is None else leader, {}).get(move.partition)
        left = 0 if not move.copied else None if size is None else size * len(move.copied)
        rows.append(
            ReassignRow(*move.partition, move.before, move.after, PLANNED, 0.0 if move.copied else 100.0, left, None)
        )
    return rows


# --- execute ----------------------------------------------------------------------------------------------------------


async def preview(cluster: Cluster, wanted: Plan) -> list[ReassignRow]:
    """What executing a plan would do; failed rows where it cannot be done. Nothing is changed."""
    metadata = await cluster.metadata(fresh=True)
    current = await _placement(cluster, metadata)
    moves = [
        Move(name, current[name], target)
        for name, target in wanted.items()
        if name in current and current[name] != target
    ]
    rows = {row.name: row for row in await _planned_rows(cluster, metadata, moves)}
    # Asked for again, one that is under way may be given another throttle.
    rows |= {row.name: row for row in rows_of(await look(cluster)) if wanted.get(row.name) == row.to}
    for name, target in wanted.items():
        error = _objection(metadata, current, name, target)
        if error is not None:
            before = current.get(name, ())
            rows[name] = ReassignRow(*name, before, target, FAILED, None, None, None).failed_by(error)
        elif name not in rows:
            rows[name] = ReassignRow(*name, target, target, DONE, 100.0, 0, None)
    return [rows[name] for name in sorted(rows)]


def _objection(
    metadata: Metadata,
    current: Mapping[TopicPartition, tuple[int, ...]],
    name: TopicPartition,
    target: Sequence[int],
) -> KlogError | None:
    if (error := metadata.lacking(name)) is not None:
        return error
    away = [one for one in target if one not in metadata.brokers and one not in current[name]]
    if away:
        live = ", ".join(map(str, sorted(metadata.brokers)))
        return BrokerNotAvailable(f"{name} needs broker {away[0]}, which is not alive; live brokers: {live}")
    return None


async def execute(cluster: Cluster, rows: Sequence[ReassignRow], throttle: int = 0) -> list[ReassignRow]:
    """Begin what a preview shows; the rows as they are then, with what the controller refused."""
    wanted = {row.name: row.to for row in rows if row.state != DONE and row.error is None}
    refused = await alter_reassignments(cluster, wanted, throttle)
    return await _after(cluster, rows, refused)


async def cancel(cluster: Cluster, rows: Sequence[ReassignRow]) -> list[ReassignRow]:
    """Take back what `cancellable` found; the rows as they are then."""
    refused = await alter_reassignments(cluster, dict.fromkeys([row.name for row in rows]))
    return await _after(cluster, rows, refused)


async def cancellable(cluster: Cluster, wanted: Plan | None = None) -> list[ReassignRow]:
    """What is under way, of a plan's partitions or of all, on its way back to where it was."""
    found = await look(cluster)
    return [
        ReassignRow(*name, one.target, one.origin, PLANNED, None, 0, None, one.throttle or None)
        for name, one in found.underway.items()
        if wanted is None or name in wanted
    ]


async def _after(
    cluster: Cluster, rows: Sequence[ReassignRow], refused: Mapping[TopicPartition, KlogError | None]
) -> list[ReassignRow]:
    now = {row.name: row for row in rows_of(await look(cluster))}
    found = []
    for row in rows:
        error = refused.get(row.name)
        if row.error is not None:
            found.append(row)
        elif error is not None:
            found.append(replace(row, state=FAILED, percent=None, bytes_left=None).failed_by(error))
        else:
            found.append(now.get(row.name) or replace(row, state=DONE, percent=100.0, bytes_left=0))
    return found


async def wait(
    cluster: Cluster,
    rows: Sequence[ReassignRow],
    within_s: float,
    *,
    seen: Callable[[Sequence[ReassignRow]], None] = lambda rows: None,
) -> list[ReassignRow]:
    """Until all of these are done, or the time has passed; the rows as they are then. ``seen`` gets them meanwhile."""
    deadline = asyncio.get_running_loop().time() + within_s
    while True:
        rows = await _after(cluster, rows, {})
        seen(rows)
        if all(row.state in (DONE, FAILED) for row in rows) or asyncio.get_running_loop().time() > deadline:
            return list(rows)
        await asyncio.sleep(LOOK_EVERY_S)


# --- status -----------------------------------------------------------------------------------------------------------


async def status(cluster: Cluster, wanted: Plan | None = None) -> list[ReassignRow]:
    """What is under way; with a plan, each of its partitions, also those that are done or wait to be begun."""
    first = await look(cluster)
    second = None
    if any(first.left.values()):
        await asyncio.sleep(SAMPLE_S)
        second = await look(cluster)
    rows = rows_of(second or first, first if second else None)
    return rows if wanted is None else await of_plan(cluster, wanted, rows)


async def of_plan(cluster: Cluster, wanted: Plan, rows: Sequence[ReassignRow]) -> list[ReassignRow]:
    """These rows for the partitions of a plan, and a row for each other partition of it."""
    there = {row.name: row for row in rows}
    found = []
    for row in await preview(cluster, wanted):
        if row.name in there:
            found.append(there[row.name])
        else:
            found.append(replace(row, state=WAITING) if row.state == PLANNED else row)
    return found


async def look(cluster: Cluster) -> Look:
    """What is under way now, and how many bytes are there of it."""
    underway = {one.partition: one for one in await describe_reassignments(cluster)}
    if not underway:
        return Look(datetime.now(UTC), {}, {}, {}, Counter())
    metadata = await cluster.metadata([], fresh=True)
    asked = {one.leader for one in underway.values() if one.leader is not None}
    asked |= {broker_id for one in underway.values() for broker_id in one.copied}
    sizes = await replica_bytes(cluster, sorted(asked & metadata.brokers.keys()), underway)
    left: dict[TopicPartition, int | None] = dict.fromkeys(underway)
    total: dict[TopicPartition, int | None] = dict.fromkeys(underway)
    into: Counter[int] = Counter()
    for name, one in underway.items():
        whole = sizes.get(-1 if one.leader is None else one.leader, {}).get(name)
        if whole is None:
            continue
        missing = {
            broker_id: max(0, whole - sizes.get(broker_id, {}).get(name, 0))
            for broker_id in one.copied
            if broker_id in one.missing
        }
        total[name], left[name] = whole * len(one.copied), sum(missing.values())
        into.update(missing)
    return Look(datetime.now(UTC), underway, left, total, into)


def rows_of(now: Look, before: Look | None = None) -> list[ReassignRow]:
    """A row for each that is under way; with an earlier look also when it will be done."""
    return [
        ReassignRow(
            *name,
            one.origin,
            one.target,
            CANCELLING if set(one.origin) == set(one.target) and not one.reason else one.state,
            _percent(one, now.left[name], now.total[name]),
            now.left[name],
            _eta(name, now, before),
            one.throttle or None,
            one.reason or None,
        )
        for name, one in sorted(now.underway.items())
    ]


def _percent(one: Reassigning, left: int | None, total: int | None) -> float | None:
    """Never 100 while a replica is not in sync: the last bytes are always on their way."""
    if left is None or total is None:
        return None
    done = 100.0 if total == 0 else 100 * (1 - left / total)
    return min(round(done, 1), 99.9 if one.missing else 100.0)


def _eta(name: TopicPartition, now: Look, before: Look | None) -> datetime | None:
    """By how fast they have come since the earlier look; by the throttle where none has come since."""
    left, one = now.left[name], now.underway[name]
    if left is None or one.reason:
        return None
    earlier = None if before is None else before.left.get(name)
    if left and before is not None and earlier is not None and earlier > left:
        per_s = (earlier - left) / max((now.at - before.at).total_seconds(), 1e-6)
        return now.at + timedelta(seconds=left / per_s)
    if left and one.throttle:
        return now.at + timedelta(seconds=max(now.into[broker_id] for broker_id in one.missing) / one.throttle)
    return None if left else now.at


def summary(rows: Sequence[ReassignRow]) -> str:
    """A sentence for a person: how many are where, how many bytes are left."""
    if not rows:
        return "no reassignment is in progress"
    states = ", ".join(f"{count} {state}" for state, count in Counter(row.state for row in rows).items())
    left = sum(row.bytes_left or 0 for row in rows)
    return f"{counted(len(rows), 'partition')}: {states}" + (f"; {counted(left, 'byte')} to copy" if left else "")


def reasons(rows: Sequence[ReassignRow]) -> tuple[str, ...]:
    """Why those that stand still do so, each reason once."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if row.reason:
            found.setdefault(row.reason, []).append(str(row.name))
    return tuple(f"{first_few(names, 1)}: stalled, {reason}" for reason, names in found.items())


def refuse_failed(rows: Sequence[ReassignRow], file: Path) -> None:
    """Refused where the preview of a file has rows that cannot be done: a plan is executed whole or not at all."""
    failed = [row for row in rows if row.error is not None]
    if failed:
        more = f" ({len(failed) - 1} more errors)" if len(failed) > 1 else ""
        said, hint = f"{file}: {failed[0].message}{more}", "nothing was started; make a new plan"
        if failed[0].error == UnknownTopicOrPartition.code:
            raise UnknownTopicOrPartition(said, hint=hint, topic=failed[0].topic)
        raise Refused(said, hint=hint)
