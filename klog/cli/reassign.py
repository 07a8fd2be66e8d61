"""``klog reassign``: plan, execute, status, cancel: which brokers hold which partitions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from klog.admin import reassignment_file
from klog.cli import watching
from klog.cli.arguments import bytes_rate
from klog.cli.command import Noun
from klog.cli.flags import argument, duration, flag
from klog.cli.invocation import Invocation
from klog.cli.progress import counting
from klog.errors import UnknownTopicOrPartition, UsageError
from klog.metrics import Count
from klog.names import counted
from klog.render import Report
from klog.render.value_texts import size_text

if TYPE_CHECKING:
    from klog.admin.reassignment import ReassignRow

reassign = Noun("reassign", "Move replicas between brokers; change the replication factor.")

ROWS = "klog.admin.reassignment:ReassignRow"
WATCH_EVERY_S = 1.0

OptionalFile = Annotated[Path | None, argument("FILE", "Only the partitions of this plan, including finished ones.")]


def _brokers(words: Sequence[str] | None, flag: str) -> list[int]:
    """``1,2`` or the flag several times, as numbers."""
    try:
        return sorted({int(one) for word in words or () for one in word.split(",")})
    except ValueError:
        raise UsageError(f"{flag} {','.join(words or ())!r}: expected broker ids", hint="write 1,2,3") from None


@reassign.command("plan", rows=ROWS)
async def plan(
    invocation: Invocation,
    file: Path | None = flag("--file FILE", "Write the plan to FILE, and the plan that undoes it to FILE.rollback."),
    topics: list[str] | None = flag("--topics TOPIC,...", "Only these topics."),
    brokers: list[str] | None = flag(
        "--brokers ID,...", "Brokers to use; all others are emptied. All live brokers if not given."
    ),
    remove_broker: list[str] | None = flag("--remove-broker ID", "Move all replicas off this broker."),
    remove_host: list[str] | None = flag("--remove-host HOST", "Move all replicas off the brokers on this host."),
    replication_factor: int | None = flag("--replication-factor R", "New number of replicas per partition.", min=1),
) -> Report:
    """Plan a reassignment with few moves. Changes nothing.

    By default replicas and leaders are spread evenly over all live brokers. With --remove-broker, --remove-host or
    --replication-factor only the necessary replicas move. Each partition is spread over as many hosts as possible, and
    over as many racks, if the brokers have racks.
    """
    from klog.admin import reassignment as ops
    from klog.admin.brokers import brokers_on

    used, removed = _brokers(brokers, "--brokers"), _brokers(remove_broker, "--remove-broker")
    for host in remove_host or ():
        removed += await brokers_on(await invocation.cluster(), host)
    both = sorted(set(used) & set(removed))
    if both:
        raise UsageError(f"broker {both[0]} is in --brokers and in --remove-broker", hint="name it in one of them")
    rows = await ops.plan(
        await invocation.cluster(),
        topics=[one for word in topics or () for one in word.split(",")],
        brokers=used,
        removed=removed,
        factor=replication_factor,
        file=file,
    )
    if not rows:
        there = (await (await invocation.cluster()).metadata()).topics
        return invocation.report(rows, footer="no replica has to move" if there else "the cluster has no topics")
    moved = sum(len(set(row.to) - set(row.from_)) for row in rows)
    footer = f"{ops.summary(rows)}; {counted(moved, 'replica')} to be filled"
    then = f"written to {file}: klog reassign execute {file}" if file else "write it for execute with --file FILE"
    return invocation.report(rows, footer=footer, notes=(then,))


@reassign.command("execute", rows=ROWS, asks=True, changes=True, acts=True)
async def execute(
    invocation: Invocation,
    file: Path = argument("FILE", "A plan written by `reassign plan --file`.", ...),
    throttle: int | None = flag(
        "--throttle RATE", "Limit on what each broker receives, as 20MB/s; removed at the end.", parser=bytes_rate
    ),
    wait: float | None = flag("--wait DURATION", "Wait at most this long for completion.", parser=duration),
) -> Report:
    """Start the reassignment of a plan. Asks first. The brokers complete it by themselves.

    A partition that is already being reassigned gets the new target. To change the throttle, execute the plan again.
    """
    from klog.admin import reassignment as ops

    wanted = reassignment_file.read(file)
    cluster = await invocation.cluster()
    rows = await ops.preview(cluster, wanted)
    ops.refuse_failed(rows, file)
    todo = [row for row in rows if row.state != ops.DONE]
    if not todo:
        return invocation.report(rows, footer="nothing to do: all partitions match the plan")
    moved = sum(len(set(row.to) - set(row.from_)) for row in todo)
    limit = f", at most {size_text(throttle)}/s per broker" if throttle else ""
    what = f"{counted(len(todo), 'partition')}, {counted(moved, 'replica')} to be filled"
    alone = sum(len(row.to) == 1 < len(row.from_) for row in todo)
    risk = f"; {counted(alone, 'partition')} will have one replica, whose loss loses the messages" if alone else ""
    question = f"Reassign {what}{limit}{risk}"
    invocation.confirm(question, invocation.report(rows))
    rows = await ops.execute(cluster, rows, throttle or 0)
    if wait is not None:
        with counting(invocation, "bytes", sum(row.bytes_left or 0 for row in todo)) as copied:
            rows = await ops.wait(cluster, rows, wait, seen=partial(_count, copied))
    late = wait is not None and any(row.state not in (ops.DONE, ops.FAILED) for row in rows)
    notes = tuple(ops.reasons(rows))
    if late:
        notes = (*notes, f"not complete within {wait:g} s; it continues: klog reassign status --watch")
    return invocation.report(rows, footer=ops.summary(rows), notes=notes, failed=late)


def _count(copied: Count, rows: Sequence[ReassignRow]) -> None:
    """The bytes that have come, and the partitions that have all of theirs."""
    from klog.admin import reassignment as ops

    left = sum(row.bytes_left or 0 for row in rows)
    copied.total = max(copied.total or 0, left)  # producers go on
    copied.done = copied.total - left
    done = sum(row.state == ops.DONE for row in rows)
    copied.about = f"{done:,} of {counted(len(rows), 'partition')} moved"


@reassign.command("status", rows=ROWS)
async def status(
    invocation: Invocation,
    file: OptionalFile = None,
    watch: bool = flag("--watch", "Refresh every second until no reassignment is in progress."),
) -> Report | int:
    """Show reassignments in progress: bytes copied and left, time of completion, and why one is stalled."""
    from klog.admin import reassignment as ops

    wanted = None if file is None else reassignment_file.read(file)
    watching.check_watchable(invocation, watch=watch)
    cluster = await invocation.cluster()

    async def told(rows: list[ReassignRow]) -> Report:
        missing = {row.topic for row in rows if row.error == UnknownTopicOrPartition.code}
        notes = *ops.reasons(rows), *await invocation.restore_notes(missing)
        return invocation.report(rows, footer=ops.summary(rows), notes=notes)

    if not watch:
        return await told(await ops.status(cluster, wanted))
    before: ops.Look | None = None

    async def look() -> Report:
        nonlocal before
        now = await ops.look(cluster)
        rows, before = ops.rows_of(now, before), now
        return await told(rows if wanted is None else await ops.of_plan(cluster, wanted, rows))

    return await watching.watch(
        invocation, look, WATCH_EVERY_S, is_over=lambda: before is not None and not before.underway
    )


@reassign.command("cancel", rows=ROWS, asks=True, changes=True, acts=True)
async def cancel(invocation: Invocation, file: OptionalFile = None) -> Report:
    """Cancel reassignments in progress: each partition returns to its old replicas. Asks first."""
    from klog.admin import reassignment as ops

    wanted = None if file is None else reassignment_file.read(file)
    cluster = await invocation.cluster()
    rows = await ops.cancellable(cluster, wanted)
    if not rows:
        return invocation.report(rows, footer="nothing to cancel: no reassignment is in progress")
    invocation.confirm(f"Cancel the reassignment of {counted(len(rows), 'partition')}", invocation.report(rows))
    rows = await ops.cancel(cluster, rows)
    return invocation.report(rows, footer=ops.summary(rows), notes=ops.reasons(rows))
